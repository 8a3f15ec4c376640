//! What a store does beside its callers: syncs of its log, checkpoints, and what keeps it within its
//! budget. Each has a thread while there is work for it; a store that rests has none.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::hiding::IdleFiles;
use crate::Result;
use crate::pool::backoff::Backoff;
use crate::pool::heap;
use crate::pool::worker::Worker;
use crate::store::Partition;
use crate::store::StoreOptions;
use crate::store::files::dir::is_full;
use crate::store::inner::StoreInner;
use crate::table::idle::IdleWatch;

/// How long to wait before what has failed is tried again, and until items that are read again come up.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Bytes of old versions that are freed before the allocator is told to give them back.
const FREED_BYTES_MAX: u64 = 8 << 20;

/// See the [module](self).
pub struct Background {
    log: Worker,
    /// How long records may wait until they are durable, if they may.
    interval: Option<Duration>,
    index: Worker,
    /// Bytes of log from which on a checkpoint is taken.
    checkpoint_bytes: u64,
    pub(super) idle_files: IdleFiles,
}

impl Background {
    /// That of a store that syncs its log every `interval`.
    pub fn new(interval: Option<Duration>, options: &StoreOptions) -> Self {
        Self {
            log: Worker::new("gphash-store-log"),
            interval,
            index: Worker::new("gphash-store-index"),
            checkpoint_bytes: options.checkpoint_bytes,
            idle_files: IdleFiles::new(options.index.sharers),
        }
    }

    /// Says what the threads have to do for a store.
    pub fn attend(&self, partition: &Arc<Partition>) {
        if let Some(interval) = self.interval {
            self.log
                .set_work(sync_log(Arc::downgrade(partition), interval));
        }
        let saved = Arc::downgrade(partition);
        let mut watch = IdleWatch::default();
        let mut has_freed = false;
        let mut tries = Backoff::default();
        let mut wants_room = false;
        self.index.set_work(move || {
            let partition = unbroken(&saved)?;
            partition.state.forget_unseen();
            partition.swap_hot_bins_if_due();
            if partition.state.freed_bytes.load(Ordering::Relaxed) > FREED_BYTES_MAX {
                partition.state.freed_bytes.store(0, Ordering::Relaxed);
                has_freed = true;
            }
            let release = has_freed.then(heap::release_free).flatten();
            has_freed = release.is_some();
            // What nobody waits for finds room when it is asked for again.
            wants_room |= partition.state.was_full.swap(false, Ordering::Relaxed);
            let shared = &partition.state.shared;
            let log_bytes = partition.state.log.bytes();
            wants_room &= shared.has_records();
            let checkpoint = || {
                let own = match log_bytes > 0 {
                    true => partition.checkpoint(),
                    false => Ok(()),
                };
                // What it lacks may be in the logs of others.
                let first = shared.first.get().and_then(Weak::upgrade);
                match first.filter(|first| !Arc::ptr_eq(first, &partition)) {
                    Some(first) if wants_room && (log_bytes == 0 || is_full(&own)) => {
                        first.checkpoint()
                    }
                    _ => own,
                }
            };
            let rest = match partition.background.is_long(log_bytes) || wants_room {
                true => checkpoint_again(&mut tries, checkpoint),
                false => None,
            };
            // Else it is tried once more.
            wants_room &= rest.is_some();
            let rest = rest.or_else(|| compact_if_idle(&partition, &mut watch));
            partition.serve_if_nobody_does();
            rest.or(release)
        });
        if let Some(budget) = &partition.state.budget {
            budget
                .worker()
                .set_work(keep_table(Arc::downgrade(partition)));
            // Else others would count on room that is taken, or wait for what nobody gives back.
            budget.wake_if_exceeded(&partition.state.tiers);
        }
        self.wake(&partition.state);
    }

    /// Whether a checkpoint is to take the place of the log.
    fn is_long(&self, log_bytes: u64) -> bool {
        log_bytes > self.checkpoint_bytes
    }

    /// Wakes the threads that a group of changes has left something for.
    pub fn wake(&self, state: &StoreInner) {
        if self.interval.is_some()
            && state.log.has_waited()
            && let Err(error) = self.log.call()
        {
            tracing::warn!(%error, "the log is synced by who has written it");
            if let Err(error) = state.log.sync_and_make_room() {
                tracing::warn!(%error, "the log is not durable yet");
            }
        }
        let (bytes, next) = state.log.length();
        if self.is_long(bytes)
            || state.was_full.load(Ordering::Relaxed)
            || state.freed_bytes.load(Ordering::Relaxed) > FREED_BYTES_MAX
        {
            self.idle_files.hurry(&state.shared.compaction_rate);
            self.index.call_if_possible();
        } else if state.tiers.table.has_news() || self.idle_files.take_news(state, next) {
            self.index.call_if_possible();
        } else if state.has_unseen_versions() {
            self.forget_unseen(state);
        }
    }

    /// Has what no reader sees any more forgotten. Does not wait. A few old versions stay for a moment, and so do those that
    /// only the oldest of several snapshots saw: scans one behind the other would wake a thread each.
    pub fn forget_unseen(&self, state: &StoreInner) {
        let has_many = state.has_many_old_versions.load(Ordering::Relaxed);
        let called = match has_many && state.shared.snapshots.is_empty() {
            true => {
                self.idle_files.hurry(&state.shared.compaction_rate);
                self.index.call()
            }
            false => self.index.call_later(),
        };
        if let Err(error) = called {
            tracing::warn!(%error, "there is no thread to forget old versions");
            state.shared.snapshots.note_kept();
        }
    }

    /// Has the hot bins chosen anew.
    pub fn swap_hot_bins(&self) {
        self.index.call_if_possible();
    }

    /// Ends the threads.
    pub fn stop(&self, state: &StoreInner) {
        // They may be compacting, and one that still does keeps threads that others need.
        state.shared.compaction_rate.end();
        self.index.stop();
        self.log.stop();
        if let Some(budget) = &state.budget {
            budget.worker().stop();
        }
    }
}

/// A partition that is there and takes changes.
fn unbroken(partition: &Weak<Partition>) -> Option<Arc<Partition>> {
    let partition = partition.upgrade()?;
    partition.state.broken.get().is_none().then_some(partition)
}

/// Whether the thread that compacts is wanted for a checkpoint.
pub fn wants_checkpoint(partition: &Partition) -> bool {
    partition.background.is_long(partition.state.log.bytes())
        || partition.state.was_full.load(Ordering::Relaxed)
}

/// Gives back what the index does not need, and what it hides in files, once it rests; gives when to check again.
fn compact_if_idle(partition: &Arc<Partition>, watch: &mut IdleWatch) -> Option<Duration> {
    let table = &partition.state.tiers.table;
    let paced = || {
        let paced = table.paced();
        move |progress| paced(progress) && !wants_checkpoint(partition)
    };
    // It takes a checkpoint, for which a full disk may have no room.
    let index = table.compact_if_idle(watch, || match partition.state.store_dir.is_tight() {
        true => Ok(true),
        false => partition.compact_here(&paced()),
    });
    index.or_else(|| partition.compact_files_if_idle(watch, paced))
}

/// Takes a checkpoint unless it is too early to try again, however often the thread is called: each try may take another
/// segment of the log. Gives when to do so if it has failed.
fn checkpoint_again(
    tries: &mut Backoff,
    checkpoint: impl FnOnce() -> Result<()>,
) -> Option<Duration> {
    if let Some(rest) = tries.rest() {
        return Some(rest);
    }
    let done = checkpoint();
    tries.note(done.is_ok());
    again(done, "there is no checkpoint yet")?;
    // A thread that was late may try at once.
    Some(tries.rest().unwrap_or_default())
}

/// When to try again what has failed.
fn again(done: Result<()>, failure: &'static str) -> Option<Duration> {
    let error = done.err()?;
    tracing::warn!(%error, failure);
    Some(RETRY_INTERVAL)
}

/// Syncs the log `interval` after the first record that is not durable.
fn sync_log(partition: Weak<Partition>, interval: Duration) -> impl FnMut() -> Option<Duration> {
    let mut due: Option<Instant> = None;
    move || {
        let partition = partition.upgrade()?;
        let now = Instant::now();
        match due {
            Some(due) if due > now => return Some(due - now),
            Some(_) => {
                let synced = partition.state.log.sync_and_make_room();
                if let Some(rest) = again(synced, "the log is not durable yet") {
                    // Each try may take another segment.
                    let rest = rest.max(interval);
                    due = Some(now + rest);
                    return Some(rest);
                }
            }
            None => {}
        }
        // A time that never comes is none.
        due = partition
            .state
            .log
            .is_behind()
            .then(|| now.checked_add(interval))
            .flatten();
        due.map(|_| interval)
    }
}

/// Keeps the table within its budget.
fn keep_table(partition: Weak<Partition>) -> impl FnMut() -> Option<Duration> {
    let mut has_waited = false;
    move || {
        let partition = unbroken(&partition)?;
        let is_beyond = || partition.is_beyond_budget();
        // Few keys at a time are not worth a group of changes.
        if partition.state.tiers.has_promotable()
            && !is_beyond()
            && !std::mem::replace(&mut has_waited, true)
        {
            return Some(RETRY_INTERVAL);
        }
        has_waited = false;
        let kept = partition.keep_within_budget();
        partition.serve_if_nobody_does();
        again(kept, "the table stays larger than its budget")
            .or_else(|| is_beyond().then_some(RETRY_INTERVAL))
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
