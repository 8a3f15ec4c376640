//! Keys that a transaction has read. With a memory budget, the hashes of many of them are in a file without a name,
//! which ends with the transaction.

#[cfg(all(test, not(loom)))]
mod tests;

use std::collections::{BTreeSet, HashSet};
use std::ops::Bound;
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::old_versions::OldVersions;
use super::spill_file::{SpillFile, SpilledValue, VersionSpill};
use crate::Result;
use crate::pool::hash_filter::hash_seed;

/// Bytes of memory that a key takes beside itself.
const KEY_BYTES: u64 = 60;

/// Bytes of a hash.
const HASH: usize = size_of::<u64>();

/// See the [module](self).
#[derive(Debug, Default)]
pub struct ReadKeys {
    keys: HashSet<Vec<u8>>,
    /// What they take.
    bytes: u64,
    spilled: Option<Box<SpilledHashes>>,
    /// Bytes of those that could not be written when that was last tried.
    failed: u64,
}

/// Hashes of keys in a file, and what was written of them at a time.
#[derive(Debug)]
struct SpilledHashes {
    file: Arc<SpillFile>,
    seed: u64,
    runs: Vec<SpilledValue>,
}

impl ReadKeys {
    /// Notes that a key was read. With a `spill`, keys that have no room in memory go to a file; what cannot be
    /// written stays in memory.
    pub fn note(&mut self, key: &[u8], spill: Option<&VersionSpill>) {
        if self.keys.contains(key) {
            return;
        }
        self.keys.insert(key.to_vec());
        self.bytes += KEY_BYTES + key.len() as u64;
        // What has failed is tried again when there is twice as much: each time all of it is hashed.
        if let Some(spill) = spill
            && self.bytes > spill.read_bytes_max.max(2 * self.failed)
            && let Err(error) = self.spill(spill)
        {
            self.failed = self.bytes;
            tracing::warn!(%error, "keys that were read stay in memory, beyond the budget");
        }
    }

    fn spill(&mut self, spill: &VersionSpill) -> Result<()> {
        let spilled = match &mut self.spilled {
            Some(spilled) => spilled,
            None => self.spilled.insert(Box::new(SpilledHashes {
                file: Arc::new(spill.create_file("keys that a transaction has read")?),
                seed: hash_seed(),
                runs: Vec::new(),
            })),
        };
        spilled.append(self.keys.iter())?;
        (self.keys, self.bytes, self.failed) = Default::default();
        Ok(())
    }

    /// Whether a key was read that has been changed since the commit `commit_seq`, or is among `changed`, whose
    /// changes are not among the old versions yet. Of keys in a file one in 2^64 passes for another.
    ///
    /// # Errors
    /// [`Error::Damaged`] if the file is another one by now, or what the operating system answers.
    pub fn have_changed(
        &self,
        old_versions: &OldVersions,
        commit_seq: u64,
        changed: &BTreeSet<&[u8]>,
    ) -> Result<bool> {
        let has_changed = |key: &Vec<u8>| {
            changed.contains(key.as_slice()) || old_versions.value(key, commit_seq).is_some()
        };
        if self.keys.iter().any(has_changed) {
            return Ok(true);
        }
        let Some(spilled) = &self.spilled else {
            return Ok(false);
        };
        let since = old_versions.range((Bound::Unbounded, Bound::Unbounded), commit_seq);
        let since = since.map(|(key, _)| key).chain(changed.iter().copied());
        let mut hashes: Vec<u64> = since.map(|key| spilled.hash(key)).collect();
        hashes.sort_unstable();
        spilled.has_one_of(&hashes)
    }
}

impl SpilledHashes {
    fn hash(&self, key: &[u8]) -> u64 {
        xxh3_64_with_seed(key, self.seed)
    }

    /// Appends the hashes of keys; after an error none of them.
    fn append<'k>(&mut self, keys: impl Iterator<Item = &'k Vec<u8>>) -> Result<()> {
        let hashes = keys.flat_map(|key| self.hash(key).to_le_bytes());
        let bytes: Vec<u8> = hashes.collect();
        self.runs.append(&mut self.file.append(&[&bytes])?);
        Ok(())
    }

    /// Whether it has one of these hashes, which are in order.
    fn has_one_of(&self, hashes: &[u64]) -> Result<bool> {
        if hashes.is_empty() {
            return Ok(false);
        }
        for run in &self.runs {
            let bytes = run.read()?;
            let (words, _) = bytes.as_chunks::<HASH>();
            let is_one = |word: &[u8; HASH]| hashes.binary_search(&u64::from_le_bytes(*word));
            if words.iter().any(|word| is_one(word).is_ok()) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
