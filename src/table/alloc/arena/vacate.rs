//! Emptying parts of the arena, so that their room can serve something else.
//!
//! Each extent is looked at in parts, which begin and end with whole pages and whole records. A part is
//! empty when every record of it is known to be free. Its free records are put aside, so that nobody
//! takes one again meanwhile. What a running batch keeps for itself counts as in use.

use std::sync::atomic::AtomicBool;

use gphash_layout::PAGE;
use gphash_layout::width::to_usize;
use gphash_sync::{Mutex, Ordering};

use crate::{Arena, ArenaExtent, Class, ExtentMap};

/// Records that are given back at a time: whoever needs one takes so many.
const GIVEN_AT_ONCE: usize = 4096;

/// Records that a class keeps free, beside those in use: one for so many.
pub(super) const SPARE_SHARE: u64 = 8;

/// Which parts are to be emptied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Victims {
    /// Those of which every record was taken and is free again.
    Empty,
    /// Those with the fewest records in use, as long as the others of their class have room for what is
    /// in them; also what was never taken.
    Sparse,
}

/// The parts that are being emptied.
#[derive(Default)]
pub(super) struct Vacating {
    is_active: AtomicBool,
    parts: Mutex<Option<Parts>>,
}

#[derive(Default)]
struct Parts {
    map: ExtentMap,
    /// Free records of each part.
    aside: Vec<Vec<u64>>,
    /// Parts that were taken whole before anybody had taken a record of them.
    is_unused: Vec<bool>,
}

impl Vacating {
    /// Puts aside the records of parts that are being emptied; gives the others.
    pub(super) fn divert(&self, mut records: Vec<u64>) -> Vec<u64> {
        if self.is_active.load(Ordering::Acquire)
            && let Some(parts) = &mut *self.parts.lock()
        {
            records.retain(|&record| match parts.map.find(record) {
                Some((part, _)) => {
                    parts.aside[part].push(record);
                    false
                }
                None => true,
            });
        }
        records
    }
}

/// What is known of a part.
struct Part {
    extent: ArenaExtent,
    /// Records that are free.
    free: u64,
    /// Records that were never taken.
    fresh: u64,
}

impl Part {
    fn in_use(&self) -> u64 {
        self.extent.count.saturating_sub(self.free + self.fresh)
    }
}

impl Arena {
    /// Begins to empty parts of about `part_len` bytes; up to `most` of them are not whole extents. Gives their ranges,
    /// or `None` if there are none, or others are being emptied. `epoch` is the current one.
    pub fn begin_vacating(
        &self,
        victims: Victims,
        part_len: u64,
        most: usize,
        epoch: impl Fn() -> u64,
    ) -> Option<ExtentMap> {
        {
            // From here on no other range leaves, so that what is counted stays in the arena.
            let mut vacating = self.vacating.parts.lock();
            if vacating.is_some() {
                return None;
            }
            *vacating = Some(Parts::default());
        }
        self.collect_idle(&epoch);
        self.leave_limbo(epoch());
        let parts = self.count_parts(part_len);
        let chosen = self.choose(victims, &parts, most);
        if chosen.is_empty() {
            *self.vacating.parts.lock() = None;
            return None;
        }
        let victims_map: ExtentMap = chosen.iter().copied().collect();
        *self.vacating.parts.lock() = Some(Parts {
            map: victims_map.clone(),
            aside: vec![Vec::new(); chosen.len()],
            is_unused: vec![false; chosen.len()],
        });
        self.vacating.is_active.store(true, Ordering::Release);
        for class in &self.classes {
            for _ in 0..class.free.len() {
                let Some(batch) = class.free.pop() else { break };
                let rest = self.vacating.divert(batch);
                if !rest.is_empty() {
                    class.free.push(rest);
                }
            }
        }
        if victims == Victims::Sparse {
            self.claim_unused(&parts, &victims_map);
        }
        Some(victims_map)
    }

    /// The parts to empty: all that are whole extents, and the longest of the others.
    fn choose(&self, victims: Victims, parts: &[Part], most: usize) -> Vec<ArenaExtent> {
        let chosen: Vec<ArenaExtent> = match victims {
            Victims::Empty => parts
                .iter()
                .filter(|part| part.free == part.extent.count)
                .map(|part| part.extent)
                .collect(),
            Victims::Sparse => self
                .classes()
                .flat_map(|class| sparse(parts, class))
                .collect(),
        };
        let extents = self.extents();
        let is_whole = |part: &ArenaExtent| extents.iter().any(|extent| extent == *part);
        let (mut chosen, mut others): (Vec<_>, Vec<_>) = chosen.into_iter().partition(is_whole);
        others.sort_unstable_by_key(|part| std::cmp::Reverse(part.len));
        others.truncate(most);
        chosen.append(&mut others);
        chosen
    }

    /// Ends what [`begin_vacating`](Self::begin_vacating) began. Parts that are empty by now, up to `most` of them, are
    /// no longer part of the arena: gives their ranges. `epoch` is the current one.
    pub fn end_vacating(&self, most: usize, epoch: impl Fn() -> u64) -> Vec<(u64, u64)> {
        self.collect_idle(&epoch);
        self.leave_limbo(epoch());
        let taken = self.vacating.parts.lock().take();
        self.vacating.is_active.store(false, Ordering::Release);
        let Parts {
            map,
            aside,
            is_unused,
        } = taken.unwrap_or_default();
        let mut ranges = Vec::new();
        for ((part, mut free), is_unused) in map.extents().iter().zip(aside).zip(is_unused) {
            // A damaged file may have named one twice.
            free.sort_unstable();
            free.dedup();
            if is_unused && ranges.len() == most {
                free = part.records().collect();
            }
            if ranges.len() < most && (is_unused || free.len() as u64 == part.count) {
                self.remove(part);
                ranges.push((part.offset, part.len));
            } else {
                free.chunks(GIVEN_AT_ONCE)
                    .for_each(|records| self.give(records.to_vec()));
            }
        }
        ranges
    }

    /// All parts, in the order of their extents, and what is free of each.
    fn count_parts(&self, part_len: u64) -> Vec<Part> {
        let extents = self.extents();
        let parts = extents.iter().flat_map(|extent| cut(extent, part_len));
        let map: ExtentMap = parts.collect();
        let mut free = vec![0; map.extents().len()];
        for class in &self.classes {
            for _ in 0..class.free.len() {
                let Some(batch) = class.free.pop() else { break };
                let parts = batch.iter().filter_map(|&record| map.find(record));
                parts.for_each(|(part, _)| free[part] += 1);
                class.free.push(batch);
            }
        }
        let part = |(extent, free): (&ArenaExtent, u64)| Part {
            extent: *extent,
            free,
            fresh: (extent.end())
                .saturating_sub(self.high_water(extent.class))
                .min(extent.count),
        };
        map.extents().iter().zip(free).map(part).collect()
    }

    /// Takes what was never taken, up to the last part that is being emptied.
    fn claim_unused(&self, parts: &[Part], victims: &ExtentMap) {
        let is_victim = |part: &Part| victims.extents().contains(&part.extent);
        for class in self.classes() {
            let mut fresh: Vec<&Part> = parts
                .iter()
                .filter(|part| part.extent.class == class && part.fresh > 0)
                .collect();
            fresh.sort_unstable_by_key(|part| part.extent.first);
            let Some(last) = fresh.iter().rposition(|part| is_victim(part)) else {
                continue;
            };
            for part in &fresh[..=last] {
                let left = part.extent.end().saturating_sub(self.high_water(class));
                let Some(run) = self.take_run(class, left) else {
                    break;
                };
                let is_whole = run.start == part.extent.offset && left == part.extent.count;
                if is_whole && is_victim(part) {
                    self.set_unused(run.start);
                } else {
                    let records: Vec<u64> = run.step_by(to_usize(part.extent.stride)).collect();
                    records
                        .chunks(GIVEN_AT_ONCE)
                        .for_each(|records| self.give(records.to_vec()));
                }
            }
        }
    }

    fn set_unused(&self, offset: u64) {
        if let Some(vacating) = &mut *self.vacating.parts.lock()
            && let Some((part, _)) = vacating.map.find(offset)
        {
            vacating.is_unused[part] = true;
        }
    }

    /// Takes a part out of its extent.
    fn remove(&self, part: &ArenaExtent) {
        let pieces = |extent: ArenaExtent| {
            let holds =
                extent.class == part.class && (extent.first..extent.end()).contains(&part.first);
            let pieces = if holds {
                [
                    (part.first > extent.first)
                        .then(|| extent.part(extent.first, part.first - extent.first)),
                    (part.end() < extent.end())
                        .then(|| extent.part(part.end(), extent.end() - part.end())),
                ]
            } else {
                [Some(extent), None]
            };
            pieces.into_iter().flatten()
        };
        self.change_extents(|extents| extents.iter().flat_map(pieces).collect());
        let Class { removed, .. } = self.class(part.class);
        removed.fetch_add(part.count, Ordering::Relaxed);
    }
}

/// The parts of an extent.
fn cut(extent: ArenaExtent, part_len: u64) -> impl Iterator<Item = ArenaExtent> {
    // The least that is a multiple of both.
    let unit = PAGE / (1 << extent.stride.trailing_zeros()).min(PAGE) * extent.stride;
    let records = part_len.div_ceil(unit).max(1) * unit / extent.stride;
    (extent.first..extent.end())
        .step_by(to_usize(records))
        .map(move |first| extent.part(first, records.min(extent.end() - first)))
}

/// The parts of a class that can be emptied into the others.
fn sparse(parts: &[Part], class: u32) -> Vec<ArenaExtent> {
    let mut parts: Vec<&Part> = parts
        .iter()
        .filter(|part| part.extent.class == class)
        .collect();
    let in_use: u64 = parts.iter().map(|part| part.in_use()).sum();
    let needed = in_use + in_use / SPARE_SHARE;
    parts.sort_by_key(|part| std::cmp::Reverse(part.in_use()));
    let mut kept = 0;
    let is_kept = |part: &&&Part| {
        let is_kept = kept < needed;
        kept += part.extent.count;
        is_kept
    };
    let kept = parts.iter().take_while(is_kept).count();
    parts[kept..].iter().map(|part| part.extent).collect()
}

#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(all(test, loom))]
mod loom_tests;
