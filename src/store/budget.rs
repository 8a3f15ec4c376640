//! How the table keeps within its memory budget: the items that are read least leave for a sorted file,
//! and those that are read there again come up.

#[cfg(all(test, not(loom)))]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::Core;
use super::heat::Census;
use super::queue::Work;
use super::state::State;
use super::tiers::Stamp;
use super::upkeep::Bell;
use crate::Result;
use crate::index::records::Records;
use crate::spill::Entry;

/// The share of the budget that records have at least.
const LEAST_SHARE: u64 = 4;

/// Most bytes of items that leave at a time: they are sorted in memory.
const ROUND: u64 = 64 << 20;

/// Items that are taken out of the table at a time; changes wait meanwhile.
const SLICE: usize = 1024;

/// The longest that a change waits for room.
const LONGEST_STALL: Duration = Duration::from_secs(1);

/// The memory budget of a table, and what it costs.
pub struct Budget {
    bytes: u64,
    bell: Arc<Bell>,
    /// Held by the one who lets items leave: how often changes had waited when he last did.
    stalls_before: Mutex<u64>,
    left: Mutex<()>,
    has_left: Condvar,
    /// Items could not leave when they last should have.
    fails: AtomicBool,
    stalls: AtomicU64,
    stalled: AtomicU64,
    items_left: AtomicU64,
    items_risen: AtomicU64,
}

/// Items on their way out of the table, one behind the other.
#[derive(Default)]
struct Leaving {
    bytes: Vec<u8>,
    /// Where each begins, the length of its key, the end of its value, its stamp.
    items: Vec<(usize, usize, usize, Stamp)>,
}

impl Budget {
    /// A budget of so many bytes.
    pub fn new(bytes: u64) -> Self {
        Self {
            bytes,
            bell: Arc::default(),
            stalls_before: Mutex::default(),
            left: Mutex::default(),
            has_left: Condvar::new(),
            fails: AtomicBool::new(false),
            stalls: AtomicU64::new(0),
            stalled: AtomicU64::new(0),
            items_left: AtomicU64::new(0),
            items_risen: AtomicU64::new(0),
        }
    }

    /// Calls the thread that keeps to the budget.
    pub fn bell(&self) -> Arc<Bell> {
        Arc::clone(&self.bell)
    }

    /// Calls the thread if the records of a table are too large.
    pub fn look(&self, table: &Records) {
        if table.record_bytes() > self.limit(table) {
            self.bell.ring();
        }
    }

    /// Bytes that records may take. The levels of a table that has grown stay; they never take all of
    /// the budget.
    fn limit(&self, table: &Records) -> u64 {
        let rest = self.bytes.saturating_sub(table.level_bytes());
        rest.max(self.bytes / LEAST_SHARE)
    }

    /// Changes that waited for room, and how long in all.
    pub fn stalls(&self) -> (u64, Duration) {
        let stalled = self.stalled.load(Ordering::Relaxed);
        (
            self.stalls.load(Ordering::Relaxed),
            Duration::from_nanos(stalled),
        )
    }

    /// Counts items that have come up into the table.
    pub fn have_risen(&self, items: usize) {
        self.items_risen.fetch_add(items as u64, Ordering::Relaxed);
    }

    /// Items that have left the table, and that have come up into it.
    pub fn moved(&self) -> (u64, u64) {
        let risen = self.items_risen.load(Ordering::Relaxed);
        (self.items_left.load(Ordering::Relaxed), risen)
    }
}

impl Leaving {
    fn push(&mut self, key: &[u8], stamp: Stamp, value: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        self.items.push((start, key.len(), self.bytes.len(), stamp));
    }

    fn key(&self, &(start, len, ..): &(usize, usize, usize, Stamp)) -> &[u8] {
        &self.bytes[start..start + len]
    }

    /// Brings them into order; of an item that was met twice the newer one stays.
    fn sort(&mut self) {
        let mut items = std::mem::take(&mut self.items);
        items.sort_unstable_by(|a, b| {
            let newer = b.3.0.cmp(&a.3.0);
            self.key(a).cmp(self.key(b)).then(newer)
        });
        items.dedup_by(|b, a| self.key(a) == self.key(b));
        self.items = items;
    }

    fn entries(&self) -> impl Iterator<Item = (&[u8], Stamp, &[u8])> {
        self.items.iter().map(|item| {
            let &(start, len, end, stamp) = item;
            (self.key(item), stamp, &self.bytes[start + len..end])
        })
    }
}

impl Core {
    /// Waits while the table is far beyond its budget, for a bounded time, unless there is no way out of
    /// it for items.
    pub fn wait_for_room(&self) {
        let Some(budget) = &self.state.budget else {
            return;
        };
        let table = &self.state.tiers.table;
        let is_full = || {
            let limit = budget.limit(table);
            !budget.fails.load(Ordering::Relaxed) && table.record_bytes() > limit + limit / 8
        };
        if !is_full() {
            return;
        }
        budget.bell.ring();
        let started = Instant::now();
        let mut left = budget.left.lock();
        while is_full() && started.elapsed() < LONGEST_STALL {
            let rest = LONGEST_STALL.saturating_sub(started.elapsed());
            budget.has_left.wait_for(&mut left, rest);
        }
        drop(left);
        budget.stalls.fetch_add(1, Ordering::Relaxed);
        let waited = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        budget.stalled.fetch_add(waited, Ordering::Relaxed);
    }

    /// Lets items leave until the table is within its budget again, and brings others up.
    ///
    /// # Errors
    /// Those of the files and of the log: then items stay.
    pub fn keep_within_budget(self: &Arc<Self>) -> Result<()> {
        let Some(budget) = &self.state.budget else {
            return Ok(());
        };
        let mut before = budget.stalls_before.lock();
        let stalls = budget.stalls.load(Ordering::Relaxed);
        let is_pressed = std::mem::replace(&mut *before, stalls) != stalls;
        let kept = self.keep_within(budget, is_pressed);
        budget.fails.store(kept.is_err(), Ordering::Relaxed);
        budget.has_left.notify_all();
        kept
    }

    fn keep_within(self: &Arc<Self>, budget: &Budget, is_pressed: bool) -> Result<()> {
        let state = &self.state;
        let rising = state.tiers.take_rising();
        if !rising.is_empty() {
            self.submit(Work::Rise(rising))?;
        }
        let table = &state.tiers.table;
        let limit = budget.limit(table);
        // A round looks at all items, however few leave. Where changes wait for that, more do.
        let least = match is_pressed {
            true => limit / 2,
            false => limit - limit / 8,
        };
        let mut used = table.record_bytes();
        if used <= limit {
            return Ok(());
        }
        while used > least {
            let (leaving, spilled) = {
                let _leaving = state.let_leave();
                let leaving = state.cold_items((used - least).min(ROUND), used)?;
                if leaving.items.is_empty() {
                    return Ok(());
                }
                let spilled = state.spill(&leaving);
                (leaving, spilled)
            };
            spilled?;
            for slice in leaving.items.chunks(SLICE) {
                let item = |item| (leaving.key(item).to_vec(), item.3);
                self.submit(Work::Leave(slice.iter().map(item).collect()))?;
                budget.has_left.notify_all();
            }
            budget
                .items_left
                .fetch_add(leaving.items.len() as u64, Ordering::Relaxed);
            let now = table.record_bytes();
            if now >= used {
                // Others bring as much; what was read long ago counts less now.
                break;
            }
            used = now;
        }
        Ok(())
    }
}

/// While this is there, what is deleted leaves a tombstone: its value may be on the way into a file.
struct LetLeave<'s>(&'s State);

impl Drop for LetLeave<'_> {
    fn drop(&mut self) {
        self.0.change_visible().are_leaving = false;
    }
}

impl State {
    fn let_leave(&self) -> LetLeave<'_> {
        self.change_visible().are_leaving = true;
        LetLeave(self)
    }

    /// The coldest items of the table, about so many bytes of the `used` ones.
    fn cold_items(&self, bytes: u64, used: u64) -> Result<Leaving> {
        let mut leaving = Leaving::default();
        let Some(heat) = &self.tiers.heat else {
            return Ok(leaving);
        };
        let mut census = Census::default();
        let enter = |fingerprint| {
            heat.enter(fingerprint, &mut census);
            false
        };
        self.tiers.table.for_each_of(enter, |_, _, _| {})?;
        let cold = heat.coldest(&census, bytes as f64 / used as f64);
        self.tiers.table.for_each_of(
            |fingerprint| heat.is_cold(fingerprint, &cold),
            |key, stamp, value| leaving.push(key, Stamp(stamp), value),
        )?;
        heat.age();
        leaving.sort();
        Ok(leaving)
    }

    /// Writes items into new files, but for those that a file has already.
    fn spill(&self, leaving: &Leaving) -> Result<()> {
        // What a file holds is durable, so what came before it must be.
        self.log.sync()?;
        let version = self.tiers.spill.version();
        let is_new = |(key, stamp, _): &(&[u8], Stamp, &[u8])| {
            // A file may have been mended, and have lost it.
            !stamp.has_risen() || !version.may_have(key)
        };
        let entries = leaving.entries().filter(is_new);
        let entries = entries.map(|(key, stamp, value)| Entry {
            key,
            sequence: stamp.sequence(),
            value: (!stamp.is_tombstone()).then_some(value),
        });
        self.tiers.spill.add(entries)
    }
}
