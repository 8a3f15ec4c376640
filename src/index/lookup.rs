//! Finding the member of a key: the probe that every operation begins with.
//!
//! A slot is read as record, state, record: when both reads of the record word agree, the record
//! was there all the while, because a record does not come back to any slot while someone is
//! pinned who may have seen it (see [`epoch`](super::epoch)). So state and record belong together.

use std::ops::ControlFlow;

use super::directory::Levels;
use super::table::{Session, Table};
use super::target::{Bucket, Target};
use crate::layout::bucket::SlotPlace;
use crate::layout::{KeyClass, RecordWord};
use crate::pm::Medium;
use crate::sync::{Ordering, fence, pause};

/// Where a key was found.
#[derive(Debug, Clone, Copy)]
pub struct Member {
    /// Its slot.
    pub place: SlotPlace,
    /// The slot's record word when it was read.
    pub record: RecordWord,
}

/// What a writer found.
pub enum Found {
    /// No member.
    Absent,
    /// The one member, not being moved.
    One(Member),
    /// A resize is moving the item right now.
    Moving,
}

/// Whether the walk over a key's slots goes on.
pub enum Walk {
    /// To the next slot.
    Next,
    /// The same slot again: it changed under the walker.
    Again,
    /// No further.
    Stop,
}

impl<M: Medium> Table<M> {
    /// Which slots of a bucket have this state word: bit *i* for slot *i*.
    #[inline]
    pub fn matches(&self, bucket: Bucket, word: u64) -> u32 {
        if self.shape.slots == 8 {
            return u32::from(self.medium.match_eight(bucket.at, word));
        }
        (0..self.shape.slots).fold(0, |mask, slot| {
            let state = self.medium.load(bucket.at + u64::from(slot) * 8);
            mask | u32::from(state == word) << slot
        })
    }

    /// Whether the key in a slot is the target's, given that the state words agree.
    #[inline]
    pub fn key_equals(&self, place: SlotPlace, target: &Target) -> bool {
        if self.shape.key_class() == KeyClass::Word {
            return true;
        }
        (0..)
            .zip(target.key_words())
            .all(|(i, word)| self.medium.load(place.key + i * 8) == word)
    }

    /// Walks over all slots of the live levels that hold the target's key; one that two rounds
    /// lead to may come twice.
    ///
    /// While a resize moves items up, all of a level is read before the levels above it: what
    /// leaves a level has arrived above before, so such a walk misses nothing.
    #[inline]
    pub fn walk(
        &self,
        target: &Target,
        touches: &mut u64,
        mut visit: impl FnMut(SlotPlace, RecordWord) -> Walk,
    ) {
        let levels = self.directory.levels();
        let mut bucket = |bucket| self.walk_bucket(bucket, target, touches, &mut visit);
        if !levels.draining(self.shape.levels) {
            // At rest nothing moves, and most items are in the top level.
            let mut round = 0;
            loop {
                let walked = self.candidates(target, round, levels.top, levels.bottom, &mut bucket);
                round += 1;
                if walked.is_break() || round >= self.rounds(target, levels) {
                    return;
                }
            }
        }
        let mut rounds = 0;
        // An item that was placed in a further round meanwhile had its bit set before.
        while rounds < self.rounds(target, levels) {
            rounds = self.rounds(target, levels);
            for level in levels.bottom..=levels.top {
                for round in 0..rounds {
                    let walked = self.candidates(target, round, level, level, &mut bucket);
                    if walked.is_break() {
                        return;
                    }
                }
            }
        }
    }

    #[inline(always)]
    fn walk_bucket(
        &self,
        bucket: Bucket,
        target: &Target,
        touches: &mut u64,
        visit: &mut impl FnMut(SlotPlace, RecordWord) -> Walk,
    ) -> ControlFlow<()> {
        *touches += 1;
        let mut mask = self.matches(bucket, target.word);
        // Buckets must be read in the walk's order, and the match is no atomic load.
        fence(Ordering::Acquire);
        while mask != 0 {
            let place = self.shape.slot_place(bucket.at, mask.trailing_zeros());
            match self.visit_slot(place, target, visit) {
                Walk::Next => mask &= mask - 1,
                Walk::Again => {}
                Walk::Stop => return ControlFlow::Break(()),
            }
        }
        ControlFlow::Continue(())
    }

    #[inline(always)]
    fn visit_slot(
        &self,
        place: SlotPlace,
        target: &Target,
        visit: &mut impl FnMut(SlotPlace, RecordWord) -> Walk,
    ) -> Walk {
        let record = RecordWord(self.medium.load(place.record));
        if !self.key_equals(place, target) || self.medium.load(place.state) != target.word {
            return Walk::Next;
        }
        if self.medium.load(place.record) != record.0 {
            return Walk::Again;
        }
        visit(place, record)
    }

    /// The member of a key, for a reader. While a resize copies it, the copy in the highest
    /// level is the valid one.
    #[inline]
    pub fn find(&self, target: &Target, touches: &mut u64) -> Option<Member> {
        let draining = self.directory.levels().draining(self.shape.levels);
        let mut found = None;
        self.walk(target, touches, |place, record| {
            if !record.is_member() {
                return Walk::Next;
            }
            found = Some(Member { place, record });
            // Lower levels come first while items move, so the last one found is valid.
            if draining { Walk::Next } else { Walk::Stop }
        });
        found
    }

    /// The member of a key if it stands in its home bucket, where most do, and nothing moves.
    /// `None` says nothing.
    #[inline]
    pub fn find_at_home(&self, target: &Target) -> Option<Member> {
        let levels = self.directory.levels();
        if levels.draining(self.shape.levels) {
            return None;
        }
        let home = self.home(target, levels.top);
        let mask = self.matches(home, target.word);
        if mask == 0 {
            return None;
        }
        let place = self.shape.slot_place(home.at, mask.trailing_zeros());
        let mut found = None;
        self.visit_slot(place, target, &mut |place, record| {
            found = record.is_member().then_some(Member { place, record });
            Walk::Next
        });
        found
    }

    /// The member of a key, for a writer, who may act only on the one copy.
    #[inline]
    pub fn find_for_write(&self, target: &Target, touches: &mut u64) -> Found {
        if !self.directory.levels().draining(self.shape.levels) {
            // At rest there is one copy. Should a resize begin now, it waits for this operation.
            return self.find(target, touches).map_or(Found::Absent, Found::One);
        }
        let mut found = Found::Absent;
        self.walk(target, touches, |place, record| {
            if !record.is_member() {
                return Walk::Next;
            }
            // The rounds may lead to one bucket twice; only another slot is another copy.
            let is_copy = matches!(&found, Found::One(first) if first.place != place);
            if record.is_frozen() || is_copy {
                found = Found::Moving;
                return Walk::Stop;
            }
            found = Found::One(Member { place, record });
            Walk::Next
        });
        found
    }

    /// Whether the key is a member in another slot than `place`.
    pub fn has_copy(&self, target: &Target, place: SlotPlace) -> bool {
        let mut found = false;
        self.walk(target, &mut 0, |other, record| {
            if other != place && record.is_member() {
                found = true;
                return Walk::Stop;
            }
            Walk::Next
        });
        found
    }

    /// Whether a record word of a member names a record: what recovery has checked, and what a
    /// file closed in order is believed.
    #[inline]
    pub fn record_in_bounds(&self, record: RecordWord) -> bool {
        let at = record.offset();
        at >= crate::layout::DATA_START
            && at.is_multiple_of(8)
            && at + self.shape.record_stride <= self.medium.len()
    }
}

impl<M: Medium> Session<'_, M> {
    /// Finds the one copy of a key that may be changed, waiting out a resize that is moving this
    /// very item.
    pub(crate) fn find_for_write(&mut self, target: &Target) -> crate::Result<Option<Member>> {
        loop {
            match self.table.find_for_write(target, &mut self.touches) {
                Found::Absent => return Ok(None),
                Found::One(member) if self.table.record_in_bounds(member.record) => {
                    return Ok(Some(member));
                }
                Found::One(member) => return Err(self.table.dangling(member)),
                Found::Moving => pause(),
            }
        }
    }

    /// The levels that an operation sees now.
    pub(crate) fn levels(&self) -> Levels {
        self.table.directory.levels()
    }
}

impl<M: Medium> Table<M> {
    /// The error for a slot whose record is nowhere.
    pub(crate) fn dangling(&self, member: Member) -> crate::Error {
        self.damaged(
            "record word",
            member.place.record,
            format!(
                "a record at byte {} of {}",
                member.record.offset(),
                self.medium.len()
            ),
        )
    }
}
