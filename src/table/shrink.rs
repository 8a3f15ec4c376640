//! Fewer levels for fewer items.
//!
//! The items that are left are placed in new, smaller levels, which no lookup knows yet, beside batches: a slot is
//! copied, the record that it names stays where it is. Batches note which keys they change meanwhile, and copy these
//! anew before they let go of the table. At the end all operations are kept away for a moment, and one superblock
//! names the new levels in place of the old ones. So no operation ever looks into both, and a crash leaves the old ones
//! or the new ones.
//!
//! GPHash §3.2.3 has tables that only grow.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::Table;
use super::compact::Between;
use super::key::{ProbeKey, ROUNDS};
use super::recovery::Progress;
use crate::Result;
use crate::layout::bucket::SlotAddr;
use crate::layout::shape::extent_alignment;
use crate::layout::{
    BUSY, EMPTY, ExtentKind, KeyClass, KeyHash, RecordWord, Shape, Superblock, align_up,
};
use crate::pm::{Medium, Priority};
use crate::sync::levels::Levels;
use crate::sync::tags::Tags;
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering, RwLock, fence, pause, thread_number};
use crate::table::key::Identity;
use crate::width::{to_usize, u32_of};

/// Levels shrink if so many percent of the slots are full then, at most. Tables grow when about 93 are.
const FULL_PERCENT_MAX: u64 = 85;

/// Buckets that are copied before others may checkpoint.
const SLICE_BUCKETS: u64 = 256;

/// Bytes of a new level that are cleared before others may checkpoint.
const CLEARED_AT_ONCE: u64 = 1 << 20;

/// Bytes that are preallocated for new levels before others may have the shrink give up.
const PREALLOCATED_AT_ONCE: u64 = 16 << 20;

/// Keys that one thread at a time copies are told apart by this many locks.
const STRIPES: usize = if cfg!(loom) { 1 } else { 64 };

/// What of a shrink others must know of.
pub(crate) struct Shrinking {
    /// Not zero while batches note what they change.
    is_noting: AtomicU64,
    /// The levels that they copy it to. Held shared meanwhile.
    new: RwLock<Option<Arc<NewLevels>>>,
    /// Held by who copies the items of a state word. Cannot fail: the word picks one.
    stripes: [Mutex<()>; STRIPES],
    /// Not zero while nobody may begin an operation.
    is_alone: AtomicU64,
    /// Held while nobody may begin one.
    alone: Mutex<()>,
    /// Those who go through the buckets over many operations, and whose position would be lost.
    walkers: AtomicU64,
    /// Those who wait for the end of a shrink, which gives up then.
    hurrying: AtomicU64,
}

impl Default for Shrinking {
    fn default() -> Self {
        Self {
            is_noting: AtomicU64::default(),
            new: RwLock::default(),
            stripes: std::array::from_fn(|_| Mutex::default()),
            is_alone: AtomicU64::default(),
            alone: Mutex::default(),
            walkers: AtomicU64::default(),
            hurrying: AtomicU64::default(),
        }
    }
}

impl Shrinking {
    /// Whether changes are to be noted. To be asked after a pin.
    #[inline]
    pub(super) fn is_noting(&self) -> bool {
        self.is_noting.load(Ordering::SeqCst) != 0
    }

    /// Whether the caller, who has just pinned itself, must let go and [wait](Self::wait).
    #[inline]
    pub(super) fn keeps_away(&self) -> bool {
        self.is_alone.load(Ordering::SeqCst) != 0
    }

    /// Waits for a lock that a shrink under way holds, and has it give up.
    pub(super) fn hurry<T>(&self, lock: impl FnOnce() -> T) -> T {
        self.hurrying.fetch_add(1, Ordering::SeqCst);
        let locked = lock();
        self.hurrying.fetch_sub(1, Ordering::SeqCst);
        locked
    }

    fn is_hurried(&self) -> bool {
        self.hurrying.load(Ordering::SeqCst) != 0
    }

    /// Waits until operations may begin.
    #[cold]
    pub(super) fn wait(&self) {
        drop(self.alone.lock());
    }

    /// Keeps other threads from copying the items of a state word.
    fn stripe(&self, word: u64) -> MutexGuard<'_, ()> {
        self.stripes[to_usize(word ^ word >> 32) % STRIPES].lock()
    }
}

/// Keeps the levels as they are while somebody goes through them.
pub(crate) struct Walking<'t>(&'t Shrinking);

impl Drop for Walking<'_> {
    fn drop(&mut self) {
        self.0.walkers.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Has batches copy what they change. Ends it when dropped, and waits for those who are at it.
struct Noting<'t>(&'t Shrinking);

impl<'t> Noting<'t> {
    fn begin(shrinking: &'t Shrinking) -> Self {
        shrinking.is_noting.store(1, Ordering::SeqCst);
        Self(shrinking)
    }

    /// Has batches copy what they change from here on. Not before all of them note it: what is copied and then
    /// removed by one that does not would stay.
    fn show(&self, new: &Arc<NewLevels>) {
        *self.0.new.write() = Some(Arc::clone(new));
    }
}

impl Drop for Noting<'_> {
    fn drop(&mut self) {
        self.0.is_noting.store(0, Ordering::SeqCst);
        *self.0.new.write() = None;
    }
}

/// Enters ranges as free when dropped.
struct ToFree<'t, M: Medium>(&'t Table<M>, Vec<(u64, u64)>);

impl<M: Medium> Drop for ToFree<'_, M> {
    fn drop(&mut self) {
        self.0.add_free(&self.1);
    }
}

/// Keeps all operations away.
struct Alone<'t> {
    shrinking: &'t Shrinking,
    _waited_for: MutexGuard<'t, ()>,
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.shrinking.is_alone.store(0, Ordering::SeqCst);
    }
}

/// Levels that no lookup knows yet.
struct NewLevels {
    bottom: u32,
    /// Their offsets, from the lowest one up.
    offsets: Vec<u64>,
    /// Those that they replace.
    old: Levels,
    /// Not zero once there was no room in them, or something cannot be copied to them.
    is_given_up: AtomicU64,
}

impl NewLevels {
    fn top(&self) -> u32 {
        self.bottom + u32_of(self.offsets.len() as u64) - 1
    }

    fn has_all(&self) -> bool {
        self.is_given_up.load(Ordering::SeqCst) == 0
    }

    fn give_up(&self) {
        self.is_given_up.store(1, Ordering::SeqCst);
    }

    fn levels(&self) -> impl DoubleEndedIterator<Item = (u32, u64)> + '_ {
        let offsets = self.offsets.iter().enumerate();
        offsets.map(|(nth, &offset)| (self.bottom + u32_of(nth as u64), offset))
    }

    /// The candidate buckets of a key in one round, the top level's first.
    fn candidates(&self, shape: &Shape, hash: KeyHash, round: u32) -> Vec<u64> {
        let mut buckets = Vec::new();
        for (level, offset) in self.levels().rev() {
            for nth in 0..shape.locations {
                let location = hash.location(round * shape.locations + nth);
                let at = offset + KeyHash::bucket(location, level) * shape.bucket_size;
                if !buckets.contains(&at) {
                    buckets.push(at);
                }
            }
        }
        buckets
    }

    /// Their ranges in the file.
    fn ranges(&self, shape: &Shape) -> Vec<(u64, u64)> {
        self.levels()
            .map(|(level, offset)| (offset, shape.level_len(level)))
            .collect()
    }
}

/// What has come of copying.
#[derive(PartialEq, Eq)]
enum Copied {
    All,
    /// There is no room, or others wait for the end.
    NotAll,
    /// The caller has ended it.
    Ended,
}

/// A slot as it was at one moment.
struct Item {
    from: SlotAddr,
    state: u64,
    record: RecordWord,
}

impl<M: Medium> Table<M> {
    /// Keeps the levels from shrinking until what it gives is dropped. A shrink under way gives up; the caller
    /// is not pinned.
    pub(crate) fn walk_levels(&self) -> Walking<'_> {
        let _resize = self.shrinking.hurry(|| self.resize());
        self.shrinking.walkers.fetch_add(1, Ordering::SeqCst);
        Walking(&self.shrinking)
    }

    /// As [`walk_levels`](Self::walk_levels), or `None` if somebody changes the levels now.
    #[cfg(feature = "cuda")]
    pub(crate) fn try_walk_levels(&self) -> Option<Walking<'_>> {
        let _resize = self.resize.try_lock()?;
        self.shrinking.walkers.fetch_add(1, Ordering::SeqCst);
        Some(Walking(&self.shrinking))
    }

    /// Gives the table as few levels as its items need, unless somebody goes through them, or the disk has no room
    /// for the new ones. What it gives up is free. The caller is not pinned. `false` if `between` has ended it.
    pub(crate) fn shrink_levels(&self, between: Between<'_>) -> bool {
        self.finish_draining_quietly();
        // Levels neither grow nor are emptied meanwhile.
        let resize = self.resize();
        let levels = self.levels.live();
        let top = self.least_top();
        let is_walked = self.shrinking.walkers.load(Ordering::SeqCst) != 0;
        if top >= levels.top || is_walked || !resize.is_at_rest(levels, self.shape.levels) {
            return true;
        }
        // Also when `between` panics.
        let mut free = ToFree(self, Vec::new());
        let new = match self.make_levels(top, &mut free) {
            Ok(Some(new)) => Arc::new(new),
            // What is preallocated is for the growth that waits, if it is one.
            Ok(None) => return true,
            Err(error) => {
                tracing::debug!(%error, top, "the levels stay as they are");
                self.give_back_preallocated();
                return true;
            }
        };
        let noting = Noting::begin(&self.shrinking);
        let copied = self.copy_all(&new, &noting, between);
        if copied == Copied::All
            && let Some(given_up) = self.switch_to(&new, noting)
        {
            free.1 = given_up;
        }
        copied != Copied::Ended
    }

    /// Bytes of the levels that the items do not need.
    pub(crate) fn spare_level_bytes(&self) -> u64 {
        let top = self.least_top();
        let needed = top + 1 - self.shape.levels..=top;
        let needed: u64 = needed.map(|level| self.shape.level_len(level)).sum();
        self.level_bytes().saturating_sub(needed)
    }

    /// The top level that the items need.
    fn least_top(&self) -> u32 {
        let slots = self.len().saturating_mul(100) / FULL_PERCENT_MAX;
        (self.shape.levels - 1..Shape::MAX_LEVEL)
            .find(|&top| self.shape.capacity(top) >= slots.max(1))
            .unwrap_or(Shape::MAX_LEVEL)
    }

    /// Makes levels with `top` as the top one, which no superblock names yet; `None` if others wait for the end. Their
    /// ranges are in `made` as soon as they are taken.
    fn make_levels(&self, top: u32, made: &mut ToFree<'_, M>) -> Result<Option<NewLevels>> {
        let bottom = top + 1 - self.shape.levels;
        let mut end = self.superblock().file_len;
        let mut levels = Vec::new();
        for level in bottom..=top {
            // Those of a level that there was once are used again.
            self.add_tags(level, Tags::add)?;
            let len = self.shape.level_len(level);
            let free = self.take_free_level(&self.superblock(), len);
            match free {
                Some(offset) => made.1.push((offset, len)),
                None => end = align_up(end, extent_alignment(len)) + len,
            }
            levels.push((level, len, free));
        }
        // What takes long is done before batches have to wait for it. Steps alone would fill a disk that has no room
        // for all of them, and the next checkpoint would find none.
        self.medium.check_room(end)?;
        let mut prepared = self.medium.prepared();
        while prepared < end {
            if self.shrinking.is_hurried() {
                return Ok(None);
            }
            prepared = end.min(prepared + PREALLOCATED_AT_ONCE);
            let priority = Priority::of_step(prepared == end);
            self.medium.prepare(prepared, priority)?;
        }
        for &(_, len, free) in &levels {
            let Some(offset) = free else { continue };
            for at in (offset..offset + len).step_by(to_usize(CLEARED_AT_ONCE)) {
                if self.shrinking.is_hurried() {
                    return Ok(None);
                }
                let _gate = self.store_gate();
                self.clear(at, CLEARED_AT_ONCE.min(offset + len - at));
            }
        }
        let mut new = NewLevels {
            bottom,
            offsets: Vec::new(),
            old: self.levels.live(),
            is_given_up: AtomicU64::default(),
        };
        for (level, len, free) in levels {
            let _gate = self.store_gate();
            let mut superblock = self.superblock();
            let offset = match free {
                Some(offset) => {
                    self.enter_free_level(&mut superblock, level, offset);
                    offset
                }
                None => {
                    let kind = ExtentKind::Level;
                    let offset = self.append_extent(&mut superblock, kind, level, len)?;
                    self.commit(&mut superblock);
                    made.1.push((offset, len));
                    offset
                }
            };
            new.offsets.push(offset);
        }
        Ok(Some(new))
    }

    /// Names the new levels in place of the old ones, if all that others have changed had room there. Gives the ranges
    /// of the old ones.
    fn switch_to(&self, new: &NewLevels, noting: Noting<'_>) -> Option<Vec<(u64, u64)>> {
        for (offset, len) in new.ranges(&self.shape) {
            self.medium.write_back(offset, len);
        }
        self.medium.fence();
        self.maintenance.holding_up("shrinking", || {
            let _gate = self.store_gate();
            let _alone = self.keep_away();
            // Whoever comes next finds the levels as they are then.
            drop(noting);
            self.medium.fence();
            new.has_all().then(|| self.replace_levels(new))
        })
    }

    /// Copies all items to the new levels, beside batches.
    fn copy_all(&self, new: &Arc<NewLevels>, noting: &Noting<'_>, between: Between<'_>) -> Copied {
        // Batches that began before they were to note what they change have ended then.
        if !self.wait_for_pins() {
            return Copied::NotAll;
        }
        noting.show(new);
        let total = self.slots() / u64::from(self.shape.slots);
        let mut done = 0;
        for level in new.old.bottom..=new.old.top {
            for first in (0..1u64 << level).step_by(to_usize(SLICE_BUCKETS)) {
                let last = (first + SLICE_BUCKETS).min(1 << level);
                let pin = self.pin(thread_number());
                for index in first..last {
                    let at = self.levels.offset(level) + index * self.shape.bucket_size;
                    for slot in 0..self.shape.slots {
                        self.copy_slot(new, self.shape.slot_addr(at, slot));
                    }
                }
                drop(pin);
                done += last - first;
                let progress = Progress {
                    phase: "shrink",
                    done,
                    total,
                };
                if !between(progress) {
                    return Copied::Ended;
                }
                if self.shrinking.is_hurried() || !new.has_all() {
                    return Copied::NotAll;
                }
            }
        }
        Copied::All
    }

    /// Copies what is in a slot, unless the batch that has put it there does.
    fn copy_slot(&self, new: &NewLevels, from: SlotAddr) {
        let word = self.medium.load(from.state);
        if word == EMPTY || word == BUSY {
            return;
        }
        let _stripe = self.shrinking.stripe(word);
        // Others may have changed it before.
        let Some(copied) = self
            .copy_of(new, from)
            .filter(|copied| copied.state == word)
        else {
            return;
        };
        // It was copied already if it was changed since, or another key has this word, too.
        match self.holds(new, word) {
            true => self.copy_word(new, word),
            false => self.put_item(new, &copied),
        }
    }

    /// Copies the items of keys anew that the caller, who is still pinned, has changed.
    pub(super) fn copy_changed(&self, words: &mut Vec<u64>) {
        let new = self.shrinking.new.read();
        for word in words.drain(..) {
            if let Some(new) = new.as_ref().filter(|new| new.has_all()) {
                let _stripe = self.shrinking.stripe(word);
                self.copy_word(new, word);
            }
        }
        // The fence of another thread does not speak for this one.
        self.medium.fence();
    }

    /// Makes what the new levels hold of a state word what the old ones do. The caller holds its stripe.
    fn copy_word(&self, new: &NewLevels, word: u64) {
        let hash = self.hash_of_state(word);
        for round in 0..self.rounds_in(new, hash) {
            for at in new.candidates(&self.shape, hash, round) {
                self.clear_bucket(at, word);
            }
        }
        for copied in self.copies_of(new, word, hash) {
            self.put_item(new, &copied);
        }
    }

    /// Whether a state word is in the new levels.
    fn holds(&self, new: &NewLevels, word: u64) -> bool {
        let hash = self.hash_of_state(word);
        (0..self.rounds_in(new, hash)).any(|round| {
            let buckets = new.candidates(&self.shape, hash, round);
            let mut slots = buckets.iter().flat_map(|&at| {
                (0..self.shape.slots).map(move |slot| self.shape.slot_addr(at, slot).state)
            });
            slots.any(|state| self.medium.load(state) == word)
        })
    }

    /// Empties the slots of a new bucket that have this state word.
    fn clear_bucket(&self, at: u64, word: u64) {
        for slot in 0..self.shape.slots {
            let addr = self.shape.slot_addr(at, slot);
            if self.medium.load(addr.state) == word {
                self.medium.store(addr.record, RecordWord::NONE.0);
                self.medium.store(addr.state, EMPTY);
                self.write_back_slot(addr);
            }
        }
    }

    /// The items of the old levels that have this state word.
    fn copies_of(&self, new: &NewLevels, word: u64, hash: KeyHash) -> Vec<Item> {
        let old = new.old;
        let target = ProbeKey::of_state(word, hash, Identity::Any);
        let mut copies: Vec<Item> = Vec::new();
        let mut rounds = 1;
        let mut round = 0;
        while round < rounds {
            let _ = self.candidates(&target, round, old.top, old.bottom, |bucket| {
                for slot in 0..self.shape.slots {
                    let addr = self.shape.slot_addr(bucket.at, slot);
                    // Two rounds may lead to one bucket.
                    let is_known = copies.iter().any(|copied| copied.from == addr);
                    if !is_known && self.medium.load(addr.state) == word {
                        // It may have become another one since.
                        let copied = self.copy_of(new, addr);
                        copies.extend(copied.filter(|copied| copied.state == word));
                    }
                }
                ControlFlow::<()>::Continue(())
            });
            // To be asked after round 0.
            rounds = self.rounds(&target, old);
            round += 1;
        }
        copies
    }

    /// What is in a slot, if that is an item. What changes meanwhile is done again. The levels stay as they are if a
    /// slot is damaged: lookups find it, and so must whoever verifies it.
    fn copy_of(&self, new: &NewLevels, from: SlotAddr) -> Option<Item> {
        let record = RecordWord(self.medium.load(from.record));
        let state = self.medium.load(from.state);
        let is_there = state != EMPTY && state != BUSY;
        // What is no item may be one of which a bit of the record word is flipped.
        if is_there && !record.is_sound(state) && self.medium.load(from.record) == record.0 {
            tracing::warn!(
                at = from.state,
                "a damaged slot keeps the levels from shrinking"
            );
            new.give_up();
        }
        (is_there && record.is_member() && record.is_sound(state)).then_some(Item {
            from,
            state,
            record,
        })
    }

    /// Writes an item into the new bucket with most room of the first round that has any. The caller holds the
    /// stripe of its state word.
    fn put_item(&self, new: &NewLevels, copied: &Item) {
        let hash = self.hash_of_state(copied.state);
        for round in 0..ROUNDS {
            let buckets = new.candidates(&self.shape, hash, round);
            let vacant = |at: &u64| {
                let states = (0..self.shape.slots)
                    .map(|slot| self.medium.load(self.shape.slot_addr(*at, slot).state));
                states.filter(|&state| state == EMPTY).count()
            };
            let mut by_room: Vec<(usize, u64)> = buckets
                .into_iter()
                .rev()
                .map(|at| (vacant(&at), at))
                .collect();
            // Of equals the last first, which `rev` makes that of the highest level.
            by_room.sort_by_key(|(vacant, _)| *vacant);
            for (_, at) in by_room.into_iter().rev() {
                let slots = (0..self.shape.slots).map(|slot| self.shape.slot_addr(at, slot));
                for to in slots {
                    // Other words are put by other threads.
                    let is_taken = self.medium.load(to.state) == EMPTY
                        && (self.medium)
                            .compare_exchange(to.state, EMPTY, copied.state)
                            .is_ok();
                    if is_taken {
                        self.fill_slot(to, copied);
                        if round > 0 {
                            self.mark_overflow_in(new, hash);
                        }
                        return;
                    }
                }
            }
        }
        new.give_up();
    }

    /// Writes what stands beside the state word into a slot that is the caller's.
    fn fill_slot(&self, to: SlotAddr, copied: &Item) {
        if self.shape.key_class() == KeyClass::Wide {
            for word in 0..self.shape.key_size / 8 {
                let key = self.medium.load(copied.from.key + word * 8);
                self.medium.store(to.key + word * 8, key);
            }
        }
        self.medium.store(to.record, copied.record.0);
        self.write_back_slot(to);
    }

    /// In how many rounds the new levels have items of a hash.
    fn rounds_in(&self, new: &NewLevels, hash: KeyHash) -> u32 {
        let (word, bit) = self.overflow_bit_in(new, hash);
        match self.medium.load(word) & bit {
            0 => 1,
            _ => ROUNDS,
        }
    }

    fn mark_overflow_in(&self, new: &NewLevels, hash: KeyHash) {
        let (word, bit) = self.overflow_bit_in(new, hash);
        self.medium.fetch_or(word, bit);
        self.medium.write_back(word, 8);
    }

    /// The word of the new levels that says whether items of a hash went to further rounds, and the bit.
    fn overflow_bit_in(&self, new: &NewLevels, hash: KeyHash) -> (u64, u64) {
        let home = KeyHash::bucket(hash.location(0), new.top());
        let at = new.offsets[new.offsets.len() - 1];
        let word = self.shape.overflow_word(at, new.top(), home);
        (word, 1 << (home % 64))
    }

    /// Keeps all operations away until what it gives is dropped.
    fn keep_away(&self) -> Alone<'_> {
        let waited_for = self.shrinking.alone.lock();
        self.shrinking.is_alone.store(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        while !self.epochs.is_unpinned() {
            pause();
        }
        Alone {
            shrinking: &self.shrinking,
            _waited_for: waited_for,
        }
    }

    /// Names the new levels in place of the old ones, and gives the ranges of these. Nobody is at the table.
    fn replace_levels(&self, new: &NewLevels) -> Vec<(u64, u64)> {
        let old = new.old;
        let mut superblock = self.superblock();
        let ranges = (old.bottom..=old.top)
            .map(|level| {
                let offset = std::mem::take(&mut superblock.level_directory[level as usize]);
                (offset, self.shape.level_len(level))
            })
            .collect();
        for (level, offset) in new.levels() {
            superblock.level_directory[level as usize] = offset;
        }
        superblock.bottom_level = new.bottom;
        superblock.top_level = new.top();
        // In both copies, before anything relies on it: what changes from now on is in the new levels alone.
        self.commit(&mut superblock);
        self.commit(&mut superblock);
        self.show_levels(&superblock, old);
        tracing::debug!(from = old.top, to = new.top(), "the levels have shrunk");
        ranges
    }

    fn show_levels(&self, superblock: &Superblock, old: Levels) {
        let live = superblock.bottom_level..=superblock.top_level;
        for level in live.clone().chain(old.bottom..=old.top) {
            self.tags.forget_level(level);
        }
        self.overflow.forget();
        self.levels.begin_anew();
        live.for_each(|level| self.publish_level(superblock, level));
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
