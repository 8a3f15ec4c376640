//! Finding the member of a key: the probe that every operation begins with.
//!
//! A slot is read as record, state, record. When both reads of the record word agree, the record
//! was there all the while. A record does not come back to any slot while a session is pinned that
//! may have seen it (see [`epoch`](super::alloc::epoch)). So state and record belong together.

use std::ops::ControlFlow;

use super::key::{Bucket, ProbeKey, ROUNDS};
use super::probe_hint::ProbeHint;
use super::{Session, Table};
use crate::layout::bucket::SlotAddr;
use crate::layout::{KeyClass, KeyHash, RecordWord};
use crate::pm::Medium;
use crate::sync::levels::Levels;
use crate::sync::tags::{BucketTags, TagWord};
use crate::sync::{Ordering, fence, pause};

/// Where a key was found.
#[derive(Debug, Clone, Copy)]
pub struct Occupied {
    /// Its slot.
    pub addr: SlotAddr,
    /// The slot's record word when it was read.
    pub record: RecordWord,
}

/// What the tags say of a key.
#[derive(Debug, Clone, Copy)]
pub enum ProbeResult {
    /// It is not there.
    Absent,
    /// It may be in this slot.
    Candidate(SlotAddr),
    /// It is there.
    Found(Occupied),
    /// Nothing for certain.
    Unsure,
}

/// What a writer found.
pub enum Found {
    /// No member.
    Absent,
    /// The one member, not being moved.
    One(Occupied),
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
    /// Walks over all slots of the live levels that hold the target's key; one that two rounds
    /// lead to may come twice.
    ///
    /// While a resize moves items up, all of a level is read before the levels above it. An item
    /// that leaves a level has arrived above before, so such a walk misses nothing.
    #[inline(always)]
    pub fn walk(
        &self,
        target: &ProbeKey,
        touches: &mut u64,
        mut visit: impl FnMut(SlotAddr, RecordWord) -> Walk,
    ) {
        let levels = self.levels.live();
        if levels.draining(self.shape.levels) {
            return self.walk_draining(target, levels, touches, &mut visit);
        }
        // At rest nothing moves, and most items are in the top level.
        let near = self.candidates(target, 0, levels.top, levels.bottom, |bucket| {
            self.walk_bucket(bucket, target, touches, &mut visit)
        });
        if near.is_continue() && self.rounds(target, levels) > 1 {
            self.walk_further(target, levels, touches, &mut visit);
        }
    }

    /// Walks over the further rounds, at rest.
    #[cold]
    fn walk_further(
        &self,
        target: &ProbeKey,
        levels: Levels,
        touches: &mut u64,
        visit: &mut dyn FnMut(SlotAddr, RecordWord) -> Walk,
    ) {
        let mut bucket = |bucket| self.walk_bucket(bucket, target, touches, visit);
        for round in 1..ROUNDS {
            let walked = self.candidates(target, round, levels.top, levels.bottom, &mut bucket);
            if walked.is_break() {
                return;
            }
        }
    }

    /// Walks while a resize moves items.
    #[cold]
    fn walk_draining(
        &self,
        target: &ProbeKey,
        levels: Levels,
        touches: &mut u64,
        visit: &mut dyn FnMut(SlotAddr, RecordWord) -> Walk,
    ) {
        let mut bucket = |bucket| self.walk_bucket(bucket, target, touches, visit);
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
        target: &ProbeKey,
        touches: &mut u64,
        visit: &mut (impl FnMut(SlotAddr, RecordWord) -> Walk + ?Sized),
    ) -> ControlFlow<()> {
        let (mut mask, read) = self.candidate_slots(bucket, target);
        // Buckets must be read in the walk's order.
        fence(Ordering::Acquire);
        if read || mask != 0 {
            *touches += 1;
        }
        while mask != 0 {
            let addr = self.shape.slot_addr(bucket.at, mask.trailing_zeros());
            match self.visit_slot(addr, target, touches, visit) {
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
        addr: SlotAddr,
        target: &ProbeKey,
        touches: &mut u64,
        visit: &mut (impl FnMut(SlotAddr, RecordWord) -> Walk + ?Sized),
    ) -> Walk {
        let record = RecordWord(self.medium.load(addr.record));
        if self.medium.load(addr.state) != target.word {
            return Walk::Next;
        }
        *touches += self.key_touches(addr);
        if !self.key_equals(addr, record, target) {
            return Walk::Next;
        }
        if self.medium.load(addr.record) != record.0 {
            return Walk::Again;
        }
        visit(addr, record)
    }

    /// The member of a key, for a reader. While a resize copies it, the copy in the highest
    /// level is the valid one.
    #[inline]
    pub fn find(&self, target: &ProbeKey, touches: &mut u64) -> Option<Occupied> {
        let draining = self.levels.live().draining(self.shape.levels);
        let mut found = None;
        self.walk(target, touches, |addr, record| {
            if !record.is_member() {
                return Walk::Next;
            }
            found = Some(Occupied { addr, record });
            // Lower levels come first while items move, so the last one found is valid.
            if draining { Walk::Next } else { Walk::Stop }
        });
        found
    }

    /// The member of a key if it stands in this slot and nothing moves. `None` says nothing.
    #[inline(always)]
    pub fn find_at(
        &self,
        addr: SlotAddr,
        target: &ProbeKey,
        touches: &mut u64,
    ) -> Option<Occupied> {
        if self.levels.live().draining(self.shape.levels) {
            return None;
        }
        let mut found = None;
        let mut counted = 1;
        self.visit_slot(addr, target, &mut counted, &mut |addr, record| {
            found = record.is_member().then_some(Occupied { addr, record });
            Walk::Next
        });
        if found.is_some() {
            *touches += counted;
        }
        found
    }

    /// The member of a key, for a reader, with a hint where.
    #[inline]
    pub fn find_with(
        &self,
        target: &ProbeKey,
        hint: &ProbeHint,
        touches: &mut u64,
    ) -> Option<Occupied> {
        let mut result = match hint.candidate(self) {
            Some(addr) => ProbeResult::Candidate(addr),
            None if hint.is_alone(self, target, None) => ProbeResult::Absent,
            None => ProbeResult::Unsure,
        };
        self.find_probed(target, &mut result, touches);
        match result {
            ProbeResult::Found(member) => Some(member),
            _ => None,
        }
    }

    /// The tags of the bucket of the target's first location in the top level, where most keys
    /// are.
    #[inline(always)]
    pub fn home_tags(&self, target: &ProbeKey) -> BucketTags<'_> {
        let top = self.levels.live().top;
        let index = KeyHash::bucket(target.hash.location(0), top);
        self.tags.level(top).bucket(index)
    }

    /// Writes into `result` what the tags of the home bucket say of a key, where most keys are.
    #[inline(always)]
    pub fn probe_home_tags(&self, target: &ProbeKey, result: &mut ProbeResult) {
        *result = ProbeResult::Unsure;
        if target.reserved.is_some() {
            return;
        }
        let top = self.levels.live().top;
        let home = self.bucket(top, KeyHash::bucket(target.hash.location(0), top));
        let mask = match home.tags.only().and_then(TagWord::load) {
            Some(tags) => tags.match_mask(target.tag),
            None => 0,
        };
        if mask != 0 {
            let addr = self.shape.slot_addr(home.at, mask.trailing_zeros());
            *result = ProbeResult::Candidate(addr);
        }
    }

    /// Writes into `result` what the tags of all candidate buckets of the first round say of a key.
    #[inline(never)]
    pub fn probe_tags(&self, target: &ProbeKey, result: &mut ProbeResult) {
        let levels = self.levels.live();
        *result = ProbeResult::Unsure;
        if target.reserved.is_some() || levels.draining(self.shape.levels) {
            return;
        }
        let candidate = self.candidates(target, 0, levels.top, levels.bottom, |bucket| {
            for (first, word) in bucket.tags.words() {
                let mask = word.load().map_or(1, |tags| tags.match_mask(target.tag));
                if mask != 0 {
                    let slot = first + mask.trailing_zeros();
                    return ControlFlow::Break(self.shape.slot_addr(bucket.at, slot));
                }
            }
            ControlFlow::Continue(())
        });
        match candidate {
            ControlFlow::Break(addr) => *result = ProbeResult::Candidate(addr),
            ControlFlow::Continue(()) if self.rounds(target, levels) > 1 => {}
            ControlFlow::Continue(()) => *result = ProbeResult::Absent,
        }
    }

    /// Replaces a candidate by what its slot says: the member, or nothing for certain.
    #[inline(always)]
    pub fn probe_slot(&self, target: &ProbeKey, result: &mut ProbeResult, touches: &mut u64) {
        if let ProbeResult::Candidate(addr) = *result {
            *result = match self.find_at(addr, target, touches) {
                Some(member) => ProbeResult::Found(member),
                None => ProbeResult::Unsure,
            };
        }
    }

    /// Replaces what is not certain of a key that has been probed while this session was pinned: it is found, or absent.
    ///
    /// The result is written where it stays. To move it soon after, in wider parts than it was written in, waits until all
    /// stores before have reached the cache: a sixth of the time of a column of gets.
    #[inline(always)]
    pub fn find_probed(&self, target: &ProbeKey, result: &mut ProbeResult, touches: &mut u64) {
        self.probe_slot(target, result, touches);
        if matches!(result, ProbeResult::Unsure) {
            self.find_unsure(target, result, touches);
        }
    }

    /// Writes into `result` whether a key is there of which nothing is known.
    #[inline(never)]
    fn find_unsure(&self, target: &ProbeKey, result: &mut ProbeResult, touches: &mut u64) {
        *result = match self.find(target, touches) {
            Some(member) => ProbeResult::Found(member),
            None => ProbeResult::Absent,
        };
    }

    /// The member of a key, for a writer, who may act only on the one copy.
    #[inline]
    pub fn find_for_write(&self, target: &ProbeKey, touches: &mut u64) -> Found {
        if !self.levels.live().draining(self.shape.levels) {
            // At rest there is one copy. Should a resize begin now, it waits for this operation.
            return self.find(target, touches).map_or(Found::Absent, Found::One);
        }
        // A copy may also have been updated since it was found, and then moved.
        self.find_only(target, touches, |_| true)
    }

    /// Walks over all members of a key. A frozen one is being moved, and so is the key if `is_held`
    /// of the member that was found before in another slot.
    #[cold]
    fn find_only(
        &self,
        target: &ProbeKey,
        touches: &mut u64,
        is_held: impl Fn(&Occupied) -> bool,
    ) -> Found {
        let mut found = Found::Absent;
        self.walk(target, touches, |addr, record| {
            if record == RecordWord::NONE {
                // Moved or removed, which may not be durable yet. After a crash it must not stand where another copy
                // was changed or removed.
                self.medium.write_back(addr.record, 8);
            }
            if !record.is_member() {
                return Walk::Next;
            }
            // The rounds may lead to one bucket twice; only another slot is another copy.
            let is_copy =
                matches!(&found, Found::One(first) if first.addr != addr && is_held(first));
            if record.is_frozen() || is_copy {
                found = Found::Moving;
                return Walk::Stop;
            }
            found = Found::One(Occupied { addr, record });
            Walk::Next
        });
        found
    }

    /// Whether the key is a member in another slot than `addr`, of those that count.
    pub fn has_copy(
        &self,
        target: &ProbeKey,
        addr: SlotAddr,
        counts: impl Fn(SlotAddr, RecordWord) -> bool,
    ) -> bool {
        let mut found = false;
        self.walk(target, &mut 0, |other, record| {
            if other != addr && record.is_member() && counts(other, record) {
                found = true;
                return Walk::Stop;
            }
            Walk::Next
        });
        found
    }
}

impl<M: Medium> Session<'_, M> {
    /// Finds the one copy of a key that may be changed, waiting out a resize that is moving this
    /// very item.
    pub(crate) fn find_for_write(
        &mut self,
        target: &ProbeKey,
        hint: &ProbeHint,
    ) -> crate::Result<Option<Occupied>> {
        let mut hinted = hint
            .candidate(self.table)
            .and_then(|addr| self.table.find_at(addr, target, &mut self.touches));
        loop {
            let found = match hinted.take() {
                Some(member) => Found::One(member),
                None => self.table.find_for_write(target, &mut self.touches),
            };
            match found {
                Found::Absent => return Ok(None),
                Found::One(member) if self.table.is_unsure(member, target) => {
                    return Err(match self.table.record_in_bounds(member.record) {
                        true => self.table.unsound(member),
                        false => self.table.dangling(member),
                    });
                }
                Found::One(member) => return Ok(Some(member)),
                Found::Moving => match self.table.stuck(target) {
                    Some(error) => return Err(error),
                    None => pause(),
                },
            }
        }
    }

    /// The levels that an operation sees now.
    pub(crate) fn levels(&self) -> Levels {
        self.table.levels.live()
    }
}

impl<M: Medium> Table<M> {
    /// The error for an item that is marked as being moved, or is there twice, while no resize
    /// runs. A file that was cleanly closed is believed, and none is closed like this.
    #[cold]
    fn stuck(&self, target: &ProbeKey) -> Option<crate::Error> {
        let _nobody_moves = self.resize.try_lock()?;
        // Others may have removed the key where it was found and inserted it elsewhere. While the
        // caller is pinned, the record of a removed item comes back nowhere.
        let still_stands =
            |member: &Occupied| self.medium.load(member.addr.record) == member.record.0;
        let found = self.find_only(target, &mut 0, still_stands);
        matches!(found, Found::Moving).then(|| {
            self.damaged(
                "slot",
                self.levels.offset(self.levels.live().bottom),
                format!("an item of hash {:#x} that nobody is moving", target.hash.0),
            )
        })
    }

    /// The error for a slot whose record is nowhere.
    pub(crate) fn dangling(&self, member: Occupied) -> crate::Error {
        self.damaged(
            "record word",
            member.addr.record,
            format!(
                "a record at byte {} of {}",
                member.record.offset(),
                self.medium.len()
            ),
        )
    }

    /// Whether a flipped bit may have a member name the record of another item, or none, which must not be given up. Of
    /// variable length, the record [says](Session::retire_of) whether it is the key's.
    #[inline]
    fn is_unsure(&self, member: Occupied, target: &ProbeKey) -> bool {
        let is_sure =
            || member.record.is_sound(target.word) && self.record_in_bounds(member.record);
        self.shape.key_class() != KeyClass::Variable && !is_sure()
    }

    /// The error for a slot of which a bit has flipped.
    #[cold]
    fn unsound(&self, member: Occupied) -> crate::Error {
        let found = format!("{:#x}, whose parity is wrong", member.record.0);
        self.damaged("record word", member.addr.record, found)
    }
}
