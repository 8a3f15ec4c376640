//! A walk over a table in use that checks all it says, and changes nothing.
//!
//! Batches, growth and checkpoints run beside it. A slot that changes while it is checked is
//! checked again. A record stays whole while the walk is pinned, because its bytes go through the
//! epochs before it is used again.

use std::sync::atomic::AtomicU64 as Count;

use super::Progress;
use super::scan::{DAMAGES_MAX, Damage, Home, TASK_BUCKETS};
use crate::Error;
use crate::layout::bucket::SlotAddr;
use crate::layout::mark::{MARKS, MARKS_LEN};
use crate::layout::{BUSY, DATA_START, EMPTY, KeyClass, Mark, RecordWord};
use crate::pm::{Mapping, Medium};
use crate::pool::parallel;
use crate::sync::{Ordering, thread_number};
use crate::table::Table;
use crate::table::alloc::arena::ExtentMap;
use crate::table::read_superblock;
use crate::width::to_usize;

/// What a walk has seen.
#[derive(Debug, Default)]
pub(crate) struct Verified {
    /// Items whose slot and record were checked.
    pub(crate) items: u64,
    /// What no operation leaves behind.
    pub(crate) damage: Vec<Damage>,
}

impl Verified {
    fn merge(mut self, mut other: Self) -> Self {
        self.items += other.items;
        self.damage.append(&mut other.damage);
        self.damage.truncate(DAMAGES_MAX);
        self
    }

    fn complain(&mut self, what: &'static str, at: u64, found: String) {
        self.damage.push(Damage { what, at, found });
        self.damage.truncate(DAMAGES_MAX);
    }
}

impl Table<Mapping> {
    /// Checks the superblock, the extent table, and every item of a table of variable length. Its
    /// record must start where one can, and have the checksum that it states and a key that belongs
    /// into the slot. An item that is there all the while is checked at least once.
    pub(crate) fn verify(&self, progress: &(dyn Fn(Progress) + Sync)) -> Verified {
        let mut verified = Verified::default();
        let _walking = self.walk_levels();
        self.verify_extents(&mut verified);
        // Items move upwards, so no one escapes upwards from a walk in this direction.
        let mut level = self.levels.live().bottom;
        let done = Count::new(0);
        loop {
            let levels = self.levels.live();
            level = level.max(levels.bottom);
            if level > levels.top {
                return verified;
            }
            let total = (levels.bottom..=levels.top).map(|level| 1 << level).sum();
            let task = |first: u64| {
                let last = (first + TASK_BUCKETS).min(1 << level);
                let found = self.verify_buckets(level, first..last);
                let done = done.fetch_add(last - first, Ordering::Relaxed) + last - first;
                progress(Progress {
                    phase: "verify",
                    done: done.min(total),
                    total,
                });
                found
            };
            let tasks = (0..1 << level).step_by(to_usize(TASK_BUCKETS));
            let found = parallel::map(tasks, task);
            verified = found.into_iter().fold(verified, Verified::merge);
            level += 1;
        }
    }

    /// Checks what speaks of the file's structure, which nobody changes meanwhile.
    fn verify_extents(&self, verified: &mut Verified) {
        // A checkpoint names its journal in both copies.
        let _gate = self.store_gate();
        let superblock = self.superblock();
        match read_superblock(&self.medium, self.path()) {
            Ok(found) if found.generation == superblock.generation => {}
            Ok(found) => verified.complain(
                "superblock",
                found.file_offset(),
                format!(
                    "generation {}; the last one written is {}",
                    found.generation, superblock.generation
                ),
            ),
            Err(error) => verified.complain("superblock", 0, error.to_string()),
        }
        if let Err(Error::Damaged {
            what, at, found, ..
        }) = Self::find_metadata(&self.medium, &self.shape, self.path(), false)
        {
            verified.complain(what, at, found);
        }
        let mut marks = [0; MARKS_LEN];
        self.medium.read(MARKS, &mut marks);
        if self.shape.key_class() == KeyClass::Variable
            && let Err(found) = Mark::find(&marks)
        {
            verified.complain("mark", MARKS, found);
        }
        for index in 0..superblock.extent_count {
            let (at, entry) = self.extent_entry(&superblock, index);
            let is_inside = entry
                .offset
                .checked_add(entry.len)
                .is_some_and(|end| end <= superblock.file_len && entry.offset >= DATA_START);
            if entry.kind().is_none() || !is_inside {
                let found = format!("entry {index} is torn or lies outside the file: {entry:?}");
                verified.complain("extent table", at, found);
            }
        }
    }

    fn verify_buckets(&self, level: u32, buckets: std::ops::Range<u64>) -> Verified {
        let mut verified = Verified::default();
        let mut map = self.arena.map();
        for index in buckets {
            let _pin = self.pin_reader(thread_number());
            if level < self.levels.live().bottom {
                // It was emptied; what it held stands above now.
                break;
            }
            let at = self.levels.offset(level) + index * self.shape.bucket_size;
            for slot in 0..self.shape.slots {
                let addr = self.shape.slot_addr(at, slot);
                self.verify_slot(addr, Home::Level { level, index }, &mut map, &mut verified);
            }
        }
        verified
    }

    /// Checks the item of a slot, if it has one, again and again until the slot has not changed
    /// meanwhile. The caller is pinned.
    fn verify_slot(
        &self,
        addr: SlotAddr,
        home: Home,
        map: &mut ExtentMap,
        verified: &mut Verified,
    ) {
        loop {
            let record = RecordWord(self.medium.load(addr.record));
            let state = self.medium.load(addr.state);
            let is_item = state != EMPTY && state != BUSY && record.is_member();
            let checked = if is_item {
                self.check_item(addr, state, record, home, map)
                    .or_else(|_| {
                        // The arena may have grown, or a range may have gone to another class.
                        *map = self.arena.map();
                        self.check_item(addr, state, record, home, map)
                    })
            } else if record.is_member() || record.is_sound(state) {
                return;
            } else {
                Err(Damage::unsound(addr, record))
            };
            if self.medium.load(addr.record) != record.0 || self.medium.load(addr.state) != state {
                continue;
            }
            verified.items += u64::from(is_item);
            if let Err(Damage { what, at, found }) = checked {
                verified.complain(what, at, found);
            }
            return;
        }
    }

    fn check_item(
        &self,
        addr: SlotAddr,
        state: u64,
        record: RecordWord,
        home: Home,
        map: &ExtentMap,
    ) -> Result<(), Damage> {
        let at = record.offset();
        let (class, _) = map.record(at).ok_or_else(|| Damage {
            what: "record word",
            at: addr.record,
            found: format!("no record starts at byte {at}"),
        })?;
        let mut key = Vec::new();
        self.check_record(at, class, &mut key)
            .map_err(|found| Damage {
                what: "record",
                at,
                found,
            })?;
        self.check_home(&self.target(&key), state, home)
            .map_err(|found| Damage {
                what: "slot",
                at: addr.state,
                found,
            })?;
        match record.is_sound(state) {
            true => Ok(()),
            false => Err(Damage::parity(addr)),
        }
    }
}
