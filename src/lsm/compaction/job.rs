//! One compaction.

use std::cell::Cell;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::rate::Throttle;
use crate::engine::Compactor;
use crate::lsm::cursor::{Cursor, Direction};
use crate::lsm::levels::{Levels, Output};
use crate::lsm::merge::Merge;
use crate::lsm::sst::{BlockHandle, Sst};
use crate::lsm::values::Value;
use crate::lsm::version::{LiveValues, LsmVersion};
use crate::lsm::{Entry, SpillOptions};
use crate::pool::rates::Side;
use crate::{Error, Result};

/// Keys of a file, at most, by which the work is cut into parts.
const SAMPLES_PER_FILE: usize = 256;

/// What came of a part that was to be the GPU's.
#[cfg_attr(not(feature = "cuda"), expect(dead_code))]
pub enum OnGpu<'l> {
    /// Its files. The first one of a lane takes longer than others.
    Made {
        output: Box<Output<'l>>,
        is_first: bool,
    },
    /// There was no room for it, which is being made.
    NotReady,
    /// The GPU does not do such parts.
    Refused,
}

/// See the [module](self).
#[derive(Debug)]
pub struct Job {
    version: Arc<LsmVersion>,
    /// Where the new files go.
    level: u32,
    /// Runs, the newest first; the last one is of that level.
    inputs: Vec<Vec<Arc<Sst>>>,
}

impl Job {
    /// A job on files of a version.
    pub fn new(
        version: &Arc<LsmVersion>,
        level: u32,
        inputs: impl IntoIterator<Item = Vec<Arc<Sst>>>,
    ) -> Self {
        Self {
            version: Arc::clone(version),
            level,
            inputs: inputs.into_iter().collect(),
        }
    }

    /// Where the new files go.
    #[cfg(feature = "cuda")]
    pub fn level(&self) -> u32 {
        self.level
    }

    /// Whether a tombstone of a key may hide something in a deeper level. A file whose filter cannot be read may have
    /// anything.
    pub fn hides(&self, key: &[u8]) -> bool {
        self.version.may_have_below(self.level, key).unwrap_or(true)
    }

    /// The files, those of the newest run first, each run in the order of its keys.
    pub fn files(&self) -> impl Iterator<Item = &Arc<Sst>> {
        self.inputs.iter().flatten()
    }

    /// Numbers of the files that it takes away, or moves.
    pub fn numbers(&self) -> impl Iterator<Item = u64> {
        self.files().map(|sst| sst.number())
    }

    /// Whether the files can go to the level as they are: no two of them have keys in common, and no
    /// tombstone is left that hides nothing.
    fn is_move(&self) -> bool {
        let is_last = |sst: &Arc<Sst>| {
            let properties = sst.properties();
            let mut below = self
                .version
                .files()
                .filter(|(level, _)| *level > self.level);
            !below.any(|(_, sst)| {
                let other = sst.properties();
                other.smallest <= properties.largest && properties.smallest <= other.largest
            })
        };
        let Some((below, above)) = self.inputs.split_last() else {
            return false;
        };
        let mut files: Vec<&Arc<Sst>> = above.iter().flatten().collect();
        files.sort_by_key(|sst| &sst.properties().smallest);
        let disjoint =
            |pair: &[&Arc<Sst>]| pair[0].properties().largest < pair[1].properties().smallest;
        below.is_empty()
            && files.windows(2).all(disjoint)
            && !files
                .iter()
                .any(|sst| sst.properties().tombstones > 0 && is_last(sst))
    }

    /// Does it, unless it is stopped: then nothing has changed.
    ///
    /// # Errors
    /// [`Error::Damaged`](crate::Error::Damaged), or what the operating system answers. Nothing has
    /// changed then.
    pub fn run(&self, levels: &Levels) -> Result<()> {
        levels.retry_failed_edit()?;
        let numbers: Vec<u64> = self.numbers().collect();
        let counts = &levels.counts;
        if self.is_move() {
            let files: Vec<Arc<Sst>> = self.files().cloned().collect();
            levels.edit(&files, self.level, &numbers)?;
            counts.moves.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        let Some((files, moved)) = self.merge(levels)? else {
            return Ok(());
        };
        levels.edit(&files, self.level, &numbers)?;
        let read = self.bytes();
        let written: u64 = files.iter().map(|sst| sst.len()).sum();
        counts.compactions.fetch_add(1, Ordering::Relaxed);
        counts.bytes_read.fetch_add(read + moved, Ordering::Relaxed);
        counts
            .bytes_written
            .fetch_add(written + moved, Ordering::Relaxed);
        Ok(())
    }

    /// Writes the new files, several threads a range of keys each. Values of value files that are worn are
    /// written anew, and their bytes counted. Gives nothing if it was stopped.
    fn merge(&self, levels: &Levels) -> Result<Option<(Vec<Arc<Sst>>, u64)>> {
        let cuts = self.cuts(levels.options())?;
        let ends = cuts.iter().map(|cut| Some(cut.as_slice())).chain([None]);
        let starts = [None].into_iter().chain(ends.clone());
        let ranges: Vec<_> = starts.zip(ends).collect();
        let pool = &levels.options().pool;
        let bytes = self.bytes() / ranges.len() as u64;
        let merged = pool.map(ranges, |range| self.merge_part(levels, range, bytes));
        let merged: Option<Vec<(Output<'_>, u64)>> =
            merged.into_iter().collect::<Result<Option<_>>>()?;
        Ok(merged.map(|parts| {
            let moved = parts.iter().map(|(_, moved)| moved).sum();
            let files = parts.into_iter().flat_map(|(part, _)| part.into_files());
            (files.collect(), moved)
        }))
    }

    /// Keys at which the work is cut into parts for several threads, of about as many bytes each.
    fn cuts(&self, options: &SpillOptions) -> Result<Vec<Vec<u8>>> {
        let bytes = self.bytes();
        let parts = (bytes / options.part_bytes_min.max(1)).min(options.pool.count() as u64);
        let parts = parts.max(options.gpu.parts_of(bytes));
        if parts < 2 {
            return Ok(Vec::new());
        }
        let mut samples: Vec<(Vec<u8>, u64)> = Vec::new();
        for sst in self.files() {
            let meta = sst.meta()?;
            let step = sst.blocks().div_ceil(SAMPLES_PER_FILE);
            for nth in (0..sst.blocks()).step_by(step) {
                let last = (nth + step).min(sst.blocks()) - 1;
                let (from, to) = (meta.index.handle(nth).from, meta.index.handle(last).to);
                samples.push((sst.not_behind(&meta, nth).to_vec(), to - from));
            }
        }
        samples.sort_unstable();
        let total: u64 = samples.iter().map(|(_, bytes)| bytes).sum();
        let mut cuts: Vec<Vec<u8>> = Vec::new();
        let mut before = 0;
        for (key, bytes) in samples {
            let is_due = before * parts >= total * (cuts.len() as u64 + 1);
            if is_due && cuts.last().is_none_or(|last| *last < key) {
                cuts.push(key);
            }
            before += bytes;
        }
        Ok(cuts)
    }

    /// Bytes of all files.
    fn bytes(&self) -> u64 {
        self.files().map(|sst| sst.len()).sum()
    }

    /// As [`merge`](Self::merge), for the keys from one to before another, which have about so many bytes: on the GPU or
    /// on the CPU.
    fn merge_part<'l>(
        &self,
        levels: &'l Levels,
        range: (Option<&[u8]>, Option<&[u8]>),
        bytes: u64,
    ) -> Result<Option<(Output<'l>, u64)>> {
        let gpu = &levels.options().gpu;
        if levels.plan().is_stopping {
            return Ok(None);
        }
        let is_for_both = !self.moves_values();
        let mut refused = None;
        let mut throttle = Throttle::new(levels);
        if is_for_both && let Some(chosen) = gpu.choose(bytes) {
            // Before it has a lane. What the CPU does instead is taken, too.
            throttle.take(bytes);
            let started = throttle.worked();
            match self.merge_on_gpu(levels, chosen, range) {
                Ok(OnGpu::Made { output, is_first }) => {
                    if !is_first {
                        gpu.note(Side::Gpu, bytes, throttle.worked() - started);
                    }
                    levels.counts.gpu_bytes.fetch_add(bytes, Ordering::Relaxed);
                    throttle.take(bytes + output.written());
                    return Ok(Some((*output, 0)));
                }
                Ok(OnGpu::NotReady) => gpu.prepare(),
                Ok(OnGpu::Refused) => refused = Some(started),
                Err(error @ Error::Gpu { .. }) => {
                    tracing::warn!(%error, "the CPU compacts instead of the GPU");
                    gpu.rest();
                }
                Err(error) => return Err(error),
            }
        }
        let started = throttle.worked();
        let merged = self.merge_range(levels, range, &mut throttle)?;
        if is_for_both {
            gpu.note(Side::Cpu, bytes, throttle.worked() - started);
        }
        // It has cost more than the CPU alone.
        if let Some(started) = refused {
            gpu.note(Side::Gpu, bytes, throttle.worked() - started);
        }
        Ok(merged)
    }

    #[cfg(feature = "cuda")]
    fn merge_on_gpu<'l>(
        &self,
        levels: &'l Levels,
        gpu: &Compactor,
        range: (Option<&[u8]>, Option<&[u8]>),
    ) -> Result<OnGpu<'l>> {
        super::gpu_part::merge(self, levels, gpu, range)
    }

    /// A build without the feature `cuda` has no GPU.
    #[cfg(not(feature = "cuda"))]
    #[expect(clippy::unnecessary_wraps, clippy::unused_self)]
    fn merge_on_gpu<'l>(
        &self,
        _: &'l Levels,
        _: &Compactor,
        _: (Option<&[u8]>, Option<&[u8]>),
    ) -> Result<OnGpu<'l>> {
        Ok(OnGpu::Refused)
    }

    /// Whether values of a value file are to be written anew: the files are read for that, by the CPU.
    fn moves_values(&self) -> bool {
        let mut values = self.files().flat_map(|sst| &sst.properties().values);
        values.any(|of| self.is_worn(of.file))
    }

    /// As [`merge`](Self::merge), for the keys from one to before another.
    fn merge_range<'l>(
        &self,
        levels: &'l Levels,
        (from, to): (Option<&[u8]>, Option<&[u8]>),
        throttle: &mut Throttle,
    ) -> Result<Option<(Output<'l>, u64)>> {
        let read = Cell::new(0);
        // Blocks that are read for the last time displace nothing from the cache.
        let past_cache = |sst: &Sst, handle: BlockHandle| {
            read.set(read.get() + handle.bytes());
            sst.read_block(handle).map(Arc::new)
        };
        let from = from.map_or(Bound::Unbounded, Bound::Included);
        let cursors = self
            .inputs
            .iter()
            .map(|run| Cursor::seek(run, from, Direction::Forward, &past_cache))
            .collect::<Result<_>>()?;
        let mut merge = Merge::new(cursors, Direction::Forward)?;
        let mut output = Output::new(levels, self.level);
        let mut moved = 0;
        let spent = |moved: u64, output: &Output| read.get() + moved + output.written();
        while let Some(entry) = merge.entry() {
            if to.is_some_and(|to| to <= entry.key) {
                break;
            }
            let hides = || self.hides(entry.key);
            match entry.value {
                Some(Value::Apart(value)) if self.is_worn(value.file) => {
                    match merge.value() {
                        Ok(bytes) => {
                            let value = bytes.as_deref().map(Value::Inline);
                            output.add(&Entry { value, ..entry })?;
                            moved += bytes.map_or(0, |bytes| bytes.len() as u64);
                        }
                        // Who reads it is told. It must not be in the way of others.
                        Err(error) if error.is_damage_of_disk() => {
                            if let Some(of) = self.version.values_of(value.file) {
                                of.file.give_up();
                            }
                            output.add(&entry)?;
                        }
                        Err(error) => return Err(error),
                    }
                }
                Some(_) => output.add(&entry)?,
                None if hides() => output.add(&entry)?,
                None => {}
            }
            merge.advance()?;
            // By bytes, not entries: a value may be long.
            if throttle.take_chunk(spent(moved, &output)) && levels.plan().is_stopping {
                return Ok(None);
            }
        }
        output.finish()?;
        throttle.take(spent(moved, &output));
        Ok(Some((output, moved)))
    }

    /// Whether the values of a value file are to be written anew.
    fn is_worn(&self, number: u64) -> bool {
        let values = self.version.values_of(number);
        values.is_some_and(LiveValues::is_worn)
    }
}
