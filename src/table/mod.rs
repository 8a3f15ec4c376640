//! The table in its medium, below the engines: what stands in it as bytes, and every operation on it.

pub(crate) mod alloc;
#[cfg(feature = "cuda")]
mod changed_slots;
mod checkpoint;
pub(crate) mod compact;
pub(crate) mod extents;
mod free_extents;
pub(crate) mod idle;
pub(crate) mod item;
pub(crate) mod iter;
pub(crate) mod key;
pub(crate) mod maintenance;
mod metadata;
pub(crate) mod ops;
pub(crate) mod probe;
pub(crate) mod probe_hint;
pub(crate) mod record;
pub(crate) mod recovery;
pub(crate) mod resize;
pub(crate) mod room;
mod session;
pub(crate) mod shrink;
mod slots;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64};
use std::time::Duration;

use crossbeam_utils::CachePadded;

use crate::layout::{ExtentKind, KeyClass, Metadata, Shape, Superblock};
use crate::metrics::counts::Counts;
use crate::pm::Medium;
use crate::process;
#[cfg(feature = "cuda")]
use crate::sync::changed_slots::ChangedSlots;
use crate::sync::levels::{LevelTable, Levels};
use crate::sync::overflow::OverflowMaps;
use crate::sync::tags::Tags;
#[cfg(feature = "cuda")]
use crate::sync::thread_number;
use crate::sync::{Mutex, Ordering, RwLock};
use crate::{Error, Result};
use alloc::arena::Arena;
use alloc::epoch::Epochs;
use alloc::free_list::FreeList;
pub(crate) use checkpoint::read_superblock;
use free_extents::FreeExtents;
use idle::IdleCompaction;
use maintenance::Maintenance;
use metadata::MetadataBlock;
use resize::Resize;
pub use session::Session;
use shrink::Shrinking;

/// A new table has a record for each item that is expected, and one in so many more.
const SPARE_RECORDS_SHARE: u64 = 8;

/// A table of keys and values in a medium, without knowing their types.
pub struct Table<M> {
    pub(crate) medium: M,
    pub(crate) shape: Shape,
    pub(crate) hash_seed: u64,
    pub(crate) levels: LevelTable,
    pub(crate) overflow: OverflowMaps,
    pub(crate) tags: Tags,
    pub(crate) arena: Arena,
    pub(crate) epochs: Epochs,
    pub(crate) resize: Mutex<Resize>,
    pub(crate) maintenance: Maintenance,
    pub(crate) free_list: Mutex<FreeList>,
    free_extents: Mutex<FreeExtents>,
    /// Every operation looks at it. On a line of its own, whose neighbours they do not write.
    shrinking: CachePadded<Shrinking>,
    /// Whether a device has pinned the file's pages.
    is_pinned: AtomicBool,
    pub(crate) items: AtomicI64,
    /// Bytes of the records that items name. Counted from the creation or from
    /// [`count_record_bytes`](Self::count_record_bytes) on.
    record_bytes: AtomicI64,
    pub(crate) counts: Counts,
    superblock: Mutex<Superblock>,
    metadata: Mutex<MetadataBlock>,
    /// Whether the table may differ from the version that was published last. Every batch that changes it
    /// stores here, before it lets checkpoints pass, so it shares no line with what others read. No operation reads
    /// it, so models need not see it.
    is_changed: CachePadded<AtomicBool>,
    /// Held shared by whoever stores into a `Checkpointed` medium, alone by a checkpoint.
    gate: RwLock<()>,
    /// Held by who makes a checkpoint, so that nobody waits for another one with the gate in hand.
    syncing: Mutex<()>,
    #[cfg(feature = "cuda")]
    changed_slots: ChangedSlots,
    /// Whether readers compare the checksums of records.
    verifies_records: bool,
    path: PathBuf,
}

impl<M: Medium> Table<M> {
    /// Writes a new, empty table of `shape` with room for `capacity` items.
    ///
    /// # Errors
    /// [`Error::NoSpace`] and [`Error::Limit`].
    pub fn create(medium: M, shape: Shape, capacity: u64, path: &Path) -> Result<Self> {
        Self::create_described(medium, shape, Metadata::default(), capacity, path)
    }

    /// As [`create`](Self::create), with what the file says of itself.
    pub(crate) fn create_described(
        medium: M,
        shape: Shape,
        metadata: Metadata,
        capacity: u64,
        path: &Path,
    ) -> Result<Self> {
        let superblock = Superblock::new(&shape, process::random_id(), process::random_number());
        Self::create_with(medium, superblock, shape, metadata, capacity, path)
    }

    /// As [`create_described`](Self::create_described), with the file id and the seed of a superblock.
    pub(crate) fn create_with(
        medium: M,
        superblock: Superblock,
        shape: Shape,
        metadata: Metadata,
        capacity: u64,
        path: &Path,
    ) -> Result<Self> {
        let table = Self::with_superblock(medium, superblock, shape, path);
        table.create_metadata(metadata);
        let top = shape.top_level_for(capacity);
        if top > Shape::MAX_LEVEL {
            return Err(table.limit("the top level", u64::from(top), u64::from(Shape::MAX_LEVEL)));
        }
        {
            let mut superblock = table.superblock();
            for level in top + 1 - shape.levels..=top {
                let offset = table.append_extent(
                    &mut superblock,
                    ExtentKind::Level,
                    level,
                    shape.level_len(level),
                )?;
                superblock.level_directory[level as usize] = offset;
                table.add_tags(level, Tags::add_empty)?;
            }
            superblock.top_level = top;
            superblock.bottom_level = top + 1 - shape.levels;
            // How long items of variable length are, nobody knows yet.
            let records = match shape.key_class() {
                KeyClass::Variable => None,
                // Records that were replaced are not free at once, so there are some more than items.
                KeyClass::Word | KeyClass::Wide => {
                    let len = (capacity + capacity / SPARE_RECORDS_SHARE) * shape.record_stride;
                    Some(table.append_arena(&mut superblock, 0, len)?)
                }
            };
            table.commit(&mut superblock);
            if let Some((offset, len)) = records {
                table.arena.add_extent(0, offset, len);
            }
            for level in superblock.bottom_level..=top {
                table.publish_level(&superblock, level);
            }
        }
        Ok(table)
    }

    /// A table around a superblock, without levels and arena yet.
    pub(crate) fn with_superblock(
        medium: M,
        superblock: Superblock,
        shape: Shape,
        path: &Path,
    ) -> Self {
        let levels = Levels::new(superblock.top_level, superblock.bottom_level);
        Self {
            medium,
            shape,
            hash_seed: superblock.hash_seed,
            levels: LevelTable::new(levels, &superblock.level_directory),
            overflow: OverflowMaps::default(),
            tags: Tags::new(&shape),
            arena: Arena::new((0..shape.classes()).map(|class| shape.record_size(class))),
            epochs: Epochs::default(),
            resize: Mutex::new(Resize::default()),
            maintenance: Maintenance::default(),
            free_list: Mutex::default(),
            free_extents: Mutex::default(),
            shrinking: CachePadded::default(),
            is_pinned: AtomicBool::new(false),
            items: AtomicI64::new(0),
            record_bytes: AtomicI64::new(0),
            counts: Counts::default(),
            superblock: Mutex::new(superblock),
            metadata: Mutex::default(),
            is_changed: CachePadded::new(AtomicBool::new(false)),
            gate: RwLock::new(()),
            syncing: Mutex::new(()),
            #[cfg(feature = "cuda")]
            changed_slots: ChangedSlots::default(),
            verifies_records: true,
            path: path.to_path_buf(),
        }
    }

    /// Says whether readers compare the checksums of records; by default they do.
    pub(crate) fn verify_records(&mut self, verify: bool) {
        self.verifies_records = verify;
    }

    #[inline]
    pub(crate) fn verifies_records(&self) -> bool {
        self.verifies_records
    }

    /// Says after how long a rest the table, one of so many that are one index, is compacted by itself; never if
    /// `None`.
    pub(crate) fn compact_after(&mut self, rest: Option<Duration>, tables: u64) {
        self.maintenance.idle = IdleCompaction::new(rest, tables);
    }

    /// Says whether a device pins the file's pages: none goes back to the file system then. Waits for those that are
    /// on their way.
    #[cfg(feature = "cuda")]
    pub(crate) fn set_pinned(&self, is_pinned: bool) {
        self.is_pinned.store(is_pinned, Ordering::Relaxed);
        while is_pinned && !self.free_extents().fill() {
            crate::sync::pause();
        }
    }

    /// Path of the file, for errors.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Items in the table. Batches that run count when they end.
    pub fn len(&self) -> u64 {
        self.items.load(Ordering::Relaxed).max(0).cast_unsigned()
    }

    /// Bytes of the live levels.
    pub(crate) fn level_bytes(&self) -> u64 {
        let levels = self.levels.live();
        let levels = (levels.bottom..=levels.top).map(|level| self.shape.level_len(level));
        levels.sum()
    }

    /// Bytes of the records that items name, if they [were counted](Self::count_record_bytes).
    pub(crate) fn record_bytes(&self) -> u64 {
        self.record_bytes
            .load(Ordering::Relaxed)
            .max(0)
            .cast_unsigned()
    }

    /// Counts the bytes of the records in use; from then on the count is kept. It reads the whole
    /// chain of free records. Nothing else may run beside it.
    pub(crate) fn count_record_bytes(&self) {
        while self.read_free_list() {}
        let bytes = self.arena.taken_bytes();
        self.record_bytes
            .store(bytes.cast_signed(), Ordering::Relaxed);
    }

    /// Slots of all live levels.
    pub(crate) fn slots(&self) -> u64 {
        let levels = self.levels.live();
        (levels.bottom..=levels.top)
            .map(|level| u64::from(self.shape.slots) << level)
            .sum()
    }

    /// Makes a level of the superblock visible to operations.
    pub(crate) fn publish_level(&self, superblock: &Superblock, level: u32) {
        let offset = superblock.level_directory[level as usize];
        let map = offset + self.shape.buckets_len(level);
        let words = self.shape.overflow_len(level) / 8;
        self.overflow.add(
            level,
            (0..words).map(|word| self.medium.load(map + word * 8)),
        );
        let levels = Levels::new(superblock.top_level, superblock.bottom_level);
        self.levels.publish(levels, level, offset);
    }

    /// Adds the tags of a level that is not visible yet, by `add`.
    pub(crate) fn add_tags(
        &self,
        level: u32,
        add: impl FnOnce(&Tags, u32) -> std::io::Result<()>,
    ) -> Result<()> {
        add(&self.tags, level).map_err(|source| Error::io(&self.path, "hold the tags of", source))
    }

    /// Counts what an engine's batch has done.
    #[cfg(feature = "cuda")]
    pub(crate) fn count_batch(&self, operations: u64, items: i64, touches: u64) {
        self.counts.add(thread_number(), operations, touches);
        let before = self.items.fetch_add(items, Ordering::Relaxed);
        let bytes = |items: i64| items.saturating_mul(self.shape.record_stride.cast_signed());
        let idle = &self.maintenance.idle;
        if idle.note_bytes(bytes(before), bytes(before + items)) {
            self.maintenance.wake();
        }
    }

    pub(crate) fn limit(&self, what: &'static str, needed: u64, limit: u64) -> Error {
        Error::Limit {
            path: self.path.clone(),
            what,
            needed,
            limit,
        }
    }

    pub(crate) fn damaged(&self, what: &'static str, at: u64, found: String) -> Error {
        Error::Damaged {
            path: self.path.clone(),
            what,
            at,
            found,
        }
    }
}
