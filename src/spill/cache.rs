//! What is kept of files in memory: open handles, and the data blocks used most.

use std::sync::Arc;

use quick_cache::Weighter;
use quick_cache::sync::Cache;

use super::sst::{self, BLOCK_BYTES, Block};
use crate::Result;
use crate::pm::{Folder, PmFile};

/// Files that are kept open. Processes may often have no more than 1,024.
const MOST_OPEN: usize = 400;

/// Blocks that are longer in their file, in bytes, are not kept: each has a single value, and would
/// take the place of many.
const LONGEST_KEPT: u64 = 256 << 10;

/// What a block takes beside its bytes.
const OVERHEAD: usize = 128;

/// Number of a file, and of a block in it.
type Place = (u64, u32);

#[derive(Debug, Clone, Copy)]
struct Bytes;

impl Weighter<Place, Arc<Block>> for Bytes {
    fn weight(&self, _: &Place, block: &Arc<Block>) -> u64 {
        (block.len() + OVERHEAD) as u64
    }
}

/// See the [module](self). All threads share it.
#[derive(Debug)]
pub struct FileCache {
    folder: Folder,
    files: Cache<u64, Arc<PmFile>>,
    blocks: Cache<Place, Arc<Block>, Bytes>,
}

impl FileCache {
    /// One for the files of a folder, which keeps `bytes` bytes of data blocks.
    pub fn new(folder: Folder, bytes: u64) -> Self {
        let blocks = bytes as usize / (BLOCK_BYTES + OVERHEAD);
        Self {
            folder,
            files: Cache::new(MOST_OPEN),
            blocks: Cache::with_weighter(blocks.max(1), bytes, Bytes),
        }
    }

    /// The folder of the files.
    pub fn folder(&self) -> &Folder {
        &self.folder
    }

    /// File `number`, open for reading.
    ///
    /// # Errors
    /// What the operating system answers.
    pub fn file(&self, number: u64) -> Result<Arc<PmFile>> {
        self.files.get_or_insert_with(&number, || {
            let file = self.folder.open_file(&sst::name(number), false)?;
            Ok(Arc::new(file))
        })
    }

    /// A block that has `len` bytes in its file; `read` reads it if it is not there.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn block(
        &self,
        number: u64,
        nth: usize,
        len: u64,
        read: impl FnOnce() -> Result<Block>,
    ) -> Result<Arc<Block>> {
        let read = || read().map(Arc::new);
        match u32::try_from(nth) {
            Ok(nth) if len <= LONGEST_KEPT => self.blocks.get_or_insert_with(&(number, nth), read),
            _ => read(),
        }
    }

    /// Forgets a file and its blocks, of which there are `blocks`.
    pub fn forget(&self, number: u64, blocks: usize) {
        self.files.remove(&number);
        for nth in 0..blocks as u32 {
            self.blocks.remove(&(number, nth));
        }
    }

    /// Bytes of data blocks in memory, and how often a block was there, and was not.
    pub fn stats(&self) -> (u64, u64, u64) {
        let blocks = &self.blocks;
        (blocks.weight(), blocks.hits(), blocks.misses())
    }
}
