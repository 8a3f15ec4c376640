//! What one batch holds while it runs.

use std::time::{Duration, Instant};

use super::Table;
use super::alloc::arena::Shard;
use super::alloc::epoch::Pin;
use super::key::ProbeKey;
use super::probe::Occupied;
use crate::Result;
use crate::layout::KeyClass;
use crate::layout::bucket::SlotAddr;
use crate::pm::Medium;
use crate::sync::levels::Levels;
use crate::sync::{MutexGuard, Ordering, RwLockReadGuard, pause, thread_number};

/// How long a batch waits for records that others give back before a full disk is an error.
const RECORD_WAIT_MAX: Duration = Duration::from_secs(1);

/// Items that are added until a table checks whether it will soon need room.
const ITEMS_PER_CHECK: i64 = 32;

/// An epoch, and what keeps checkpoints away from one who stores.
pub(crate) type SessionPin<'t> = (Pin<'t>, Option<RwLockReadGuard<'t, ()>>);

/// What one batch holds while it runs: its epoch, its records, its counts.
pub struct Session<'t, M: Medium> {
    pub(crate) table: &'t Table<M>,
    pub(crate) shard: MutexGuard<'t, Shard>,
    pin: Option<SessionPin<'t>>,
    /// Nothing is stored.
    only_reads: bool,
    hint: usize,
    /// Lines of persistent memory touched.
    pub(crate) touches: u64,
    /// Items added less items removed.
    pub(crate) items: i64,
    /// Bytes of records taken less those given up.
    record_bytes: i64,
    /// Slots were emptied whose state words are not yet durable.
    pub(crate) has_vacated: bool,
    operations: u64,
    /// State words of the keys that were changed, for a shrink that runs beside.
    changed: Vec<u64>,
    is_noting: bool,
    /// The table was changed since the session was pinned.
    has_changed: bool,
    /// Somebody has copies of the buckets.
    #[cfg(feature = "cuda")]
    is_watched: bool,
}

impl<M: Medium> Table<M> {
    /// Begins a batch.
    pub fn session(&self) -> Session<'_, M> {
        self.begin(false)
    }

    /// Begins a batch of lookups. Checkpoints are made beside it, and it touches nothing that other threads write.
    pub fn read_session(&self) -> Session<'_, M> {
        self.begin(true)
    }

    fn begin(&self, only_reads: bool) -> Session<'_, M> {
        let hint = thread_number();
        Session {
            table: self,
            shard: self.arena.shard(hint),
            pin: Some(self.pin_as(hint, only_reads)),
            only_reads,
            hint,
            touches: 0,
            items: 0,
            record_bytes: 0,
            has_vacated: false,
            operations: 0,
            changed: Vec::new(),
            is_noting: self.shrinking.is_noting(),
            has_changed: false,
            #[cfg(feature = "cuda")]
            is_watched: self.changed_slots.is_watched(),
        }
    }

    fn pin_as(&self, hint: usize, only_reads: bool) -> SessionPin<'_> {
        match only_reads {
            true => (self.pin_reader(hint), None),
            false => self.pin(hint),
        }
    }

    /// Pins the caller, and keeps checkpoints away while it stores.
    pub(crate) fn pin(&self, hint: usize) -> SessionPin<'_> {
        self.pin_with(hint, || self.store_gate())
    }

    /// Pins a caller who stores nothing.
    pub(crate) fn pin_reader(&self, hint: usize) -> Pin<'_> {
        self.pin_with(hint, || ()).0
    }

    fn pin_with<G>(&self, hint: usize, gate: impl Fn() -> G) -> (Pin<'_>, G) {
        loop {
            let gate = gate();
            let pin = self.epochs.pin(hint);
            if !self.shrinking.keeps_away() {
                return (pin, gate);
            }
            drop((pin, gate));
            self.shrinking.wait();
        }
    }
}

impl<'t, M: Medium> Session<'t, M> {
    /// Notes that a key was changed in a slot and, where it is wanted, which. The slot's record before is not yet
    /// [retired](Self::retire).
    #[inline]
    pub(super) fn note_change(&mut self, target: &ProbeKey, addr: SlotAddr) {
        self.has_changed = true;
        self.note_slot(addr);
        if self.is_noting && target.reserved.is_none() {
            self.changed.push(target.word);
        }
    }

    /// Notes that a slot was changed, where somebody has copies of the buckets.
    #[inline]
    pub(super) fn note_slot(&self, addr: SlotAddr) {
        #[cfg(feature = "cuda")]
        if self.is_watched {
            self.table.note_slot(addr);
        }
        #[cfg(not(feature = "cuda"))]
        let _ = addr;
    }

    fn pin_again(&mut self) {
        self.pin = Some(self.table.pin_as(self.hint, self.only_reads));
        #[cfg(feature = "cuda")]
        {
            self.is_watched = self.table.changed_slots.is_watched();
        }
        self.is_noting = self.table.shrinking.is_noting();
    }

    /// Lets go of the epoch.
    fn let_go(&mut self) {
        if std::mem::take(&mut self.has_changed) {
            // A checkpoint finds either all of this or none.
            self.table.note_change();
        }
        if !self.changed.is_empty() {
            self.table.copy_changed(&mut self.changed);
        }
        self.pin = None;
    }

    /// Lets go of the epoch for a moment, so that others can reclaim and checkpoint, and takes
    /// part in a resize that is under way.
    pub fn unpin_briefly(&mut self) {
        self.unpin();
        if self.table.is_draining(self.table.levels.live()) {
            self.table
                .maintenance
                .holding_up("emptying a slice", || self.table.drain_slice());
        }
        self.pin_again();
    }

    /// Adds a level because an operation found no slot, unless another batch just did.
    pub fn grow(&mut self, seen: Levels) -> Result<()> {
        self.let_go();
        // The table must know how full it is.
        self.flush();
        let grown = self
            .table
            .maintenance
            .holding_up("adding a level", || self.table.grow_levels(seen));
        self.pin_again();
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
        let len = self.table.record_size_at(record);
        self.shard.retire(record, len);
        self.record_bytes -= len.cast_signed();
    }

    /// Gives up the record that a member of this key had, unless it may be another one's, or free: where a bit of its slot or
    /// of the record has flipped. Such a record is lost until a recovery.
    #[inline]
    pub(crate) fn retire_of(&mut self, member: Occupied, target: &ProbeKey) {
        let at = member.record.offset();
        let is_own = || {
            let has_key = self.table.lengths_of_key(at, target.key).is_some();
            member.record.is_sound(target.word) && has_key
        };
        // Of fixed size, a member in doubt is refused.
        if self.table.shape.key_class() != KeyClass::Variable || is_own() {
            self.retire(at);
        }
    }

    /// Makes room in the arena for records of a class. Lets go of the epoch: what was looked up before may have changed.
    ///
    /// # Errors
    /// [`Error::NoSpace`]; the table goes on with what it has.
    pub(crate) fn grow_arena(&mut self, class: u32) -> Result<()> {
        self.let_go();
        let grown = if self.table.read_free_list() {
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
        self.pin_again();
        grown
    }

    /// Takes a record out of those that wait for their epoch to pass, or that batches which have
    /// ended keep for the next one. With no room for further records, changes live on these.
    /// `false` if there is none, or if others keep them for long. The caller is not pinned.
    fn reclaim(&mut self, class: u32) -> bool {
        let Table { arena, epochs, .. } = self.table;
        let started = Instant::now();
        while started.elapsed() < RECORD_WAIT_MAX {
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

    /// Lets go of the epoch, and of what it has replaced, so that this is soon used again.
    fn unpin(&mut self) {
        self.let_go();
        self.flush();
        let Table { arena, epochs, .. } = self.table;
        if arena.awaits_epoch(|| epochs.current()) {
            epochs.try_advance();
        }
    }

    fn flush(&mut self) {
        let table = self.table;
        let has_taken_run = self.shard.has_taken_run();
        table
            .arena
            .flush(&mut self.shard, || table.epochs.current());
        let operations = std::mem::take(&mut self.operations);
        let touches = std::mem::take(&mut self.touches);
        table.counts.add(self.hint, operations, touches);
        // Lookups store nothing that other threads share.
        let mut takes_room = has_taken_run;
        let more = std::mem::take(&mut self.items);
        if more != 0 {
            let items = table.items.fetch_add(more, Ordering::Relaxed);
            // Room is made by the huge page, so it need not be looked for at each item.
            takes_room |= (items + more) / ITEMS_PER_CHECK > items / ITEMS_PER_CHECK;
        }
        let added = std::mem::take(&mut self.record_bytes);
        if added != 0 {
            let before = table.record_bytes.fetch_add(added, Ordering::Relaxed);
            if table.maintenance.idle.note_bytes(before, before + added) {
                table.maintenance.wake();
            }
        }
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
        self.unpin();
    }
}
