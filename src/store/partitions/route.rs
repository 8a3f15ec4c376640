//! Which partition has a key.

use std::ops::Bound;
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::lsm;
use crate::store::inner::StoreInner;
use crate::store::ordered::PAGE_BYTES_MAX;
use crate::width::{product_top, to_usize};
use crate::{Error, Result};

/// Keys of each partition of which an opening asks the partitioner.
const CHECKED_KEYS: usize = 16;

/// Says which partition of a store has a key: keys that are changed together are best in one, because a batch of one
/// partition needs no commit across several.
///
/// A store is opened with a partitioner of the name that it was made with. The answers must be the same for ever: a key
/// is found only where they say.
///
/// # Examples
/// ```
/// use gphash::store::Partitioner;
///
/// /// All keys of a tenant are in one partition: `tenant/key`.
/// struct ByTenant;
///
/// impl Partitioner for ByTenant {
///     fn name(&self) -> &str {
///         "by tenant"
///     }
///
///     fn partition(&self, key: &[u8], partitions: usize) -> usize {
///         let tenant = key.split(|byte| *byte == b'/').next().unwrap_or_default();
///         let hash = tenant.iter().fold(7u64, |hash, byte| {
///             (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
///         });
///         (hash >> 32) as usize % partitions
///     }
/// }
/// # assert_eq!(ByTenant.partition(b"ada/1", 8), ByTenant.partition(b"ada/2", 8));
/// ```
pub trait Partitioner: Send + Sync {
    /// Its name: 1 to 1,024 bytes.
    fn name(&self) -> &str;

    /// The partition that has `key`, of so many. A greater number is taken modulo `partitions`.
    ///
    /// Called for each key of each call, often several times, and on several threads. It must not call the store. If it
    /// panics, the call that has asked for the key panics, and has done nothing.
    fn partition(&self, key: &[u8], partitions: usize) -> usize;
}

/// Tells keys apart by a hash whose seed is the store's own, which says nothing of where in the table a key is; or as the
/// user does.
pub struct Route {
    seed: u64,
    partitions: u32,
    partitioner: Option<Arc<dyn Partitioner>>,
}

impl Route {
    /// That of a store with so many partitions.
    pub fn new(
        store_id: [u64; 2],
        partitions: u32,
        partitioner: Option<Arc<dyn Partitioner>>,
    ) -> Self {
        Self {
            seed: store_id[0] ^ store_id[1].rotate_left(32),
            partitions,
            partitioner,
        }
    }

    /// Whether partitions have the keys that they should have: of each, some are asked for, if a partitioner of the user
    /// decides, or if it is not known whether one did.
    ///
    /// # Errors
    /// [`Error::OptionMismatch`].
    pub fn check(&self, states: &[StoreInner]) -> Result<()> {
        let is_known = !states.iter().any(|state| state.store_dir.is_unnamed());
        if self.partitions == 1 || self.partitioner.is_none() && is_known {
            return Ok(());
        }
        for (number, state) in states.iter().enumerate() {
            for key in some_keys(state) {
                let said = self.number_of(&key);
                if said != number {
                    return Err(Error::OptionMismatch {
                        path: state.store_dir.path().to_path_buf(),
                        option: "partitioner",
                        found: format!("key \"{}\" in partition {number}", key.escape_ascii()),
                        expected: format!("it in partition {said}"),
                    });
                }
            }
        }
        Ok(())
    }

    /// The seed of the hash of keys, and how many partitions there are, unless the user says which one has a key.
    #[cfg(feature = "cuda")]
    pub fn by_hash(&self) -> Option<(u64, u32)> {
        let is_hashed = self.partitioner.is_none();
        is_hashed.then_some((self.seed, self.partitions))
    }

    /// The number of the partition that has a key.
    #[inline]
    pub fn number_of(&self, key: &[u8]) -> usize {
        if self.partitions == 1 {
            return 0;
        }
        match &self.partitioner {
            None => to_usize(product_top(
                xxh3_64_with_seed(key, self.seed),
                self.partitions.into(),
            )),
            Some(partitioner) => {
                let partitions = self.partitions as usize;
                partitioner.partition(key, partitions) % partitions
            }
        }
    }
}

/// Some keys of a partition: of its table, and if that has few, of its sorted files. What is damaged is left out.
fn some_keys(state: &StoreInner) -> Vec<Vec<u8>> {
    let mut keys = state.tiers.table.some_keys(CHECKED_KEYS);
    if keys.len() < CHECKED_KEYS {
        let first = lsm::PageOf {
            range: (Bound::Unbounded, Bound::Unbounded),
            from_end: false,
            items: CHECKED_KEYS,
            bytes: PAGE_BYTES_MAX,
            with_values: false,
        };
        let version = state.tiers.spill.version();
        let page = lsm::Page::read([&*version], &mut Vec::new().into_iter(), first);
        let items = page.map(|page| page.items).unwrap_or_default();
        keys.extend(items.into_iter().map(|(key, _)| key));
    }
    keys
}

#[cfg(test)]
mod tests;
