//! Which values of damaged files are whole.

use std::sync::Arc;

use super::file::ValueFile;
use super::{Value, header, name};
use crate::lsm::Entry;
use crate::lsm::cache::FileCache;
use crate::pm::Dir;
use crate::{Error, Result};

/// Reads the values to which the entries of a directory refer.
pub struct ValueSalvage {
    cache: Arc<FileCache>,
    store_id: [u64; 2],
}

impl ValueSalvage {
    pub fn new(dir: &Dir, store_id: [u64; 2]) -> Self {
        let cache = Arc::new(FileCache::without_blocks(dir.clone()));
        Self { cache, store_id }
    }

    /// Whether the value of an entry is there, with its checksum. If it is, and the header of its file is not, that is
    /// written anew, durably: the value proves which file it is.
    ///
    /// # Errors
    /// What the operating system answers, and [`Error::NewerFormat`].
    pub fn has_value_of(&self, entry: &Entry) -> Result<bool> {
        let Some(Value::Apart(value)) = entry.value else {
            return Ok(true);
        };
        let opened = self.cache.value_file(self.store_id, value.file);
        let is_headless = matches!(opened, Err(Error::Damaged { .. } | Error::Foreign { .. }));
        let file = match is_headless {
            true => ValueFile::open_headless(Arc::clone(&self.cache), value.file).map(Arc::new),
            false => opened,
        };
        let read = file.and_then(|file| match (file.len(), value.end()) {
            (Some(len), Some(end)) if end <= len => file.read(&value).map(|_| true),
            _ => Ok(false),
        });
        match read {
            Err(error) if error.is_no_damage() => Err(error),
            Ok(true) if is_headless => self.write_header(value.file).map(|()| true),
            read => Ok(read.unwrap_or(false)),
        }
    }

    fn write_header(&self, number: u64) -> Result<()> {
        let file = self.cache.dir().open_file(&name(number), true)?;
        file.write(bytemuck::bytes_of(&header(self.store_id, number)), 0)?;
        file.sync()
    }
}
