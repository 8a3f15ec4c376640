//! Refreshing the cache beside running batches (GPHash §3.3.3).
//!
//! The writer's lock is held while buckets are chosen and while they are shown to readers, a
//! moment each time; copying them holds no lock. Lookups are never kept away, but for a moment
//! when the cache's memory is made anew.

mod refresher;

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use bytemuck::Zeroable;

use super::kernels::Grid;
use super::kernels::declarations::{
    CACHE_ASSIGN, CACHE_FILL, CACHE_LINK, CACHE_RELEASE, CACHE_SCORE, CACHE_SELECT,
};
use super::stream::BatchStream;
use super::table::{
    DeviceTable, Entries, Exclusive, OUTCOME_LEN, SCORES_LEN, buckets_of, value_stride,
};
use crate::gpu::abi::{CacheOutcome, CacheRefresh, SCORES, TableView};
use crate::gpu::memory::{copy_out, fill, free_memory, wait};
use crate::gpu::stream::Stream;
use crate::hot_cache::selection::{affordable, missed_share, select};
use crate::pm::Mapping;
use crate::table::Table;
use crate::width::{saturating_u64, to_usize};
use crate::{CachePolicy, Result};

pub use refresher::Refresher;

/// Most buckets that are filled in one launch, which new levels and freed records wait for.
const SLICE_BUCKETS_MAX: u64 = 1024;

/// Most bytes of values of such a launch.
const SLICE_BYTES_MAX: u64 = 8 << 20;

/// Most warps that fill entries at a time: the file is for others.
const FILL_WARPS_MAX: u64 = 128;

/// Slices that are shown to readers together.
const LINKED_SLICES: u64 = 8;

/// How much of the time a refresh leaves the file to batches.
#[derive(Debug, Clone, Copy)]
pub enum Pace<'s> {
    /// Most of it while batches run, none otherwise: someone waits for the refresh.
    AtOnce,
    /// Most of it, until it is told to stop or someone waits for a refresh: the next one goes on from
    /// there.
    Considerate(&'s AtomicBool),
}

/// How long a refresh rests that leaves time to batches, as a multiple of the time in which it worked.
const REST_FACTOR: u32 = 12;

impl DeviceTable {
    /// Refreshes the cache: chooses its buckets anew, and fills in those that it does not hold.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu). What has been shown to readers by then stays right.
    pub fn refresh_cache(&self, table: &Table<Mapping>, pace: Pace<'_>) -> Result<()> {
        let waits = u32::from(matches!(pace, Pace::AtOnce));
        self.awaited_refreshes.fetch_add(waits, Ordering::Relaxed);
        let _alone = self.refreshing.lock();
        self.awaited_refreshes.fetch_sub(waits, Ordering::Relaxed);
        self.count_lookups(table)?;
        let mut batch_stream = self.plain_stream()?;
        let chosen = self.beside_batches(pace, || self.choose_cached(table, &mut batch_stream))?;
        let stream = &batch_stream.stream;
        if let Some((refresh, outcome)) = chosen {
            // They may still read what was in the entries before.
            self.reader_gate.wait();
            self.readers.wait();
            let incoming = outcome.incoming.min(refresh.entries);
            let slice = slice_len(&self.view_now());
            for first in (0..incoming).step_by(to_usize(slice * LINKED_SLICES)) {
                if self.should_end(pace) {
                    break;
                }
                let shown = first..incoming.min(first + slice * LINKED_SLICES);
                for from in shown.clone().step_by(to_usize(slice)) {
                    let part = from..shown.end.min(from + slice);
                    self.beside_batches(pace, || self.fill_cache(stream, refresh, part))?;
                }
                self.beside_batches(pace, || self.link_cached(stream, refresh, shown.clone()))?;
            }
            tracing::debug!(
                entries = refresh.entries,
                evicted = outcome.evicted,
                incoming,
                "refreshed the bucket cache"
            );
        }
        self.give(batch_stream);
        Ok(())
    }

    fn should_end(&self, pace: Pace<'_>) -> bool {
        match pace {
            Pace::AtOnce => false,
            Pace::Considerate(stop) => {
                stop.load(Ordering::Acquire) || self.awaited_refreshes.load(Ordering::Relaxed) > 0
            }
        }
    }

    /// Chooses the buckets to be held and gives them entries; `None` if there is no cache.
    fn choose_cached(
        &self,
        table: &Table<Mapping>,
        batch_stream: &mut BatchStream,
    ) -> Result<Option<(CacheRefresh, CacheOutcome)>> {
        let mut writer = self.writer()?;
        self.exclusive(table, &mut writer, batch_stream)
            .size_cache()?;
        let (cache, stream) = (&mut writer.cache, &batch_stream.stream);
        let Some(entries) = &mut cache.entries else {
            return Ok(None);
        };
        cache.doubtful = true;
        let view = self.view_now();
        let mut refresh = entries.refresh();
        refresh.round = self.launches.load(Ordering::Relaxed);
        // Refreshes that follow each other closely would forget what they know.
        let operations = table.counts.operations();
        if operations - cache.aged_at >= buckets_of(table) {
            cache.aged_at = operations;
            refresh.ages = 1;
        }
        let mut scores = vec![0u32; 2 * SCORES];
        // SAFETY: the lists are as long as is said here; the writer's lock keeps changes away, and
        // nobody looks at the scores before the wait.
        unsafe {
            let zeroed = to_usize(SCORES_LEN + OUTCOME_LEN);
            fill(stream, refresh.scores, 0, zeroed)?;
            self.kernels
                .launch(stream, CACHE_SCORE, Grid::Device, (view, refresh))?;
            copy_out(
                stream,
                bytemuck::cast_slice_mut(&mut scores),
                refresh.scores,
            )?;
        }
        wait(stream)?;
        let (unlinked, linked) = scores.split_at(SCORES);
        let selection = select(unlinked, linked, entries.count);
        if cache.policy == CachePolicy::Lfu {
            self.expect_missed(missed_share(unlinked, linked, &selection));
        }
        refresh.threshold = selection.threshold;
        refresh.keep = selection.keep;
        refresh.enter = selection.enter;
        refresh.room = selection.room;
        let mut outcome = CacheOutcome::zeroed();
        // SAFETY: as above.
        unsafe {
            for kernel in [CACHE_SELECT, CACHE_RELEASE, CACHE_ASSIGN] {
                let arguments = (view, refresh, entries.outcome());
                self.kernels
                    .launch(stream, kernel, Grid::Device, arguments)?;
            }
            let outcome = bytemuck::bytes_of_mut(&mut outcome);
            copy_out(stream, outcome, entries.outcome())?;
        }
        wait(stream)?;
        let available = entries.free + outcome.evicted.min(entries.count);
        entries.free = available - outcome.taken.min(available);
        cache.doubtful = false;
        Ok(Some((refresh, outcome)))
    }

    /// Copies some of the chosen buckets into their entries.
    fn fill_cache(&self, stream: &Stream, refresh: CacheRefresh, part: Range<u64>) -> Result<()> {
        // Held like a lookup's, so that no record is used again meanwhile.
        let view = self.hold_view();
        if view.cache.records == 0 {
            return Ok(());
        }
        // SAFETY: what the view names stays while it is held, the lists of the refresh with it: only
        // a refresh makes new ones.
        unsafe {
            let grid = Grid::Warps((part.end - part.start).min(FILL_WARPS_MAX));
            let arguments = (*view, refresh, part.start, part.end);
            self.kernels.launch(stream, CACHE_FILL, grid, arguments)?;
        }
        Ok(wait(stream)?)
    }

    /// Does a part of a refresh, and then leaves time to the batches that run beside it.
    fn beside_batches<T>(&self, pace: Pace<'_>, work: impl FnOnce() -> T) -> T {
        let begin = Instant::now();
        let launches = self.launches.load(Ordering::Relaxed);
        let done = work();
        let has_company = self.launches.load(Ordering::Relaxed) != launches;
        if has_company || matches!(pace, Pace::Considerate(_)) {
            thread::sleep(begin.elapsed() * REST_FACTOR);
        }
        done
    }

    /// Shows some of the chosen buckets to readers.
    fn link_cached(&self, stream: &Stream, refresh: CacheRefresh, part: Range<u64>) -> Result<()> {
        let writer = self.writer()?;
        let Some(entries) = &writer.cache.entries else {
            return Ok(());
        };
        // SAFETY: the writer's lock keeps the table and the cache as they are.
        unsafe {
            let grid = Grid::Warps(part.end - part.start);
            let (view, outcome) = (self.view_now(), entries.outcome());
            let arguments = (view, refresh, part.start, part.end, outcome);
            self.kernels.launch(stream, CACHE_LINK, grid, arguments)?;
        }
        Ok(wait(stream)?)
    }
}

impl Exclusive<'_> {
    /// Sees to it that there are as many entries as the table should have now.
    fn size_cache(&mut self) -> Result<()> {
        if self.writer.cache.uses.is_none() {
            return Ok(());
        }
        let view = self.device_table.view_now();
        let wanted =
            saturating_u64((self.writer.cache.ratio * buckets_of(self.table) as f64).ceil());
        let levels = view.bottom_level as usize..=view.top_level as usize;
        let images = levels
            .into_iter()
            .any(|level| view.level_probe[level] == view.file + view.level_offset[level]);
        if let Some(entries) = &self.writer.cache.entries {
            // A table that is being emptied below has some more buckets for a while.
            let fits = entries.wanted >= wanted - wanted / 4 && entries.wanted <= 2 * wanted;
            if fits && !self.writer.cache.doubtful && (!entries.buckets.is_empty() || !images) {
                return Ok(());
            }
        }
        drop(self.give_up_entries()?);
        let writer = &mut *self.writer;
        writer.cache.doubtful = false;
        let quota = &writer.cache.quota;
        // The lists have some bytes beside those of entries.
        let allowed = quota.left().saturating_sub(SCORES_LEN + OUTCOME_LEN);
        let len = Entries::len_of_one(&view, images);
        let count = affordable(wanted, len, free_memory()?, allowed);
        if count == 0 {
            return Ok(());
        }
        match Entries::new(
            quota,
            &self.batch_stream.stream,
            &view,
            count,
            wanted,
            images,
        ) {
            Ok(entries) => {
                entries.enter(&mut self.device_table.view_alone());
                writer.cache.entries = Some(entries);
            }
            // Others took the memory meanwhile; the next refresh tries again.
            Err(error) => tracing::info!(%error, "no room for the bucket cache"),
        }
        Ok(())
    }
}

/// Buckets that are filled in one launch.
fn slice_len(view: &TableView) -> u64 {
    let bytes = u64::from(view.slots) * value_stride(view);
    (SLICE_BYTES_MAX / bytes).clamp(1, SLICE_BUCKETS_MAX)
}
