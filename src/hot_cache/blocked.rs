//! Keys whose changes the store is about to publish.

use std::thread;

use super::bucket::Item;
use super::{Hashed, HotCache};

/// Keys that [`HotCache::block`] has blocked; see there.
#[derive(Debug)]
#[must_use = "the keys are unblocked when it is dropped"]
pub struct Blocked<'c, 'k> {
    cache: &'c HotCache,
    keys: Vec<BlockedKey<'k>>,
}

#[derive(Debug)]
struct BlockedKey<'k> {
    key: Hashed<'k>,
    value: Option<&'k [u8]>,
    /// Where its bucket had the key, if it did.
    offset: Option<usize>,
}

impl<'c, 'k> Blocked<'c, 'k> {
    pub(crate) fn new(cache: &'c HotCache) -> Self {
        let keys = Vec::new();
        Self { cache, keys }
    }

    /// Whether none of the keys was hot.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Blocks a key, which is to have this value.
    pub(crate) fn add(&mut self, key: Hashed<'k>, value: Option<&'k [u8]>) {
        // Nothing may panic between the two: who has blocked a key unblocks it.
        self.keys.reserve(1);
        let offset = self.cache.bucket(key).block(key.tag(), key.key);
        self.keys.push(BlockedKey { key, value, offset });
    }
}

impl Drop for Blocked<'_, '_> {
    fn drop(&mut self) {
        // After a panic it may be that nothing was published.
        let fills = !thread::panicking();
        for BlockedKey { key, value, offset } in self.keys.drain(..) {
            let item = Item::of(key.key, value).zip(offset).filter(|_| fills);
            let router = &self.cache.router;
            let is_hot = || router.serves(router.bin(key.tag()));
            self.cache.bucket(key).unblock(key.tag(), item, is_hot);
        }
    }
}
