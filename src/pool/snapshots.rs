//! The moments of a store that readers still need.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use crossbeam_utils::CachePadded;
use parking_lot::{Mutex, MutexGuard};

use super::thread_number;

/// Parts of the registry: threads share one only if they are more.
const SHARDS: usize = 16;

/// How often nobody is found until nobody is looked for.
const VAIN_SEARCHES: u32 = 64;

/// The live snapshots: how many there are of each commit.
#[derive(Debug, Clone, Default)]
pub struct Snapshots(Arc<Registry>);

#[derive(Default)]
struct Registry {
    /// A thread has its snapshots in one of them, and those of the same moment that are taken of them.
    shards: [CachePadded<Shard>; SHARDS],
    /// There may be some. It becomes false only while all shards are locked and empty.
    may_have: AtomicBool,
    /// How often none was found since there was one.
    vain_searches: AtomicU32,
    /// Old versions were kept since the last one was released.
    is_kept_for: AtomicBool,
    /// The commit of the oldest one, if many old versions are kept; 0 once it is gone.
    oldest: AtomicU64,
    /// Called by who releases the last one, if old versions were kept, or the oldest one.
    on_unseen: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

#[derive(Debug, Default)]
struct Shard {
    live: Mutex<BTreeMap<u64, usize>>,
    /// How many there are, for those who would only find that there are none.
    count: AtomicUsize,
}

impl Shard {
    fn is_empty(&self) -> bool {
        self.count.load(Ordering::SeqCst) == 0
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry")
            .field("shards", &self.shards)
            .finish_non_exhaustive()
    }
}

impl Snapshots {
    /// The live ones: all that are so during the call are among them.
    pub fn live(&self) -> BTreeMap<u64, usize> {
        let mut live = BTreeMap::new();
        for shard in &self.0.shards {
            for (commit_seq, count) in shard.live.lock().iter() {
                *live.entry(*commit_seq).or_default() += count;
            }
        }
        live
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        !self.0.may_have.load(Ordering::SeqCst) || self.0.shards.iter().all(|one| one.is_empty())
    }

    /// Notes that old versions are kept for live ones.
    pub fn note_kept(&self) {
        self.0.is_kept_for.store(true, Ordering::SeqCst);
    }

    /// The commit of the oldest one.
    pub fn oldest(&self) -> Option<u64> {
        let shards = self.0.shards.iter().filter(|shard| !shard.is_empty());
        let oldest = shards.filter_map(|shard| shard.live.lock().keys().next().copied());
        oldest.min()
    }

    /// Notes that many old versions are kept for the live ones, of which the oldest was `oldest` before. If that has gone
    /// meanwhile, the call of [`on_unseen`](Self::on_unseen) is made.
    pub fn note_many_kept(&self, mut oldest: Option<u64>) {
        let mut has_gone = false;
        loop {
            let noted = match self.0.oldest.load(Ordering::SeqCst) {
                noted if noted == oldest.unwrap_or(0) => noted,
                _ => self.0.oldest.swap(oldest.unwrap_or(0), Ordering::SeqCst),
            };
            // Who has released that one may find this one noted, and tell nobody.
            has_gone |= noted != 0 && oldest.is_none_or(|oldest| noted < oldest);
            // Who has released this one meanwhile may not have found it noted.
            let again = self.oldest();
            if again == oldest {
                break;
            }
            (oldest, has_gone) = (again, true);
        }
        if has_gone {
            self.tell();
        }
    }

    fn tell(&self) {
        if let Some(on_unseen) = self.0.on_unseen.get() {
            on_unseen();
        }
    }

    /// Has `call` called by whoever releases the last one, if old versions were kept, or the oldest one, if many were. It may
    /// not wait.
    pub fn on_unseen(&self, call: impl Fn() + Send + Sync + 'static) {
        // The store that they are of is opened once.
        let _ = self.0.on_unseen.set(Box::new(call));
    }

    /// The newest one that does not see a commit, which was published.
    pub fn newest_before(&self, commit_seq: u64) -> Option<u64> {
        // One that is counted later takes its moment later, and sees the commit.
        if !self.0.may_have.load(Ordering::SeqCst) {
            return None;
        }
        let (mut has_some, mut newest) = (false, None);
        for shard in self.0.shards.iter().filter(|shard| !shard.is_empty()) {
            has_some = true;
            let live = shard.live.lock();
            let before = live.range(..commit_seq).next_back();
            newest = newest.max(before.map(|(seq, _)| *seq));
        }
        let vain_searches = &self.0.vain_searches;
        if !has_some {
            self.note_vain_search();
        } else if vain_searches.load(Ordering::Relaxed) != 0 {
            vain_searches.store(0, Ordering::Relaxed);
        }
        newest
    }

    /// Has nobody look for snapshots after many have done so in vain.
    fn note_vain_search(&self) {
        if self.0.vain_searches.fetch_add(1, Ordering::Relaxed) < VAIN_SEARCHES {
            return;
        }
        self.0.vain_searches.store(0, Ordering::Relaxed);
        // Who takes one holds the lock of a shard until it is there.
        let shards = self.0.shards.iter().map(|shard| shard.live.lock());
        let shards: Vec<MutexGuard<_>> = shards.collect();
        if shards.iter().all(|live| live.is_empty()) {
            self.0.may_have.store(false, Ordering::SeqCst);
        }
    }

    /// Takes one of the `newest` commit. Who publishes a commit looks for snapshots afterwards: he either sees this
    /// one, or this one sees that commit.
    pub fn take_newest(&self, newest: impl FnOnce() -> u64) -> Snapshot {
        self.take_in(thread_number() % SHARDS, newest)
    }

    fn take_in(&self, shard: usize, newest: impl FnOnce() -> u64) -> Snapshot {
        let Shard { live, count } = &*self.0.shards[shard];
        let mut live = live.lock();
        count.fetch_add(1, Ordering::SeqCst);
        if !self.0.may_have.load(Ordering::SeqCst) {
            self.0.may_have.store(true, Ordering::SeqCst);
        }
        let commit_seq = newest();
        *live.entry(commit_seq).or_default() += 1;
        Snapshot {
            commit_seq,
            shard,
            all: self.clone(),
        }
    }

    fn release(&self, shard: usize, commit_seq: u64) {
        let Shard { live, count } = &*self.0.shards[shard];
        let mut has_ended = false;
        {
            let mut live = live.lock();
            if let Some(count) = live.get_mut(&commit_seq) {
                *count -= 1;
                has_ended = *count == 0;
            }
            if has_ended {
                live.remove(&commit_seq);
            }
            count.fetch_sub(1, Ordering::SeqCst);
        }
        // Of two who release the last ones at the same time, the later one finds none.
        let is_last = self.0.is_kept_for.load(Ordering::SeqCst)
            && self.is_empty()
            && self.0.is_kept_for.swap(false, Ordering::SeqCst);
        // One of that moment may be left in another shard; then nothing is looked for.
        let oldest = &self.0.oldest;
        let is_oldest = has_ended
            && commit_seq > 0
            && oldest.load(Ordering::SeqCst) == commit_seq
            && oldest
                .compare_exchange(commit_seq, 0, Ordering::SeqCst, Ordering::SeqCst)
                .is_ok();
        if is_last || is_oldest {
            self.tell();
        }
    }
}

/// A moment of the store that a reader still needs. Released when dropped.
#[derive(Debug)]
pub struct Snapshot {
    /// The last commit that it sees.
    pub commit_seq: u64,
    shard: usize,
    all: Snapshots,
}

impl Snapshot {
    /// Another one of the same moment. It comes into the same shard: who looks through them one after the other finds
    /// one of the two.
    pub fn again(&self) -> Self {
        self.all.take_in(self.shard, || self.commit_seq)
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        self.all.release(self.shard, self.commit_seq);
    }
}

#[cfg(test)]
mod tests;
