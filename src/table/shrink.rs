//! Fewer levels for fewer items.
//!
//! The items that are left are placed in new, smaller levels, which nobody else knows yet, beside batches:
//! a slot is copied, the record that it names stays where it is. Batches note what they change meanwhile,
//! and that is done again. At the end all operations are kept away for a moment, the last changes are done
//! again, and one superblock names the new levels in place of the old ones. So no operation ever reads both,
//! and a crash leaves the old ones or the new ones.
//!
//! GPHash §3.2.3 has tables that only grow.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use super::Table;
use super::compact::Between;
use super::key::{ProbeKey, ROUNDS};
use super::levels::Levels;
use super::recovery::Progress;
use super::tags::Tags;
use crate::layout::bucket::SlotAddr;
use crate::layout::{BUSY, EMPTY, ExtentKind, KeyClass, KeyHash, RecordWord, Shape, Superblock};
use crate::pm::Medium;
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering, fence, nap, pause, thread_number};
use crate::table::key::Identity;
use crate::width::{to_usize, u32_of};

/// Levels shrink if so many percent of the slots are full then, at most. Tables grow when about 93 are.
const FULL_PERCENT_MAX: u64 = 85;

/// Buckets that are copied before others may checkpoint.
const SLICE_BUCKETS: u64 = 256;

/// Bytes of a new level that are cleared before others may checkpoint.
const CLEARED_AT_ONCE: u64 = 1 << 20;

/// Keys whose changes are done again while all operations wait.
const LAST_CHANGES_MAX: usize = 8192;

/// Times that changes are done again beside batches before a shrink gives up.
const PASSES_MAX: u32 = 32;

/// How long a batch waits at most until its changes are being done again.
const TURN_WAIT_MAX: Duration = Duration::from_millis(15);

/// What of a shrink others must know of.
#[derive(Default)]
pub(crate) struct Shrinking {
    /// Not zero while batches note what they change.
    is_noting: AtomicU64,
    /// Not zero while nobody may begin an operation.
    is_alone: AtomicU64,
    /// Held while nobody may begin one.
    alone: Mutex<()>,
    /// State words of the keys that were changed.
    changed: Mutex<Vec<u64>>,
    /// So many of them may wait to be done again before batches wait, too; no limit if zero.
    changed_max: AtomicU64,
    /// Those who go through the buckets over many operations, and whose position would be lost.
    walkers: AtomicU64,
    /// Those who wait for the end of a shrink, which gives up then.
    hurrying: AtomicU64,
}

impl Shrinking {
    /// Whether changes are to be noted. To be asked after a pin.
    #[inline]
    pub(super) fn is_noting(&self) -> bool {
        self.is_noting.load(Ordering::SeqCst) != 0
    }

    /// Notes keys that were changed. The caller is still pinned.
    pub(super) fn note(&self, words: &mut Vec<u64>) {
        self.changed.lock().append(words);
    }

    /// Waits while others change keys quicker than that can be done again. The caller is not pinned.
    #[cold]
    pub(super) fn wait_for_turn(&self) {
        let started = Instant::now();
        while self.is_behind() && started.elapsed() < TURN_WAIT_MAX {
            nap();
        }
    }

    fn is_behind(&self) -> bool {
        let most = self.changed_max.load(Ordering::SeqCst);
        most != 0 && self.changed.lock().len() as u64 > most
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

    /// The changes so far, each key once.
    fn take_changed(&self) -> Vec<u64> {
        let mut words = std::mem::take(&mut *self.changed.lock());
        words.sort_unstable();
        words.dedup();
        words
    }
}

/// Keeps the levels as they are while somebody goes through them.
pub(crate) struct Walking<'t>(&'t Shrinking);

impl Drop for Walking<'_> {
    fn drop(&mut self) {
        self.0.walkers.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Ends the noting of changes when dropped.
struct Noting<'t>(&'t Shrinking);

impl<'t> Noting<'t> {
    fn begin(shrinking: &'t Shrinking) -> Self {
        shrinking.is_noting.store(1, Ordering::SeqCst);
        Self(shrinking)
    }
}

impl Drop for Noting<'_> {
    fn drop(&mut self) {
        self.0.is_noting.store(0, Ordering::SeqCst);
        self.0.changed_max.store(0, Ordering::SeqCst);
        self.0.changed.lock().clear();
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

/// Levels that nobody else knows yet.
struct NewLevels {
    bottom: u32,
    /// Their offsets, from the lowest one up.
    offsets: Vec<u64>,
}

impl NewLevels {
    fn top(&self) -> u32 {
        self.bottom + u32_of(self.offsets.len() as u64) - 1
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

/// A slot as it was at one moment.
struct Copied {
    from: SlotAddr,
    state: u64,
    record: RecordWord,
}

/// What has come of the last step of a shrink.
enum Switch {
    /// The new levels are there; the ranges of the old ones.
    Done(Vec<(u64, u64)>),
    /// The new levels have no room for what has changed.
    NoRoom,
    /// There are more changes than all operations may wait for.
    TooMany,
}

impl<M: Medium> Table<M> {
    /// Keeps the levels from shrinking until what it gives is dropped. A shrink under way gives up; the caller
    /// is not pinned.
    pub(crate) fn walk_levels(&self) -> Walking<'_> {
        let _resize = self.shrinking.hurry(|| self.resize());
        self.shrinking.walkers.fetch_add(1, Ordering::SeqCst);
        Walking(&self.shrinking)
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
        let Some(new) = self.make_levels(top) else {
            return true;
        };
        let is_ended = AtomicU64::new(0);
        let noting = Noting::begin(&self.shrinking);
        let given_up = self.move_to(&new, levels, &|progress| {
            let goes_on = between(progress);
            is_ended.store(u64::from(!goes_on), Ordering::SeqCst);
            goes_on
        });
        drop(noting);
        self.add_free(&given_up.unwrap_or_else(|| new.ranges(&self.shape)));
        is_ended.load(Ordering::SeqCst) == 0
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

    /// Makes levels with `top` as the top one, which no superblock names yet.
    fn make_levels(&self, top: u32) -> Option<NewLevels> {
        let bottom = top + 1 - self.shape.levels;
        let mut new = NewLevels {
            bottom,
            offsets: Vec::new(),
        };
        for level in bottom..=top {
            // Those of a level that there was once are used again.
            let made = self.add_tags(level, Tags::add).and_then(|()| {
                let len = self.shape.level_len(level);
                let has_entries = Self::may_split_free(&self.superblock());
                let free = has_entries.then(|| self.take_free_level(len)).flatten();
                if let Some(offset) = free {
                    for at in (offset..offset + len).step_by(to_usize(CLEARED_AT_ONCE)) {
                        let _gate = self.store_gate();
                        self.clear(at, CLEARED_AT_ONCE.min(offset + len - at));
                    }
                }
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
                        offset
                    }
                };
                new.offsets.push(offset);
                Ok(())
            });
            if let Err(error) = made {
                tracing::debug!(%error, level, "the levels stay as they are");
                self.add_free(&new.ranges(&self.shape));
                return None;
            }
        }
        Some(new)
    }

    /// Copies all items of `old` levels to `new` ones, and puts these in their place. Gives the ranges of the old
    /// ones, or `None` if the new ones have no room, or others change too much.
    fn move_to(
        &self,
        new: &NewLevels,
        old: Levels,
        between: Between<'_>,
    ) -> Option<Vec<(u64, u64)>> {
        // Batches that began before they were to note what they change have ended then.
        if !self.wait_for_pins() || !self.copy_all(new, old, between) {
            return None;
        }
        let mut changed = self.shrinking.take_changed();
        for _ in 0..PASSES_MAX {
            // Each pass has half of the changes to do that the one before had: batches are held up until then.
            let most = changed.len().max(LAST_CHANGES_MAX) as u64 / 2;
            self.shrinking.changed_max.store(most, Ordering::SeqCst);
            if changed.len() > LAST_CHANGES_MAX {
                if !self.copy_again(new, old, &changed) {
                    return None;
                }
                changed = self.shrinking.take_changed();
                continue;
            }
            for (offset, len) in new.ranges(&self.shape) {
                self.medium.write_back(offset, len);
            }
            self.medium.fence();
            let last = || self.switch_to(new, old, &mut changed);
            match self.maintenance.holding_up("shrinking", last) {
                Switch::Done(given_up) => return Some(given_up),
                Switch::NoRoom => return None,
                Switch::TooMany => {}
            }
        }
        // Longer batches than those that can be held up.
        None
    }

    /// Keeps all operations away, does the last changes again, and names the new levels in place of the old ones.
    fn switch_to(&self, new: &NewLevels, old: Levels, changed: &mut Vec<u64>) -> Switch {
        let _gate = self.store_gate();
        let _alone = self.keep_away();
        changed.append(&mut self.shrinking.take_changed());
        if changed.len() > 2 * LAST_CHANGES_MAX {
            return Switch::TooMany;
        }
        if !self.redo(new, old, changed) {
            return Switch::NoRoom;
        }
        self.medium.fence();
        Switch::Done(self.replace_levels(new, old))
    }

    fn copy_all(&self, new: &NewLevels, old: Levels, between: Between<'_>) -> bool {
        let total = self.slots() / u64::from(self.shape.slots);
        let mut done = 0;
        for level in old.bottom..=old.top {
            for first in (0..1u64 << level).step_by(to_usize(SLICE_BUCKETS)) {
                let last = (first + SLICE_BUCKETS).min(1 << level);
                let pin = self.pin(thread_number());
                for index in first..last {
                    let at = self.levels.offset(level) + index * self.shape.bucket_size;
                    for slot in 0..self.shape.slots {
                        let copied = self.copy_of(self.shape.slot_addr(at, slot));
                        if copied.is_some_and(|copied| !self.put_item(new, &copied)) {
                            return false;
                        }
                    }
                }
                drop(pin);
                done += last - first;
                let progress = Progress {
                    phase: "shrink",
                    done,
                    total,
                };
                if !between(progress) || self.shrinking.is_hurried() {
                    return false;
                }
            }
        }
        true
    }

    /// Does changes again beside batches.
    fn copy_again(&self, new: &NewLevels, old: Levels, changed: &[u64]) -> bool {
        changed.chunks(to_usize(SLICE_BUCKETS)).all(|words| {
            let _pin = self.pin(thread_number());
            !self.shrinking.is_hurried() && self.redo(new, old, words)
        })
    }

    /// Makes what the new levels hold of these keys what the old ones do. The caller is pinned, or alone.
    fn redo(&self, new: &NewLevels, old: Levels, words: &[u64]) -> bool {
        words.iter().all(|&word| {
            let hash = self.hash_of_state(word);
            for round in 0..ROUNDS {
                for at in new.candidates(&self.shape, hash, round) {
                    self.clear_bucket(at, word);
                }
            }
            let copies = self.copies_of(word, hash, old);
            copies.iter().all(|copied| self.put_item(new, copied))
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
    fn copies_of(&self, word: u64, hash: KeyHash, old: Levels) -> Vec<Copied> {
        let target = ProbeKey::of_state(word, hash, Identity::Any);
        let mut copies: Vec<Copied> = Vec::new();
        for round in 0..ROUNDS {
            let _ = self.candidates(&target, round, old.top, old.bottom, |bucket| {
                for slot in 0..self.shape.slots {
                    let addr = self.shape.slot_addr(bucket.at, slot);
                    // Two rounds may lead to one bucket.
                    let is_known = copies.iter().any(|copied| copied.from == addr);
                    if !is_known && self.medium.load(addr.state) == word {
                        copies.extend(self.copy_of(addr));
                    }
                }
                ControlFlow::<()>::Continue(())
            });
        }
        copies
    }

    /// What is in a slot, if that is an item. What changes meanwhile is done again.
    fn copy_of(&self, from: SlotAddr) -> Option<Copied> {
        let record = RecordWord(self.medium.load(from.record));
        let state = self.medium.load(from.state);
        let is_item = state != EMPTY && state != BUSY && record.is_member();
        (is_item && record.is_sound(state)).then_some(Copied {
            from,
            state,
            record,
        })
    }

    /// Writes an item into the new bucket with most room of the first round that has any; `false` if none has.
    fn put_item(&self, new: &NewLevels, copied: &Copied) -> bool {
        let hash = self.hash_of_state(copied.state);
        for round in 0..ROUNDS {
            let buckets = new.candidates(&self.shape, hash, round);
            let vacant = |at: &u64| {
                let states = (0..self.shape.slots)
                    .map(|slot| self.medium.load(self.shape.slot_addr(*at, slot).state));
                states.filter(|&state| state == EMPTY).count()
            };
            // Of equals the last, which `rev` makes that of the highest level.
            let Some(at) = buckets.into_iter().rev().max_by_key(vacant) else {
                continue;
            };
            let mut slots = (0..self.shape.slots).map(|slot| self.shape.slot_addr(at, slot));
            let Some(to) = slots.find(|addr| self.medium.load(addr.state) == EMPTY) else {
                continue;
            };
            if self.shape.key_class() == KeyClass::Wide {
                for word in 0..self.shape.key_size / 8 {
                    let key = self.medium.load(copied.from.key + word * 8);
                    self.medium.store(to.key + word * 8, key);
                }
            }
            self.medium.store(to.state, copied.state);
            self.medium.store(to.record, copied.record.0);
            self.write_back_slot(to);
            if round > 0 {
                self.mark_overflow_in(new, hash);
            }
            return true;
        }
        false
    }

    fn mark_overflow_in(&self, new: &NewLevels, hash: KeyHash) {
        let home = KeyHash::bucket(hash.location(0), new.top());
        let Some(at) = new.offsets.last() else {
            return;
        };
        let word = self.shape.overflow_word(*at, new.top(), home);
        self.medium.fetch_or(word, 1 << (home % 64));
        self.medium.write_back(word, 8);
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
    fn replace_levels(&self, new: &NewLevels, old: Levels) -> Vec<(u64, u64)> {
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
