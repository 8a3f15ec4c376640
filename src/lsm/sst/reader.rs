//! Reading a file: its ends are kept in memory, its data blocks are read when they are needed.

use std::cmp::Ordering;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering as Atomic};

use gphash_block::VALUE_BYTES_MAX;
use gphash_block::data::{Block, Decoded};
use gphash_block::frame::{self, BLOCK_HEADER};
use gphash_block::index::Index;
use gphash_block::properties::Properties;

use super::{FOOTER, FORMAT, Footer, damaged, header, name};
use crate::lsm::cache::{FileCache, FileKind, with_descriptors};
use crate::lsm::header::{HEADER, Header};
use crate::lsm::values::{Value, ValueFile, ValueRef};
use crate::lsm::{LevelFile, NotRead};
use crate::pm::PmFile;
use crate::pool::bloom_filter::Filter;
use crate::width::to_usize;
use crate::{Error, Result};

/// A file that counts. Once it is [obsolete](Self::set_obsolete) and was dropped, the cache removes it.
#[derive(Debug)]
pub struct Sst {
    cache: Arc<FileCache>,
    header: Header,
    len: u64,
    filter: Filter,
    index: Index,
    properties: Properties,
    /// The value files to which its entries refer, as its properties name them.
    values: Vec<Arc<ValueFile>>,
    is_obsolete: AtomicBool,
    /// How often it was read for a range, as far as that was counted.
    seeks: AtomicU64,
}

impl Sst {
    /// Opens a file of which the catalog speaks, and reads all of it but the data blocks.
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
        header.check(&read_exactly(&file, 0, HEADER as u64)?, FORMAT, &path)?;
        let footer_at = len.saturating_sub(FOOTER as u64);
        let footer = read_exactly(&file, footer_at, len)?;
        let footer = Footer::read(&footer, &header, footer_at, &path)?;
        let ends = Ends::read(&file, &header, &footer, footer_at)?;
        let (filter, index, properties) = (ends.filter?, ends.index?, ends.properties?);
        let values = properties.values.iter().map(|of| {
            let file = cache.value_file(store_id, of.file)?;
            file.check(of).map(|()| file)
        });
        let values = values.collect::<Result<Vec<_>>>()?;
        values.iter().for_each(|file| file.hold());
        Ok(Self {
            cache: Arc::clone(cache),
            header,
            len,
            filter,
            index,
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

    /// Its data blocks.
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// What it needs in memory while it is open, in bytes.
    pub fn memory(&self) -> usize {
        self.filter.bytes().len() + self.index.memory()
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

    /// Whether it may have a key with this hash.
    #[inline]
    pub fn may_have(&self, hash: u64) -> bool {
        self.filter.may_have(hash)
    }

    /// How many data blocks it has; never 0.
    pub fn blocks(&self) -> usize {
        self.index.blocks()
    }

    /// The data block that has the key if any has.
    pub fn find(&self, key: &[u8]) -> usize {
        self.index.find(key)
    }

    /// A key that is not behind any of a data block.
    pub fn not_behind(&self, block: usize) -> &[u8] {
        match block {
            0 => &self.properties.smallest,
            _ => self.index.separator(block),
        }
    }

    /// A key that is not before any of a data block.
    pub fn not_before(&self, block: usize) -> &[u8] {
        match block + 1 < self.blocks() {
            true => self.index.separator(block + 1),
            false => &self.properties.largest,
        }
    }

    /// A data block, which is kept in memory for the next time.
    ///
    /// # Errors
    /// Those of [`read_block`](Self::read_block).
    pub fn block(&self, nth: usize) -> Result<Arc<Block>> {
        let (from, to) = self.index.range(nth);
        let read = || self.read_block(nth);
        self.cache.block(self.number(), nth, to - from, read)
    }

    /// As [`block`](Self::block), but waits for no disk.
    ///
    /// # Errors
    /// [`NotRead::WouldBlock`], and as there.
    pub fn try_block(&self, nth: usize) -> Result<Arc<Block>, NotRead> {
        if !self.cache.are_on_disk() || self.cache.has_block(self.number(), nth) {
            return Ok(self.block(nth)?);
        }
        let (from, to) = self.index.range(nth);
        let file = self.cache.file(FileKind::Sorted, self.number())?;
        let Some(bytes) = self.cache.try_read(&file, from, to_usize(to - from)) else {
            return Err(NotRead::WouldBlock);
        };
        let read = || self.opened(nth, bytes);
        Ok(self.cache.block(self.number(), nth, to - from, read)?)
    }

    /// Has the disk begin to read a data block that is not in memory.
    ///
    /// # Errors
    /// What the operating system answers.
    pub fn prefetch_block(&self, nth: usize) -> Result<()> {
        if self.cache.are_on_disk() && !self.cache.has_block(self.number(), nth) {
            let (from, to) = self.index.range(nth);
            let file = self.cache.file(FileKind::Sorted, self.number())?;
            file.prefetch(from, to - from);
        }
        Ok(())
    }

    /// Reads a data block from the file.
    ///
    /// # Errors
    /// [`Error::Damaged`], or what the operating system answers.
    pub fn read_block(&self, nth: usize) -> Result<Block> {
        let (from, to) = self.index.range(nth);
        let file = self.cache.file(FileKind::Sorted, self.number())?;
        self.opened(nth, read_exactly(&file, from, to)?)
    }

    /// The data block that has these bytes in the file.
    fn opened(&self, nth: usize, bytes: Vec<u8>) -> Result<Block> {
        let seed = self.header.seed(self.index.range(nth).0);
        Block::open(bytes, seed).map_err(|found| self.damage(nth, found))
    }

    /// Reads data blocks as they stand in the file, unchecked; what is missing of it stays as it was.
    ///
    /// # Errors
    /// What the operating system answers.
    #[cfg(feature = "cuda")]
    pub fn read_blocks(&self, blocks: std::ops::Range<usize>, to: &mut [u8]) -> Result<()> {
        if !blocks.is_empty() {
            let file = self.cache.file(FileKind::Sorted, self.number())?;
            file.read(to, self.index.range(blocks.start).0)?;
        }
        Ok(())
    }

    /// The seed of the checksum of a data block.
    #[cfg(feature = "cuda")]
    pub fn block_seed(&self, nth: usize) -> u64 {
        self.header.seed(self.index.range(nth).0)
    }

    /// The value files to which its entries refer.
    pub fn values(&self) -> &[Arc<ValueFile>] {
        &self.values
    }

    /// The bytes of a value of an entry of data block `nth`.
    ///
    /// # Errors
    /// [`Error::Damaged`], or what the operating system answers.
    pub fn value(&self, nth: usize, value: Value) -> Result<Vec<u8>> {
        match value {
            Value::Inline(bytes) => Ok(bytes.to_vec()),
            Value::Apart(value) => self.value_file(nth, &value)?.read(&value),
        }
    }

    /// The value file that has a value of an entry of data block `nth`.
    ///
    /// # Errors
    /// [`Error::Damaged`] if the properties name none.
    pub fn value_file(&self, nth: usize, value: &ValueRef) -> Result<&ValueFile> {
        let used = &self.properties.values;
        let of = used.binary_search_by_key(&value.file, |of| of.file);
        let of = of.ok().filter(|&of| {
            let is_inside = value.end().is_some_and(|end| end <= used[of].end);
            is_inside && value.len <= VALUE_BYTES_MAX
        });
        match of {
            Some(of) => Ok(&self.values[of]),
            None => Err(self.damage(nth, format!("{value:?}, which the properties do not name"))),
        }
    }

    /// All entries of a data block.
    ///
    /// # Errors
    /// [`Error::Damaged`].
    pub fn decode(&self, nth: usize, block: Arc<Block>) -> Result<Decoded> {
        Decoded::new(block).map_err(|found| self.damage(nth, found))
    }

    /// The error for a data block with which something is wrong.
    pub fn damage(&self, nth: usize, found: String) -> Error {
        let (at, _) = self.index.range(nth);
        damaged(&self.path(), "data block of the SST", at, found)
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

/// What stands behind the data blocks, each part of which may be damaged.
pub struct Ends {
    pub filter: Result<Filter>,
    pub index: Result<Index>,
    pub properties: Result<Properties>,
}

impl Ends {
    /// Reads them.
    ///
    /// # Errors
    /// What the operating system answers.
    pub fn read(file: &PmFile, header: &Header, footer: &Footer, footer_at: u64) -> Result<Self> {
        let path = file.path();
        let content = |from, to| {
            let bytes = read_exactly(file, from, to)?;
            let checked = frame::check(&bytes, header.end_seed(from));
            Result::<_>::Ok(checked.map(|()| bytes))
        };
        let properties = content(footer.properties, footer_at)?;
        let index = content(footer.index, footer.properties)?;
        let filter = content(footer.filter, footer.index)?;
        let is = |what, at| move |found| damaged(path, what, at, found);
        Ok(Self {
            filter: filter
                .and_then(|bytes| Filter::read(&bytes[BLOCK_HEADER..]))
                .map_err(is("filter of the SST", footer.filter)),
            index: index
                .and_then(|bytes| Index::read(&bytes[BLOCK_HEADER..], HEADER as u64..footer.filter))
                .map_err(is("index of the SST", footer.index)),
            properties: properties
                .and_then(|bytes| Properties::read(&bytes[BLOCK_HEADER..]))
                .map_err(is("properties of the SST", footer.properties)),
        })
    }
}

/// The bytes of a file from one offset to another, or as many of them as it has.
pub fn read_exactly(file: &PmFile, from: u64, to: u64) -> Result<Vec<u8>> {
    let mut bytes = vec![0; to_usize(to - from)];
    let read = file.read(&mut bytes, from)?;
    bytes.truncate(read);
    Ok(bytes)
}
