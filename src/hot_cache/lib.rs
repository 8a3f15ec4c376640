//! A router and a hot cache in front of a store (KVCG §6, §7), counts that say which items are cold, and those on their way out.
//!
//! A *model* of sampled gets says which *bins* of the keys' hash are hot. The *router* has its answer, one byte a bin.
//! The *cache* holds values of keys of hot bins. All other keys cost one test of a byte.
//!
//! ```text
//!  get --- bin is hot? --- no ------------------------> store
//!             | yes
//!             +--- bucket has the key? --- yes ---> its value, or that it has none
//!                        | no
//!                        +--- store, and the bucket if nothing has changed there meanwhile
//!
//!  change -- bin is hot? -- no -----------------------> store
//!             | yes
//!             +--- block the key in its bucket, then store, then unblock it with its new value
//! ```
//!
//! # Which answers are right
//! **An entry holds what a get of the store would find.** Three rules keep it so.
//!
//! 1. A change [blocks](HotCache::block) its keys before the store publishes it, and unblocks them after that.
//!    Blocking removes the entry. So a hit takes effect at the moment when it reads the bucket's version.
//! 2. A get that misses notes the bucket's version, reads the store, and fills the bucket only if the version is the
//!    same and nobody blocks a key there. Blocking and unblocking change the version.
//! 3. Only keys of bins that *changes block* have entries.
//!
//! # Another model
//! A [swap](HotCache::swap) goes through four steps, each of which keeps rule 3:
//!
//! 1. Changes block the old hot bins and the new ones.
//! 2. The changes that are under way are waited for. Those that did not block the new bins have ended then.
//! 3. Gets are served from the new hot bins alone. If others were hot before, all buckets are purged of their entries,
//!    and get another version. A fill asks again whether its bin is hot while it holds the bucket. So none of another bin
//!    comes after the purge: who holds the bucket later sees step 3.
//! 4. Changes block the new hot bins alone.
//!
//! A get may sleep between its steps for several swaps. Its version is from before the purge of one of them, and is
//! refused; or it was taken after the last one. Then the get has asked after it whether the bin is hot. So it reads
//! the store after step 2 of the swap that has made the bin hot, and rule 2 holds.
//!
//! The store has each change at once, so a swap has nothing to replay, unlike that of KVCG §6.1.

#[doc(hidden)]
pub mod access_counts;
mod blocked;
mod bucket;
#[doc(hidden)]
pub mod cold_items;
mod descriptor;
mod model;
mod options;
mod router;
#[doc(hidden)]
pub mod selection;
mod stats;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::fmt;
use std::ptr;
use std::time::Instant;

use gphash_pool::hash_filter::hash_seed;
use parking_lot::Mutex;
use xxhash_rust::xxh3::xxh3_64_with_seed;

pub use blocked::Blocked;
use bucket::{Bucket, Item, Lookup};
use model::Model;
pub use options::{HotCacheOptions, Refused};
use router::Router;
pub use stats::HotCacheStats;

/// The value of a key; `None` if it has none.
pub type Value = Option<Vec<u8>>;

/// Of misses of a thread one in so many may take the room of other keys: those that are read once seldom do. A prime,
/// so that no pattern of calls is in step with it.
const EVICTION_INTERVAL: u32 = 7;

thread_local! {
    /// Misses of this thread until the next one that evicts.
    static UNTIL_EVICTION: Cell<u32> = const { Cell::new(0) };
}

/// See the [crate].
pub struct HotCache {
    seed: u64,
    buckets: Box<[Bucket]>,
    router: Router,
    model: Model,
    eviction_interval: u32,
    /// Held during a swap.
    swapping: Mutex<()>,
}

impl fmt::Debug for HotCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HotCache")
            .field("buckets", &self.buckets.len())
            .finish_non_exhaustive()
    }
}

/// A key with what its hash says.
#[derive(Debug, Clone, Copy)]
struct Hashed<'k> {
    key: &'k [u8],
    hash: u64,
}

impl Hashed<'_> {
    /// Tells keys of a bucket apart, and which bin a key is in.
    fn tag(&self) -> u32 {
        u32::try_from(self.hash >> 32).expect("32 bits are left")
    }
}

impl HotCache {
    /// An empty one, without hot bins. `None` if the options ask for none, or if there is no memory for it.
    pub fn new(options: &HotCacheOptions) -> Option<Self> {
        let count = options.bytes / Bucket::BYTES;
        let count = usize::try_from(count).ok().filter(|count| *count > 0)?;
        let mut buckets = Vec::new();
        if let Err(error) = buckets.try_reserve_exact(count) {
            tracing::warn!(%error, bytes = options.bytes, "there is no memory for the hot cache, and so no cache");
            return None;
        }
        buckets.resize_with(count, Bucket::default);
        Some(Self {
            seed: hash_seed(),
            buckets: buckets.into(),
            router: Router::new(options.bins),
            model: Model::new(options),
            eviction_interval: EVICTION_INTERVAL,
            swapping: Mutex::new(()),
        })
    }

    #[inline]
    fn hashed<'k>(&self, key: &'k [u8]) -> Hashed<'k> {
        let hash = xxh3_64_with_seed(key, self.seed);
        Hashed { key, hash }
    }

    /// The bucket of a key. The lower half of the hash names it, and the upper half the bin.
    #[inline]
    fn bucket(&self, key: Hashed) -> &Bucket {
        let nth = ((key.hash & u64::from(u32::MAX)) * self.buckets.len() as u64) >> 32;
        &self.buckets[usize::try_from(nth).expect("it is less than the number of buckets")]
    }

    /// The newest value of a key: that of the cache, or what `read` finds in the store. A get that is sampled says when
    /// it has `started`. Also says whether the cache had the key.
    ///
    /// # Errors
    /// Those of `read`.
    #[inline]
    pub fn get_or_read<E>(
        &self,
        key: &[u8],
        started: Option<Instant>,
        read: impl FnOnce() -> Result<Value, E>,
    ) -> Result<(Value, bool), E> {
        let hashed = self.hashed(key);
        let bin = self.router.bin(hashed.tag());
        let is_hot = self.router.serves(bin);
        let (value, is_hit) = match is_hot {
            true => self.get_hot(hashed, bin, read)?,
            false => (read()?, false),
        };
        if let Some(started) = started {
            let item = Item::of(key, value.as_deref());
            let words = item.map_or(Bucket::DATA_WORDS, |item| item.words());
            self.model
                .sample(bin, words, started.elapsed(), (is_hot, is_hit));
        }
        Ok((value, is_hit))
    }

    fn get_hot<E>(
        &self,
        key: Hashed,
        bin: usize,
        read: impl FnOnce() -> Result<Value, E>,
    ) -> Result<(Value, bool), E> {
        let bucket = self.bucket(key);
        let missed = match bucket.get(key.tag(), key.key) {
            Lookup::Hit(value) => return Ok((value, true)),
            Lookup::Miss(missed) => missed,
            Lookup::Busy => return Ok((read()?, false)),
        };
        // Not earlier than the version: see the crate's text on swaps.
        let is_hot = || self.router.serves(bin);
        let may_evict = self.may_evict();
        let fills = (missed.has_room || may_evict) && is_hot();
        let value = read()?;
        if fills && let Some(item) = Item::of(key.key, value.as_deref()) {
            bucket.fill(missed, (key.tag(), item), may_evict, is_hot);
        }
        Ok((value, false))
    }

    fn may_evict(&self) -> bool {
        UNTIL_EVICTION.with(|misses| {
            let left = misses.get().checked_sub(1);
            misses.set(left.unwrap_or(self.eviction_interval - 1));
            left.is_none()
        })
    }

    /// The address of what [`block`](Self::block) changes of a key, to be asked for before; `None` if the key is cold.
    pub fn line_of(&self, key: &[u8]) -> Option<*const u8> {
        let hashed = self.hashed(key);
        let is_blocked = self.router.is_blocked(self.router.bin(hashed.tag()));
        is_blocked.then(|| ptr::from_ref(self.bucket(hashed)).cast())
    }

    /// Takes the keys of hot bins among these out of the cache, until what this gives is dropped: then those that were
    /// there get these values. In between the caller publishes the changes. Nobody else changes one of the keys
    /// meanwhile.
    ///
    /// The caller holds something from before this call until the drop that [`swap`](Self::swap) waits for.
    pub fn block<'k>(
        &self,
        changes: impl IntoIterator<Item = (&'k [u8], Option<&'k [u8]>)>,
    ) -> Blocked<'_, 'k> {
        let mut blocked = Blocked::new(self);
        for (key, value) in changes {
            let hashed = self.hashed(key);
            if self.router.is_blocked(self.router.bin(hashed.tag())) {
                blocked.add(hashed, value);
            }
        }
        blocked
    }

    /// Whether the shadow model has seen enough gets to replace the current one.
    pub fn is_due(&self) -> bool {
        self.model.is_due()
    }

    /// Lets the shadow model replace the current one, and forgets what is no longer hot. The store has about
    /// so many `keys`. `wait` returns when all changes have ended that have [blocked](Self::block) something before it
    /// is called.
    pub fn swap(&self, keys: u64, wait: impl FnOnce()) {
        let _alone = self.swapping.lock();
        let entries = Bucket::ENTRIES as u64 * self.buckets.len() as u64;
        let words = Bucket::DATA_WORDS * self.buckets.len() as u64;
        let hot = self.model.hot_bins(keys, (entries, words));
        self.router.block_also(&hot);
        wait();
        if self.router.serve_only(&hot) {
            for bucket in &self.buckets {
                bucket.purge(|tag| self.router.serves(self.router.bin(tag)));
            }
            self.router.block_served();
        }
        self.model.note_swap();
    }

    /// Statistics, for which all buckets are counted.
    pub fn stats(&self) -> HotCacheStats {
        let entries = self.buckets.iter().map(Bucket::entries);
        HotCacheStats {
            bytes: self.buckets.len() as u64 * Bucket::BYTES,
            entries: entries.sum(),
            hot_bins: self.router.served(),
            ..self.model.stats()
        }
    }
}
