//! The frozen bucket cache (GPHash §3.3): its memory. `ptx/include/cache.cuh` says how kernels use it,
//! `cache/` how it is filled.
//!
//! Buckets have ordinals, `1 << level` plus their number in the level. For each there is a link to
//! the entry that holds it and a count of its uses. These arrays are there from the beginning, and
//! twice as long with each new level. Entries are allocated by the first refresh.

use std::sync::Arc;

use bytemuck::Zeroable;

use super::exclusive::Exclusive;
use crate::engine::cuda::kernels::declarations::CACHE_REMOVE_LEVEL;
use crate::engine::cuda::kernels::{Grid, WARP};
use crate::gpu::abi::{
    CacheOutcome, CacheRefresh, CacheView, POLICY_LFU, POLICY_LRU, POLICY_RANDOM, SCORES, TableView,
};
use crate::gpu::budget::{IndexBudget, Quota};
use crate::gpu::memory::{DeviceMemory, copy_in, copy_on_device, copy_out, fill, wait};
use crate::gpu::stream::Stream;
use crate::layout::align_up;
use crate::pm::Mapping;
use crate::table::Table;
use crate::width::{to_usize, u32_of};
use crate::{CachePolicy, Options, Result};

/// The memory of a table's cache.
pub struct Cache {
    wanted: bool,
    pub policy: CachePolicy,
    /// Share of the buckets to be held.
    pub ratio: f64,
    pub uses: Option<Uses>,
    pub entries: Option<Entries>,
    /// Which buckets the entries hold is not known: a call failed amid a change of that.
    pub doubtful: bool,
    /// Operations that the table had seen when earlier uses were last halved.
    pub aged_at: u64,
    pub quota: Arc<Quota>,
}

/// What there is for each bucket.
pub struct Uses {
    links: DeviceMemory,
    access_counts: DeviceMemory,
}

/// Room for buckets.
pub struct Entries {
    pub count: u64,
    /// How many there should have been.
    pub wanted: u64,
    /// How many hold no bucket.
    pub free: u64,
    records: DeviceMemory,
    values: DeviceMemory,
    pub buckets: DeviceMemory,
    lists: DeviceMemory,
}

/// Memory that kernels may use until the view has changed.
#[must_use = "kernels may be using it"]
#[derive(Default)]
pub struct Outgrown {
    uses: Option<Uses>,
    entries: Option<Entries>,
}

impl Cache {
    /// A cache without memory.
    pub fn new(options: &Options, budget: &IndexBudget) -> Self {
        Self {
            wanted: options.cache_ratio > 0.0,
            policy: options.cache_policy,
            ratio: options.cache_ratio,
            uses: None,
            entries: None,
            doubtful: false,
            aged_at: 0,
            quota: Arc::clone(&budget.copies),
        }
    }

    /// Makes room for the uses of the buckets of levels up to `top`, keeping what was counted, and
    /// gives what the view is to have in place of `view`. A cache for which the device has no room
    /// is given up.
    ///
    /// The caller holds the writer's lock. What comes back besides may be dropped when no lookup
    /// has the view from before.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu).
    pub fn reach(
        &mut self,
        stream: &Stream,
        top: u32,
        view: CacheView,
    ) -> Result<(CacheView, Outgrown)> {
        let mut outgrown = Outgrown::default();
        if !self.wanted {
            return Ok((CacheView::default(), outgrown));
        }
        let counted = self.policy != CachePolicy::Random;
        let Ok(uses) = Uses::new(&self.quota, top, counted) else {
            tracing::info!("no room in device memory for the bucket cache");
            self.wanted = false;
            outgrown.uses = self.uses.take();
            outgrown.entries = self.entries.take();
            return Ok((CacheView::default(), outgrown));
        };
        uses.begin(stream, self.uses.as_ref())?;
        let view = CacheView {
            links: uses.links.address(),
            access_counts: uses.access_counts.address(),
            policy: policy_number(self.policy),
            ..view
        };
        outgrown.uses = self.uses.replace(uses);
        Ok((view, outgrown))
    }
}

impl Uses {
    fn new(quota: &Arc<Quota>, top: u32, counted: bool) -> Result<Self> {
        let len = 4usize << (top + 1);
        Ok(Self {
            links: DeviceMemory::new(quota, len)?,
            access_counts: DeviceMemory::new(quota, if counted { len } else { 0 })?,
        })
    }

    /// Copies what the old arrays hold and clears the rest.
    fn begin(&self, stream: &Stream, old: Option<&Self>) -> Result<()> {
        let arrays = [
            (&self.links, old.map(|old| &old.links)),
            (&self.access_counts, old.map(|old| &old.access_counts)),
        ];
        for (new, old) in arrays {
            let kept = old.map_or(0, DeviceMemory::len).min(new.len());
            // SAFETY: both blocks are at least as long as is said here.
            unsafe {
                if let Some(old) = old {
                    copy_on_device(stream, new.address(), old.address(), kept)?;
                }
                fill(stream, new.address() + kept as u64, 0, new.len() - kept)?;
            }
        }
        Ok(wait(stream)?)
    }
}

impl Entries {
    /// Room for `count` buckets of the table of `view`, all of it free.
    pub fn new(
        quota: &Arc<Quota>,
        stream: &Stream,
        view: &TableView,
        count: u64,
        wanted: u64,
        images: bool,
    ) -> Result<Self> {
        let slots = count * u64::from(view.slots);
        let image_len = if images {
            u64::from(view.bucket_size)
        } else {
            0
        };
        let entries = Self {
            count,
            wanted,
            free: count,
            records: DeviceMemory::new(quota, to_usize(slots) * 8)?,
            values: DeviceMemory::new(quota, to_usize(slots * value_stride(view)))?,
            buckets: DeviceMemory::new(quota, to_usize(count * image_len))?,
            lists: DeviceMemory::new(quota, to_usize(lists_len(count)))?,
        };
        let numbers: Vec<u32> =
            (0..u32::try_from(count).expect("entries have 32-bit numbers")).collect();
        // SAFETY: the blocks are as long; the numbers stay until the wait.
        unsafe {
            fill(stream, entries.records.address(), 0, entries.records.len())?;
            copy_in(
                stream,
                entries.refresh().free,
                bytemuck::cast_slice(&numbers),
            )?;
        }
        wait(stream)?;
        Ok(entries)
    }

    /// Bytes of one entry with its share of the lists.
    pub fn len_of_one(view: &TableView, images: bool) -> u64 {
        let image_len = if images {
            u64::from(view.bucket_size)
        } else {
            0
        };
        u64::from(view.slots) * (8 + value_stride(view)) + image_len + LIST_LEN
    }

    pub fn enter(&self, view: &mut TableView) {
        view.cache.records = self.records.address();
        view.cache.values = self.values.address();
        view.cache.buckets = self.buckets.address();
        view.cache.value_stride = u32_of(value_stride(view));
    }

    /// What the launches of a refresh are told, but for what it decides.
    pub fn refresh(&self) -> CacheRefresh {
        let scores = self.lists.address();
        let evicted = scores + SCORES_LEN + OUTCOME_LEN;
        CacheRefresh {
            scores,
            evicted,
            incoming: evicted + self.count * 8,
            free: evicted + self.count * 16,
            entries: self.count,
            free_count: self.free,
            ..CacheRefresh::default()
        }
    }

    /// Where launches leave what they have come to.
    pub fn outcome(&self) -> u64 {
        self.lists.address() + SCORES_LEN
    }
}

impl Exclusive<'_> {
    /// Takes all buckets out of the cache, and the entries from the view.
    pub fn give_up_entries(&mut self) -> Result<Outgrown> {
        let (cache, stream) = (&mut self.writer.cache, &self.batch_stream.stream);
        let Some(uses) = &cache.uses else {
            return Ok(Outgrown::default());
        };
        let mut view = self.device_table.view_alone();
        // SAFETY: the block is as long, and no lookup is under way.
        unsafe { fill(stream, uses.links.address(), 0, uses.links.len())? };
        wait(stream)?;
        view.cache.records = 0;
        view.cache.values = 0;
        view.cache.buckets = 0;
        Ok(Outgrown {
            uses: None,
            entries: cache.entries.take(),
        })
    }

    /// Takes the bottom level, which is about to be given up, out of the cache.
    pub fn uncache_level(&mut self, level: u32) -> Result<()> {
        let (device_table, stream) = (self.device_table, &self.batch_stream.stream);
        let Cache {
            entries: Some(entries),
            doubtful,
            ..
        } = &mut self.writer.cache
        else {
            return Ok(());
        };
        let was_doubtful = std::mem::replace(doubtful, true);
        let mut outcome = CacheOutcome::zeroed();
        // SAFETY: the writer's lock keeps the table and the cache as they are; nobody looks at the
        // outcome before the wait.
        unsafe {
            fill(stream, entries.outcome(), 0, to_usize(OUTCOME_LEN))?;
            let grid = Grid::Warps((1u64 << level).div_ceil(u64::from(WARP)));
            let (view, refresh) = (device_table.view_now(), entries.refresh());
            let arguments = (view, refresh, level, entries.outcome());
            let kernels = &device_table.kernels;
            kernels.launch(stream, CACHE_REMOVE_LEVEL, grid, arguments)?;
            let outcome = bytemuck::bytes_of_mut(&mut outcome);
            copy_out(stream, outcome, entries.outcome())?;
        }
        wait(stream)?;
        entries.free += outcome.evicted;
        *doubtful = was_doubtful;
        Ok(())
    }
}

/// Bytes of the counts of scores.
pub const SCORES_LEN: u64 = 2 * SCORES as u64 * 4;

/// Bytes of an outcome.
pub const OUTCOME_LEN: u64 = size_of::<CacheOutcome>() as u64;

/// Bytes of an entry's share of the lists.
const LIST_LEN: u64 = 8 + 8 + 4;

fn lists_len(entries: u64) -> u64 {
    SCORES_LEN + OUTCOME_LEN + entries * LIST_LEN
}

/// Bytes from one cached value to the next: they are copied sixteen at a time.
pub fn value_stride(view: &TableView) -> u64 {
    align_up(view.value_size.into(), 16)
}

/// How the kernels name a policy.
fn policy_number(policy: CachePolicy) -> u32 {
    match policy {
        CachePolicy::Lfu => POLICY_LFU,
        CachePolicy::Lru => POLICY_LRU,
        CachePolicy::Random => POLICY_RANDOM,
    }
}

/// Buckets of all live levels.
pub fn buckets_of(table: &Table<Mapping>) -> u64 {
    let levels = table.levels.live();
    (levels.bottom..=levels.top).map(|level| 1 << level).sum()
}
