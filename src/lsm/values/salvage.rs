//! Which values of damaged files are whole.

use std::sync::Arc;

use super::Value;
use crate::Result;
use crate::lsm::Entry;
use crate::lsm::cache::FileCache;
use crate::pm::Dir;

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

    /// Whether the value of an entry is there, with its checksum.
    ///
    /// # Errors
    /// What the operating system answers, and [`Error::NewerFormat`].
    pub fn has_value_of(&self, entry: &Entry) -> Result<bool> {
        let Some(Value::Apart(value)) = entry.value else {
            return Ok(true);
        };
        let file = self.cache.value_file(self.store_id, value.file);
        let read = file.and_then(|file| match (file.len(), value.end()) {
            (Some(len), Some(end)) if end <= len => file.read(&value).map(|_| true),
            _ => Ok(false),
        });
        match read {
            Err(error) if error.is_no_damage() => Err(error),
            read => Ok(read.unwrap_or(false)),
        }
    }
}
