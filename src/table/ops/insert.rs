//! insert: claim a slot, write the item, decide among rivals, publish.
//!
//! Two insertions of one key at once must not both succeed, although they may claim different
//! slots. Each stands there as TENTATIVE and shows its tag before it looks for rivals, so at least
//! one of any two sees the other. A member makes it give up; a rival in a later slot is struck out
//! (COLLIDED); a rival in an earlier slot is helped to its own decision first. So no one waits for
//! anyone. A tentative item whose tag is not shown is not yet a rival.
//! (Purcell and Harris, *Non-blocking hashtables with open addressing*, DISC 2005, §2.3; GPHash
//! §3.2.2 lets duplicates happen and removes them afterwards, which can undo an acknowledged
//! insertion.)

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use crate::layout::bucket::{SLOT_WORDS_BYTES, SlotAddr};
use crate::layout::{BUSY, EMPTY, KeyClass, KeyHash, RecordWord};
use crate::pm::Medium;
use crate::sync::tags::TagWord;
use crate::sync::{Ordering, fence, pause};
use crate::table::alloc::epoch::GRACE;
use crate::table::key::{Bucket, ProbeKey, ROUNDS, reserved_bucket_at};
use crate::table::probe::Walk;
use crate::table::probe_hint::ProbeHint;
use crate::table::record::Content;
use crate::table::{Session, Table};
use crate::{Error, Result};

/// Empty slots that a home bucket must have to be taken before all others. What is placed so
/// early costs nothing in the load factor: the last slots of a bucket do the balancing.
pub(crate) const HOME_EMPTY_SLOTS_MIN: u32 = 2;

/// How often one insertion may lose to rivals that are gone when it looks for them. Threads that
/// insert and remove its key all the while do not get there. A slot of a damaged file does, if it
/// looks like a rival only while the insertion stands there. Each attempt takes a record.
const LOSSES_MAX: u32 = 1000;

/// How long, and how often, the slots of a bucket may stay the same while all of them are in the hands of others. Those
/// of a damaged file stay so.
const BUCKET_WAIT_MAX: Duration = Duration::from_secs(2);
const BUCKET_CHECKS_MAX: u32 = 1000;

/// What became of an insertion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inserted {
    /// The key was absent and is stored.
    New,
    /// The key was present and keeps its value.
    Present,
}

/// An empty slot.
#[derive(Clone, Copy)]
pub struct EmptySlot<'t> {
    pub(crate) addr: SlotAddr,
    /// Its tag and the number that it has there; a slot of a reserved bucket has none.
    tag: Option<(TagWord<'t>, u32)>,
}

impl<'t> EmptySlot<'t> {
    pub(crate) fn new(addr: SlotAddr, tag: Option<(TagWord<'t>, u32)>) -> Self {
        Self { addr, tag }
    }

    /// Makes the slot the caller's alone, if it is still empty.
    #[inline]
    fn take<M: Medium>(&self, table: &Table<M>) -> bool {
        match self.tag {
            Some((tags, slot)) => tags.take(slot),
            None => {
                let state = self.addr.state;
                table.medium.compare_exchange(state, EMPTY, BUSY).is_ok()
            }
        }
    }

    /// Lets lookups find what has been stored in the slot.
    #[inline]
    pub(crate) fn show(&self, target: &ProbeKey) {
        if let Some((tags, slot)) = self.tag {
            tags.show(slot, target.tag);
        }
    }
}

/// A bucket without an empty slot.
struct FullBucket {
    /// The words of its slots.
    words: Vec<u64>,
    /// When they came to be so.
    since: Instant,
    checks: u32,
    /// The epoch when that was for long.
    epoch: Option<u64>,
}

/// What the walk over a tentative insertion's rivals found.
enum Rivals {
    None,
    Occupied,
    Earlier(SlotAddr, RecordWord),
}

impl<'t, M: Medium> Session<'t, M> {
    /// Stores `content` under the target's key if the key is absent. If `hint` found no sign of it,
    /// the first probe for it is the one for rivals.
    #[inline]
    pub(crate) fn insert(
        &mut self,
        target: &ProbeKey,
        hint: &ProbeHint<'t>,
        content: &Content,
    ) -> Result<Inserted> {
        if let Some(empty_slot) = hint.empty_slot(self.table)
            && let Some(record) = self.allocate(content.class)
        {
            if !empty_slot.take(self.table) {
                self.put_back(content.class, record);
            } else if self.fill_and_decide(target, Some(hint), &empty_slot, record, content) {
                self.items += 1;
                return Ok(Inserted::New);
            }
        }
        self.insert_unless_found(target, content)
    }

    fn insert_unless_found(&mut self, target: &ProbeKey, content: &Content) -> Result<Inserted> {
        let mut losses = 0;
        let mut full = None;
        loop {
            let levels = self.levels();
            if self.table.find(target, &mut self.touches).is_some() {
                return Ok(Inserted::Present);
            }
            let Some(record) = self.allocate(content.class) else {
                self.grow_arena(content.class)?;
                continue;
            };
            let Some(slot) = self.table.claim(target)? else {
                self.put_back(content.class, record);
                if let Some(reserved) = target.reserved {
                    // Another level would be no help. What stands in its one bucket are insertions
                    // and removals of the same key, which others are about to end.
                    self.table.check_progress(reserved, &mut full)?;
                    self.unpin_briefly();
                    pause();
                } else {
                    self.grow(levels)?;
                }
                continue;
            };
            if self.fill_and_decide(target, None, &slot, record, content) {
                self.items += 1;
                return Ok(Inserted::New);
            }
            losses += 1;
            if losses == LOSSES_MAX {
                let found = format!("{losses} members of its key that were gone again");
                return Err(self.table.damaged("slot", slot.addr.state, found));
            }
        }
    }

    /// Writes the item into its claimed slot and publishes it, unless a rival wins.
    #[inline]
    fn fill_and_decide(
        &mut self,
        target: &ProbeKey,
        hint: Option<&ProbeHint>,
        slot: &EmptySlot,
        record: u64,
        content: &Content,
    ) -> bool {
        let table = self.table;
        let addr = slot.addr;
        let medium = &table.medium;
        let tentative = RecordWord::member(target.word, record).with(RecordWord::TENTATIVE);
        table.write_record(record, target, content);
        medium.store(addr.record, tentative.0);
        table.write_key(addr, target);
        medium.store(addr.state, target.word);
        table.persist_slot(addr, record);
        slot.show(target);
        self.touches += table.record_touches(record) + 1 + table.key_touches(addr);
        let is_alone = hint.is_some_and(|hint| hint.is_alone(table, target, Some(addr)))
            && medium
                .compare_exchange(addr.record, tentative.0, tentative.with(0).0)
                .is_ok();
        if is_alone || table.decide(target, addr, tentative) {
            medium.write_back(addr.record, 8);
            medium.fence();
            self.note_change(target, addr);
            return true;
        }
        medium.store(addr.record, RecordWord::NONE.0);
        // A file cleanly closed is not scanned, so no tentative item may outlive the close.
        medium.write_back(addr.record, 8);
        table.vacate(addr);
        self.has_vacated = true;
        // A helper may still hold the word that named it, so it must not come back at once.
        self.retire(record);
        false
    }
}

impl<M: Medium> Table<M> {
    /// Claims an empty slot in the home bucket while it has [`HOME_EMPTY_SLOTS_MIN`] of them, so
    /// that most lookups end there. Else in the candidate bucket with most of them, of the first
    /// round that has any. Ties go to the higher level. `None` when all rounds are full.
    pub(crate) fn claim(&self, target: &ProbeKey) -> Result<Option<EmptySlot<'_>>> {
        let rounds = if target.reserved.is_some() { 1 } else { ROUNDS };
        for round in 0..rounds {
            while let Some((bucket, empty)) = self.emptiest(target, round) {
                if round > 0 {
                    self.mark_overflow(target.hash);
                }
                let slot = empty.trailing_zeros();
                let addr = self.shape.slot_addr(bucket.at, slot);
                let empty_slot = EmptySlot::new(addr, bucket.tags.slot(slot));
                if empty_slot.take(self) {
                    return Ok(Some(empty_slot));
                }
            }
        }
        Ok(None)
    }

    /// Checks that something happens to a reserved bucket which is full, and was at the last check, if there was one.
    ///
    /// # Errors
    /// [`Error::Damaged`](crate::Error::Damaged) if nobody has done anything to it for long.
    fn check_progress(&self, reserved: u32, full: &mut Option<FullBucket>) -> Result<()> {
        let at = reserved_bucket_at(reserved);
        let slots = (0..self.shape.slots).map(|slot| self.shape.slot_addr(at, slot));
        let words: Vec<u64> = slots
            .flat_map(|addr| [addr.state, addr.record])
            .map(|word| self.medium.load(word))
            .collect();
        match full.as_mut().filter(|full| full.words == words) {
            Some(full) => {
                full.checks += 1;
                if full.checks <= BUCKET_CHECKS_MAX || full.since.elapsed() <= BUCKET_WAIT_MAX {
                    return Ok(());
                }
                // A slow disk may hold up whoever has a slot for as long. They are pinned until they let go of it.
                let epoch = *full.epoch.get_or_insert_with(|| self.epochs.current());
                if self.epochs.try_advance() >= epoch + GRACE {
                    return Err(self.clogged(reserved));
                }
            }
            None => {
                *full = Some(FullBucket {
                    words,
                    since: Instant::now(),
                    checks: 0,
                    epoch: None,
                });
            }
        }
        Ok(())
    }

    /// Checks that the bucket of a key that equals a slot state has room for it or has it, while no operation runs.
    ///
    /// # Errors
    /// [`Error::Damaged`](crate::Error::Damaged) if not.
    #[cfg(feature = "cuda")]
    pub(crate) fn check_reserved(&self, key: u64) -> Result<()> {
        let key = key.to_le_bytes();
        let target = self.target(&key);
        match target.reserved {
            Some(reserved)
                if self.emptiest(&target, 0).is_none() && self.find(&target, &mut 0).is_none() =>
            {
                Err(self.clogged(reserved))
            }
            _ => Ok(()),
        }
    }

    fn clogged(&self, reserved: u32) -> Error {
        let found = "a bucket full of no items".into();
        self.damaged("reserved bucket", reserved_bucket_at(reserved), found)
    }

    fn emptiest(&self, target: &ProbeKey, round: u32) -> Option<(Bucket<'_>, u32)> {
        let levels = self.levels.live();
        let lowest = levels.lowest_insertable(self.shape.levels);
        let mut best: Option<(Bucket, u32)> = None;
        let _ = self.candidates(target, round, levels.top, lowest, |bucket| {
            let empty = self.vacant(bucket);
            let at_home = round == 0 && best.is_none();
            if empty.count_ones() > best.map_or(0, |(_, most)| most.count_ones()) {
                best = Some((bucket, empty));
            }
            if at_home && empty.count_ones() >= HOME_EMPTY_SLOTS_MIN {
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        });
        best
    }

    /// Sets the overflow bit of the home bucket of a hash, in the file first.
    ///
    /// The level on top is asked for once: a level that is added in between has another home for the hash.
    pub(in crate::table) fn mark_overflow(&self, hash: KeyHash) {
        let top = self.levels.live().top;
        let home = KeyHash::bucket(hash.location(0), top);
        if self.overflow.is_set(top, home) {
            return;
        }
        let word = self.overflow_word_in(top, home);
        self.medium.fetch_or(word, 1 << (home % 64));
        self.medium.write_back(word, 8);
        self.medium.fence();
        self.overflow.set(top, home);
    }

    /// Where the overflow bit of a hash is, while nobody adds a level.
    pub(in crate::table) fn overflow_word(&self, hash: KeyHash) -> u64 {
        let top = self.levels.live().top;
        self.overflow_word_in(top, KeyHash::bucket(hash.location(0), top))
    }

    /// Where the overflow bit of the bucket `home` of a level is.
    fn overflow_word_in(&self, level: u32, home: u64) -> u64 {
        self.shape
            .overflow_word(self.levels.offset(level), level, home)
    }

    /// Writes the key into the slot, where it does not stand in the state word.
    pub(crate) fn write_key(&self, addr: SlotAddr, target: &ProbeKey) {
        if self.shape.key_class() == KeyClass::Wide {
            for (i, word) in (0..).zip(target.key_words()) {
                self.medium.store(addr.key + i * 8, word);
            }
        }
    }

    /// Makes a filled slot and its record persistent.
    pub(in crate::table) fn persist_slot(&self, addr: SlotAddr, record: u64) {
        self.persist_record(record);
        self.write_back_slot(addr);
        self.medium.fence();
    }

    /// Starts the write-back of a slot's words and key.
    pub(crate) fn write_back_slot(&self, addr: SlotAddr) {
        self.medium.write_back(addr.state, SLOT_WORDS_BYTES);
        if self.shape.key_class() == KeyClass::Wide {
            self.medium.write_back(addr.key, self.shape.key_size);
        }
    }

    /// Decides whether the tentative insertion at `mine` becomes a member.
    fn decide(&self, target: &ProbeKey, mine: SlotAddr, tentative: RecordWord) -> bool {
        let medium = &self.medium;
        let (mut addr, mut record) = (mine, tentative);
        loop {
            if target.reserved.is_some() {
                // Elsewhere the tags see to it.
                fence(Ordering::SeqCst);
            }
            match self.rivals(target, addr, record) {
                Rivals::None => {
                    if addr != mine {
                        // Its owner may not have got so far as to persist it.
                        self.persist_slot(addr, record.offset());
                    }
                    let _ = medium.compare_exchange(addr.record, record.0, record.with(0).0);
                    break;
                }
                Rivals::Occupied => {
                    self.strike_out(addr, record);
                    break;
                }
                Rivals::Earlier(rival, rival_record) => {
                    self.strike_out(addr, record);
                    (addr, record) = (rival, rival_record);
                }
            }
        }
        // Only its owner moves a struck-out insertion on, so the word is still there if it lost. That of another
        // one in this slot, which was helped and removed since, names a record that is not this one's.
        medium.load(mine.record) != tentative.with(RecordWord::COLLIDED).0
    }

    fn strike_out(&self, addr: SlotAddr, record: RecordWord) {
        let struck = record.with(RecordWord::COLLIDED);
        let _ = self
            .medium
            .compare_exchange(addr.record, record.0, struck.0);
    }

    fn rivals(&self, target: &ProbeKey, addr: SlotAddr, record: RecordWord) -> Rivals {
        let mut found = Rivals::None;
        let mut removed = false;
        self.walk(target, &mut 0, |other, word| {
            if other == addr {
                return Walk::Next;
            }
            if word == RecordWord::NONE {
                // Removed, which may not be durable yet. After a crash the old item must not stand
                // beside the new one.
                self.medium.write_back(other.record, 8);
                removed = true;
                return Walk::Next;
            }
            if word.is_member() {
                found = Rivals::Occupied;
                return Walk::Stop;
            }
            // One that is not shown has still to look for rivals, and will find this one. Decided
            // now, it would be a member that no probe finds.
            if !word.is_tentative() || !self.is_shown(other, target) {
                return Walk::Next;
            }
            if other.state < addr.state && self.record_in_bounds(word) {
                found = Rivals::Earlier(other, word);
                return Walk::Stop;
            }
            // If we are decided already, the later one must not suffer for it. A damaged file may have one that names no
            // record: nobody helps it.
            if self.medium.load(addr.record) != record.0 {
                return Walk::Stop;
            }
            self.strike_out(other, word);
            Walk::Again
        });
        if removed {
            self.medium.fence();
        }
        found
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
