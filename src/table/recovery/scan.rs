//! The recovery scan: one parallel pass over all slots that changes nothing.

use std::fmt;
use std::sync::atomic::AtomicU64 as Count;

use super::Progress;
use crate::layout::bucket::SlotAddr;
use crate::layout::{BUSY, EMPTY, KeyClass, KeyHash, RESERVED_WORD, RecordWord};
use crate::pm::Medium;
use crate::pool::{parallel, prefetch};
use crate::sync::Ordering;
use crate::table::Table;
use crate::table::alloc::arena::ExtentMap;
use crate::table::alloc::arena::ReachableRecords;
use crate::table::key::{ProbeKey, ROUNDS, reserved_bucket_at};
use crate::table::probe::Occupied;
use crate::table::record::CHECKSUM_DIFFERS;
use crate::width::to_usize;

/// Lines of the CPU's caches that are asked for of a record: of most records all.
const PREFETCHED_LINES: u64 = 3;

/// Buckets that one task scans.
pub(in crate::table) const TASK_BUCKETS: u64 = 4096;

/// Most damages that are listed; the first of them tells the story.
pub(crate) const DAMAGES_MAX: usize = 100;

/// What has to be repaired in one slot.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Fix {
    /// Empty the slot.
    Clear { addr: SlotAddr, duplicate: bool },
    /// Take the mark of a resize off a member.
    Thaw { addr: SlotAddr, record: RecordWord },
    /// Say that an item of this hash went to a further round.
    MarkOverflow(KeyHash),
}

/// Something that no crash leaves behind.
#[derive(Debug, Clone)]
pub(crate) struct Damage {
    pub(crate) what: &'static str,
    pub(crate) at: u64,
    pub(crate) found: String,
}

impl Damage {
    /// That of a member's slot whose words do not have an even number of ones.
    pub(in crate::table) fn parity(addr: SlotAddr) -> Self {
        Self {
            what: "record word",
            at: addr.record,
            found: "its parity does not match".into(),
        }
    }

    /// That of a record word that is nobody's.
    pub(in crate::table) fn unsound(addr: SlotAddr, record: RecordWord) -> Self {
        Self {
            what: "record word",
            at: addr.record,
            found: format!("{record:?} is neither a member's nor an insertion's"),
        }
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}: {}", self.what, self.at, self.found)
    }
}

/// Most keys of lost items that are kept.
pub(crate) const LOST_KEYS_MAX: usize = 1 << 16;

/// What a scan saw.
#[derive(Default)]
pub(crate) struct Findings {
    pub(crate) slots: u64,
    pub(crate) items: u64,
    pub(crate) fixes: Vec<Fix>,
    pub(crate) damage: Vec<Damage>,
    /// Items that damage has made unusable, and the keys of those of which they are known.
    pub(crate) lost: u64,
    pub(crate) lost_keys: Vec<Vec<u8>>,
}

/// Members of which a task notes the records before it sets their bits.
const NOTED_MAX: usize = 256;

/// One thread's part of a scan.
struct Scan<'s> {
    map: ExtentMap,
    reachable: &'s ReachableRecords,
    /// The file was cleanly closed, so no slot is half done.
    is_clean: bool,
    found: Findings,
    /// The key of the member that is looked at.
    key: Vec<u8>,
    /// Members whose records have no bits yet. To set one waits for all that was asked of memory before, so many are set
    /// together.
    noted: Vec<Noted>,
}

/// A member, and the class and number of its record.
struct Noted {
    member: Occupied,
    state: u64,
    home: Home,
    class: u32,
    ordinal: u64,
}

impl Findings {
    /// Empties a slot that is damaged, and notes the damage and, if it is known, the key.
    fn drop_item(&mut self, addr: SlotAddr, damage: Damage, key: Option<Vec<u8>>) {
        self.lost += 1;
        self.lost_keys.extend(key);
        self.lost_keys.truncate(LOST_KEYS_MAX);
        self.note([damage]);
        self.fixes.push(Fix::Clear {
            addr,
            duplicate: false,
        });
    }

    fn note(&mut self, damage: impl IntoIterator<Item = Damage>) {
        self.damage.extend(damage);
        self.damage.truncate(DAMAGES_MAX);
    }

    pub(crate) fn merge(mut self, mut other: Self) -> Self {
        self.slots += other.slots;
        self.items += other.items;
        self.fixes.append(&mut other.fixes);
        self.damage.append(&mut other.damage);
        self.damage.truncate(DAMAGES_MAX);
        self.lost += other.lost;
        self.lost_keys.append(&mut other.lost_keys);
        self.lost_keys.truncate(LOST_KEYS_MAX);
        self
    }
}

/// Where a bucket lies, as the scan counts.
#[derive(Clone, Copy)]
pub(in crate::table) enum Home {
    Level {
        level: u32,
        index: u64,
    },
    /// The reserved bucket of this key.
    Reserved(u64),
}

impl<M: Medium> Table<M> {
    /// Scans all slots, and sets the bit of every record that an item names.
    pub(crate) fn scan(
        &self,
        reachable: &ReachableRecords,
        progress: &(dyn Fn(Progress) + Sync),
    ) -> Findings {
        let levels = self.levels.live();
        let total: u64 = (levels.bottom..=levels.top).map(|level| 1 << level).sum();
        let done = Count::new(0);
        let mut tasks: Vec<(u32, u64)> = Vec::new();
        // A draining level comes last: its items are duplicates if they also stand above.
        for level in (levels.bottom..=levels.top).rev() {
            tasks.extend(
                (0..1u64 << level)
                    .step_by(to_usize(TASK_BUCKETS))
                    .map(|first| (level, first)),
            );
        }
        let scan = |(level, first): (u32, u64)| {
            let mut scan = self.scan_of(reachable);
            let end = (first + TASK_BUCKETS).min(1 << level);
            let bucket = |index| self.levels.offset(level) + index * self.shape.bucket_size;
            for index in first..end {
                if index + 1 < end {
                    self.prefetch_records(bucket(index + 1));
                }
                let at = bucket(index);
                self.scan_bucket(at, Home::Level { level, index }, &mut scan);
            }
            self.set_noted(&mut scan);
            let done = done.fetch_add(end - first, Ordering::Relaxed) + end - first;
            progress(Progress {
                phase: "scan",
                done,
                total,
            });
            scan.found
        };
        let found = parallel::map_if_long((total, TASK_BUCKETS), tasks, scan).into_iter();
        let findings = found.fold(Findings::default(), Findings::merge);
        findings.merge(self.scan_reserved(reachable))
    }

    /// Scans the reserved buckets.
    pub(crate) fn scan_reserved(&self, reachable: &ReachableRecords) -> Findings {
        let mut scan = self.scan_of(reachable);
        if self.shape.key_class() == KeyClass::Word {
            for (bucket, key) in (0..).zip([EMPTY, BUSY]) {
                let at = reserved_bucket_at(bucket);
                self.scan_bucket(at, Home::Reserved(key), &mut scan);
            }
            self.set_noted(&mut scan);
        }
        scan.found
    }

    fn scan_of<'s>(&self, reachable: &'s ReachableRecords) -> Scan<'s> {
        Scan {
            map: self.arena.map(),
            reachable,
            is_clean: self.superblock().is_clean(),
            found: Findings::default(),
            key: Vec::new(),
            noted: Vec::new(),
        }
    }

    /// Asks for the records of a bucket, if the scan will read them: where they lie has no order.
    fn prefetch_records(&self, at: u64) {
        if self.shape.key_class() != KeyClass::Variable && !self.shape.checksums {
            return;
        }
        for slot in 0..self.shape.slots {
            let record = RecordWord(self.medium.load(self.shape.slot_addr(at, slot).record));
            if record.is_member() {
                for line in 0..PREFETCHED_LINES {
                    self.medium
                        .prefetch(record.offset() + line * prefetch::LINE as u64);
                }
            }
        }
    }

    fn scan_bucket(&self, at: u64, home: Home, scan: &mut Scan) {
        scan.found.slots += u64::from(self.shape.slots);
        for slot in 0..self.shape.slots {
            let addr = self.shape.slot_addr(at, slot);
            let state = self.medium.load(addr.state);
            let record = RecordWord(self.medium.load(addr.record));
            if state == EMPTY && record == RecordWord::NONE {
                continue;
            }
            if state == EMPTY || state == BUSY || !record.is_member() {
                self.scan_half_done(addr, state, record, scan);
                continue;
            }
            self.scan_member(addr, state, record, home, scan);
        }
        if scan.noted.len() >= NOTED_MAX {
            self.set_noted(scan);
        }
    }

    /// Sets the bits of the records of the members that were noted. Of two that name one record the second one is damaged.
    fn set_noted(&self, scan: &mut Scan) {
        for Noted {
            member,
            state,
            home,
            class,
            ordinal,
        } in scan.noted.drain(..)
        {
            if !scan.reachable.set(class, ordinal) {
                continue;
            }
            let damage = Damage {
                what: "record word",
                at: member.addr.record,
                found: format!(
                    "a second item names the record at byte {}",
                    member.record.offset()
                ),
            };
            let key = self.key_of_slot(member, state, home);
            scan.found.items -= 1;
            scan.found.drop_item(member.addr, damage, key);
        }
    }

    /// Looks at a slot that is neither empty nor a member's.
    fn scan_half_done(&self, addr: SlotAddr, state: u64, record: RecordWord, scan: &mut Scan) {
        let found = &mut scan.found;
        if !record.is_member() && !record.is_sound(state) {
            found.drop_item(addr, Damage::unsound(addr, record), None);
        } else if scan.is_clean {
            let damage = Damage {
                what: "slot",
                at: addr.state,
                found: "half done, in a file that was cleanly closed".into(),
            };
            found.drop_item(addr, damage, None);
        } else {
            found.fixes.push(Fix::Clear {
                addr,
                duplicate: false,
            });
        }
    }

    fn scan_member(
        &self,
        addr: SlotAddr,
        state: u64,
        record: RecordWord,
        home: Home,
        scan: &mut Scan,
    ) {
        let Scan {
            map,
            found,
            key: stored,
            noted,
            ..
        } = scan;
        let mut damaged = |what, at, text: String, key: Option<Vec<u8>>| {
            let damage = Damage {
                what,
                at,
                found: text,
            };
            found.drop_item(addr, damage, key);
        };
        let nowhere = || format!("no record starts at byte {}", record.offset());
        let numbered = map.record(record.offset());
        if self.shape.key_class() == KeyClass::Variable {
            let Some((class, _)) = numbered else {
                return damaged("record word", addr.record, nowhere(), None);
            };
            if let Err(text) = self.check_record(record.offset(), class, stored) {
                // If it leads to the slot, it is not the key that was damaged.
                let key = self.key_of_slot(Occupied { addr, record }, state, home);
                return damaged("record", record.offset(), text, key);
            }
        } else {
            self.read_slot_key(addr, home, stored);
        }
        let key = &stored[..];
        let target = self.target(key);
        let unmarked = match self.check_home(&target, state, home) {
            Ok(()) => None,
            // It is the overflow map that is damaged.
            Err(text) if self.is_in_further_round(&target, state, home) => Some(Damage {
                what: "overflow map",
                at: self.overflow_word(target.hash),
                found: format!("it has no bit for an item; {text}"),
            }),
            Err(text) => return damaged("slot", addr.state, text, Some(key.to_vec())),
        };
        let Some((class, ordinal)) = numbered else {
            let key = Some(key.to_vec());
            return damaged("record word", addr.record, nowhere(), key);
        };
        if !record.is_sound(state) {
            // Of an 8-byte key nobody knows whether it is the word that was damaged.
            let key = (self.shape.key_class() != KeyClass::Word).then(|| key.to_vec());
            return found.drop_item(addr, Damage::parity(addr), key);
        }
        if self.shape.key_class() != KeyClass::Variable
            && !self.value_is_whole(record.offset(), target.hash)
        {
            let key = Some(key.to_vec());
            return damaged("record", record.offset(), CHECKSUM_DIFFERS.into(), key);
        }
        let is_drained = |addr: SlotAddr| {
            self.levels_to_drain().any(|level| {
                let at = self.levels.offset(level);
                (at..at + self.shape.level_len(level)).contains(&addr.state)
            })
        };
        let is_superseded = match home {
            Home::Reserved(_) => false,
            Home::Level { .. } if is_drained(addr) => {
                self.has_copy(&target, addr, |_, record| record.is_sound(state))
            }
            // What was put while an item could not be found is newer; what a resize has yet to empty is a copy.
            Home::Level { .. } => {
                let is_newer =
                    |other, record: RecordWord| record.is_sound(state) && !is_drained(other);
                unmarked.is_some() && self.has_copy(&target, addr, is_newer)
            }
        };
        if is_superseded {
            found.note(unmarked);
            found.fixes.push(Fix::Clear {
                addr,
                duplicate: true,
            });
            return;
        }
        noted.push(Noted {
            member: Occupied { addr, record },
            state,
            home,
            class,
            ordinal,
        });
        if record.is_frozen() {
            found.fixes.push(Fix::Thaw { addr, record });
        }
        if let Some(damage) = unmarked {
            found.note([damage]);
            found.fixes.push(Fix::MarkOverflow(target.hash));
        }
        found.items += 1;
    }

    /// The key of a member, if it leads to the slot where that is stored apart.
    fn key_of_slot(&self, member: Occupied, state: u64, home: Home) -> Option<Vec<u8>> {
        let mut key = Vec::new();
        match self.shape.key_class() {
            KeyClass::Variable => self.read_member_key(member, state, &mut key).ok()?,
            KeyClass::Word | KeyClass::Wide => self.read_slot_key(member.addr, home, &mut key),
        }
        Some(key)
    }

    /// Puts the key of a slot of a table of fixed sizes into a buffer.
    fn read_slot_key(&self, addr: SlotAddr, home: Home, key: &mut Vec<u8>) {
        key.resize(to_usize(self.shape.key_size), 0);
        match home {
            Home::Level { .. } => self.medium.read(addr.key, key),
            Home::Reserved(word) => key.copy_from_slice(&word.to_le_bytes()),
        }
    }

    /// Whether a lookup of the key would come to this bucket if it read all rounds.
    fn is_in_further_round(&self, target: &ProbeKey, state: u64, home: Home) -> bool {
        match home {
            Home::Level { level, index } if state == target.word => {
                let all = 0..self.shape.locations * ROUNDS;
                let mut homes = all.map(|nth| KeyHash::bucket(target.hash.location(nth), level));
                homes.any(|home| home == index)
            }
            _ => false,
        }
    }

    /// Whether a lookup of the key would come to this bucket and know the slot.
    pub(in crate::table) fn check_home(
        &self,
        target: &ProbeKey,
        state: u64,
        home: Home,
    ) -> Result<(), String> {
        match home {
            Home::Reserved(_) if state == RESERVED_WORD => Ok(()),
            Home::Reserved(_) => Err(format!("state {state:#x} in a reserved bucket")),
            Home::Level { .. } if state != target.word => Err(format!(
                "fingerprint {state:#x}; the key beside it has {:#x}",
                target.word
            )),
            Home::Level { level, index } => {
                let leads_here = |nth| KeyHash::bucket(target.hash.location(nth), level) == index;
                let near = self.shape.locations;
                if (0..near).any(leads_here) {
                    return Ok(());
                }
                // The bit went to the level that was on top: this one or one above. One of a level
                // below would leave with that level.
                let overflowed = (level..=self.levels.live().top).any(|top| {
                    let home = KeyHash::bucket(target.hash.location(0), top);
                    self.overflow.is_set(top, home)
                });
                if overflowed && (near..near * ROUNDS).any(leads_here) {
                    return Ok(());
                }
                Err(format!(
                    "key {state:#x} does not belong to bucket {index} of level {level}"
                ))
            }
        }
    }
}
