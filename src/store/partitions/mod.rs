//! The partitions of a store (p²KVS §4). Each keeps every promise for its own keys. Here is what knows of several:
//! which partition has a key, what changes several at once, and reads of several at one moment.
//!
//! ```text
//!  one key -------------------> its partition's queue
//!  several, of one partition -> its partition's queue
//!  several ----> the queue here: whoever leads it holds the queues of the partitions, then executes in each
//! ```

mod apart;
mod column_reads;
mod commit;
#[cfg(feature = "cuda")]
mod gpu_columns;
#[cfg(feature = "cuda")]
mod gpu_questions;
#[cfg(feature = "cuda")]
pub mod gpu_reads;
mod hot_reads;
mod order;
mod reads;
mod route;
mod stats;

use std::cell::OnceCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{io, thread};

use parking_lot::Mutex;

pub use self::route::Partitioner;
use self::route::Route;
use crate::pool::affinity::Unpinned;
use crate::pool::async_order::AsyncOrder;
use crate::pool::run_off_pool;
use crate::pool::snapshots::Snapshot;
use crate::pool::split::Split;
use crate::process::Opener;
use crate::store::commit::queue::{Answer, Answers, Callback, Queue, Work};
use crate::store::commit::requests::{Batch, count_of_requests};
use crate::store::commit::user_code;
use crate::store::files::dir::is_full;
use crate::store::inner::StoreInner;
use crate::store::lifecycle::checkpoint::close_all;
use crate::store::options::StoreOptions;
use crate::store::partition::{Partition, last_of, retries};
use crate::store::request::Response;
use crate::store::shared::Shared;
use crate::{Error, Progress, Result};

/// How often a thread that closes a store is asked for, and how long to wait before the next time.
const END_TRIES: u32 = 100;
const END_TRY_INTERVAL: Duration = Duration::from_millis(100);

/// See the [module](self).
pub struct Partitions {
    all: Vec<Arc<Partition>>,
    route: Route,
    /// Of what changes several.
    queue: Queue,
    /// Which asynchronous requests are in it.
    async_order: AsyncOrder,
    /// Something has changed beside the last long read.
    was_overtaken: AtomicBool,
}

impl Partitions {
    /// Serves an open store.
    ///
    /// # Errors
    /// Those of [`Route::check`].
    pub fn start(states: Vec<StoreInner>, options: &StoreOptions) -> Result<Arc<Self>> {
        let manifest = states[0].store_dir.manifest();
        let partitioner = options.partitioner.clone();
        let route = Route::new(manifest.store_id, manifest.partitions, partitioner);
        if let Some(names) = options.names_to_check() {
            route.check(&states)?;
            states.iter().for_each(|state| state.store_dir.adopt(names));
        }
        let options = options.of_partition(manifest.partitions);
        let count = states.len();
        let mut states = states.into_iter();
        let first = states.next().expect("a store has a partition");
        let others: Vec<_> = states
            .map(|state| Partition::start(state, &options, &[]))
            .collect();
        let first = Partition::start(first, &options, &others);
        // Nobody has served them before.
        let _ = first.state.shared.first.set(Arc::downgrade(&first));
        let partitions = Arc::new(Self {
            all: [first].into_iter().chain(others).collect(),
            route,
            queue: Queue::new(false, (&options, count)),
            async_order: AsyncOrder::new(count),
            was_overtaken: AtomicBool::new(false),
        });
        let _ = partitions.shared().all.set(Arc::downgrade(&partitions));
        Queue::attend(&partitions, |partitions| &partitions.queue);
        partitions.share_keys();
        let readers_of = Arc::downgrade(&partitions);
        let opener = Opener::this();
        partitions.shared().snapshots.on_unseen(move || {
            let is_here = opener.is_here();
            let Some(partitions) = readers_of.upgrade().filter(|_| is_here) else {
                return;
            };
            let has_some = |one: &&Arc<Partition>| one.state.has_old_versions();
            let with_versions = partitions.all.iter().filter(has_some);
            with_versions.for_each(|one| one.background.forget_unseen(&one.state));
        });
        Ok(partitions)
    }

    /// All of them.
    pub fn all(&self) -> &[Arc<Partition>] {
        &self.all
    }

    /// The first one, whose log decides for all.
    pub fn first(&self) -> &Arc<Partition> {
        &self.all[0]
    }

    /// The only one, if there are no others.
    pub fn only(&self) -> Option<&Arc<Partition>> {
        match &*self.all {
            [only] => Some(only),
            _ => None,
        }
    }

    /// See [`Route::by_hash`].
    #[cfg(feature = "cuda")]
    fn by_hash(&self) -> Option<(u64, u32)> {
        self.route.by_hash()
    }

    /// The number of the partition that has a key.
    #[inline]
    pub fn number_of(&self, key: &[u8]) -> usize {
        self.route.number_of(key)
    }

    /// The partition that has a key.
    #[inline]
    pub fn of(&self, key: &[u8]) -> &Arc<Partition> {
        &self.all[self.number_of(key)]
    }

    /// The partition to whose queue a batch with these keys goes: see [`serving`](Self::serving).
    pub fn of_all<'k>(&self, keys: impl IntoIterator<Item = &'k [u8]>) -> Option<&Arc<Partition>> {
        match self.only() {
            Some(only) => Some(only),
            None => self.serving(keys.into_iter().map(|key| self.number_of(key))),
        }
    }

    /// The partition to whose queue goes what reads or changes those of these numbers: the only one of them, unless
    /// this thread has something under way there in the queue of several. Without any it is the first one.
    pub fn serving(&self, mut numbers: impl Iterator<Item = usize>) -> Option<&Arc<Partition>> {
        let Some(number) = numbers.next() else {
            return Some(self.first());
        };
        let is_one = numbers.all(|other| other == number);
        (is_one && !self.async_order.has_outstanding(number)).then(|| &self.all[number])
    }

    /// What all of them share.
    pub fn shared(&self) -> &Shared {
        &self.first().state.shared
    }

    /// The moment that is now, in all of them.
    pub fn snapshot(&self) -> Snapshot {
        self.first().state.snapshot()
    }

    /// Has changes of several partitions made, and waits for the answer; again, on a full disk, once a checkpoint has
    /// made room.
    pub fn submit(self: &Arc<Self>, work: Work) -> Answer {
        user_code::may_change()?;
        let threads = &self.shared().threads;
        run_off_pool(|| {
            let split = self.split(work.batch().expect("it has requests"))?;
            self.wait_for_room(&split);
            #[cfg(feature = "cuda")]
            if let Work::Columns(columns) = &work
                && columns.is_answered()
            {
                self.shared().gpu_reads.catch_up(self, columns);
            }
            let mut left = retries(&work);
            let submit = |work| {
                self.queue
                    .submit_split(work, Some(Arc::clone(&split)), self)
            };
            let (mut work, mut answer) = submit(work);
            while is_full(&answer) && work.can_be_repeated() && left > 0 && self.make_room() {
                left -= 1;
                (work, answer) = submit(work);
            }
            let answer = match answer {
                Ok(Answers::Split(answers)) => {
                    let len = answers.requests();
                    let in_order = || Answers::Responses(answers.in_order(Response::Done));
                    Ok(threads.run_for_caller(len, in_order))
                }
                answer => answer,
            };
            work.discard(threads);
            answer
        })
    }

    /// Has changes of several partitions made by whoever is at work next, and the callback called with the answer. They
    /// have so many bytes; before them the call `waits` for room in the memory budget.
    ///
    /// # Errors
    /// Those of [`Queue::submit_async`].
    pub fn submit_async(
        self: &Arc<Self>,
        work: Work,
        (callback, bytes): (Callback, usize),
        waits: bool,
    ) -> std::result::Result<(), (Callback, Error)> {
        let split = match self.split(work.batch().expect("it has requests")) {
            Ok(split) => split,
            Err(error) => return Err((callback, error)),
        };
        let numbers = split.counts().iter().map(|&(number, _)| number);
        let outstanding = self.async_order.begin(numbers.collect());
        let callback: Callback = Box::new(move |answer| {
            // Else the callback of what comes next, by another queue, might be called before this one.
            let _outstanding = outstanding;
            callback(answer);
        });
        if waits {
            self.wait_for_room(&split);
        }
        let callback = (callback, bytes);
        self.queue.submit_async(work, Some(split), callback, self)
    }

    /// Executes asynchronous requests and calls back where there are no threads to be had that do. The caller holds
    /// nothing that a callback may wait for.
    pub fn serve_if_nobody_does(self: &Arc<Self>) {
        let lacks_server = &self.shared().lacks_server;
        while lacks_server.load(Ordering::Relaxed)
            && user_code::may_call_back()
            && lacks_server.swap(false, Ordering::Relaxed)
        {
            self.queue.serve(self);
            self.all.iter().for_each(|one| one.queue.serve(one));
        }
    }

    /// Which partition has which requests of a batch.
    ///
    /// # Errors
    /// [`Error::Limit`] for too many of them.
    fn split(&self, batch: Batch) -> Result<Arc<Split>> {
        count_of_requests(batch.len(), self.first().state.tiers.table.path())?;
        let number_of = |nth: usize| self.number_of(batch.key(nth));
        let threads = &self.shared().threads;
        Ok(threads.run_for_caller(batch.len(), || Split::new(batch.len(), number_of)))
    }

    /// Waits while the table of a partition that is changed is far beyond its budget, no longer for all than for one.
    fn wait_for_room(&self, split: &Split) {
        if self.first().state.budget.is_some() {
            let begun = OnceCell::new();
            for &(number, _) in split.counts() {
                self.all[number].wait_for_room_since(&begun);
            }
        }
    }

    /// Gives a full disk back what checkpoints free; `false` if there is nothing.
    fn make_room(&self) -> bool {
        let stalls = &self.shared().metrics.full_disk_stalls;
        stalls.time(|| {
            // That of the first one is one of all.
            let is_taken = |partition: &Arc<Partition>| partition.checkpoint_here().is_ok();
            let is_unsaved = |partition: &Arc<Partition>| partition.state.is_unsaved();
            self.all.iter().any(is_taken) || self.all.iter().any(is_unsaved)
        })
    }

    /// Makes all that was answered durable.
    pub fn flush(&self) -> Result<()> {
        self.shared().sync_logs()
    }

    /// Makes all that was answered durable in the indexes.
    pub fn checkpoint(&self) -> Result<()> {
        self.first().checkpoint()
    }

    /// Gives room of the indexes back.
    pub fn compact(&self, progress: &(dyn Fn(Progress) + Sync)) -> Result<()> {
        let _lift = self.shared().compaction_rate.lift();
        // None needs the others: on a full disk some make room.
        let each = self.all.iter().map(|one| one.compact(progress));
        each.fold(Ok(()), Result::and)
    }

    /// As [`end`](Self::end), by a thread of its own. Where there is none to be had it tries again for some seconds: without
    /// it what waits in the queues is dropped.
    ///
    /// # Errors
    /// What the operating system answers.
    pub fn end_on_thread(self: Arc<Self>) -> io::Result<()> {
        let given = Arc::new(Mutex::new(Some(self)));
        let start = || {
            let taken = Arc::clone(&given);
            let unpinned = Unpinned::of_caller();
            let end = move || {
                unpinned.restore();
                let partitions = taken.lock().take().expect("one thread ends it");
                if let Err(error) = partitions.end() {
                    tracing::error!(%error, "the store was not cleanly closed");
                }
            };
            let builder = thread::Builder::new().name("gphash-store-end".into());
            builder.spawn(end).map(|_| ())
        };
        for _ in 1..END_TRIES {
            if start().is_ok() {
                return Ok(());
            }
            thread::sleep(END_TRY_INTERVAL);
        }
        start()
    }

    /// Ends all threads, waits for what is left to do, and closes the files. Nobody calls it any more.
    pub fn end(self: Arc<Self>) -> Result<()> {
        self.queue.end(&self);
        // Nobody asks for it any more, and what still leaves the tables would follow one partition alone.
        self.shared().view.forget();
        let Self { all, .. } = last_of(self);
        // The threads of each may have checkpoints taken of others.
        all.iter().for_each(|partition| partition.stop());
        close_all(all.into_iter().map(Partition::into_state).collect()).map(|_| ())
    }
}
