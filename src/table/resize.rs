//! resize: a new top level, then the bottom level is emptied in slices between batches.
//!
//! GPHash §3.2.3, resizing. Three moments have to be kept apart by epochs, because operations
//! load the live levels once and then act on them:
//!
//! 1. The new top level is published. An operation that loaded the levels before may still put a
//!    new item into the level that is to be emptied.
//! 2. Emptying starts [`DRAIN_AFTER_EPOCHS`] epochs later: such operations have ended, and so have those
//!    that might have looked at the level before the last of them. From here on an item that is
//!    in the level has been there for everyone, and can only move up.
//! 3. When the level is empty it leaves the superblock, and [`GRACE`] epochs later, when no one
//!    reads it any more, its space goes to the arena.
//!
//! An item moves like this: freeze its record word, so that no one changes the item; write it
//! above; clear it below. Both copies name the same record. A crash in between leaves two copies,
//! of which the one above is valid.

use std::ops::ControlFlow;

use super::Table;
use super::key::{Bucket, ProbeKey};
use super::recovery::Progress;
use crate::layout::bucket::SlotAddr;
use crate::layout::{BUSY, EMPTY, ExtentEntry, ExtentKind, KeyClass, RecordWord, Shape};
use crate::pm::Medium;
use crate::sync::levels::Levels;
use crate::sync::tags::Tags;
use crate::sync::{MutexGuard, Ordering, pause, thread_number};
use crate::table::alloc::epoch::GRACE;
use crate::width::to_usize;
use crate::{Error, Result};

/// Epochs from publishing a top level to emptying the bottom one.
const DRAIN_AFTER_EPOCHS: u64 = GRACE + 1;

/// Slots of the bottom level that one slice empties. Twice as many insertions fill the table again
/// as the level has slots, and a batch empties a slice every 2,048 to 4,096 operations.
const SLICE_SLOTS_MAX: u64 = 2048;

/// While a bucket is emptied, the destinations of the bucket so many further on are prefetched.
const PREFETCH_DISTANCE_BUCKETS: u64 = 3;

/// Growth is refused below this share of full slots: keys that all go to the same buckets must
/// not make the table grow without bound. One in this many slots must be full.
const GROWTH_LOAD_MIN: u64 = 32;

/// Longest level that is made of free room, which must be cleared, while a batch waits for it.
const CLEARED_BYTES_MAX: u64 = 4 << 20;

/// What a resize under way has come to.
#[derive(Default)]
pub(crate) struct Resize {
    /// Epoch in which the top level was published; 0 if that was before the file was opened.
    since: u64,
    /// Next bucket of the bottom level to empty.
    cursor: u64,
    /// Offset of a damaged slot there that is no item's. Its level stays: it may have been one's.
    damaged: Option<u64>,
    /// An engine empties the bottom level by itself; nobody else may.
    by_engine: bool,
    /// Emptied levels whose space still waits for its readers: epoch, level, offset.
    retired: Vec<(u64, u32, u64)>,
}

impl Resize {
    /// Whether nothing is under way.
    pub(super) fn is_at_rest(&self, live: Levels, levels: u32) -> bool {
        !self.by_engine && !live.draining(levels) && self.retired.is_empty()
    }
}

impl<M: Medium> Table<M> {
    /// Adds a top level, unless the levels are no longer those that the caller saw.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::Limit`]; the table is as it was.
    pub(crate) fn grow_levels(&self, seen: Levels) -> Result<()> {
        let least = self.shape.capacity(seen.top) / GROWTH_LOAD_MIN;
        if seen.top > self.shape.levels + 4 && self.len() < least {
            // What others have inserted counts only when they pause or end.
            let full = self.full_slots();
            if full < least {
                return Err(self.limit(
                    "slots for keys that share few buckets (a new file hashes them otherwise)",
                    self.shape.capacity(seen.top + 1),
                    full * GROWTH_LOAD_MIN,
                ));
            }
        }
        self.add_level(seen)
    }

    /// Counts the slots that are not empty. The caller is not pinned.
    fn full_slots(&self) -> u64 {
        let _pin = self.pin(thread_number());
        let levels = self.levels.live();
        let buckets = (levels.bottom..=levels.top)
            .flat_map(|level| (0..1u64 << level).map(move |index| (level, index)));
        buckets
            .map(|(level, index)| {
                let bucket = self.bucket(level, index);
                let is_full = |slot: &u32| {
                    self.medium
                        .load(self.shape.slot_addr(bucket.at, *slot).state)
                        != EMPTY
                };
                (0..self.shape.slots).filter(is_full).count() as u64
            })
            .sum()
    }

    /// Adds a top level to the levels `seen`, unless they have changed since.
    pub(crate) fn add_level(&self, seen: Levels) -> Result<()> {
        // Held until all know since when the level is there, or emptying might begin at once. Before
        // the gate, as whoever empties a slice has them.
        let mut resize = self.shrinking.hurry(|| self.resize());
        let _gate = self.store_gate();
        let mut superblock = self.superblock();
        if self.levels.live() != seen {
            return Ok(());
        }
        let top = seen.top + 1;
        if top > Shape::MAX_LEVEL {
            return Err(self.limit("the top level", u64::from(top), u64::from(Shape::MAX_LEVEL)));
        }
        // Without their level they do no harm.
        self.add_tags(top, Tags::add_empty)?;
        let len = self.shape.level_len(top);
        let free = match len <= CLEARED_BYTES_MAX {
            true => self.take_free_level(&superblock, len),
            false => None,
        };
        let offset = match free {
            Some(offset) => {
                self.clear(offset, len);
                self.enter_free_level(&mut superblock, top, offset);
                offset
            }
            None => self.append_extent(&mut superblock, ExtentKind::Level, top, len)?,
        };
        superblock.level_directory[top as usize] = offset;
        superblock.top_level = top;
        self.commit(&mut superblock);
        if free.is_some() {
            // What was appended is found without the newest copy of the superblock, this is not.
            self.commit(&mut superblock);
        }
        self.publish_level(&superblock, top);
        tracing::debug!(top, "resize begins");
        resize.since = self.epochs.current();
        self.maintenance.resizes.fetch_add(1, Ordering::Relaxed);
        self.maintenance.wake();
        Ok(())
    }

    pub(super) fn resize(&self) -> MutexGuard<'_, Resize> {
        self.resize.lock()
    }

    /// Empties a slice of the bottom level, if no one else is at it. The caller is not pinned.
    pub(crate) fn drain_slice(&self) {
        let Some(mut resize) = self.resize.try_lock() else {
            return;
        };
        let _ = self.step(&mut resize);
    }

    /// Empties a slice of the bottom level between batches, and gives away the levels that no
    /// session reads any more. `false` when there is nothing more to do, or nothing can be done.
    pub(in crate::table) fn drain_between_batches(&self) -> bool {
        let mut resize = self.resize();
        if resize.by_engine || self.step(&mut resize).is_err() {
            return false;
        }
        self.is_draining(self.levels.live()) || !resize.retired.is_empty()
    }

    /// Drives a resize under way to its end. The caller is not pinned.
    ///
    /// # Errors
    /// [`Error::Limit`] when items of the bottom level find no slot above, [`Error::Damaged`] when a slot there is
    /// damaged that is no item's.
    pub(crate) fn finish_draining(&self) -> Result<()> {
        self.finish_draining_with(&|_| {})
    }

    /// As [`finish_draining`](Self::finish_draining), telling how far it has come.
    pub(crate) fn finish_draining_with(&self, progress: &(dyn Fn(Progress) + Sync)) -> Result<()> {
        loop {
            let mut resize = self.shrinking.hurry(|| self.resize());
            if resize.by_engine {
                return Ok(());
            }
            if !self.is_draining(self.levels.live()) && resize.retired.is_empty() {
                return resize.damaged.map_or(Ok(()), |at| Err(self.staying(at)));
            }
            self.step(&mut resize)?;
            progress(Progress {
                phase: "resize",
                done: resize.cursor,
                total: 1 << self.levels.live().bottom,
            });
            drop(resize);
            pause();
        }
    }

    /// As [`finish_draining`](Self::finish_draining) for who can go on without it: the next growth,
    /// or the next open, resumes the resize.
    pub(crate) fn finish_draining_quietly(&self) {
        if let Err(error) = self.finish_draining() {
            tracing::warn!(%error, "the resize is left as it is");
        }
    }

    fn step(&self, resize: &mut Resize) -> Result<()> {
        let epoch = self.epochs.try_advance();
        self.reclaim_levels(resize, epoch);
        let levels = self.levels.live();
        if resize.by_engine
            || !self.is_draining(levels)
            || epoch < resize.since + DRAIN_AFTER_EPOCHS
        {
            return Ok(());
        }
        let buckets = 1u64 << levels.bottom;
        let slice = (SLICE_SLOTS_MAX / u64::from(self.shape.slots)).max(1);
        let end = (resize.cursor + slice).min(buckets);
        let _pin = self.pin(thread_number());
        let bucket = |index| self.bucket(levels.bottom, index);
        for index in resize.cursor..end {
            if index + PREFETCH_DISTANCE_BUCKETS < end {
                self.prefetch_destinations(bucket(index + PREFETCH_DISTANCE_BUCKETS), levels);
            }
            let damaged = self.drain_bucket(bucket(index))?;
            resize.damaged = resize.damaged.or(damaged);
            resize.cursor = index + 1;
        }
        // Another thread may close the table, and its fences do not speak for this one.
        self.medium.fence();
        if end == buckets {
            if let Some(at) = resize.damaged {
                tracing::warn!(at, "a level stays for a damaged slot");
                self.maintenance.stays.store(true, Ordering::Relaxed);
                self.maintenance.untold.store(at, Ordering::Relaxed);
                return Err(self.staying(at));
            }
            self.drop_bottom(resize, levels);
        }
        Ok(())
    }

    /// Whether `levels` has some to empty: not one that stays.
    #[inline]
    pub(crate) fn is_draining(&self, levels: Levels) -> bool {
        levels.draining(self.shape.levels) && !self.maintenance.stays.load(Ordering::Relaxed)
    }

    /// Tells once of the damaged slot for which a level stays.
    ///
    /// # Errors
    /// [`Error::Damaged`].
    pub(crate) fn tell_staying(&self) -> Result<()> {
        match self.maintenance.untold.swap(0, Ordering::Relaxed) {
            0 => Ok(()),
            at => Err(self.staying(at)),
        }
    }

    fn staying(&self, at: u64) -> Error {
        self.damaged("slot", at, "a record word that nothing leaves".into())
    }

    /// Prefetches the buckets that the items of a bucket go to when it is soon emptied.
    fn prefetch_destinations(&self, bucket: Bucket, levels: Levels) {
        let mut buffer = [0; to_usize(Shape::MAX_KEY)];
        for slot in 0..self.shape.slots {
            let addr = self.shape.slot_addr(bucket.at, slot);
            let state = self.medium.load(addr.state);
            if matches!(state, EMPTY | BUSY) {
                continue;
            }
            // Nobody inserts here any more, so the key stays as it is.
            let target = self.target_in(addr, state, RecordWord::NONE, &mut buffer);
            let mut at_home = true;
            let _ = self.candidates(&target, 0, levels.top, levels.bottom, |bucket| {
                bucket.tags.prefetch();
                // Where most items go; the tags say where the others do.
                if std::mem::take(&mut at_home) {
                    self.medium.prefetch(bucket.at);
                    self.medium
                        .prefetch(bucket.at + u64::from(self.shape.slots) * 8);
                }
                ControlFlow::<()>::Continue(())
            });
        }
    }

    /// The item in a slot as a target, its key in `buffer` if a slot has that.
    fn target_in<'k>(
        &self,
        addr: SlotAddr,
        state: u64,
        record: RecordWord,
        buffer: &'k mut [u8; to_usize(Shape::MAX_KEY)],
    ) -> ProbeKey<'k> {
        if self.shape.key_class() == KeyClass::Variable {
            return ProbeKey::of_record(state, record);
        }
        let key = &mut buffer[..to_usize(self.shape.key_size)];
        self.read_key(addr, key);
        self.target(key)
    }

    /// Moves the items of a bucket up. Gives the offset of a slot that is damaged and no item's.
    fn drain_bucket(&self, bucket: Bucket) -> Result<Option<u64>> {
        let mut damaged = None;
        for slot in 0..self.shape.slots {
            let addr = self.shape.slot_addr(bucket.at, slot);
            let mut buffer = [0; to_usize(Shape::MAX_KEY)];
            loop {
                let state = self.medium.load(addr.state);
                let record = RecordWord(self.medium.load(addr.record));
                if state == EMPTY || state == BUSY {
                    break;
                }
                if !record.is_member() {
                    // What is sound is on its way out, and its remover clears it.
                    if !record.is_sound(state) {
                        damaged = Some(addr.state);
                    }
                    break;
                }
                let target = self.target_in(addr, state, record, &mut buffer);
                if self.move_up(&target, addr, record)? {
                    break;
                }
            }
        }
        Ok(damaged)
    }

    /// Moves one item out of `from`; `false` if it changed meanwhile.
    fn move_up(&self, target: &ProbeKey, from: SlotAddr, record: RecordWord) -> Result<bool> {
        let medium = &self.medium;
        let frozen = record.with(RecordWord::FROZEN);
        // A frozen item that no one is moving was left by a crash; we go on with it.
        if !record.is_frozen()
            && medium
                .compare_exchange(from.record, record.0, frozen.0)
                .is_err()
        {
            return Ok(false);
        }
        // Whoever reads it from now on finds it frozen, and knows that it will be elsewhere.
        self.note_moved(from);
        // A copy above was written before a crash.
        if !self.has_copy(target, from, |_, _| true) {
            let Some(to) = self.claim(target)? else {
                medium.store(from.record, record.with(0).0);
                self.note_moved(from);
                // A file cleanly closed is not scanned, so no mark may outlive the close.
                medium.write_back(from.record, 8);
                medium.fence();
                return Err(self.limit(
                    "free slots where an item moves when the table grows (remove some items)",
                    1,
                    0,
                ));
            };
            self.write_key(to.addr, target);
            medium.store(to.addr.state, target.word);
            self.write_back_slot(to.addr);
            medium.fence();
            medium.store(to.addr.record, record.with(0).0);
            to.show(target);
            self.note_moved(to.addr);
            medium.write_back(to.addr.record, 8);
            medium.fence();
        }
        medium.store(from.record, RecordWord::NONE.0);
        medium.write_back(from.record, 8);
        medium.fence();
        self.vacate(from);
        Ok(true)
    }

    /// Notes that a slot was changed, where somebody has copies of the buckets. The caller is pinned.
    fn note_moved(&self, addr: SlotAddr) {
        #[cfg(feature = "cuda")]
        if self.changed_slots.is_watched() {
            self.note_slot(addr);
        }
        #[cfg(not(feature = "cuda"))]
        let _ = addr;
    }

    /// Says that an engine empties the bottom level by itself, or no longer does.
    #[cfg(feature = "cuda")]
    pub(crate) fn set_drained_by_engine(&self, by_engine: bool) {
        let mut resize = self.resize();
        resize.by_engine = by_engine;
        (resize.cursor, resize.damaged) = (0, None);
        self.maintenance.stays.store(false, Ordering::Relaxed);
    }

    /// Takes the bottom one of `levels` out of the table, which an engine has emptied and no one
    /// reads on the device any more.
    #[cfg(feature = "cuda")]
    pub(crate) fn retire_bottom_level(&self, levels: Levels) {
        self.drop_bottom(&mut self.resize(), levels);
    }

    /// Gives the arena the space of levels that were retired and that no one reads any more.
    #[cfg(feature = "cuda")]
    pub(crate) fn reclaim_retired_levels(&self) {
        let mut resize = self.resize();
        if !resize.retired.is_empty() {
            let epoch = self.epochs.try_advance();
            self.reclaim_levels(&mut resize, epoch);
        }
    }

    fn drop_bottom(&self, resize: &mut Resize, levels: Levels) {
        let mut superblock = self.superblock();
        let level = levels.bottom;
        let offset = superblock.level_directory[level as usize];
        superblock.level_directory[level as usize] = 0;
        superblock.bottom_level = level + 1;
        self.commit(&mut superblock);
        let now = Levels::new(superblock.top_level, level + 1);
        self.levels.publish(now, level, offset);
        let epoch = self.epochs.current();
        resize.retired.push((epoch, level, offset));
        resize.cursor = 0;
        tracing::debug!(level, "resize has emptied a level");
    }

    fn reclaim_levels(&self, resize: &mut Resize, epoch: u64) {
        resize.retired.retain(|&(retired_in, level, offset)| {
            if retired_in + GRACE > epoch {
                return true;
            }
            self.tags.forget_level(level);
            self.level_to_arena(offset, self.shape.level_len(level));
            false
        });
    }

    /// Gives the space of an emptied level to the arena, if the extent table has room. With size classes it is free
    /// for any of them.
    pub(in crate::table) fn level_to_arena(&self, offset: u64, len: u64) {
        if self.shape.classes() > 1 {
            return self.add_free(&[(offset, len)]);
        }
        let _gate = self.store_gate();
        let mut superblock = self.superblock();
        if superblock.extent_count < crate::layout::extent::MAX_EXTENTS
            && let Some(class) = self.arena.class_for(len)
        {
            self.enter_extent(
                &mut superblock,
                ExtentEntry::new(ExtentKind::Arena, class, offset, len),
            );
            self.commit(&mut superblock);
            self.arena.add_extent(class, offset, len);
        }
    }

    /// Makes the table ready for `additional` more items: slots and records.
    ///
    /// # Errors
    /// [`Error::NoSpace`] and [`Error::Limit`], where there is no room for all of it; the table is as it was.
    pub(crate) fn reserve(&self, additional: u64) -> Result<()> {
        let items = self.len().saturating_add(additional);
        let top = self.shape.top_level_for(items);
        if top > Shape::MAX_LEVEL {
            return Err(self.limit("the top level", u64::from(top), u64::from(Shape::MAX_LEVEL)));
        }
        self.make_room_for(top, additional)?;
        loop {
            let levels = self.levels.live();
            if levels.top >= top {
                break;
            }
            self.add_level(levels)?;
            // Others may fill the new level meanwhile. The room is there all the same.
            self.finish_draining_quietly();
        }
        // How long items of variable length are, nobody knows.
        if self.shape.key_class() != KeyClass::Variable && self.arena.fresh(0) < additional {
            self.grow_arena(0, additional)?;
        }
        Ok(())
    }
}

#[cfg(all(test, not(loom)))]
pub(in crate::table) mod tests;
