//! The last step of a commit: what is in the log goes into the table, and readers see it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::MutexGuard;

use super::REQUESTS_PER_THREAD_MIN;
use crate::Result;
use crate::pool::parallel;
use crate::store::files::dir::{Room, is_full};
use crate::store::files::reserve;
use crate::store::inner::{Applying, PARALLEL_LOOKUPS_MIN, StoreInner};
use crate::store::mvcc::group_writes::{GroupWrites, Unfinished};
use crate::store::mvcc::old_versions::{Before, OldVersion, OldVersions, Unseen};
use crate::store::wal::record::Entry;
use crate::table::item::Mutation;

/// Old values that are read at first, and about how many bytes of them are read at a time then, with a budget.
const KEPT_KEYS_INITIAL: usize = 16;
const KEPT_AT_ONCE_BYTES: usize = 1 << 20;

/// Bytes of old versions that stay for a moment when nobody sees them any more.
const UNSEEN_BYTES_MAX: u64 = 1 << 20;

/// Old versions that are put away while those who read some wait.
const KEPT_KEYS_MAX: usize = 256;

/// Keys that are looked at meanwhile for what nobody sees any more.
const SWEPT_KEYS: usize = 4 * KEPT_KEYS_MAX;

impl StoreInner {
    /// What only the one who changes the table uses: he holds it until he is done.
    pub(in crate::store) fn applying(&self) -> MutexGuard<'_, Applying> {
        self.applying.lock()
    }

    /// Publishes a group that is in the log, whose first request has the sequence number `first`, and brings it
    /// into the table. If the table has no room for it, that is tried again [before the next change](Self::finish), and
    /// readers see the group all the same.
    pub(super) fn apply_logged(&self, first: u64, group: &GroupWrites) {
        let mut alone = self.applying();
        let _blocked = self.shared.block_cached(group.finals());
        self.published.show(group, |commit_seq| {
            let _stays = Stays::of(self, commit_seq, first, group.finals());
            self.bring_into_table(&mut alone, commit_seq, first, group);
        });
    }

    /// Brings a group that is published as this commit into the table, as [`apply_logged`](Self::apply_logged) does.
    pub(in crate::store) fn bring_into_table(
        &self,
        alone: &mut Applying,
        commit_seq: u64,
        first: u64,
        group: &GroupWrites,
    ) {
        let finals = group.finals();
        let keys = finals.iter().map(|entry| entry.key);
        alone.changed.note(keys, commit_seq);
        let applied = self.with_last_room(|| self.apply(alone, commit_seq, first, finals));
        self.published.supersede(finals);
        if let Err(error) = applied {
            // It is in the log, and its callers have what they asked for. Who comes next is told.
            tracing::warn!(%error, "the index lacks what the log has");
            let group = Arc::new(Unfinished::of(commit_seq, first, finals));
            self.published
                .change_unfinished(|groups| groups.push(group));
        }
        self.note_finished();
    }

    /// Notes that the table has all that was published, if it has.
    fn note_finished(&self) {
        if self.published.is_finished() {
            let newest = self.published.newest();
            self.finished.store(newest, Ordering::Release);
        }
    }

    /// Gives the index what it had no room for.
    pub(in crate::store) fn finish(&self) -> Result<()> {
        if self.published.is_finished() {
            return Ok(());
        }
        let alone = self.applying();
        for group in self.published.unfinished() {
            let entries = group.entries();
            self.with_last_room(|| self.apply(&alone, group.commit_seq, group.first, &entries))?;
            self.published.change_unfinished(|groups| groups.remove(0));
        }
        self.note_finished();
        Ok(())
    }

    /// Has the index do what it must, with all of the disk's room but for a checkpoint's.
    fn with_last_room(&self, apply: impl Fn() -> Result<()>) -> Result<()> {
        let table = &self.tiers.table;
        let before = table.file_len();
        let mut applied = apply();
        if is_full(&applied) {
            let keep = self.journal_bytes() + reserve::ROOM_AFTER_GROWTH_BYTES;
            applied = self.store_dir.with_room(Room::Reserve { keep }, || {
                table.trim();
                apply()
            });
        }
        let growth = table.file_len().saturating_sub(before);
        if growth > 0 {
            self.lower_need();
        }
        applied
    }

    /// Makes the changes of a published group whose first request has the sequence number `first`, no two of one
    /// key, in the table.
    pub(super) fn apply(
        &self,
        alone: &Applying,
        commit_seq: u64,
        first: u64,
        entries: &[Entry],
    ) -> Result<()> {
        self.keep_old_versions(commit_seq, entries);
        let version = self.tiers.spill.version();
        let precisely = self.store_dir.is_tight();
        let change = |nth: usize| {
            let entry = &entries[nth];
            let sequence = first + u64::from(entry.position);
            self.tiers
                .change(&version, entry, sequence, (alone.is_evicting, precisely))
        };
        let changes = parallel::collect(entries.len(), REQUESTS_PER_THREAD_MIN, change);
        self.change_table(alone, &changes)
    }

    /// Keeps what snapshots from before a published commit see of the keys that it changes, while the table has
    /// that.
    fn keep_old_versions(&self, commit_seq: u64, entries: &[Entry]) {
        // Snapshots that are taken from now on see the commit.
        let newest = self.shared.snapshots.newest_before(commit_seq);
        if newest.is_none() && !self.has_old_versions() {
            return;
        }
        // Reading what the snapshots see, and writing what has no room in memory, may take the disk. So both are
        // done before readers of old versions must wait.
        let mut kept = self.to_keep(commit_seq, entries, newest).into_iter();
        // Others that are taken meanwhile see this commit, or are one of these once more.
        let live = self.shared.snapshots.live();
        loop {
            let mut old_versions = self.change_old_versions();
            let before = kept.len();
            for (key, version) in kept.by_ref().take(KEPT_KEYS_MAX) {
                old_versions.keep(key, commit_seq, version);
            }
            // As many more for each as keep what nobody sees below what is seen.
            let keys = SWEPT_KEYS / KEPT_KEYS_MAX * (before - kept.len() + 1);
            let unseen = old_versions.sweep(&live, keys);
            drop(old_versions);
            self.let_go(unseen);
            if kept.len() == 0 {
                break;
            }
        }
        self.count_old_versions(&self.old_versions());
        if newest.is_some() {
            self.newest_kept.fetch_max(commit_seq, Ordering::SeqCst);
            self.shared.snapshots.note_kept();
        }
        if self.has_many_old_versions.load(Ordering::Relaxed) {
            let oldest = live.keys().next().copied();
            self.shared.snapshots.note_many_kept(oldest);
        }
    }

    /// Forgets what no snapshot sees any more, where no change comes that would do it.
    pub(in crate::store) fn forget_unseen(&self) {
        if !self.has_old_versions() {
            return;
        }
        // First, so that who releases a snapshot that is seen here comes back.
        self.shared.snapshots.note_kept();
        let oldest = self.shared.snapshots.oldest();
        let mut swept_for = self.swept_for.lock();
        if oldest.is_none() || *swept_for != oldest {
            *swept_for = oldest;
            // The round that is under way is ended first.
            let mut rounds = 1 + usize::from(!self.old_versions().is_swept());
            while rounds > 0 {
                let mut old_versions = self.change_old_versions();
                // What is kept for snapshots that are taken later comes when the lock is free again.
                let live = self.shared.snapshots.live();
                let unseen = old_versions.sweep(&live, SWEPT_KEYS);
                rounds -= usize::from(old_versions.is_swept());
                self.count_old_versions(&old_versions);
                drop(old_versions);
                self.let_go(unseen);
            }
        }
        if self.has_many_old_versions.load(Ordering::Relaxed) {
            self.shared.snapshots.note_many_kept(*swept_for);
        }
    }

    fn let_go(&self, unseen: Unseen) {
        self.freed_bytes
            .fetch_add(unseen.bytes(), Ordering::Relaxed);
        self.threads.discard(unseen.versions(), unseen);
    }

    /// Leaves the table less of the budget while old versions take more than their share.
    fn count_old_versions(&self, old_versions: &OldVersions) {
        self.has_old_versions
            .store(old_versions.versions() > 0, Ordering::SeqCst);
        let bytes = old_versions.bytes();
        let has_many = bytes.spilled > 0 || bytes.in_memory > UNSEEN_BYTES_MAX;
        self.has_many_old_versions
            .store(has_many, Ordering::Relaxed);
        if let (Some(budget), Some(spill)) = (&self.budget, &self.version_spill) {
            let bytes = old_versions.bytes().in_memory;
            let beyond = bytes.saturating_sub(spill.memory_bytes_max);
            budget.old_version_bytes.store(beyond, Ordering::Relaxed);
        }
    }

    /// Makes changes in the table, no two of one key.
    pub(in crate::store) fn change_table(
        &self,
        _alone: &Applying,
        changes: &[Mutation],
    ) -> Result<()> {
        // Readers have its line in their caches.
        if !self.has_changed.load(Ordering::Relaxed) {
            self.has_changed.store(true, Ordering::Relaxed);
        }
        let is_ordered = self.leave_order(changes);
        match self.tiers.apply(changes) {
            Ok(were_there) => {
                let is_ordered = is_ordered && self.enter_order(changes, &were_there);
                if let Some(budget) = &self.budget {
                    budget.is_ordered.store(is_ordered, Ordering::Relaxed);
                    budget.wake_if_exceeded(&self.tiers);
                }
                Ok(())
            }
            Err(error) => {
                // Which of them have been made is not known.
                self.shared.view.forget();
                Err(error)
            }
        }
    }

    /// What the newest snapshot sees of the keys that change, as far as it must be kept. With a budget, values
    /// are read a few at a time, and those without room in memory go to a file before the next ones are read.
    fn to_keep<'w>(
        &self,
        commit_seq: u64,
        entries: &[Entry<'w>],
        newest: Option<u64>,
    ) -> Vec<(&'w [u8], OldVersion)> {
        let Some(seen) = newest else {
            return Vec::new();
        };
        let (keys, mut bytes) = {
            let old_versions = self.old_versions();
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
            let values = self.values_before(commit_seq, some);
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
        kept
    }

    /// What keys had before a commit, as long as the table does not have that. What cannot be read is for the
    /// snapshot's reader to hear of: the commit is published, and the change takes its place.
    fn values_before(&self, commit_seq: u64, keys: &[&[u8]]) -> Vec<Before> {
        let mut values = vec![Ok(None); keys.len()];
        let found = |nth: usize, value| values[nth] = Ok(Some(value));
        if self
            .tiers
            .get_many(keys, PARALLEL_LOOKUPS_MIN, found)
            .is_err()
        {
            for (value, key) in values.iter_mut().zip(keys) {
                *value = self.tiers.get(key).map_err(Box::new);
            }
        }
        if !self.published.is_finished() {
            for (value, key) in values.iter_mut().zip(keys) {
                if let Some(newer) = self.published.unfinished_value(key, commit_seq - 1) {
                    *value = Ok(newer);
                }
            }
        }
        values
    }

    /// Puts what the index had no room for into the log once more, behind what a checkpoint
    /// replaces.
    pub(in crate::store) fn log_again(&self) -> Result<()> {
        let _alone = self.applying();
        for (nth, group) in self.published.unfinished().iter().enumerate() {
            let entries = group.entries();
            let Some(span) = entries.iter().map(|entry| entry.position + 1).max() else {
                continue;
            };
            let first = self.log.next_sequence();
            self.log
                .append(u64::from(span), &entries, true, Room::ALL, || Ok(()))?;
            self.published
                .change_unfinished(|groups| Arc::make_mut(&mut groups[nth]).first = first);
        }
        Ok(())
    }
}

/// Keeps a published group readable if its way into the table panics, which ends all changes: who has seen it sees it
/// still.
pub struct Stays<'g>(&'g StoreInner, u64, u64, &'g [Entry<'g>]);

impl<'g> Stays<'g> {
    /// Of a commit whose first request has the sequence number `first`.
    pub fn of(state: &'g StoreInner, commit_seq: u64, first: u64, finals: &'g [Entry<'g>]) -> Self {
        Self(state, commit_seq, first, finals)
    }
}

impl Drop for Stays<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let group = Arc::new(Unfinished::of(self.1, self.2, self.3));
            self.0
                .published
                .change_unfinished(|groups| groups.push(group));
        }
    }
}
