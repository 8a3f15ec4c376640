//! Reading a file: its ends are kept in memory, its data blocks are read when they are needed.

use std::cmp::Ordering;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering as Atomic};

use super::block::{self, Block, Decoded};
use super::filter::Filter;
use super::index::Index;
use super::properties::Properties;
use super::{FOOTER, Footer, HEADER, Header, damaged, name};
use crate::pm::{Folder, PmFile};
use crate::spill::LevelFile;
use crate::{Error, Result};

/// An open file. Once it is [obsolete](Self::set_obsolete), dropping it removes it.
#[derive(Debug)]
pub struct Sst {
    file: PmFile,
    header: Header,
    len: u64,
    filter: Filter,
    index: Index,
    properties: Properties,
    is_obsolete: AtomicBool,
}

impl Sst {
    /// Opens a file of which the catalog speaks, and reads all of it but the data blocks.
    ///
    /// # Errors
    /// [`Error::Missing`], [`Error::Truncated`], [`Error::Foreign`], [`Error::NewerFormat`],
    /// [`Error::Damaged`], or what the operating system answers.
    pub fn open(folder: &Folder, store_id: [u64; 2], known: &LevelFile) -> Result<Self> {
        let path = folder.join(&name(known.number));
        if !path.exists() {
            return Err(Error::Missing {
                path,
                advice: "put it back: it has items that are nowhere else",
            });
        }
        let file = folder.open_file(&name(known.number), false)?;
        let len = file.len()?;
        if len != known.len {
            let (found, expected) = (len, known.len);
            return Err(match len.cmp(&known.len) {
                Ordering::Less => Error::Truncated {
                    path,
                    found,
                    expected,
                },
                _ => {
                    let found = format!("{found} bytes; expected {expected}");
                    damaged(&path, "length of the SST", expected, found)
                }
            });
        }
        let header = Header::new(store_id, known.number);
        let mut first = [0; HEADER];
        let read = file.read(&mut first, 0)?;
        header.check(&first[..read], &path)?;
        let footer_at = len.saturating_sub(FOOTER as u64);
        let mut last = [0; FOOTER];
        file.read(&mut last, footer_at)?;
        let footer = Footer::read(&last, &header, footer_at, &path)?;
        let content = |what, from, to| -> Result<(Vec<u8>, usize)> {
            let bytes = read_exactly(&file, from, to)?;
            block::open(bytes, header.seed(from)).map_err(|found| damaged(&path, what, from, found))
        };
        let what = "properties of the SST";
        let at = footer.properties;
        let (bytes, start) = content(what, at, footer_at)?;
        let properties =
            Properties::read(&bytes[start..]).map_err(|found| damaged(&path, what, at, found))?;
        let what = "index of the SST";
        let (bytes, start) = content(what, footer.index, at)?;
        let index = Index::read(&bytes[start..], footer.filter)
            .map_err(|found| damaged(&path, what, footer.index, found))?;
        let what = "filter of the SST";
        let (bytes, start) = content(what, footer.filter, footer.index)?;
        let filter = Filter::read(&bytes[start..])
            .map_err(|found| damaged(&path, what, footer.filter, found))?;
        Ok(Self {
            file,
            header,
            len,
            filter,
            index,
            properties,
            is_obsolete: AtomicBool::new(false),
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

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// What is known of it as a whole.
    pub fn properties(&self) -> &Properties {
        &self.properties
    }

    /// What it needs in memory while it is open, in bytes.
    pub fn memory(&self) -> usize {
        self.filter.len() + self.index.memory()
    }

    /// Whether the key is between its smallest and its largest one.
    pub fn spans(&self, key: &[u8]) -> bool {
        *self.properties.smallest <= *key && *key <= *self.properties.largest
    }

    /// Whether it may have a key with this hash.
    #[inline]
    pub fn may_have(&self, hash: u64) -> bool {
        self.filter.may_have(hash)
    }

    /// How many data blocks it has; never 0.
    pub fn blocks(&self) -> usize {
        self.index.len()
    }

    /// The data block that has the key if any has.
    pub fn find(&self, key: &[u8]) -> usize {
        self.index.find(key)
    }

    /// Reads a data block.
    ///
    /// # Errors
    /// [`Error::Damaged`], or what the operating system answers.
    pub fn read_block(&self, nth: usize) -> Result<Block> {
        let (from, to) = self.index.place(nth);
        let bytes = read_exactly(&self.file, from, to)?;
        block::open(bytes, self.header.seed(from))
            .and_then(|(bytes, start)| Block::new(bytes, start))
            .map_err(|found| self.damage(nth, found))
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
        let (at, _) = self.index.place(nth);
        damaged(self.path(), "data block of the SST", at, found)
    }

    /// Makes the names of all files in its folder durable.
    ///
    /// # Errors
    /// What the operating system answers.
    pub fn sync_names(&self) -> Result<()> {
        self.file.sync_folder()
    }

    /// Lets the file be removed when nobody holds it any longer.
    pub fn set_obsolete(&self) {
        self.is_obsolete.store(true, Atomic::Release);
    }
}

impl Drop for Sst {
    fn drop(&mut self) {
        if self.is_obsolete.load(Atomic::Acquire)
            && let Err(error) = self.file.remove()
        {
            tracing::warn!(%error, "an obsolete SST stays until the next opening");
        }
    }
}

fn read_exactly(file: &PmFile, from: u64, to: u64) -> Result<Vec<u8>> {
    let mut bytes = vec![0; (to - from) as usize];
    let read = file.read(&mut bytes, from)?;
    bytes.truncate(read);
    Ok(bytes)
}
