//! The metadata block of a table: read at the opening, changed in one copy after the other.

use std::path::Path;

use bytemuck::Zeroable;

use super::Table;
use super::recovery::Recovery;
use crate::column::metadata::USER_METADATA_MAX;
use crate::layout::{KeyClass, METADATA, Metadata, MetadataPage, Shape, Superblock};
use crate::pm::Medium;
use crate::sync::Ordering;
use crate::{Error, Result};

/// Bytes that are stored together, or not at all if they stay the same.
const LINE_BYTES: usize = 64;

/// What a table keeps of its metadata block.
#[derive(Debug, Default)]
pub(super) struct MetadataBlock {
    /// What the copy that holds says. Its version may be one that no sync has published yet.
    current: Metadata,
    generation: u64,
    /// The version that was published last.
    published: u64,
}

/// A metadata block as an opening has found it.
pub(crate) struct FoundMetadata {
    pub(crate) metadata: Metadata,
    generation: u64,
    /// Both copies are whole, so that none newer than this one was lost.
    is_whole: bool,
    /// What is wrong with it, if nothing of it can be used.
    damage: Option<String>,
}

impl<M: Medium> Table<M> {
    /// Writes a new table's metadata block.
    pub(super) fn create_metadata(&self, metadata: Metadata) {
        let mut block = self.metadata.lock();
        block.published = metadata.version;
        block.current = metadata;
        self.write_metadata(&mut block);
    }

    /// Finds what the file says of itself.
    ///
    /// # Errors
    /// [`Error::Damaged`] if neither copy is whole, or the newer one says what no index has; with
    /// `may_lack` the table has no key kind, columns and bytes of the user then.
    pub(crate) fn find_metadata(
        medium: &M,
        shape: &Shape,
        path: &Path,
        may_lack: bool,
    ) -> Result<FoundMetadata> {
        let copies = METADATA.map(|at| {
            let mut copy = MetadataPage::zeroed();
            medium.read(at, bytemuck::bytes_of_mut(&mut copy));
            copy
        });
        let found = match MetadataPage::find(&copies) {
            None => Err((METADATA[0], "neither copy has a valid checksum".to_owned())),
            Some((newest, is_whole)) => newest
                .decode(shape.key_size, shape.value_size)
                .map(|metadata| FoundMetadata {
                    metadata,
                    generation: newest.generation,
                    is_whole,
                    damage: None,
                })
                .map_err(|found| (METADATA[newest.copy()], found)),
        };
        match found {
            Err((at, found)) if !may_lack => Err(Error::Damaged {
                path: path.to_path_buf(),
                what: "metadata",
                at,
                found,
            }),
            Err((at, found)) => Ok(FoundMetadata {
                metadata: Metadata::default(),
                generation: 0,
                is_whole: false,
                damage: Some(format!(
                    "metadata at byte {at}: {found}; key kind, columns, version and user bytes are not known"
                )),
            }),
            Ok(found) => Ok(found),
        }
    }

    /// Takes what was found, once everything else of the table is repaired. Publishes a version if the table
    /// may not be in the state of the one that was found.
    pub(super) fn restore_metadata(
        &self,
        found: FoundMetadata,
        superblock: &Superblock,
        is_torn: bool,
        recovery: &mut Recovery,
    ) {
        recovery.damage.extend(found.damage);
        let mut block = self.metadata.lock();
        block.published = found.metadata.version;
        block.current = found.metadata;
        // As with the superblock: a write that the crash has torn must not become whole by the next one.
        block.generation = found.generation + if superblock.is_clean() { 0 } else { 2 };
        // A file that names a journal is as its last checkpoint has left it. Others may hold what was stored
        // since.
        let is_published = superblock.is_clean() || superblock.journal_id != 0;
        let is_as_published = is_published && !is_torn && recovery.damage.is_empty();
        if is_as_published && found.is_whole || self.shape.key_class() == KeyClass::Variable {
            return;
        }
        // The copy that was lost may have been newer, by one version.
        block.current.version += if found.is_whole { 1 } else { 2 };
        self.write_metadata(&mut block);
        block.published = block.current.version;
    }

    /// Writes the block into both copies, one durably after the other as far as the domain goes, so that a copy
    /// that is damaged later loses nothing.
    fn write_metadata(&self, block: &mut MetadataBlock) {
        for _ in METADATA {
            self.write_copy(block);
        }
    }

    /// Writes the next generation to the copy that does not hold. Only the lines of it that change are stored.
    fn write_copy(&self, block: &mut MetadataBlock) {
        block.generation += 1;
        let page = MetadataPage::new(&block.current, block.generation);
        let mut before = MetadataPage::zeroed();
        let at = METADATA[page.copy()];
        self.medium.read(at, bytemuck::bytes_of_mut(&mut before));
        let lines = |page| <[u8]>::chunks(page, LINE_BYTES);
        let (old, new) = (bytemuck::bytes_of(&before), bytemuck::bytes_of(&page));
        // What a version covers must be durable before it.
        self.medium.fence();
        for (nth, (old, new)) in lines(old).zip(lines(new)).enumerate() {
            if old != new {
                self.persist_later(at + (nth * LINE_BYTES) as u64, new);
            }
        }
        self.medium.fence();
    }

    /// What the file says of itself, with the version that was published last.
    pub(crate) fn metadata(&self) -> Metadata {
        let block = self.metadata.lock();
        let mut metadata = block.current.clone();
        metadata.version = block.published;
        metadata
    }

    /// Replaces the bytes of the user.
    ///
    /// # Errors
    /// [`Error::TooLong`]; nothing was done.
    pub(crate) fn set_user_metadata(&self, user: &[u8]) -> Result<()> {
        if user.len() > USER_METADATA_MAX {
            return Err(Error::TooLong {
                what: "user metadata",
                found: user.len() as u64,
                limit: USER_METADATA_MAX as u64,
            });
        }
        let _gate = self.store_gate();
        let mut block = self.metadata.lock();
        block.current.user = user.to_vec();
        self.write_metadata(&mut block);
        self.note_change();
        Ok(())
    }

    /// Notes that the table may differ from the version that was published last. To be called after the
    /// change.
    pub(crate) fn note_change(&self) {
        self.is_changed.store(true, Ordering::Release);
    }

    /// Makes everything so far durable, as [`sync`](Self::sync) does, as the next version. A version that could
    /// not be published is used up.
    ///
    /// # Errors
    /// As [`sync`](Self::sync).
    pub(crate) fn publish(&self) -> Result<()> {
        self.publish_after(|| Ok(()))
    }

    /// As [`publish`](Self::publish), once others are done that do. What `prepare` gives is dropped as soon as changes may
    /// go on.
    ///
    /// # Errors
    /// As there, and those of `prepare`.
    pub(crate) fn publish_after<T>(&self, prepare: impl FnOnce() -> Result<T>) -> Result<()> {
        let _alone = self.syncing.lock();
        let prepared = prepare()?;
        // A change that ends from here on is noted after this.
        self.is_changed.store(false, Ordering::Release);
        let version = self.begin_version();
        let captured = self.capture();
        drop(prepared);
        let published = captured.and_then(|()| self.complete());
        match &published {
            Ok(()) => {
                self.metadata.lock().published = version;
                self.release_later();
            }
            Err(_) => self.note_change(),
        }
        published
    }

    /// Makes what a clean close is about to leave the next version, if the table has changed since the last
    /// one.
    pub(crate) fn begin_last_version(&self) {
        if self.is_changed.load(Ordering::Acquire) {
            self.begin_version();
        }
    }

    /// Writes down the next version and gives it. It is published when it is durable, with all before it.
    fn begin_version(&self) -> u64 {
        let _gate = self.store_gate();
        let mut block = self.metadata.lock();
        block.current.version += 1;
        self.write_metadata(&mut block);
        block.current.version
    }
}
