//! Statistics of an index.

use std::time::Duration;

use bytemuck::Pod;

use super::Index;
use crate::pm::Medium;
use crate::sync::Ordering;
use crate::table::Table;
use crate::{Domain, Engine};

/// Statistics of an index at one moment; counters begin at its opening.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Stats {
    /// The engine that runs the batches; never `Auto`.
    pub engine: Engine,
    /// What a store into the file is worth; never `Auto`.
    pub domain: Domain,
    /// Items.
    pub items: u64,
    /// Slots of all live levels.
    pub slots: u64,
    /// Items divided by slots.
    pub load_factor: f64,
    /// Live levels.
    pub levels: u32,
    /// Number of the top level, which has 2^`top_level` buckets.
    pub top_level: u32,
    /// Bytes of the file.
    pub file_len: u64,
    /// Bytes of the file in ranges that hold nothing, which records of any size may take. The file system has taken
    /// back all of them but `free_bytes_held`.
    pub free_bytes: u64,
    /// Those that still have blocks on the disk.
    pub free_bytes_held: u64,
    /// Whether a resize is under way.
    pub resizing: bool,
    /// Levels added since the file was opened, each of which began a resize.
    pub resizes: u64,
    /// The longest time since the file was opened that one step of its growth held up a batch:
    /// adding a level, adding records, emptying a slice of a level. Room in the file is preallocated
    /// by a thread of the index, so that such a step need not wait for the disk.
    pub longest_pause: Duration,
    /// Operations that batches have done.
    pub operations: u64,
    /// PM touches of those operations: distinct 128-byte lines of the file that each one read
    /// or wrote.
    pub pm_touches: u64,
    /// Checkpoints ever taken of the file.
    pub checkpoints: u64,
    /// Values that lookups asked the bucket cache for.
    pub cache_lookups: u64,
    /// Those that it had.
    pub cache_hits: u64,
    /// Bytes that the index has taken of the memory of its GPU, as
    /// [`device_memory_budget`](crate::Options::device_memory_budget) counts them; 0 on the CPU.
    pub device_memory_bytes: u64,
}

impl Stats {
    /// PM touches for each operation; 0 before the first.
    pub fn pm_touches_per_op(&self) -> f64 {
        ratio(self.pm_touches, self.operations)
    }

    /// Share of the values that came from the bucket cache; 0 without one.
    pub fn hit_rate(&self) -> f64 {
        ratio(self.cache_hits, self.cache_lookups)
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

impl<K: Pod, V: Pod> Index<K, V> {
    /// Statistics of the index. Batches that run at the same time count when they pause or end.
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let index = gphash::Index::<u64, u64>::create(dir.path().join("index"), &gphash::Options::new())?;
    /// index.insert(&[1, 2], &[10, 20])?;
    /// let stats = index.stats();
    /// assert_eq!(stats.items, 2);
    /// println!("{} engine, {:.0} % full", stats.engine, 100.0 * stats.load_factor);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn stats(&self) -> Stats {
        self.backend.count(&self.table);
        let (cache_lookups, cache_hits) = self.backend.cache_uses(&self.table);
        Stats {
            cache_lookups,
            cache_hits,
            device_memory_bytes: self.backend.device_memory(),
            ..self.table.stats(self.backend.engine())
        }
    }
}

impl<M: Medium> Table<M> {
    /// Statistics of the table that `engine` works on; nothing is cached.
    pub(crate) fn stats(&self, engine: Engine) -> Stats {
        let levels = self.levels.live();
        let slots = self.slots();
        let superblock = *self.superblock();
        let (free_bytes, free_bytes_held) = self.free_extent_bytes();
        Stats {
            free_bytes,
            free_bytes_held,
            engine,
            domain: self.medium.domain(),
            items: self.len(),
            slots,
            load_factor: ratio(self.len(), slots),
            levels: levels.top - levels.bottom + 1,
            top_level: levels.top,
            file_len: superblock.file_len,
            resizing: levels.draining(self.shape.levels),
            resizes: self.maintenance.resizes.load(Ordering::Relaxed),
            longest_pause: self.maintenance.longest_pause(),
            operations: self.counts.operations(),
            pm_touches: self.counts.touches(),
            checkpoints: superblock.checkpoints,
            cache_lookups: 0,
            cache_hits: 0,
            device_memory_bytes: 0,
        }
    }
}
