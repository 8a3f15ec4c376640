//! Reading a file: its properties are kept in memory; all else is read when it is needed, and stays while there is room.

use std::cmp::Ordering;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering as Atomic};

use gphash_block::VALUE_BYTES_MAX;
use gphash_block::data::{Block, Decoded};
use gphash_block::frame::{self, BLOCK_HEADER};
use gphash_block::index::{BlockHandle, Index};
use gphash_block::properties::Properties;

use super::{FOOTER, FORMAT, Footer, damaged, header, name};
use crate::lsm::cache::{FileCache, FileKind, with_descriptors};
use crate::lsm::header::{HEADER, Header};
use crate::lsm::values::{Value, ValueFile, ValueRef};
use crate::lsm::{LevelFile, NotRead};
use crate::pm::PmFile;
use crate::pool::bloom_filter::Filter;
use crate::pool::clock::{Held, Slot};
use crate::width::to_usize;
use crate::{Error, Result};

/// What says where keys are. A file that is read again and again has them in memory.
#[derive(Debug)]
pub struct MetaBlocks {
    filter: Filter,
    /// Its data blocks.
    pub index: Index,
}

impl MetaBlocks {
    /// Whether the file may have a key with this hash.
    #[inline]
    pub fn may_have(&self, hash: u64) -> bool {
        self.filter.may_have(hash)
    }

    /// The data block that has the key if any has.
    pub fn find(&self, key: &[u8]) -> BlockHandle {
        self.index.handle(self.index.find(key))
    }
}

/// A file that counts. Once it is [obsolete](Self::set_obsolete) and was dropped, the cache removes it.
#[derive(Debug)]
pub struct Sst {
    cache: Arc<FileCache>,
    header: Header,
    len: u64,
    footer: Footer,
    meta: Arc<Slot<MetaBlocks>>,
    /// How many data blocks it has.
    blocks: usize,
    properties: Properties,
    /// The value files to which its entries refer, as its properties name them.
    values: Vec<Arc<ValueFile>>,
    is_obsolete: AtomicBool,
    /// How often it was read for a range, as far as that was counted.
    seeks: AtomicU64,
}

impl Sst {
    /// Opens a file of which the catalog speaks, and checks all of it but the data blocks.
    ///
    /// # Errors
    /// [`Error::Missing`], [`Error::Truncated`], [`Error::Foreign`], [`Error::NewerFormat`],
    /// [`Error::Damaged`], or what the operating system answers.
    pub fn open(cache: &Arc<FileCache>, store_id: [u64; 2], known: &LevelFile) -> Result<Self> {
        let path = cache.dir().join(name(known.number));
        if !cache.dir().has(&name(known.number))? {
            return Err(Error::Missing {
                path,
                advice: "put it back: it has items that are nowhere else",
            });
        }
        let file = cache.file(FileKind::Sorted, known.number)?;
        let len = file.len()?;
        match len.cmp(&known.len) {
            Ordering::Equal => {}
            Ordering::Less => {
                let (found, expected) = (len, known.len);
                return Err(Error::Truncated {
                    path,
                    found,
                    expected,
                });
            }
            Ordering::Greater => {
                let found = format!("{len} bytes; expected {}", known.len);
                return Err(damaged(&path, "length of the SST", known.len, found));
            }
        }
        let header = header(store_id, known.number);
        let Read {
            footer,
            meta,
            properties,
        } = Read::of(&file, &header, len)?;
        let values = properties.values.iter().map(|of| {
            let file = cache.value_file(store_id, of.file)?;
            file.check(of).map(|()| file)
        });
        let values = values.collect::<Result<Vec<_>>>()?;
        values.iter().for_each(|file| file.hold());
        let blocks = meta.index.blocks();
        let bytes = meta.filter.bytes().len() + meta.index.memory();
        Ok(Self {
            cache: Arc::clone(cache),
            header,
            len,
            footer,
            meta: cache.meta_slot(meta, bytes as u64),
            blocks,
            properties,
            values,
            is_obsolete: AtomicBool::new(false),
            seeks: AtomicU64::new(0),
        })
    }

    /// Its number.
    pub fn number(&self) -> u64 {
        self.header.number
    }

    /// Its length in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// The store that it belongs to.
    pub fn store_id(&self) -> [u64; 2] {
        self.header.preamble.store_id
    }

    /// Where it is.
    pub fn path(&self) -> PathBuf {
        self.cache.dir().join(name(self.number()))
    }

    /// What is known of it as a whole.
    pub fn properties(&self) -> &Properties {
        &self.properties
    }

    /// Its filter and its index, which are read if they are not in memory.
    ///
    /// # Errors
    /// [`Error::Damaged`], or what the operating system answers.
    #[inline]
    pub fn meta(&self) -> Result<Held<'_, MetaBlocks>> {
        self.meta.get_or_make(|| {
            let (from, to) = self.footer.meta();
            let file = self.cache.file(FileKind::Sorted, self.number())?;
            self.meta_of(&file, &read_exactly(&file, from, to)?)
        })
    }

    /// As [`meta`](Self::meta), but waits for no disk.
    ///
    /// # Errors
    /// [`NotRead::FilterWouldBlock`], and as there.
    pub fn try_meta(&self) -> Result<Held<'_, MetaBlocks>, NotRead> {
        if let Some(meta) = self.meta_if_held() {
            return Ok(meta);
        }
        if !self.cache.are_on_disk() {
            return Ok(self.meta()?);
        }
        let (from, to) = self.footer.meta();
        let file = self.cache.file(FileKind::Sorted, self.number())?;
        let Some(bytes) = self.cache.try_read(&file, from, to_usize(to - from)) else {
            return Err(NotRead::FilterWouldBlock);
        };
        let make = || self.meta_of(&file, &bytes);
        self.meta.try_make(make)?.ok_or(NotRead::FilterWouldBlock)
    }

    /// The filter and the index that have these bytes in the file, which has been read once more.
    fn meta_of(&self, file: &PmFile, bytes: &[u8]) -> Result<MetaBlocks> {
        self.cache.note_meta_read();
        let ends = Ends {
            file,
            header: &self.header,
            footer: &self.footer,
        };
        let meta = ends.meta_of(bytes)?;
        match meta.index.blocks() {
            blocks if blocks == self.blocks => Ok(meta),
            blocks => {
                let found = format!("{blocks} blocks; there were {}", self.blocks);
                let at = self.footer.index;
                Err(damaged(&self.path(), "index of the SST", at, found))
            }
        }
    }

    /// Its filter and its index, if they are in memory.
    #[inline]
    pub fn meta_if_held(&self) -> Option<Held<'_, MetaBlocks>> {
        self.meta.get()
    }

    /// What was read when it was opened, from the file once more.
    ///
    /// # Errors
    /// [`Error::Damaged`] if it is not what there was, and those of [`open`](Self::open).
    pub fn read_again(&self) -> Result<Read> {
        let file = self.cache.file(FileKind::Sorted, self.number())?;
        let read = Read::of(&file, &self.header, self.len)?;
        if read.footer != self.footer || read.properties != self.properties {
            let at = self.footer.properties;
            let (read, known) = (
                (read.footer, read.properties),
                (self.footer, &self.properties),
            );
            let found = format!("{read:?}; there were {known:?}");
            return Err(damaged(
                &self.path(),
                "footer and properties of the SST",
                at,
                found,
            ));
        }
        Ok(read)
    }

    /// Whether the key is between its smallest and its largest one.
    pub fn spans(&self, key: &[u8]) -> bool {
        *self.properties.smallest <= *key && *key <= *self.properties.largest
    }

    /// Counts that it was read for so many ranges.
    pub fn add_seeks(&self, count: u64) {
        self.seeks.fetch_add(count, Atomic::Relaxed);
    }

    /// For how many ranges it was read, as far as that was counted.
    pub fn seeks(&self) -> u64 {
        self.seeks.load(Atomic::Relaxed)
    }

    /// How many data blocks it has; never 0.
    pub fn blocks(&self) -> usize {
        self.blocks
    }

    /// A key that is not behind any of a data block.
    pub fn not_behind<'s>(&'s self, meta: &'s MetaBlocks, block: usize) -> &'s [u8] {
        match block {
            0 => &self.properties.smallest,
            _ => meta.index.separator(block),
        }
    }

    /// A key that is not before any of a data block.
    pub fn not_before<'s>(&'s self, meta: &'s MetaBlocks, block: usize) -> &'s [u8] {
        match block + 1 < self.blocks() {
            true => meta.index.separator(block + 1),
            false => &self.properties.largest,
        }
    }

    /// A data block, which is kept in memory for the next time.
    ///
    /// # Errors
    /// Those of [`read_block`](Self::read_block).
    pub fn block(&self, handle: BlockHandle) -> Result<Arc<Block>> {
        let read = || self.read_block(handle);
        self.cache.block(self.number(), handle, read)
    }

    /// As [`block`](Self::block), but waits for no disk.
    ///
    /// # Errors
    /// [`NotRead::WouldBlock`], and as there.
    pub fn try_block(&self, handle: BlockHandle) -> Result<Arc<Block>, NotRead> {
        if !self.cache.are_on_disk() || self.cache.has_block(self.number(), handle.nth) {
            return Ok(self.block(handle)?);
        }
        let file = self.cache.file(FileKind::Sorted, self.number())?;
        let len = to_usize(handle.bytes());
        let Some(bytes) = self.cache.try_read(&file, handle.from, len) else {
            return Err(NotRead::WouldBlock);
        };
        let read = || self.opened(handle, bytes);
        Ok(self.cache.block(self.number(), handle, read)?)
    }

    /// Has the disk begin to read a data block that is not in memory.
    ///
    /// # Errors
    /// What the operating system answers.
    pub fn prefetch_block(&self, handle: BlockHandle) -> Result<()> {
        if self.cache.are_on_disk() && !self.cache.has_block(self.number(), handle.nth) {
            let file = self.cache.file(FileKind::Sorted, self.number())?;
            file.prefetch(handle.from, handle.bytes());
        }
        Ok(())
    }

    /// Reads a data block from the file.
    ///
    /// # Errors
    /// [`Error::Damaged`], or what the operating system answers.
    pub fn read_block(&self, handle: BlockHandle) -> Result<Block> {
        let file = self.cache.file(FileKind::Sorted, self.number())?;
        self.opened(handle, read_exactly(&file, handle.from, handle.to)?)
    }

    /// The data block that has these bytes in the file.
    fn opened(&self, handle: BlockHandle, bytes: Vec<u8>) -> Result<Block> {
        let seed = self.header.seed(handle.from);
        Block::open(bytes, seed).map_err(|found| self.damage(handle, found))
    }

    /// Reads data blocks from a byte of the file on, as they stand there, unchecked; what is missing stays as it was.
    ///
    /// # Errors
    /// What the operating system answers.
    #[cfg(feature = "cuda")]
    pub fn read_blocks(&self, from: u64, to: &mut [u8]) -> Result<()> {
        let file = self.cache.file(FileKind::Sorted, self.number())?;
        file.read(to, from).map(drop)
    }

    /// The seed of the checksum of a data block.
    #[cfg(feature = "cuda")]
    pub fn block_seed(&self, handle: BlockHandle) -> u64 {
        self.header.seed(handle.from)
    }

    /// The value files to which its entries refer.
    pub fn values(&self) -> &[Arc<ValueFile>] {
        &self.values
    }

    /// The bytes of a value of an entry of a data block.
    ///
    /// # Errors
    /// [`Error::Damaged`], or what the operating system answers.
    pub fn value(&self, of: BlockHandle, value: Value) -> Result<Vec<u8>> {
        match value {
            Value::Inline(bytes) => Ok(bytes.to_vec()),
            Value::Apart(value) => self.value_file(of, &value)?.read(&value),
        }
    }

    /// The value file that has a value of an entry of a data block.
    ///
    /// # Errors
    /// [`Error::Damaged`] if the properties name none.
    pub fn value_file(&self, block: BlockHandle, value: &ValueRef) -> Result<&ValueFile> {
        let used = &self.properties.values;
        let of = used.binary_search_by_key(&value.file, |of| of.file);
        let of = of.ok().filter(|&of| {
            let is_inside = value.end().is_some_and(|end| end <= used[of].end);
            is_inside && value.len <= VALUE_BYTES_MAX
        });
        match of {
            Some(of) => Ok(&self.values[of]),
            None => Err(self.damage(
                block,
                format!("{value:?}, which the properties do not name"),
            )),
        }
    }

    /// All entries of a data block.
    ///
    /// # Errors
    /// [`Error::Damaged`].
    pub fn decode(&self, handle: BlockHandle, block: Arc<Block>) -> Result<Decoded> {
        Decoded::new(block).map_err(|found| self.damage(handle, found))
    }

    /// The error for a data block with which something is wrong.
    pub fn damage(&self, block: BlockHandle, found: String) -> Error {
        damaged(&self.path(), "data block of the SST", block.from, found)
    }

    /// Makes the names of all files in its directory durable.
    ///
    /// # Errors
    /// What the operating system answers.
    pub fn sync_names(&self) -> Result<()> {
        let file = self.cache.file(FileKind::Sorted, self.number())?;
        with_descriptors(|| file.sync_dir())
    }

    /// Lets the file be removed when nobody holds it any longer.
    pub fn set_obsolete(&self) {
        if !self.is_obsolete.swap(true, Atomic::AcqRel) {
            self.cache.expect();
            self.values.iter().for_each(|file| file.release());
        }
    }
}

impl Drop for Sst {
    fn drop(&mut self) {
        if self.is_obsolete.load(Atomic::Acquire) {
            self.cache
                .give_up(FileKind::Sorted, self.number(), self.blocks());
        }
    }
}

/// All of a file but the data blocks.
pub struct Read {
    footer: Footer,
    pub meta: MetaBlocks,
    pub properties: Properties,
}

impl Read {
    /// That of a file which should have this header and be so long.
    ///
    /// # Errors
    /// [`Error::Foreign`], [`Error::NewerFormat`], [`Error::Damaged`], or what the operating system answers.
    fn of(file: &PmFile, header: &Header, len: u64) -> Result<Self> {
        let path = file.path();
        header.check(&read_exactly(file, 0, HEADER as u64)?, FORMAT, path)?;
        let footer_at = len.saturating_sub(FOOTER as u64);
        let footer = read_exactly(file, footer_at, len)?;
        let footer = Footer::read(&footer, header, footer_at, path)?;
        let ends = Ends {
            file,
            header,
            footer: &footer,
        };
        let (meta, properties) = (ends.meta()?, ends.properties(footer_at)?);
        // What is counted by them must not overflow: each entry takes a byte and more.
        if properties.entries > footer.filter.saturating_sub(HEADER as u64) {
            return Err(Error::Damaged {
                path: path.to_path_buf(),
                what: "properties of the SST",
                at: footer.properties,
                found: format!("{} entries", properties.entries),
            });
        }
        Ok(Self {
            footer,
            meta,
            properties,
        })
    }
}

/// What stands behind the data blocks of a file, each part of which may be damaged.
pub struct Ends<'f> {
    pub file: &'f PmFile,
    pub header: &'f Header,
    pub footer: &'f Footer,
}

impl Ends<'_> {
    /// The filter and the index.
    ///
    /// # Errors
    /// [`Error::Damaged`], or what the operating system answers.
    pub fn meta(&self) -> Result<MetaBlocks> {
        let (from, to) = self.footer.meta();
        self.meta_of(&read_exactly(self.file, from, to)?)
    }

    fn meta_of(&self, bytes: &[u8]) -> Result<MetaBlocks> {
        let at = self.footer.filter;
        let index_at = to_usize(self.footer.index - at).min(bytes.len());
        let (filter, index) = bytes.split_at(index_at);
        Ok(MetaBlocks {
            filter: self.checked("filter of the SST", at, filter, Filter::read)?,
            index: self.index_of(index)?,
        })
    }

    /// The index.
    ///
    /// # Errors
    /// As [`meta`](Self::meta).
    pub fn index(&self) -> Result<Index> {
        let (from, to) = (self.footer.index, self.footer.properties);
        self.index_of(&read_exactly(self.file, from, to)?)
    }

    fn index_of(&self, bytes: &[u8]) -> Result<Index> {
        let blocks = HEADER as u64..self.footer.filter;
        let read = |bytes: &[u8]| Index::read(bytes, blocks);
        self.checked("index of the SST", self.footer.index, bytes, read)
    }

    /// The properties, before a footer at this byte.
    ///
    /// # Errors
    /// As [`meta`](Self::meta).
    pub fn properties(&self, footer_at: u64) -> Result<Properties> {
        let from = self.footer.properties;
        let bytes = read_exactly(self.file, from, footer_at)?;
        self.checked("properties of the SST", from, &bytes, Properties::read)
    }

    /// What `read` makes of the content of a block that begins at `from`.
    fn checked<T>(
        &self,
        what: &'static str,
        from: u64,
        bytes: &[u8],
        read: impl FnOnce(&[u8]) -> Result<T, String>,
    ) -> Result<T> {
        let checked = frame::check(bytes, self.header.end_seed(from));
        let read = checked.and_then(|()| read(&bytes[BLOCK_HEADER..]));
        read.map_err(|found| damaged(self.file.path(), what, from, found))
    }
}

/// The bytes of a file from one offset to another, or as many of them as it has.
pub fn read_exactly(file: &PmFile, from: u64, to: u64) -> Result<Vec<u8>> {
    let mut bytes = vec![0; to_usize(to - from)];
    let read = file.read(&mut bytes, from)?;
    bytes.truncate(read);
    Ok(bytes)
}
