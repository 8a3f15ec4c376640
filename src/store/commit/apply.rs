//! The last step of a commit: what is in the log goes into the table, and readers see it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::MutexGuard;

use super::REQUESTS_PER_THREAD_MIN;
use crate::pool::parallel;
use crate::store::files::dir::{Room, is_full};
use crate::store::files::reserve;
use crate::store::inner::{PARALLEL_LOOKUPS_MIN, StoreInner, Visible};
use crate::store::mvcc::old_versions::{Before, Value};
use crate::store::wal::record::Entry;
use crate::table::item::Mutation;
use crate::{Error, Result};

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
        // Reading what the snapshots see may take the disk, so that is done before readers must wait.
        let newest = self.snapshots.newest();
        let mut kept = self.to_keep(entries, newest, &self.visible())?;
        let mut visible = self.change_visible();
        let newest_now = self.snapshots.newest();
        if newest_now != newest {
            kept = self.to_keep(entries, newest_now, &visible)?;
        }
        visible.old_versions.prune(&self.snapshots.live());
        let commit_seq = visible.commit_seq + 1;
        for (key, value) in kept {
            visible.old_versions.keep(key, commit_seq, value);
        }
        visible.commit_seq = commit_seq;
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
                    budget.wake_if_exceeded(&self.tiers.table);
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

    /// What the newest snapshot sees of the keys that change, as far as it must be kept.
    fn to_keep<'w>(
        &self,
        entries: &[Entry<'w>],
        newest: Option<u64>,
        visible: &Visible,
    ) -> Result<Vec<(&'w [u8], Before)>> {
        let Some(seen) = newest else {
            return Ok(Vec::new());
        };
        let keys: Vec<&[u8]> = entries
            .iter()
            .map(|entry| entry.key)
            .filter(|key| visible.old_versions.is_needed(key, seen))
            .collect();
        let mut values = vec![Ok(None); keys.len()];
        let read = self
            .tiers
            .get_many(&keys, PARALLEL_LOOKUPS_MIN, |nth, value| {
                values[nth] = Ok(Some(value));
            });
        if let Err(Error::Damaged { .. }) = read {
            // What is damaged is for the snapshot's reader to hear of; the change takes its place.
            for (value, key) in values.iter_mut().zip(&keys) {
                *value = match self.tiers.get(key) {
                    Err(error @ Error::Damaged { .. }) => Err(Box::new(error)),
                    value => Ok(value?),
                };
            }
        } else {
            read?;
        }
        Ok(keys.into_iter().zip(values).collect())
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
