//! Recovery: what opening a file does before its first operation.
//!
//! A file that was cleanly closed says what it holds, and nothing is scanned. Any other is
//! scanned once, in parallel: the scan only looks and lists what to repair, so that a damaged file
//! is refused untouched; then the list is applied. Every repair is one that a crash inside it
//! leaves for the next recovery. (GPHash §3.2.3, recovery.)

mod clean_open;
#[cfg(feature = "cuda")]
mod retake;
pub(crate) mod scan;
pub(crate) mod verify;

use std::path::Path;
use std::sync::atomic::AtomicU64 as Count;
use std::time::{Duration, Instant};

use super::Table;
use crate::layout::superblock::Flags;
use crate::layout::{
    EXTENT_TABLES, ExtentEntry, HUGE_PAGE, METADATA, PAGE, RecordWord, SUPERBLOCKS, Superblock,
};
use crate::pm::Medium;
use crate::pool::parallel;
use crate::sync::Ordering;
use crate::sync::levels::Levels;
use crate::sync::tags::Tags;
use crate::table::alloc::arena::ReachableRecords;
use crate::table::alloc::free_list::FreeList;
use crate::width::to_usize;
use crate::{Domain, Error, Result};
use scan::{Damage, Findings, Fix};

/// Words of marks from which one thread makes free records.
const WORDS_PER_THREAD_MIN: usize = 1024;

/// What a recovery found in the file of an index, and what it repaired: that of an opening, or of [`recover`](crate::recover).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recovery {
    /// The file was made by this call.
    pub created: bool,
    /// The file had been cleanly closed, so that nothing had to be scanned.
    pub clean: bool,
    /// Items in the table.
    pub items: u64,
    /// Slots that were scanned.
    pub slots_scanned: u64,
    /// Slots of insertions and removals that the crash cut short, now empty.
    pub slots_cleared: u64,
    /// Second copies of items that a resize was moving, now gone.
    pub duplicates_removed: u64,
    /// Records that were taken but belong to no item, now free.
    pub records_reclaimed: u64,
    /// A resize was under way and goes on.
    pub resize_resumed: bool,
    /// What no crash leaves behind, one line each, up to a hundred. Empty after an opening: an index does not open a
    /// damaged file.
    pub damage: Vec<String>,
    /// Items that damage has made unusable: [`Repair::Salvage`](crate::Repair::Salvage) has dropped them, or
    /// would. None after an opening.
    pub items_lost: u64,
    /// The keys of those of which they are known, in order, up to 65,536.
    pub keys_lost: Vec<Vec<u8>>,
    /// How long it took: an opening from the superblock to the first operation, or the whole call of
    /// [`recover`](crate::recover).
    pub elapsed: Duration,
}

/// How far a long pass has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// What is being done: `"scan"`, `"repair"`, `"resize"`, `"verify"`, `"shrink"`, `"compact"`; of a
    /// store also `"compact files"`, `"log"`, `"sorted files"`, `"order"`.
    pub phase: &'static str,
    /// Units done.
    pub done: u64,
    /// Units in all.
    pub total: u64,
}

/// How an open treats what it finds.
#[derive(Clone, Copy)]
pub(crate) struct Policy<'p> {
    /// Scan also a file that was cleanly closed.
    pub(crate) always_scan: bool,
    /// Drop the items that damage makes unusable, instead of refusing the file.
    pub(crate) repair_damage: bool,
    /// The pages may be of two checkpoints.
    pub(crate) is_torn: bool,
    /// Called now and then, from any thread.
    pub(crate) progress: &'p (dyn Fn(Progress) + Sync),
}

impl Policy<'_> {
    /// What an index does.
    pub(crate) const INDEX: Policy<'static> = Policy {
        always_scan: false,
        repair_damage: false,
        is_torn: false,
        progress: &|_| {},
    };
}

impl<M: Medium> Table<M> {
    /// Opens the table of `superblock` in `medium`.
    ///
    /// # Errors
    /// [`Error::Damaged`] if something is there that no crash leaves behind; nothing was written.
    pub(crate) fn open(
        medium: M,
        superblock: Superblock,
        path: &Path,
        policy: Policy,
    ) -> Result<(Self, Recovery)> {
        Self::open_with(medium, superblock, path, policy, |table, reachable| {
            table.scan(reachable, policy.progress)
        })
    }

    /// As [`open`](Self::open), with someone else to [scan](Self::scan) the table if it needs to
    /// be.
    pub(crate) fn open_with(
        medium: M,
        mut superblock: Superblock,
        path: &Path,
        policy: Policy,
        scan: impl FnOnce(&Self, &ReachableRecords) -> Findings,
    ) -> Result<(Self, Recovery)> {
        let started = Instant::now();
        let shape = superblock.shape(path)?;
        let (top, bottom) = (superblock.top_level, superblock.bottom_level);
        if top + 1 < bottom + shape.levels {
            // No honest file is so, and kernels count on it.
            return Err(Error::Damaged {
                path: path.to_path_buf(),
                what: "superblock",
                at: SUPERBLOCKS[0],
                found: format!(
                    "levels {bottom} to {top}; expected at least {} of them",
                    shape.levels
                ),
            });
        }
        let metadata = Self::find_metadata(&medium, &shape, path, policy.repair_damage)?;
        let table = Self::with_superblock(medium, superblock, shape, path);
        let is_torn = |index| table.extent_entry(&superblock, index).1.kind().is_none();
        let may_lack =
            policy.is_torn || policy.repair_damage && (0..superblock.extent_count).any(is_torn);
        let (lost_levels, lacking) = table.read_extents(&superblock, may_lack)?;
        table.persist_found(&superblock);
        for level in superblock.bottom_level..=superblock.top_level {
            table.add_tags(level, Tags::add)?;
            table.publish_level(&superblock, level);
        }
        tracing::debug!(took = ?started.elapsed(), "read the superblock's levels and extents");
        let mut lost_counts = None;
        // What was counted may lie in extents that are lacking.
        superblock.set_flag(Flags::CLEAN, superblock.is_clean() && lacking == 0);
        if superblock.is_clean() {
            match table.restore_counts(&superblock) {
                Err(Error::Damaged {
                    what, at, found, ..
                }) if policy.repair_damage => {
                    superblock.set_flag(Flags::CLEAN, false);
                    lost_counts = Some(Damage { what, at, found }.to_string());
                }
                restored => restored?,
            }
        }
        let draining = table.levels.live().draining(shape.levels);
        let mut recovery = Recovery {
            clean: superblock.is_clean(),
            resize_resumed: draining && !superblock.is_clean(),
            ..Recovery::default()
        };
        if !superblock.is_clean() || policy.always_scan {
            table.scan_and_repair(policy, scan, &mut recovery)?;
        }
        recovery.damage.extend(lost_counts);
        if lacking > 0 {
            recovery.damage.push(format!(
                "extent table: {lacking} entries are not whole; what they speak of is not used"
            ));
        }
        recovery.items = table.len();
        {
            let mut superblock = table.superblock();
            if !superblock.is_clean() {
                // A commit may have been torn by the crash. With its generation, this one would
                // fill in the words that are missing there, and both would pass for whole.
                superblock.generation += 2;
            }
            superblock.set_flag(Flags::CLEAN, false);
            table.commit(&mut superblock);
        }
        table.restore_metadata(metadata, &superblock, policy.is_torn, &mut recovery);
        for (offset, len) in lost_levels {
            table.level_to_arena(offset, len);
        }
        if !recovery.clean {
            table.release_free();
        }
        recovery.elapsed = started.elapsed();
        Ok((table, recovery))
    }

    /// Makes durable what this opening goes by. The process before may have died before a fence, on a
    /// machine that went on: all that it stored is seen, and a power cut can still take it back. By
    /// then a repair or a commit that relies on it may have become durable.
    pub(in crate::table) fn persist_found(&self, superblock: &Superblock) {
        if self.medium.domain() != Domain::Dax {
            return;
        }
        let entries = u64::from(superblock.extent_count) * size_of::<ExtentEntry>() as u64;
        let mut ranges = vec![
            (0, EXTENT_TABLES[0]),
            (superblock.entry_offset(0), entries),
            (METADATA[0], METADATA.len() as u64 * PAGE),
        ];
        if !superblock.is_clean() {
            ranges.extend(
                (superblock.bottom_level..=superblock.top_level).map(|level| {
                    let offset = superblock.level_directory[level as usize];
                    (offset, self.shape.level_len(level))
                }),
            );
        }
        let part = |(offset, len): (u64, u64)| {
            (0..len)
                .step_by(to_usize(HUGE_PAGE))
                .map(move |at| (offset + at, HUGE_PAGE.min(len - at)))
        };
        let bytes = ranges.iter().map(|(_, len)| len).sum();
        let parts = ranges.into_iter().flat_map(part);
        parallel::map_if_long((bytes, HUGE_PAGE), parts, |(at, len)| {
            self.medium.write_back(at, len);
            self.medium.fence();
        });
    }

    fn scan_and_repair(
        &self,
        policy: Policy,
        scan: impl FnOnce(&Self, &ReachableRecords) -> Findings,
        recovery: &mut Recovery,
    ) -> Result<()> {
        let reachable = ReachableRecords::new(&self.arena);
        let started = Instant::now();
        let findings = scan(self, &reachable);
        tracing::debug!(took = ?started.elapsed(), slots = findings.slots, "scanned");
        let started = Instant::now();
        let applied = self.apply(&findings, &reachable, policy, recovery);
        tracing::debug!(
            took = ?started.elapsed(),
            fixes = findings.fixes.len(),
            free = recovery.records_reclaimed,
            "repaired the slots and found the free records"
        );
        applied
    }

    /// Applies what a scan found. `reachable` has a bit for each record that an item names.
    pub(crate) fn apply(
        &self,
        findings: &Findings,
        reachable: &ReachableRecords,
        policy: Policy,
        recovery: &mut Recovery,
    ) -> Result<()> {
        if let Some(first) = findings.damage.first()
            && !policy.repair_damage
        {
            return Err(Error::Damaged {
                path: self.path().to_path_buf(),
                what: first.what,
                at: first.at,
                found: first.found.clone(),
            });
        }
        recovery.slots_scanned = findings.slots;
        recovery.damage = findings.damage.iter().map(ToString::to_string).collect();
        recovery.items_lost = findings.lost;
        recovery.keys_lost.clone_from(&findings.lost_keys);
        recovery.keys_lost.sort_unstable();
        for (done, fix) in findings.fixes.iter().enumerate() {
            match *fix {
                Fix::Clear { addr, duplicate } => {
                    self.medium.store(addr.record, RecordWord::NONE.0);
                    self.vacate(addr);
                    if duplicate {
                        recovery.duplicates_removed += 1;
                    } else {
                        recovery.slots_cleared += 1;
                    }
                    self.medium.write_back(addr.record, 8);
                }
                Fix::Thaw { addr, record } => {
                    self.medium.store(addr.record, record.with(0).0);
                    self.medium.write_back(addr.record, 8);
                }
                Fix::MarkOverflow(hash) => self.mark_overflow(hash),
            }
            if done % 4096 == 0 {
                (policy.progress)(Progress {
                    phase: "repair",
                    done: done as u64,
                    total: findings.fixes.len() as u64,
                });
            }
        }
        self.medium.fence();
        self.items
            .store(findings.items.cast_signed(), Ordering::Relaxed);
        let free = self.rebuild_free(reachable);
        // What a file cleanly closed has free, it knew of.
        recovery.records_reclaimed = if recovery.clean { 0 } else { free };
        Ok(())
    }

    /// Makes every record free that no item names, of all that were ever taken.
    fn rebuild_free(&self, reachable: &ReachableRecords) -> u64 {
        *self.free_list.lock() = FreeList::default();
        self.arena
            .classes()
            .map(|class| self.rebuild_class(class, reachable.class(class)))
            .sum()
    }

    fn rebuild_class(&self, class: u32, reachable: &[Count]) -> u64 {
        let word = |index: usize| reachable[index].load(Ordering::Relaxed);
        let high_water = (0..reachable.len())
            .rev()
            .find(|&index| word(index) != 0)
            .map_or(0, |index| {
                (index as u64 + 1) * 64 - u64::from(word(index).leading_zeros())
            })
            // Parts of what was taken may have been given up: whoever takes the table back has holes there.
            .max(self.arena.high_water(class));
        self.arena.set_high_water(class, high_water);
        let extents = self.arena.extents();
        let rebuild = |word_index: usize| {
            let index = word_index as u64;
            let below = (high_water - index * 64).min(64);
            let mut free = !word(word_index);
            if below < 64 {
                free &= (1 << below) - 1;
            }
            let mut records = Vec::with_capacity(free.count_ones() as usize);
            while free != 0 {
                let ordinal = index * 64 + u64::from(free.trailing_zeros());
                records.extend(extents.offset(class, ordinal));
                free &= free - 1;
            }
            let count = records.len() as u64;
            self.arena.give(records);
            count
        };
        let parts = parallel::parts(to_usize(high_water.div_ceil(64)), WORDS_PER_THREAD_MIN);
        let rebuilt = parallel::map(parts, |part| part.map(rebuild).sum::<u64>());
        rebuilt.into_iter().sum()
    }

    /// Levels that a resize has still to empty.
    pub(crate) fn levels_to_drain(&self) -> impl Iterator<Item = u32> {
        let Levels { top, bottom, .. } = self.levels.live();
        bottom..(top + 1).saturating_sub(self.shape.levels).max(bottom)
    }
}
