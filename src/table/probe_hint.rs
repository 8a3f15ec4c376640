//! What an operation knows of its key before its turn: where its candidate buckets are, and what
//! their tags said a moment ago.
//!
//! An operation asks its tags several times. Finding out where they are costs more than reading
//! them, so that is done once.

use std::ops::ControlFlow;

use super::Table;
use super::key::ProbeKey;
use crate::layout::bucket::SlotAddr;
use crate::pm::Medium;
use crate::sync::levels::Levels;
use crate::sync::tags::TagWord;
use crate::table::ops::insert::{EmptySlot, HOME_EMPTY_SLOTS_MIN};

/// Most buckets that are remembered: those of two hash locations, while a resize adds a level to
/// the usual two.
const BUCKETS_MAX: usize = 6;

/// The candidate buckets of a key's first round and what their tags said. All of it is a hint, and
/// may be missing: for keys that equal a slot state, and in shapes with more candidates or with
/// buckets of more than eight slots.
#[derive(Clone, Copy)]
pub struct ProbeHint<'t> {
    levels: Levels,
    /// Offset and tags of each bucket, in the order in which an operation at rest reads them.
    buckets: [Option<(u64, TagWord<'t>)>; BUCKETS_MAX],
    /// How many of them take new items, from the first on.
    insertable: u8,
    seen: Seen,
}

/// What the tags said: a bucket's number, and a slot of it.
#[derive(Clone, Copy)]
enum Seen {
    Nothing,
    /// A slot that may hold the key.
    Candidate(u8, u32),
    /// A slot that an insertion would take; none may hold the key.
    EmptySlot(u8, u32),
}

impl<'t> ProbeHint<'t> {
    /// Nothing is known.
    #[inline]
    pub fn nothing<M: Medium>(table: &'t Table<M>) -> Self {
        Self {
            levels: table.levels.live(),
            buckets: [None; BUCKETS_MAX],
            insertable: 0,
            seen: Seen::Nothing,
        }
    }

    /// What the tags say of a key.
    #[cfg(test)]
    pub fn of<M: Medium>(table: &'t Table<M>, target: &ProbeKey) -> Self {
        let mut hint = Self::nothing(table);
        hint.find_buckets(table, target);
        hint.read_tags(target);
        hint
    }

    /// Finds the buckets, and asks for their tags. Nothing was known.
    #[inline(always)]
    pub fn find_buckets<M: Medium>(&mut self, table: &'t Table<M>, target: &ProbeKey) {
        let levels = self.levels;
        let lowest = levels.lowest_insertable(table.shape.levels);
        let mut count = 0;
        let all = table.candidates(target, 0, levels.top, levels.bottom, |bucket| {
            match (bucket.tags.only(), self.buckets.get_mut(count)) {
                (Some(tags), Some(hint)) => {
                    tags.prefetch();
                    *hint = Some((bucket.at, tags));
                    count += 1;
                    self.insertable += u8::from(bucket.level >= lowest);
                    ControlFlow::Continue(())
                }
                _ => ControlFlow::Break(()),
            }
        });
        if all.is_break() {
            self.buckets = [None; BUCKETS_MAX];
        }
    }

    /// Reads the tags: for a slot that may hold the key, else for one that can take it. Reads
    /// nothing of the file; in a bucket whose tags are not known, any slot may hold the key.
    #[inline]
    pub fn read_tags(&mut self, target: &ProbeKey) {
        let mut most = 0;
        for (nth, (_, word)) in (0..).zip(self.buckets.iter().flatten()) {
            let tags = word.load();
            let mask = tags.map_or(1, |tags| tags.match_mask(target.tag));
            if mask != 0 {
                self.seen = Seen::Candidate(nth, mask.trailing_zeros());
                return;
            }
            if let Some(tags) = tags
                && nth < self.insertable
                && most < u32::MAX
            {
                let empty = tags.empty();
                let count = empty.count_ones();
                if count > most {
                    let is_home = nth == 0 && count >= HOME_EMPTY_SLOTS_MIN;
                    most = if is_home { u32::MAX } else { count };
                    self.seen = Seen::EmptySlot(nth, empty.trailing_zeros());
                }
            }
        }
    }

    /// What the tags say of the key now.
    #[inline]
    pub(crate) fn with_tags_reread(mut self, target: &ProbeKey) -> Self {
        self.seen = Seen::Nothing;
        self.read_tags(target);
        self
    }

    /// The slot that may hold the key, as far as the hint goes.
    #[inline]
    pub fn candidate<M: Medium>(&self, table: &Table<M>) -> Option<SlotAddr> {
        match self.seen {
            Seen::Candidate(nth, slot) => Some(self.slot(table, nth, slot)?.0),
            _ => None,
        }
    }

    /// The slot that an insertion can take without looking for the key first, as far as the hint
    /// goes: it must look for rivals afterwards.
    #[inline]
    pub(crate) fn empty_slot<M: Medium>(&self, table: &Table<M>) -> Option<EmptySlot<'t>> {
        match self.seen {
            Seen::EmptySlot(nth, slot) => {
                let (addr, word) = self.slot(table, nth, slot)?;
                Some(EmptySlot::new(addr, Some((word, slot))))
            }
            _ => None,
        }
    }

    /// A slot of one of the buckets. The space of a level that has been left serves as records
    /// later, so the levels must still be the same; they do not come back.
    #[inline]
    fn slot<M: Medium>(
        &self,
        table: &Table<M>,
        nth: u8,
        slot: u32,
    ) -> Option<(SlotAddr, TagWord<'t>)> {
        let (at, word) = self.buckets[usize::from(nth)]?;
        (self.levels == table.levels.live()).then(|| (table.shape.slot_addr(at, slot), word))
    }

    /// Whether no slot but `own` can hold the key now, without doubt. `false` says nothing.
    #[inline]
    pub(crate) fn is_alone<M: Medium>(
        &self,
        table: &Table<M>,
        target: &ProbeKey,
        own: Option<SlotAddr>,
    ) -> bool {
        let levels = table.levels.live();
        self.buckets[0].is_some()
            && self.levels == levels
            && !levels.draining(table.shape.levels)
            && self.buckets.iter().flatten().all(|&(at, word)| {
                word.load().is_some_and(|tags| {
                    let mask = tags.match_mask(target.tag);
                    mask == 0
                        || mask.is_power_of_two()
                            && own == Some(table.shape.slot_addr(at, mask.trailing_zeros()))
                })
            })
            && !table.overflow.is_any_set()
    }
}
