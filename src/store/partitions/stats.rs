//! Statistics of all partitions together.

use super::Partitions;
use crate::Stats;
use crate::hot_cache::HotCache;
use crate::lsm::LevelStats;
use crate::store::inner::StoreInner;
use crate::store::resident::budget::Budget;
use crate::store::stats::{Latencies, SpillStats, Stalls, Steps, StoreStats};

impl Partitions {
    /// Statistics of the store.
    pub fn stats(&self) -> StoreStats {
        let states = || self.all().iter().map(|partition| &partition.state);
        let sum = |of: &dyn Fn(&StoreInner) -> u64| states().map(of).sum::<u64>();
        let shared = self.shared();
        let kept = states().map(|state| {
            let old_versions = state.old_versions();
            (old_versions.versions(), old_versions.bytes())
        });
        let kept: Vec<_> = kept.collect();
        let moved = |state: &StoreInner| state.budget.as_ref().map_or((0, 0), Budget::moved);
        let mut all = StoreStats {
            keys: sum(&|state| state.tiers.keys()),
            partitions: self.first().state.store_dir.manifest().partitions,
            index: states()
                .map(|state| state.tiers.table.stats())
                .reduce(add_index)
                .expect("a store has a partition"),
            sequence: sum(&|state| state.log.next_sequence() - 1),
            log_bytes: sum(&|state| state.log.bytes()),
            snapshots: shared.snapshots.live().values().sum(),
            kept_versions: kept.iter().map(|(versions, _)| versions).sum(),
            kept_memory_bytes: kept.iter().map(|(_, bytes)| bytes.in_memory).sum(),
            kept_file_bytes: kept.iter().map(|(_, bytes)| bytes.spilled).sum(),
            replayed_records: sum(&|state| state.replayed_records),
            record_bytes: sum(&|state| state.tiers.table.record_bytes()),
            level_bytes: sum(&|state| state.tiers.table.level_bytes()),
            items_evicted: sum(&|state| moved(state).0),
            items_promoted: sum(&|state| moved(state).1),
            read_below: sum(&|state| state.tiers.read_below()),
            latencies: Latencies::of(self.all()),
            stalls: Stalls::of(self.all(), &self.queue.stalls),
            gpu_batches: shared.sorter.gpu_batches(),
            #[cfg(feature = "cuda")]
            gpu_located: shared.gpu_reads.located(),
            #[cfg(not(feature = "cuda"))]
            gpu_located: 0,
            device_memory_bytes: shared.device_budget.taken(),
            steps: Steps::default(),
            spill: SpillStats::default(),
            hot_cache: shared
                .hot_cache
                .as_ref()
                .map(HotCache::stats)
                .unwrap_or_default(),
        };
        for state in states() {
            let steps = *state.steps.lock();
            all.steps.versions += steps.versions;
            all.steps.answers += steps.answers;
            all.steps.log += steps.log;
            all.steps.index += steps.index;
            add_spill(&mut all.spill, state.tiers.spill.stats());
        }
        all
    }
}

fn add_index(mut all: Stats, other: Stats) -> Stats {
    let filled = all.load_factor * all.slots as f64 + other.load_factor * other.slots as f64;
    all.items += other.items;
    all.slots += other.slots;
    all.load_factor = filled / all.slots as f64;
    all.levels = all.levels.max(other.levels);
    all.top_level = all.top_level.max(other.top_level);
    all.file_len += other.file_len;
    all.free_bytes += other.free_bytes;
    all.free_bytes_held += other.free_bytes_held;
    all.resizing |= other.resizing;
    all.resizes += other.resizes;
    all.longest_pause = all.longest_pause.max(other.longest_pause);
    all.operations += other.operations;
    all.pm_touches += other.pm_touches;
    all.checkpoints += other.checkpoints;
    all.cache_lookups += other.cache_lookups;
    all.cache_hits += other.cache_hits;
    all.device_memory_bytes += other.device_memory_bytes;
    all
}

fn add_spill(all: &mut SpillStats, other: SpillStats) {
    let levels = all.levels.len().max(other.levels.len());
    all.levels.resize(levels, LevelStats::default());
    for (level, other) in all.levels.iter_mut().zip(&other.levels) {
        level.files += other.files;
        level.bytes += other.bytes;
        level.entries += other.entries;
        level.tombstones += other.tombstones;
    }
    all.compactions += other.compactions;
    all.moves += other.moves;
    all.compaction_read += other.compaction_read;
    all.compaction_written += other.compaction_written;
    all.cache_hits += other.cache_hits;
    all.cache_misses += other.cache_misses;
    all.cache_bytes += other.cache_bytes;
    all.memory += other.memory;
    all.filter_reads += other.filter_reads;
    all.value_files += other.value_files;
    all.value_bytes += other.value_bytes;
    all.live_value_bytes += other.live_value_bytes;
    all.gpu_compaction_read += other.gpu_compaction_read;
    all.compaction_rate_wait += other.compaction_rate_wait;
}
