//! Checking all that a file says.

use std::sync::Arc;

use gphash_block::properties::Properties;

use super::reader::{Read, Sst};
use super::{damaged, key_hash};
use crate::Result;
use crate::lsm::values::Value;

/// What was checked in a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Checked {
    /// Entries, tombstones among them.
    pub entries: u64,
    pub tombstones: u64,
    /// Data blocks.
    pub blocks: u64,
}

impl Sst {
    /// Reads all of it, past the cache, and the values to which it refers. Checks every checksum; that keys ascend, and are
    /// found by filter and index; and that properties and index say what is there. `progress` is told the bytes of each
    /// data block.
    ///
    /// # Errors
    /// [`Error::Damaged`](crate::Error::Damaged), or what the operating system answers.
    pub fn check(&self, progress: &(dyn Fn(u64) + Sync)) -> Result<Checked> {
        let mut counted = Properties::none();
        let mut last: Option<Vec<u8>> = None;
        let Read {
            meta, properties, ..
        } = self.read_again()?;
        for nth in 0..self.blocks() {
            let handle = meta.index.handle(nth);
            let block = self.decode(handle, Arc::new(self.read_block(handle)?))?;
            let expected = meta.index.entries(nth);
            if block.count() as u64 != u64::from(expected) {
                let found = format!("{} entries; expected {expected}", block.count());
                return Err(self.damage(handle, found));
            }
            for entry in (0..block.count()).map(|nth| block.entry(nth)) {
                let key = entry.key;
                let (hash, previous) = (key_hash(self.store_id(), key), last.as_deref());
                if previous.is_some_and(|previous| previous >= key) {
                    let found = format!("{key:02x?} stands behind {previous:02x?}");
                    return Err(self.damage(handle, found));
                }
                if meta.find(key) != handle || !self.spans(key) || !meta.may_have(hash) {
                    let found = format!("{key:02x?}, which is not found there");
                    return Err(self.damage(handle, found));
                }
                if let Some(value @ Value::Apart(_)) = entry.value {
                    self.value(handle, value)?;
                }
                counted.count(&entry);
                last.get_or_insert_default().clear();
                last.get_or_insert_default().extend_from_slice(key);
            }
            progress(handle.bytes());
        }
        counted.largest = last.unwrap_or_default();
        if counted != properties {
            let found = format!("{properties:?}; expected {counted:?}");
            return Err(damaged(
                &self.path(),
                "properties of the SST",
                self.len(),
                found,
            ));
        }
        Ok(Checked {
            entries: counted.entries,
            tombstones: counted.tombstones,
            blocks: self.blocks() as u64,
        })
    }
}
