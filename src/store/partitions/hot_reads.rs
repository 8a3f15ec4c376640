//! Gets by way of the hot cache, and its swaps.

use super::Partitions;
use crate::Result;
use crate::hot_cache::HotCache;
use crate::metrics::calls::TimedPath;
use crate::store::mvcc::old_versions::Value;
use crate::store::partition::Partition;

impl Partitions {
    /// The value of a key.
    pub fn get_cached(&self, cache: &HotCache, key: &[u8]) -> Result<Value> {
        let started = TimedPath::Get.start();
        let read = cache.get_or_read(key, started, || self.of(key).state.get(key));
        self.shared().metrics.finish(TimedPath::Get, started);
        let (value, is_hit) = read?;
        if is_hit && self.first().state.budget.is_some() {
            self.of(key).state.tiers.count(key);
        }
        if started.is_some() && cache.is_due() {
            self.first().background.swap_hot_bins();
        }
        Ok(value)
    }
}

impl Partition {
    /// Lets the shadow model of the hot cache take the place of the current one, once it is trained.
    pub fn swap_hot_bins_if_due(&self) {
        let cache = self.state.shared.hot_cache.as_ref();
        // Only the first partition knows the others.
        let is_first = self.state.number() == 0;
        if let Some(cache) = cache.filter(|cache| is_first && cache.is_due()) {
            self.swap_hot_bins(cache);
        }
    }

    /// Lets the shadow model take the place of the current one.
    pub(in crate::store) fn swap_hot_bins(&self, cache: &HotCache) {
        let others: Vec<_> = self.others.iter().filter_map(|one| one.upgrade()).collect();
        let states = || {
            let others = others.iter().map(|one| &one.state);
            std::iter::once(&self.state).chain(others)
        };
        let keys = states().map(|state| state.tiers.keys()).sum();
        // Who blocks keys holds what changes the table.
        cache.swap(keys, || states().for_each(|state| drop(state.applying())));
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
