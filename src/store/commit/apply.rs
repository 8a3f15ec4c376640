//! The last step of a commit: what is in the log goes into the table, and readers see it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crossbeam_utils::sync::ShardedLockWriteGuard;
use parking_lot::MutexGuard;

use super::REQUESTS_PER_THREAD_MIN;
use crate::pool::parallel;
use crate::store::files::dir::{Room, is_full};
use crate::store::files::reserve;
use crate::store::inner::{PARALLEL_LOOKUPS_MIN, StoreInner, Visible};
use crate::store::mvcc::old_versions::{Before, OldVersion, OldVersions, Pruned, Value};
use crate::store::ordered::view::OrderedViewState;
use crate::store::wal::record::Entry;
use crate::table::item::Mutation;
use crate::{Error, Result};

/// Old values that are read at first, and about how many bytes of them are read at a time then, with a budget.
const KEPT_KEYS_INITIAL: usize = 16;
const KEPT_AT_ONCE_BYTES: usize = 1 << 20;

/// Changes that wait for room.
pub struct PendingApply {
    /// Sequence number of the batch's first request.
    pub(super) first: u64,
    /// Keys, final values and positions of the requests.
    pub(super) changes: Vec<(Vec<u8>, Value, u32)>,
}

impl PendingApply {
    fn entries(&self) -> Vec<Entry<'_>> {
        self.changes
            .iter()
            .map(|(key, value, position)| Entry {
                key,
                value: value.as_deref(),
                position: *position,
            })
            .collect()
    }
}

impl StoreInner {
    pub(super) fn unfinished(&self) -> MutexGuard<'_, Vec<PendingApply>> {
        self.unfinished.lock()
    }

    /// Makes the changes of a batch that is in the log, whose first request has the sequence number `first`. Those
    /// that the index has no room for are made later.
    ///
    /// # Errors
    /// [`Error::Unfinished`].
    pub(super) fn apply_logged(&self, first: u64, finals: &[Entry]) -> Result<()> {
        let applied = self.with_last_room(|| self.apply(first, finals));
        self.supersede(finals);
        applied.map_err(|error| {
            let owned = |entry: &Entry| {
                let value = entry.value.map(<[u8]>::to_vec);
                (entry.key.to_vec(), value, entry.position)
            };
            let changes = finals.iter().map(owned).collect();
            self.unfinished().push(PendingApply { first, changes });
            Error::Unfinished {
                source: Arc::new(error),
            }
        })
    }

    /// Gives the index what it had no room for.
    pub(in crate::store) fn finish(&self) -> Result<()> {
        let mut unfinished = self.unfinished();
        while let Some(group) = unfinished.first() {
            let entries = group.entries();
            self.with_last_room(|| self.apply(group.first, &entries))?;
            unfinished.remove(0);
        }
        Ok(())
    }

    /// Has the index do what it must, with all of the disk's room but for a checkpoint's.
    fn with_last_room(&self, apply: impl Fn() -> Result<()>) -> Result<()> {
        let keep = self.journal_bytes() + reserve::ROOM_AFTER_GROWTH_BYTES;
        self.store_dir.with_room(Room::Reserve { keep }, || {
            let applied = apply();
            if !is_full(&applied) {
                return applied;
            }
            self.tiers.table.trim();
            apply()
        })
    }

    /// Takes out of what is unfinished what is changed by a later group, which has come before it.
    fn supersede(&self, finals: &[Entry]) {
        let mut unfinished = self.unfinished();
        if unfinished.is_empty() {
            return;
        }
        let keys: BTreeSet<&[u8]> = finals.iter().map(|entry| entry.key).collect();
        for group in unfinished.iter_mut() {
            group.changes.retain(|(key, ..)| !keys.contains(&key[..]));
        }
    }

    /// Makes the changes of a batch whose first request has the sequence number `first`, no two of one
    /// key, and shows them.
    fn apply(&self, first: u64, entries: &[Entry]) -> Result<()> {
        // The lock ends first.
        let (pruned, mut visible) = self.keep_old_versions(entries)?;
        self.freed_bytes
            .fetch_add(pruned.bytes(), Ordering::Relaxed);
        let commit_seq = visible.commit_seq;
        let keys = entries.iter().map(|entry| entry.key);
        visible.changed.note(keys, commit_seq);
        let version = self.tiers.spill.version();
        let (is_evicting, precisely) = (visible.is_evicting, self.store_dir.is_tight());
        let change = |nth: usize| {
            let entry = &entries[nth];
            let sequence = first + u64::from(entry.position);
            self.tiers
                .change(&version, entry, sequence, (is_evicting, precisely))
        };
        let changes = parallel::collect(entries.len(), REQUESTS_PER_THREAD_MIN, change);
        self.change_table(&mut visible, &changes)?;
        self.finished.store(commit_seq, Ordering::Release);
        Ok(())
    }

    /// Begins the next commit, and keeps what live snapshots see of the keys that it changes.
    fn keep_old_versions(
        &self,
        entries: &[Entry],
    ) -> Result<(Pruned, ShardedLockWriteGuard<'_, Visible>)> {
        // Reading what the snapshots see, and writing what has no room in memory, may take the disk. So both are
        // done before readers must wait.
        let newest = self.snapshots.newest();
        let mut kept = self.to_keep(entries, newest)?;
        let mut visible = self.change_visible();
        if self.snapshots.newest() > newest {
            // Others may follow. All that come before these changes see the last commit, or an earlier one.
            let last = visible.commit_seq;
            drop(visible);
            kept = self.to_keep(entries, Some(last))?;
            visible = self.change_visible();
        }
        visible.commit_seq += 1;
        let commit_seq = visible.commit_seq;
        let live = self.snapshots.live();
        let pruned = visible.old_versions.prune(&live);
        if !live.is_empty() {
            for (key, version) in kept {
                visible.old_versions.keep(key, commit_seq, version);
            }
        }
        drop(live);
        self.count_old_versions(&visible.old_versions);
        Ok((pruned, visible))
    }

    /// Leaves the table less of the budget while old versions take more than their share.
    fn count_old_versions(&self, old_versions: &OldVersions) {
        if let (Some(budget), Some(spill)) = (&self.budget, &self.version_spill) {
            let bytes = old_versions.bytes().in_memory;
            let beyond = bytes.saturating_sub(spill.memory_bytes_max);
            budget.old_version_bytes.store(beyond, Ordering::Relaxed);
        }
    }

    /// Makes changes in the table, no two of one key.
    pub(in crate::store) fn change_table(
        &self,
        visible: &mut Visible,
        changes: &[Mutation],
    ) -> Result<()> {
        self.has_changed.store(true, Ordering::Relaxed);
        match self.tiers.apply(changes) {
            Ok(were_there) => {
                let order = &mut visible.order;
                order.follow(changes, &were_there, &self.tiers.table);
                if let Some(budget) = &self.budget {
                    let is_ordered = matches!(order, OrderedViewState::Ready(_));
                    budget.is_ordered.store(is_ordered, Ordering::Relaxed);
                    budget.wake_if_exceeded(&self.tiers);
                }
                Ok(())
            }
            Err(error) => {
                // Which of them have been made is not known.
                visible.order.forget();
                Err(error)
            }
        }
    }

    /// What the newest snapshot sees of the keys that change, as far as it must be kept. With a budget, values
    /// are read a few at a time, and those without room in memory go to a file before the next ones are read.
    fn to_keep<'w>(
        &self,
        entries: &[Entry<'w>],
        newest: Option<u64>,
    ) -> Result<Vec<(&'w [u8], OldVersion)>> {
        let Some(seen) = newest else {
            return Ok(Vec::new());
        };
        let (keys, mut bytes) = {
            let old_versions = &self.visible().old_versions;
            let keys = entries.iter().map(|entry| entry.key);
            let keys = keys.filter(|key| old_versions.is_needed(key, seen));
            (keys.collect::<Vec<&[u8]>>(), old_versions.bytes())
        };
        let mut kept = Vec::with_capacity(keys.len());
        let spill = self.version_spill.as_ref();
        let mut count = spill.map_or(usize::MAX, |_| KEPT_KEYS_INITIAL);
        while kept.len() < keys.len() {
            let rest = &keys[kept.len()..];
            let some = &rest[..count.min(rest.len())];
            let values = self.values_before(some)?;
            let first = kept.len();
            kept.extend(
                some.iter()
                    .copied()
                    .zip(values.into_iter().map(OldVersion::Kept)),
            );
            let Some(spill) = spill else { continue };
            let before = bytes.in_memory;
            let added = &mut kept[first..];
            added
                .iter()
                .for_each(|(key, version)| bytes.add(key, version));
            let read = usize::try_from(bytes.in_memory - before).unwrap_or(usize::MAX);
            count = (some.len() * KEPT_AT_ONCE_BYTES / read.max(1)).clamp(1, 2 * some.len());
            if bytes.in_memory > spill.memory_bytes_max && !self.store_dir.is_tight() {
                let versions = added.iter_mut().map(|(_, version)| version);
                spill.spill(versions, &mut bytes);
            }
        }
        Ok(kept)
    }

    /// What keys have.
    fn values_before(&self, keys: &[&[u8]]) -> Result<Vec<Before>> {
        let _visible = self.visible();
        let mut values = vec![Ok(None); keys.len()];
        let found = |nth: usize, value| values[nth] = Ok(Some(value));
        let read = self.tiers.get_many(keys, PARALLEL_LOOKUPS_MIN, found);
        if let Err(Error::Damaged { .. }) = read {
            // What is damaged is for the snapshot's reader to hear of; the change takes its place.
            for (value, key) in values.iter_mut().zip(keys) {
                *value = match self.tiers.get(key) {
                    Err(error @ Error::Damaged { .. }) => Err(Box::new(error)),
                    value => Ok(value?),
                };
            }
        } else {
            read?;
        }
        Ok(values)
    }

    /// Puts what the index had no room for into the log once more, behind what a checkpoint
    /// replaces.
    pub(in crate::store) fn log_again(&self) -> Result<()> {
        for group in self.unfinished().iter_mut() {
            let entries = group.entries();
            let Some(span) = entries.iter().map(|entry| entry.position + 1).max() else {
                continue;
            };
            let first = self.log.next_sequence();
            self.log
                .append(u64::from(span), &entries, true, Room::ALL, || Ok(()))?;
            group.first = first;
        }
        Ok(())
    }
}
