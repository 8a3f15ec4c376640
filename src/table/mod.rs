//! The table in its medium, below the engines: what stands in it as bytes, and every operation on it.

pub(crate) mod alloc;
pub(crate) mod item;
pub(crate) mod iter;
pub(crate) mod key;
pub(crate) mod levels;
pub(crate) mod maintenance;
pub(crate) mod ops;
pub(crate) mod overflow;
pub(crate) mod probe;
pub(crate) mod probe_hint;
pub(crate) mod record;
pub(crate) mod recovery;
pub(crate) mod resize;
pub(crate) mod room;
pub(crate) mod tags;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;

use crate::layout::extent::MAX_EXTENTS;
use crate::layout::shape::extent_alignment;
use crate::layout::size_class::{CLASS_TABLE, ClassTable, SIZE_CLASSES};
use crate::layout::superblock::Flags;
use crate::layout::{DATA_START, ExtentEntry, ExtentKind, KeyClass, Shape, Superblock, align_up};
use crate::pm::{Mapping, Medium};
use crate::sync::{Mutex, MutexGuard, Ordering, RwLock, RwLockReadGuard, pause, thread_number};
use crate::width::to_usize;
use crate::{Domain, Error, Result};
use alloc::arena::{Arena, Shard};
use alloc::epoch::{Epochs, Pin};
use alloc::free_list::FreeList;
use levels::{LevelTable, Levels};
use maintenance::Maintenance;
use overflow::OverflowMaps;
use resize::Resize;
use tags::Tags;

/// Least bytes by which the arena grows, if the disk has them.
const LEAST_ARENA: u64 = 64 << 10;

/// With size classes, no extent of records is a smaller share of the file.
const LEAST_SHARE: u64 = 2048;

/// Most bytes, and the share of the arena, by which it grows while a batch waits for that.
const HURRIED_ARENA: (u64, u64) = (16 << 20, 64);

/// How long a batch waits for records that others give back before a full disk is an error.
const PATIENCE: Duration = Duration::from_secs(1);

/// A new table has a record for each item that is expected, and one in so many more.
const SPARE: u64 = 8;

/// The least bytes by which the arena of a file may grow: as many entries as the extent table has left,
/// less those that further levels will take, must do until the file has its greatest length. Shorter extents
/// on a disk that is nearly full would use the table up, and the file could never grow again.
pub(crate) fn least_growth(superblock: &Superblock) -> u64 {
    let levels = 2 * (Shape::MAX_LEVEL - superblock.top_level);
    let left = MAX_EXTENTS.saturating_sub(superblock.extent_count + levels);
    // Growth by the nth part, n times, doubles a length at least.
    let doublings = crate::layout::MAX_FILE.ilog2() - superblock.file_len.ilog2();
    superblock.file_len / u64::from(left.max(1)) * u64::from(doublings)
}

/// A table of keys and values in a medium, without knowing their types.
pub struct Table<M> {
    pub(crate) medium: M,
    pub(crate) shape: Shape,
    pub(crate) hash_seed: u64,
    pub(crate) levels: LevelTable,
    pub(crate) overflow: OverflowMaps,
    pub(crate) tags: Tags,
    pub(crate) arena: Arena,
    pub(crate) epochs: Epochs,
    pub(crate) resize: Mutex<Resize>,
    pub(crate) maintenance: Maintenance,
    pub(crate) free_list: Mutex<FreeList>,
    pub(crate) items: AtomicI64,
    /// Bytes of the records that items name. Counted from the creation or from
    /// [`count_record_bytes`](Self::count_record_bytes) on.
    record_bytes: AtomicI64,
    // Figures order nothing, so models need not see them.
    pub(crate) touches: CachePadded<AtomicU64>,
    pub(crate) operations: CachePadded<AtomicU64>,
    superblock: Mutex<Superblock>,
    /// Held shared by whoever stores into a `Checkpointed` medium, alone by a checkpoint.
    gate: RwLock<()>,
    /// Held by who makes a checkpoint, so that nobody waits for another one with the gate in hand.
    syncing: Mutex<()>,
    /// Whether readers compare the checksums of records of variable length.
    verifies_records: bool,
    path: PathBuf,
}

/// What one batch holds while it runs: its epoch, its records, its counts.
pub struct Session<'t, M: Medium> {
    pub(crate) table: &'t Table<M>,
    pub(crate) shard: MutexGuard<'t, Shard>,
    pin: Option<(Pin<'t>, Option<RwLockReadGuard<'t, ()>>)>,
    hint: usize,
    /// Places of persistent memory touched.
    pub(crate) touches: u64,
    /// Items added less items removed.
    pub(crate) items: i64,
    /// Bytes of records taken less those given up.
    record_bytes: i64,
    /// Slots were emptied whose state words are not yet durable.
    pub(crate) has_vacated: bool,
    operations: u64,
}

impl<M: Medium> Table<M> {
    /// Writes a new, empty table of `shape` with room for `capacity` items.
    ///
    /// # Errors
    /// [`Error::NoSpace`] and [`Error::Limit`].
    pub fn create(medium: M, shape: Shape, capacity: u64, path: &Path) -> Result<Self> {
        let superblock = Superblock::new(&shape, rand::random(), rand::random());
        Self::create_with(medium, superblock, shape, capacity, path)
    }

    /// As [`create`](Self::create), with the file id and the seed of a superblock.
    pub(crate) fn create_with(
        medium: M,
        superblock: Superblock,
        shape: Shape,
        capacity: u64,
        path: &Path,
    ) -> Result<Self> {
        let table = Self::with_superblock(medium, superblock, shape, path);
        let top = shape.top_level_for(capacity);
        if top > Shape::MAX_LEVEL {
            return Err(table.limit("the top level", u64::from(top), u64::from(Shape::MAX_LEVEL)));
        }
        {
            let mut superblock = table.superblock();
            for level in top + 1 - shape.levels..=top {
                let offset = table.append_extent(
                    &mut superblock,
                    ExtentKind::Level,
                    level,
                    shape.level_len(level),
                )?;
                superblock.level_directory[level as usize] = offset;
                table.add_tags(level, Tags::add_empty)?;
            }
            superblock.top_level = top;
            superblock.bottom_level = top + 1 - shape.levels;
            // How long items of variable length are, nobody knows yet.
            let records = match shape.key_class() {
                KeyClass::Variable => None,
                // Records that were replaced are not free at once, so there are some more than items.
                KeyClass::Word | KeyClass::Wide => {
                    let len = (capacity + capacity / SPARE) * shape.record_stride;
                    Some(table.append_arena(&mut superblock, 0, len)?)
                }
            };
            table.commit(&mut superblock);
            if let Some((offset, len)) = records {
                table.arena.add_extent(0, offset, len);
            }
            for level in superblock.bottom_level..=top {
                table.publish_level(&superblock, level);
            }
        }
        Ok(table)
    }

    /// A table around a superblock, without levels and arena yet.
    pub(crate) fn with_superblock(
        medium: M,
        superblock: Superblock,
        shape: Shape,
        path: &Path,
    ) -> Self {
        let levels = Levels {
            top: superblock.top_level,
            bottom: superblock.bottom_level,
        };
        Self {
            medium,
            shape,
            hash_seed: superblock.hash_seed,
            levels: LevelTable::new(levels, &superblock.level_directory),
            overflow: OverflowMaps::new(),
            tags: Tags::new(&shape),
            arena: Arena::new(&shape),
            epochs: Epochs::new(),
            resize: Mutex::new(Resize::default()),
            maintenance: Maintenance::default(),
            free_list: Mutex::default(),
            items: AtomicI64::new(0),
            record_bytes: AtomicI64::new(0),
            touches: CachePadded::new(AtomicU64::new(0)),
            operations: CachePadded::new(AtomicU64::new(0)),
            superblock: Mutex::new(superblock),
            gate: RwLock::new(()),
            syncing: Mutex::new(()),
            verifies_records: true,
            path: path.to_path_buf(),
        }
    }

    /// Says whether readers compare the checksums of records of variable length; by default they do.
    pub(crate) fn verify_records(&mut self, verify: bool) {
        self.verifies_records = verify;
    }

    #[inline]
    pub(crate) fn verifies_records(&self) -> bool {
        self.verifies_records
    }

    /// Path of the file, for errors.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Items in the table. Batches that run count when they end.
    pub fn len(&self) -> u64 {
        self.items.load(Ordering::Relaxed).max(0).cast_unsigned()
    }

    /// Bytes of the live levels.
    pub(crate) fn level_bytes(&self) -> u64 {
        let levels = self.levels.live();
        let levels = (levels.bottom..=levels.top).map(|level| self.shape.level_len(level));
        levels.sum()
    }

    /// Bytes of the records that items name, if they [were counted](Self::count_record_bytes).
    pub(crate) fn record_bytes(&self) -> u64 {
        self.record_bytes
            .load(Ordering::Relaxed)
            .max(0)
            .cast_unsigned()
    }

    /// Counts the bytes of the records in use; from then on the count is kept. It reads the whole
    /// chain of free records. Nothing else may run beside it.
    pub(crate) fn count_record_bytes(&self) {
        while self.read_free_chain() {}
        let bytes = self.arena.taken_bytes();
        self.record_bytes
            .store(bytes.cast_signed(), Ordering::Relaxed);
    }

    /// Slots of all live levels.
    pub(crate) fn slots(&self) -> u64 {
        let levels = self.levels.live();
        (levels.bottom..=levels.top)
            .map(|level| u64::from(self.shape.slots) << level)
            .sum()
    }

    /// The superblock; whoever holds it may change the file's structure.
    pub(crate) fn superblock(&self) -> MutexGuard<'_, Superblock> {
        self.superblock.lock()
    }

    /// Begins a batch.
    pub fn session(&self) -> Session<'_, M> {
        let hint = thread_number();
        Session {
            table: self,
            shard: self.arena.shard(hint),
            pin: Some(self.pin(hint)),
            hint,
            touches: 0,
            items: 0,
            record_bytes: 0,
            has_vacated: false,
            operations: 0,
        }
    }

    /// Pins the caller, and keeps checkpoints away while it stores.
    pub(crate) fn pin(&self, hint: usize) -> (Pin<'_>, Option<RwLockReadGuard<'_, ()>>) {
        let gate = self.store_gate();
        (self.epochs.pin(hint), gate)
    }

    /// Keeps checkpoints away, in the domain that has them.
    pub(crate) fn store_gate(&self) -> Option<RwLockReadGuard<'_, ()>> {
        (self.medium.domain() == Domain::Checkpointed).then(|| self.gate.read())
    }

    /// Stores bytes and starts their write-back.
    pub(crate) fn persist_later(&self, at: u64, bytes: &[u8]) {
        self.medium.write(at, bytes);
        self.medium.write_back(at, bytes.len() as u64);
    }

    /// Writes the next generation of the superblock, durably as far as the domain goes.
    pub(crate) fn commit(&self, superblock: &mut Superblock) {
        superblock.generation += 1;
        superblock.seal();
        // What the superblock speaks of must be durable before it.
        self.medium.fence();
        self.persist_later(superblock.place(), bytemuck::bytes_of(superblock));
        self.medium.fence();
    }

    /// Makes room for an extent behind the last one and enters it; takes effect with the next
    /// [`commit`](Self::commit). Gives its offset.
    pub(crate) fn append_extent(
        &self,
        superblock: &mut Superblock,
        kind: ExtentKind,
        class: u32,
        len: u64,
    ) -> Result<u64> {
        let limit = MAX_EXTENTS;
        if superblock.extent_count >= limit {
            return Err(self.limit(
                "the number of extents",
                u64::from(limit) + 1,
                u64::from(limit),
            ));
        }
        let offset = align_up(superblock.file_len, extent_alignment(len));
        let end = offset
            .checked_add(len)
            .filter(|&end| end <= crate::layout::MAX_FILE);
        let Some(end) = end else {
            return Err(self.limit("the file length", u64::MAX, crate::layout::MAX_FILE));
        };
        self.medium.grow(end)?;
        superblock.file_len = end;
        self.enter_extent(superblock, ExtentEntry::new(kind, class, offset, len));
        Ok(offset)
    }

    /// Appends an entry to the extent table.
    pub(crate) fn enter_extent(&self, superblock: &mut Superblock, entry: ExtentEntry) {
        self.persist_later(
            ExtentEntry::place(superblock.extent_count),
            bytemuck::bytes_of(&entry),
        );
        superblock.extent_count += 1;
    }

    /// Appends an extent of `len` bytes for records of a class, rounded up so that the next extent
    /// can follow at once. Gives its range, which is for the arena once it is committed: others take
    /// records there at once, and no item may become durable before what its record stands in.
    fn append_arena(
        &self,
        superblock: &mut Superblock,
        class: u32,
        len: u64,
    ) -> Result<(u64, u64)> {
        let len = len.max(self.shape.record_size(class));
        let len = align_up(len, extent_alignment(len));
        let offset = self.append_extent(superblock, ExtentKind::Arena, class, len)?;
        Ok((offset, len))
    }

    /// Bytes by which a class of records grows when it can, the extent table having `extents`
    /// entries: an eighth at a time keeps the extents few. With size classes shorter steps waste less; as
    /// classes share the table, steps get longer as it fills, and none is a small part of a large file.
    pub(in crate::table) fn next_arena_len(&self, class: u32, extents: u32) -> u64 {
        let stride = self.shape.record_size(class);
        let total = self.arena.total(class);
        if self.shape.classes() == 1 {
            return (total / 8 * stride).max(LEAST_ARENA);
        }
        let share = match extents / (MAX_EXTENTS / 4) {
            0 => 32,
            1 => 8,
            2 => 4,
            _ => 1,
        };
        let least = self.medium.len() / LEAST_SHARE;
        (total / share * stride).max(least).max(LEAST_ARENA)
    }

    /// Makes room for at least `records` more records of a class.
    ///
    /// # Errors
    /// [`Error::NoSpace`], which names the least that would do, and [`Error::Limit`]; the table is as it
    /// was.
    pub(crate) fn grow_arena(&self, class: u32, records: u64) -> Result<()> {
        let _gate = self.store_gate();
        let mut superblock = self.superblock();
        let before = self.arena.total(class);
        let wanted = self.arena.high_water(class).saturating_add(records);
        let missing = wanted.saturating_sub(before);
        if missing == 0 {
            return Ok(());
        }
        let stride = self.shape.record_size(class);
        let least = missing
            .checked_mul(stride)
            .ok_or_else(|| self.limit("the file length", u64::MAX, crate::layout::MAX_FILE))?;
        // What is ready keeps the extents few and costs nothing. What is not holds up a batch,
        // and is kept short.
        let next = self.next_arena_len(class, superblock.extent_count);
        let is_ready =
            superblock.file_len + next + crate::layout::HUGE_PAGE <= self.medium.prepared();
        let hurried = (before * stride / HURRIED_ARENA.1).max(HURRIED_ARENA.0);
        let wanted = least.max(if is_ready { next } else { next.min(hurried) });
        let useful = least.max(wanted.min(least_growth(&superblock)));
        // A disk that is nearly full gives what it has, but not in pieces that use up the extent table.
        let mut len = wanted;
        let (offset, len) = loop {
            match self.append_arena(&mut superblock, class, len) {
                Ok(range) => break range,
                Err(Error::NoSpace { .. } | Error::Limit { .. }) if len > useful => {
                    len = (len / 2).max(useful);
                }
                Err(error) => return Err(error),
            }
        };
        self.commit(&mut superblock);
        self.arena.add_extent(class, offset, len);
        Ok(())
    }

    /// Makes the file so long that it can have all levels up to `top` and `records` more records of
    /// fixed size, before anything of it changes. A level that is emptied gives its space to records.
    ///
    /// # Errors
    /// [`Error::NoSpace`] and [`Error::Limit`]; the table is as it was.
    pub(crate) fn make_room_for(&self, top: u32, records: u64) -> Result<()> {
        let _gate = self.store_gate();
        let superblock = self.superblock();
        let mut end = superblock.file_len;
        let mut add = |len: u64| {
            let from = align_up(end, extent_alignment(len));
            end = from.saturating_add(len).min(crate::layout::MAX_FILE + 1);
        };
        for level in superblock.top_level + 1..=top {
            add(self.shape.level_len(level));
        }
        if self.shape.key_class() != KeyClass::Variable {
            let stride = self.shape.record_stride;
            let emptied = superblock.bottom_level..(top + 1).saturating_sub(self.shape.levels);
            let gained: u64 = emptied
                .map(|level| self.shape.level_len(level) / stride)
                .sum();
            let fresh = self.arena.fresh(0) + gained;
            let missing = records.saturating_sub(fresh);
            if missing > 0 {
                add(missing.saturating_mul(stride).min(crate::layout::MAX_FILE));
            }
        }
        if end > crate::layout::MAX_FILE {
            return Err(self.limit("the file length", end, crate::layout::MAX_FILE));
        }
        self.medium.grow(end)
    }

    /// Makes a level of the superblock visible to operations.
    pub(crate) fn publish_level(&self, superblock: &Superblock, level: u32) {
        let offset = superblock.level_directory[level as usize];
        let map = offset + self.shape.buckets_len(level);
        let words = self.shape.overflow_len(level) / 8;
        self.overflow.add(
            level,
            (0..words).map(|word| self.medium.load(map + word * 8)),
        );
        let levels = Levels {
            top: superblock.top_level,
            bottom: superblock.bottom_level,
        };
        self.levels.publish(levels, level, offset);
    }

    /// Adds the tags of a level that is not visible yet, by `add`.
    pub(crate) fn add_tags(
        &self,
        level: u32,
        add: impl FnOnce(&Tags, u32) -> std::io::Result<()>,
    ) -> Result<()> {
        add(&self.tags, level).map_err(|source| Error::io(&self.path, "hold the tags of", source))
    }

    /// Counts what an engine's batch has done.
    #[cfg(feature = "cuda")]
    pub(crate) fn count_batch(&self, operations: u64, items: i64, touches: u64) {
        self.operations.fetch_add(operations, Ordering::Relaxed);
        self.items.fetch_add(items, Ordering::Relaxed);
        self.touches.fetch_add(touches, Ordering::Relaxed);
    }

    /// Makes everything so far durable, as far as the domain needs it said. Stores wait only while it
    /// is copied.
    pub(crate) fn sync(&self) -> Result<()> {
        let _alone = self.syncing.lock();
        self.capture()?;
        self.medium.complete()
    }

    /// The first half of [`sync`](Self::sync), and what may wait for the second.
    pub(crate) fn capture(&self) -> Result<()> {
        let _gate = self.gate.write();
        self.medium.fence();
        if self.medium.domain() == Domain::Checkpointed {
            let mut superblock = self.superblock();
            superblock.checkpoints += 1;
            self.commit(&mut superblock);
        }
        self.medium.capture()
    }

    /// Writes down how many records of each class were ever taken, where there are several; gives
    /// the sum.
    fn write_class_table(&self) -> u64 {
        let taken = self
            .arena
            .classes()
            .map(|class| self.arena.high_water(class));
        if self.shape.key_class() == KeyClass::Variable {
            let mut table = [0; SIZE_CLASSES as usize];
            taken
                .clone()
                .zip(&mut table)
                .for_each(|(taken, count)| *count = taken);
            self.persist_later(CLASS_TABLE, bytemuck::bytes_of(&ClassTable::new(table)));
        }
        taken.sum()
    }

    /// Writes down what a clean open needs, and says so in the superblock.
    pub(crate) fn close(&self) -> Result<()> {
        self.finish_draining_quietly();
        while self.read_free_chain() {}
        let mut free = self.arena.take_all();
        // A damaged file may have named what is no record.
        let map = self.arena.map();
        free.retain(|&record| map.record(record).is_some());
        let mut superblock = self.superblock();
        superblock.items = self.len();
        superblock.arena_high_water = self.write_class_table();
        superblock.free_count = free.len() as u64;
        superblock.free_list = self.write_free_chain(&free);
        superblock.set_flag(Flags::CLEAN, true);
        self.commit(&mut superblock);
        drop(superblock);
        self.medium.trim();
        self.sync()?;
        self.medium.finish()
    }

    pub(crate) fn limit(&self, what: &'static str, needed: u64, limit: u64) -> Error {
        Error::Limit {
            path: self.path.clone(),
            what,
            needed,
            limit,
        }
    }

    pub(crate) fn damaged(&self, what: &'static str, at: u64, found: String) -> Error {
        Error::Damaged {
            path: self.path.clone(),
            what,
            at,
            found,
        }
    }
}

impl<'t, M: Medium> Session<'t, M> {
    /// Lets go of the epoch for a moment, so that others can reclaim and checkpoint, and takes
    /// part in a resize that is under way.
    pub fn unpin_briefly(&mut self) {
        self.pin = None;
        self.flush();
        if self.table.levels.live().draining(self.table.shape.levels) {
            self.table
                .maintenance
                .holding_up("emptying a slice", || self.table.drain_slice());
        }
        self.pin = Some(self.table.pin(self.hint));
    }

    /// Adds a level because an operation found no slot, unless another batch just did.
    pub fn grow(&mut self, seen: Levels) -> Result<()> {
        self.pin = None;
        // The table must know how full it is.
        self.flush();
        let grown = self
            .table
            .maintenance
            .holding_up("adding a level", || self.table.grow_levels(seen));
        self.pin = Some(self.table.pin(self.hint));
        grown
    }

    /// Takes a record of a class out of the arena, or `None` when it must grow.
    #[inline]
    pub(crate) fn allocate(&mut self, class: u32) -> Option<u64> {
        let table = self.table;
        let record = table
            .arena
            .allocate(&mut self.shard, class, || table.epochs.current())?;
        self.record_bytes += table.shape.record_size(class).cast_signed();
        Some(record)
    }

    /// Gives back a record of `class` that was never visible to anyone.
    #[inline]
    pub(crate) fn put_back(&mut self, class: u32, record: u64) {
        self.shard.put_back(class, record);
        self.record_bytes -= self.table.shape.record_size(class).cast_signed();
    }

    /// Gives up a record that readers may still hold.
    #[inline]
    pub(crate) fn retire(&mut self, record: u64) {
        let len = self.table.record_place_len(record);
        self.shard.retire(record, len);
        self.record_bytes -= len.cast_signed();
    }

    /// Makes room in the arena for records of a class. Lets go of the epoch: what was looked up before may have changed.
    ///
    /// # Errors
    /// [`Error::NoSpace`]; the table goes on with what it has.
    pub(crate) fn grow_arena(&mut self, class: u32) -> Result<()> {
        self.pin = None;
        let grown = if self.table.read_free_chain() {
            Ok(())
        } else {
            self.table
                .maintenance
                .holding_up("adding records", || self.table.grow_arena(class, 1))
        };
        let grown = grown.or_else(|error| {
            if self.reclaim(class) {
                Ok(())
            } else {
                Err(error)
            }
        });
        self.pin = Some(self.table.pin(self.hint));
        grown
    }

    /// Takes a record out of those that wait for their epoch to pass, or that batches which have
    /// ended keep for the next one: with no room for further ones, changes live on these. `false`
    /// if there is none, or if others keep them for long. The caller is not pinned.
    fn reclaim(&mut self, class: u32) -> bool {
        let Table { arena, epochs, .. } = self.table;
        let started = Instant::now();
        while started.elapsed() < PATIENCE {
            let in_use = arena.collect(&mut self.shard, || epochs.current());
            epochs.try_advance();
            if let Some(record) = arena.allocate(&mut self.shard, class, || epochs.current()) {
                self.shard.put_back(class, record);
                return true;
            }
            if in_use == 1 && !arena.has_limbo() {
                return false;
            }
            pause();
        }
        false
    }

    /// Counts operations that were done.
    pub fn count(&mut self, operations: u64) {
        self.operations += operations;
    }

    fn flush(&mut self) {
        let table = self.table;
        let operations = self.operations;
        let takes_room = self.items > 0 || self.shard.has_taken_run();
        table
            .arena
            .flush(&mut self.shard, || table.epochs.current());
        table
            .items
            .fetch_add(std::mem::take(&mut self.items), Ordering::Relaxed);
        table
            .record_bytes
            .fetch_add(std::mem::take(&mut self.record_bytes), Ordering::Relaxed);
        table
            .touches
            .fetch_add(std::mem::take(&mut self.touches), Ordering::Relaxed);
        table
            .operations
            .fetch_add(std::mem::take(&mut self.operations), Ordering::Relaxed);
        if takes_room {
            table.check_room(operations);
        }
    }
}

impl<M: Medium> Drop for Session<'_, M> {
    fn drop(&mut self) {
        if self.has_vacated {
            // Another thread may close the table, whose fences do not speak for this one, and a
            // file cleanly closed is not scanned.
            self.table.medium.fence();
        }
        self.pin = None;
        self.flush();
        if self.table.arena.has_limbo() {
            self.table.epochs.try_advance();
        }
    }
}

/// Reads the superblock of a file that is mapped.
pub(crate) fn read_superblock(medium: &Mapping, path: &Path) -> Result<Superblock> {
    let mut head = vec![0; to_usize(DATA_START.min(medium.len()))];
    medium.read(0, &mut head);
    Superblock::parse(&head, medium.len(), path)
}
