//! Statistics as text that Prometheus reads.

use crate::Stats;
use crate::metrics::exposition::{Exposition, escaped, with};
use crate::store::stats::{LevelStats, SpillStats, Steps, StoreStats};

/// Statistics of some stores as text that Prometheus reads (exposition format 0.0.4, content type
/// `text/plain; version=0.0.4`). Each store has a name, which all of its samples have as the label `store`.
///
/// Names begin with `gphash_`. Units are seconds and bytes, and what only grows ends in `_total`. Latencies are the
/// histograms `gphash_latency_seconds`, by `path`. Of short calls these have one in
/// `gphash_latency_sample_interval`.
///
/// # Examples
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
/// store.put("ada", "lovelace")?;
/// let text = gphash::store::prometheus(&[("names", &store.stats())]);
/// assert!(text.contains("\ngphash_keys{store=\"names\"} 1\n"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn prometheus(stores: &[(&str, &StoreStats)]) -> String {
    let mut text = Exposition::default();
    for (name, stats) in stores {
        let labels = format!("store=\"{}\"", escaped(name));
        of_store(&mut text, &labels, stats);
    }
    text.into_text()
}

impl StoreStats {
    /// The statistics as text that Prometheus reads, for a process with one store: [`prometheus`] without the
    /// label `store`.
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
    /// store.put("ada", "lovelace")?;
    /// let text = store.stats().to_prometheus();
    /// assert!(text.contains("\n# TYPE gphash_keys gauge\ngphash_keys 1\n"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn to_prometheus(&self) -> String {
        let mut text = Exposition::default();
        of_store(&mut text, "", self);
        text.into_text()
    }
}

// Every field is named, so that a new one is not forgotten.
fn of_store(text: &mut Exposition, labels: &str, stats: &StoreStats) {
    let StoreStats {
        keys,
        partitions,
        index,
        sequence,
        log_bytes,
        snapshots,
        kept_versions,
        kept_memory_bytes,
        kept_file_bytes,
        replayed_records,
        record_bytes,
        level_bytes,
        items_evicted,
        items_promoted,
        read_below,
        latencies,
        stalls,
        gpu_batches,
        gpu_located,
        device_memory_bytes,
        steps,
        spill,
        hot_cache,
    } = stats;
    let gauges = [
        (
            "keys",
            *keys as f64,
            "Keys with a value, estimated from above with sorted files.",
        ),
        (
            "partitions",
            f64::from(*partitions),
            "Partitions of the store.",
        ),
        (
            "sequence",
            *sequence as f64,
            "Sequence numbers given, in all partitions together.",
        ),
        (
            "log_bytes",
            *log_bytes as f64,
            "Log that a recovery would read.",
        ),
        (
            "snapshots",
            *snapshots as f64,
            "Open iterators, snapshots and transactions.",
        ),
        (
            "kept_versions",
            *kept_versions as f64,
            "Replaced values kept for snapshots.",
        ),
        (
            "kept_memory_bytes",
            *kept_memory_bytes as f64,
            "Memory of kept values.",
        ),
        (
            "kept_file_bytes",
            *kept_file_bytes as f64,
            "Kept values in a file.",
        ),
        (
            "replayed_records",
            *replayed_records as f64,
            "Log records replayed by the opening.",
        ),
        (
            "record_bytes",
            *record_bytes as f64,
            "The records of the index, with a budget.",
        ),
        ("level_bytes", *level_bytes as f64, "Levels of the index."),
        (
            "device_memory_bytes",
            *device_memory_bytes as f64,
            "Memory of a GPU that the store has taken.",
        ),
    ];
    let counters = [
        (
            "items_evicted_total",
            *items_evicted as f64,
            "Items evicted to sorted files.",
        ),
        (
            "items_promoted_total",
            *items_promoted as f64,
            "Items promoted to the index.",
        ),
        (
            "read_below_total",
            *read_below as f64,
            "Values found in sorted files.",
        ),
        (
            "gpu_batches_total",
            *gpu_batches as f64,
            "Groups of batches on a GPU.",
        ),
        (
            "gpu_located_total",
            *gpu_located as f64,
            "Keys of columns found by a GPU.",
        ),
    ];
    text.add_all("gauge", labels, &gauges);
    text.add_all("counter", labels, &counters);
    for (path, stats) in latencies.iter() {
        text.latency(labels, path, stats);
    }
    for (reason, stats) in stalls.iter() {
        text.stalls(labels, reason, stats);
    }
    of_steps(text, labels, steps);
    of_index(text, labels, index);
    of_spill(text, labels, spill);
    let (gauges, counters) = hot_cache.families();
    text.add_all("gauge", labels, &gauges);
    text.add_all("counter", labels, &counters);
}

fn of_steps(text: &mut Exposition, labels: &str, steps: &Steps) {
    let Steps {
        versions,
        answers,
        log,
        index,
    } = steps;
    let steps = [
        ("versions", versions),
        ("answers", answers),
        ("log", log),
        ("index", index),
    ];
    for (step, took) in steps {
        let help = "How long steps of groups of batches took.";
        let counters = [("step_seconds_total", took.as_secs_f64(), help)];
        text.add_all("counter", &with(labels, "step", step), &counters);
    }
}

fn of_index(text: &mut Exposition, labels: &str, stats: &Stats) {
    let Stats {
        engine,
        domain,
        items,
        slots,
        load_factor,
        levels,
        top_level,
        file_len,
        free_bytes,
        free_bytes_held,
        resizing,
        resizes,
        longest_pause,
        operations,
        pm_touches,
        checkpoints,
        cache_lookups,
        cache_hits,
        device_memory_bytes,
    } = stats;
    let info = with(&with(labels, "engine", engine), "domain", domain);
    let help = "Engine and persistence domain; always 1.";
    text.add_all("gauge", &info, &[("index_info", 1.0, help)]);
    let resizing = f64::from(u8::from(*resizing));
    let pause = longest_pause.as_secs_f64();
    let gauges = [
        ("index_items", *items as f64, "Items of the index."),
        ("index_slots", *slots as f64, "Slots of all live levels."),
        ("index_load_ratio", *load_factor, "Items divided by slots."),
        ("index_levels", f64::from(*levels), "Live levels."),
        (
            "index_top_level",
            f64::from(*top_level),
            "Number of the top level.",
        ),
        (
            "index_file_bytes",
            *file_len as f64,
            "The file of the index.",
        ),
        (
            "index_free_bytes",
            *free_bytes as f64,
            "Ranges of it that hold nothing.",
        ),
        (
            "index_free_held_bytes",
            *free_bytes_held as f64,
            "Those with blocks on the disk.",
        ),
        (
            "index_device_memory_bytes",
            *device_memory_bytes as f64,
            "Memory of a GPU that the index has taken.",
        ),
        (
            "index_resizing",
            resizing,
            "1 while a resize is under way, else 0.",
        ),
        (
            "index_longest_pause_seconds",
            pause,
            "The longest that growth held a batch up.",
        ),
    ];
    let counters = [
        ("index_resizes_total", *resizes as f64, "Levels added."),
        (
            "index_operations_total",
            *operations as f64,
            "Operations of batches.",
        ),
        (
            "index_pm_touches_total",
            *pm_touches as f64,
            "PM touches of those operations.",
        ),
        (
            "index_checkpoints_total",
            *checkpoints as f64,
            "Checkpoints ever of the file.",
        ),
        (
            "index_cache_lookups_total",
            *cache_lookups as f64,
            "Lookups in the bucket cache.",
        ),
        (
            "index_cache_hits_total",
            *cache_hits as f64,
            "Values that the bucket cache had.",
        ),
    ];
    text.add_all("gauge", labels, &gauges);
    text.add_all("counter", labels, &counters);
}

fn of_spill(text: &mut Exposition, labels: &str, stats: &SpillStats) {
    let SpillStats {
        levels,
        compactions,
        moves,
        compaction_read,
        compaction_written,
        gpu_compaction_read,
        compaction_rate_wait,
        cache_hits,
        cache_misses,
        cache_bytes,
        memory,
        filter_reads,
        value_files,
        value_bytes,
        live_value_bytes,
    } = stats;
    for (level, stats) in levels.iter().enumerate() {
        let LevelStats {
            files,
            bytes,
            entries,
            tombstones,
        } = stats;
        let gauges = [
            ("spill_files", *files as f64, "Sorted files."),
            ("spill_file_bytes", *bytes as f64, "Bytes of sorted files."),
            (
                "spill_entries",
                *entries as f64,
                "Keys of sorted files, tombstones among them.",
            ),
            (
                "spill_tombstones",
                *tombstones as f64,
                "Tombstones of sorted files.",
            ),
        ];
        text.add_all("gauge", &with(labels, "level", level), &gauges);
    }
    let (read, written) = (*compaction_read as f64, *compaction_written as f64);
    let counters = [
        (
            "spill_compactions_total",
            *compactions as f64,
            "Merges of sorted files.",
        ),
        (
            "spill_moves_total",
            *moves as f64,
            "Files that only got another level.",
        ),
        (
            "spill_compaction_read_bytes_total",
            read,
            "Files that merges have read.",
        ),
        (
            "spill_compaction_written_bytes_total",
            written,
            "Files that merges have written.",
        ),
        (
            "spill_gpu_compaction_read_bytes_total",
            *gpu_compaction_read as f64,
            "Of the files read, what a GPU has merged.",
        ),
        (
            "spill_compaction_rate_wait_seconds_total",
            compaction_rate_wait.as_secs_f64(),
            "How long merges have waited for their rate.",
        ),
        (
            "spill_cache_hits_total",
            *cache_hits as f64,
            "Data blocks that were cached.",
        ),
        (
            "spill_cache_misses_total",
            *cache_misses as f64,
            "Data blocks that were not.",
        ),
        (
            "spill_filter_reads_total",
            *filter_reads as f64,
            "Filters and indexes that were read again.",
        ),
    ];
    let gauges = [
        (
            "spill_cache_bytes",
            *cache_bytes as f64,
            "Data blocks in memory.",
        ),
        (
            "spill_memory_bytes",
            *memory as f64,
            "Filters and indexes in memory.",
        ),
        ("value_files", *value_files as f64, "Value files."),
        (
            "value_file_bytes",
            *value_bytes as f64,
            "Bytes of value files.",
        ),
        (
            "value_file_live_bytes",
            *live_value_bytes as f64,
            "Bytes of values to which sorted files refer.",
        ),
    ];
    text.add_all("counter", labels, &counters);
    text.add_all("gauge", labels, &gauges);
}

#[cfg(all(test, not(loom)))]
mod tests;
