//! What the table has no room for: sorted files in levels, each of which is newer than those below.
//!
//! The files of level 0 are as they were added; those of a deeper level have no key in common.
//! Files never change. Which ones count is said by a [`Catalog`], so everything happens with its
//! atomic edits: until an edit, new files mean nothing; after it, old ones do not.

mod cache;
mod compaction;
mod cursor;
pub(crate) mod gather;
mod header;
mod levels;
mod lookups;
mod merge;
mod page;
mod pieces;
pub(crate) mod repair;
mod sst;
mod stats;
#[cfg(all(test, not(loom)))]
mod tests;
mod values;
mod version;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::Result;
use crate::metrics::latency::Latency;
use crate::metrics::stalls::StallRecorder;
use crate::pm::Dir;
use crate::pool::clock::Clock;
use crate::pool::rate_limiter::RateLimiter;
use crate::pool::{Pool, parallel};
pub(crate) use compaction::GpuCompaction;
use compaction::Workers;
pub(crate) use gphash_block::{Entry, INLINE_VALUE_BYTES_MAX};
pub(crate) use header::NUMBERS_MAX;
use levels::{Levels, Output};
pub(crate) use lookups::{Lookup, get_each};
use lookups::{NotRead, WaitsFor};
pub(crate) use page::{Page, PageOf};
use sst::Sst;
pub(crate) use sst::{Checked, MetaBlocks};
pub use stats::{LevelStats, SpillStats};
pub(crate) use values::Value;
pub(crate) use version::LsmVersion;

/// Writes an entry of an [addition](Spill::add).
pub(crate) type WriteEntry<'w> = &'w mut dyn FnMut(Entry) -> Result<()>;

/// What the manifest says of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LevelFile {
    pub number: u64,
    pub level: u32,
    /// Its length in bytes.
    pub len: u64,
}

impl LevelFile {
    /// Where it is.
    pub fn path(&self, dir: &Dir) -> PathBuf {
        dir.join(sst::name(self.number))
    }
}

/// Where the list of the files that count is kept.
pub(crate) trait Catalog: Send + Sync {
    /// Atomically and durably takes files out of the list, and then others into it: a number in both
    /// changes its level.
    ///
    /// # Errors
    /// What the operating system answers. A crash may then leave the list changed or not, until
    /// another edit succeeds.
    fn edit(&self, added: &[LevelFile], removed: &[u64]) -> Result<()>;

    /// Whether the disk has room for files that take the place of others.
    fn may_compact(&self) -> bool {
        true
    }

    /// Has a part of a file written, unless the room that is left is for others.
    ///
    /// # Errors
    /// [`Error::NoSpace`](crate::Error::NoSpace), and those of `write`.
    fn write(&self, write: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        write()
    }
}

/// How a spill works.
#[derive(Clone)]
pub(crate) struct SpillOptions {
    /// Files that are kept open.
    pub open_files: usize,
    /// Bytes of data blocks that are kept in memory.
    pub cache_bytes: u64,
    /// The filters and indexes that are kept in memory, of all spills of a store.
    pub meta: Arc<Clock<MetaBlocks>>,
    /// Bytes after which a file ends and the next one begins.
    pub file_bytes: u64,
    /// Values from this length on, in bytes, go into value files.
    pub value_bytes_min: usize,
    /// Bytes after which a value file ends.
    pub value_file_bytes: u64,
    /// Bytes of level 1, and of level 0, from which on it is too large; each deeper level may have ten times more.
    pub level_bytes: u64,
    /// Jobs that are compacted side by side; with none, nothing is compacted by itself.
    pub threads: usize,
    /// The threads that share the work of each job.
    pub pool: Arc<Pool>,
    /// The GPU that does parts of a job.
    pub gpu: Arc<GpuCompaction>,
    /// What bounds the bytes of jobs a second, if anything does.
    pub rate: Arc<RateLimiter>,
    /// Bytes of sorted files that are worth a thread of their own.
    pub part_bytes_min: u64,
    /// Numbers of files from this one on were never used.
    pub next_number: u64,
    pub store_id: [u64; 2],
}

/// An open spill. Dropping it stops its threads, within the time that a file needs to become durable.
pub(crate) struct Spill {
    // The threads end first.
    _workers: Workers,
    levels: Arc<Levels>,
    /// Held by the one who adds.
    adding: Mutex<()>,
}

impl Spill {
    /// Opens the files that count, removes others from the directory, which is made if need be, and starts
    /// the threads that compact.
    ///
    /// # Errors
    /// [`Error::Missing`](crate::Error::Missing), [`Error::Truncated`](crate::Error::Truncated),
    /// [`Error::Foreign`](crate::Error::Foreign), [`Error::NewerFormat`](crate::Error::NewerFormat) or
    /// [`Error::Damaged`](crate::Error::Damaged) for one of them, or what the operating system answers.
    pub fn open(
        dir: Dir,
        files: &[LevelFile],
        catalog: Arc<dyn Catalog>,
        options: SpillOptions,
    ) -> Result<Self> {
        let levels = Arc::new(Levels::open(dir, files, catalog, options)?);
        Ok(Self {
            _workers: Workers::start(Arc::clone(&levels)),
            levels,
            adding: Mutex::new(()),
        })
    }

    /// What it holds at this moment.
    pub fn version(&self) -> Arc<LsmVersion> {
        self.levels.version()
    }

    /// As [`version`](Self::version), if it holds anything.
    #[inline]
    pub fn version_if_any(&self) -> Option<Arc<LsmVersion>> {
        self.levels.version_if_any()
    }

    /// Writes entries in ascending order of their keys, no key twice, as new files of level 0: durable and visible when
    /// it returns, and newer than all before. Each part has a thread of the pool write its entries, and gives something
    /// back. A tombstone of a key that is not here is left out. While compaction is behind, it waits for up to a second
    /// before.
    ///
    /// # Errors
    /// What the operating system answers, and those of a part. Then none of the entries is visible; if the process or
    /// the machine stops before the next call succeeds, all of them may be there.
    pub fn add<P, R>(&self, pool: &Pool, parts: Vec<P>) -> Result<Vec<R>>
    where
        P: FnOnce(WriteEntry) -> Result<R> + Send,
        R: Send,
    {
        let _alone = self.adding.lock();
        self.levels.stall();
        self.levels.retry_failed_edit()?;
        let version = self.version();
        let write = |part: P| {
            let mut output = Output::new(&self.levels, 0);
            let made = part(&mut |entry| match entry.value {
                // One too many does no harm, if a filter cannot be read.
                None if !version.may_have(entry.key).unwrap_or(true) => Ok(()),
                _ => output.add(&entry),
            })?;
            output.finish()?;
            Ok((output, made))
        };
        let written = pool.map(parts, write);
        let written = written
            .into_iter()
            .collect::<Result<Vec<(Output<'_>, R)>>>()?;
        let (outputs, made): (Vec<Output<'_>>, Vec<R>) = written.into_iter().unzip();
        let files = outputs.into_iter().flat_map(Output::into_files);
        let files: Vec<Arc<Sst>> = files.collect();
        if !files.is_empty() {
            self.levels.edit(&files, 0, &[])?;
            self.levels.options().gpu.expect_parts();
            self.levels.wake();
        }
        Ok(made)
    }

    /// Bytes of filters and indexes in memory.
    pub fn filter_bytes(&self) -> u64 {
        self.levels.cache().meta_bytes()
    }

    /// Counts that so many ranges were read from a key on, of which what lies in many files is compacted.
    pub fn add_seeks(&self, key: &[u8], count: u64) {
        if let Some(version) = self.version_if_any() {
            self.levels.add_seeks(&version, key, count);
        }
    }

    /// Has files tried again that were found damaged, however short ago.
    pub fn try_damaged(&self) {
        self.version()
            .values()
            .iter()
            .for_each(|of| of.file.try_again());
        self.levels.plan().try_all();
    }

    /// As [`Levels::compact_all`].
    ///
    /// # Errors
    /// Those of the files.
    pub fn compact_all(&self, between: &mut dyn FnMut(u64, u64) -> bool) -> Result<()> {
        self.levels.compact_all(between)
    }

    /// Keys, in their order, at which [additions](Self::add) should be cut: one that has no key on both sides of any
    /// can be compacted in parts.
    pub fn cuts(&self) -> Vec<Vec<u8>> {
        self.levels.cuts()
    }

    /// Values from this length on, in bytes, are apart from their keys.
    pub fn value_bytes_min(&self) -> usize {
        self.levels.options().value_bytes_min
    }

    /// Statistics of this moment.
    pub fn stats(&self) -> SpillStats {
        SpillStats::of(&self.levels)
    }

    /// How long compactions took.
    pub fn compaction_latency(&self) -> &Latency {
        &self.levels.counts.compaction
    }

    /// Additions that waited for compaction.
    pub fn stalls(&self) -> &StallRecorder {
        &self.levels.counts.stalls
    }

    /// Reads all files that count, past the cache, and checks every checksum, the order of the keys, and
    /// that filter, index and properties say what is there. `progress` is told the bytes that were read and
    /// those of all files, now and then, from any thread.
    pub fn verify(&self, progress: &(dyn Fn(u64, u64) + Sync)) -> Vec<(PathBuf, Result<Checked>)> {
        let version = self.version();
        let files: Vec<_> = version.files().map(|(_, sst)| sst).collect();
        let total = files.iter().map(|sst| sst.len()).sum();
        let done = AtomicU64::new(0);
        let told = |bytes| progress(done.fetch_add(bytes, Ordering::Relaxed) + bytes, total);
        parallel::map(files, |sst| (sst.path(), sst.check(&told)))
    }
}
