//! What is still readable of a damaged file.

use std::sync::Arc;

use gphash_block::data::{Block, Decoded};
use gphash_block::frame::{BLOCK_HEADER, block_len};
use gphash_block::index::Index;

use super::reader::{Ends, read_exactly};
use super::{FOOTER, Footer, header};
use crate::lsm::cache::{FileCache, FileKind};
use crate::lsm::header::{HEADER, Header};
use crate::{Error, Result};

/// See the [module](self). Its number and its store are known, and so is the header.
pub struct Salvage {
    /// Opens the file, which need not stay open: a process may have fewer descriptors than there are files.
    cache: Arc<FileCache>,
    number: u64,
    header: Header,
    /// Where the data blocks end, or the file.
    end: u64,
    index: Option<Index>,
    entries: Option<u64>,
}

impl Salvage {
    /// Reads the ends of a file.
    ///
    /// # Errors
    /// What the operating system answers.
    pub fn open(cache: &Arc<FileCache>, store_id: [u64; 2], number: u64) -> Result<Self> {
        let file = &*cache.file(FileKind::Sorted, number)?;
        let cache = Arc::clone(cache);
        let header = header(store_id, number);
        let len = file.len()?;
        let footer_at = len.saturating_sub(FOOTER as u64);
        let footer = read_exactly(file, footer_at, len)?;
        let Ok(footer) = Footer::read(&footer, &header, footer_at, file.path()) else {
            return Ok(Self {
                cache,
                number,
                header,
                end: len,
                index: None,
                entries: None,
            });
        };
        let ends = Ends {
            file,
            header: &header,
            footer: &footer,
        };
        let index = unless_damaged(ends.index())?;
        let of_index = |index: &Index| {
            let entries = (0..index.blocks()).map(|nth| u64::from(index.entries(nth)));
            entries.sum()
        };
        let entries = match unless_damaged(ends.properties(footer_at))? {
            Some(properties) => Some(properties.entries),
            None => index.as_ref().map(of_index),
        };
        Ok(Self {
            cache,
            number,
            header,
            end: footer.filter,
            index,
            entries,
        })
    }

    /// How many entries the file had, if anything says so.
    pub fn entries(&self) -> Option<u64> {
        self.entries
    }

    /// The data blocks that are whole, in their order.
    pub fn blocks(&self) -> impl Iterator<Item = Result<Decoded>> {
        let mut next = Some(HEADER as u64);
        let mut nth = 0;
        std::iter::from_fn(move || {
            while let Some(from) = next.filter(|&from| from < self.end) {
                let to = match &self.index {
                    Some(index) => {
                        nth += 1;
                        Ok(Some(index.handle(nth - 1).to))
                    }
                    None => self.block_end(from),
                };
                let read = to.and_then(|to| {
                    next = to.filter(|&to| to <= self.end);
                    next.map(|to| self.read(from, to)).transpose()
                });
                match read {
                    Ok(Some(bytes)) => {
                        let block = Block::open(bytes, self.header.seed(from));
                        if let Ok(block) = block.and_then(|block| Decoded::new(Arc::new(block))) {
                            return Some(Ok(block));
                        }
                    }
                    Ok(None) => {}
                    Err(error) => {
                        next = None;
                        return Some(Err(error));
                    }
                }
            }
            None
        })
    }

    fn read(&self, from: u64, to: u64) -> Result<Vec<u8>> {
        read_exactly(&*self.cache.file(FileKind::Sorted, self.number)?, from, to)
    }

    /// Where the block ends that begins at `from`, by what it says itself.
    fn block_end(&self, from: u64) -> Result<Option<u64>> {
        let bytes = self.read(from, from + BLOCK_HEADER as u64)?;
        let header = bytes.first_chunk::<BLOCK_HEADER>();
        Ok(header.map(|header| from + block_len(header)))
    }
}

/// What was read, or `None` if it is damaged.
fn unless_damaged<T>(read: Result<T>) -> Result<Option<T>> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(Error::Damaged { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
