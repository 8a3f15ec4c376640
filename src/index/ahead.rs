//! What an operation knows of its key before its turn: where its candidate buckets are, and what
//! their tags said a moment ago.
//!
//! An operation asks its tags several times. Finding out where they are costs more than reading
//! them, so that is done once.

use std::ops::ControlFlow;

use super::directory::Levels;
use super::insert::{HOME_SPARE, Vacancy};
use super::table::Table;
use super::tags::TagWord;
use super::target::Target;
use crate::layout::bucket::SlotPlace;
use crate::pm::Medium;

/// Most buckets that are remembered: those of two hash locations, while a resize adds a level to
/// the usual two.
const MOST: usize = 6;

/// The candidate buckets of a key's first round and what their tags said. All of it is a hint, and
/// may be missing: of keys that equal a slot state, and in shapes with more candidates or with
/// buckets of more than eight slots.
#[derive(Clone, Copy)]
pub struct Ahead<'t> {
    levels: Levels,
    /// Offset and tags of each bucket, in the order in which an operation at rest reads them.
    buckets: [Option<(u64, TagWord<'t>)>; MOST],
    /// How many of them take new items, from the first on.
    insertable: usize,
    /// The first slot that may hold the key, if [`look`](Self::look) has found one.
    suspect: Option<SlotPlace>,
    /// The slot that an insertion would take, if no slot may hold the key.
    vacancy: Option<Vacancy<'t>>,
}

impl<'t> Ahead<'t> {
    /// Finds the buckets, and asks for their tags.
    #[inline]
    pub fn new<M: Medium>(table: &'t Table<M>, target: &Target) -> Self {
        let levels = table.directory.levels();
        let lowest = levels.lowest_insertable(table.shape.levels);
        let mut ahead = Self {
            levels,
            buckets: [None; MOST],
            insertable: 0,
            suspect: None,
            vacancy: None,
        };
        let mut count = 0;
        let all = table.candidates(target, 0, levels.top, levels.bottom, |bucket| {
            let Some(tags) = bucket.tags.only() else {
                return ControlFlow::Break(());
            };
            let Some(place) = ahead.buckets.get_mut(count) else {
                return ControlFlow::Break(());
            };
            tags.prefetch();
            *place = Some((bucket.at, tags));
            count += 1;
            ahead.insertable += usize::from(bucket.level >= lowest);
            ControlFlow::Continue(())
        });
        if all.is_break() {
            ahead.buckets = [None; MOST];
        }
        ahead
    }

    /// Looks at the tags: for a slot that may hold the key, else for one that can take it. Reads
    /// nothing of the file; in a bucket whose tags are not known, any slot may hold the key.
    #[inline]
    pub fn look<M: Medium>(&mut self, table: &Table<M>, target: &Target) {
        let mut most = 0;
        let mut best = None;
        for (nth, &(at, word)) in self.buckets.iter().flatten().enumerate() {
            let tags = word.load();
            let mask = tags.map_or(1, |tags| tags.matching(target.tag));
            if mask != 0 {
                self.suspect = Some(table.shape.slot_place(at, mask.trailing_zeros()));
                return;
            }
            if let Some(tags) = tags
                && nth < self.insertable
                && most < u32::MAX
            {
                let empty = tags.empty();
                let count = empty.count_ones();
                if count > most {
                    let is_home = nth == 0 && count >= HOME_SPARE;
                    most = if is_home { u32::MAX } else { count };
                    best = Some((at, word, empty));
                }
            }
        }
        self.vacancy = best.map(|(at, word, empty)| {
            let slot = empty.trailing_zeros();
            Vacancy::new(table.shape.slot_place(at, slot), Some((word, slot)))
        });
    }

    /// The slot that may hold the key, as far as the hint goes. Its place is one of a bucket: the
    /// space of a level that has been left serves as records later.
    #[inline]
    pub fn suspect<M: Medium>(&self, table: &Table<M>) -> Option<SlotPlace> {
        self.suspect
            .filter(|_| self.levels == table.directory.levels())
    }

    /// The slot that an insertion can take without looking for the key first, as far as the hint
    /// goes: it must look for rivals afterwards.
    #[inline]
    pub(crate) fn vacancy<M: Medium>(&self, table: &Table<M>) -> Option<&Vacancy<'t>> {
        // Levels do not come back, so these have been live all the while.
        self.vacancy
            .as_ref()
            .filter(|_| self.levels == table.directory.levels())
    }

    /// Whether no slot but `own` can hold the key now, without doubt. `false` says nothing.
    #[inline]
    pub(crate) fn is_alone<M: Medium>(
        &self,
        table: &Table<M>,
        target: &Target,
        own: Option<SlotPlace>,
    ) -> bool {
        let levels = table.directory.levels();
        self.buckets[0].is_some()
            && self.levels == levels
            && !levels.draining(table.shape.levels)
            && self.buckets.iter().flatten().all(|&(at, word)| {
                word.load().is_some_and(|tags| {
                    let mask = tags.matching(target.tag);
                    mask == 0
                        || own.is_some_and(|own| {
                            own.state == at + 8 * u64::from(mask.trailing_zeros())
                        }) && mask.is_power_of_two()
                })
            })
            && !table.overflow.is_any_set()
    }
}
