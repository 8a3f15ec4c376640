//! The queue of what changes a store (group commit). Callers that come while a group is executed
//! wait in it, and one of them executes the batches of all that wait. What takes long is done by
//! threads of the store, which go on with what waits then.

#[cfg(all(test, not(loom)))]
mod tests;
mod ticket;

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

use self::ticket::{Ticket, TicketState};
use super::optimistic_reads::OptimisticReads;
use super::requests::Batch;
use super::user_code;
use crate::hot_cache::cold_items::LeavingItems;
use crate::metrics::StallReason;
use crate::metrics::stalls::StallRecorder;
use crate::pool::crew::Crew;
use crate::pool::parallel;
use crate::pool::split::{Split, SplitAnswers};
use crate::pool::threads::{PARALLEL_REQUESTS_MIN, Threads};
use crate::pool::worker::{Worker, words};
use crate::store::columns::ColumnAnswers;
use crate::store::columns::requests::ColumnBatch;
use crate::store::mvcc::read_set::ReadSet;
use crate::store::options::{StoreOptions, WhenFull};
use crate::store::request::{Request, Response};
use crate::store::resident::promote::Promotion;
use crate::{Error, Result};

/// Most requests that are executed together by default, but for those of a single caller.
pub const GROUP_REQUESTS_MAX: usize = 1 << 16;

/// Most bytes of requests that wait without a caller who waits for them.
const ASYNC_BYTES_MAX: usize = 64 << 20;

/// Groups that a leader does for others at most once its own is done.
const GROUPS_MORE: usize = 4;

/// How often a caller who waits for room looks whether there is a thread that makes it.
const ROOM_CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// What is to be done.
pub enum Work {
    /// Requests, which may be executed together with those of others, and what was read early.
    Batch(Vec<Request>, Option<OptimisticReads>),
    /// As a batch, if its reads still hold.
    Transaction(Vec<Request>, ReadSet),
    /// Requests that are done together or not at all, some of which may fail.
    Whole(Vec<Request>),
    /// As a batch, in columns.
    Columns(ColumnBatch),
    /// The beginning of a checkpoint.
    Checkpoint,
    /// Items that are in a file now leave the table, if they still have these stamps.
    Evict(LeavingItems),
    /// Items come up into the table.
    Promote(Promotion),
    /// Nothing: whoever waits for it [holds](Queue::hold) the queue then.
    Hold,
}

impl Work {
    /// How much there is to do, in requests.
    pub fn len(&self) -> usize {
        match self {
            Self::Batch(_, Some(early)) => early.left(),
            Self::Batch(requests, None)
            | Self::Transaction(requests, _)
            | Self::Whole(requests) => requests.len(),
            Self::Columns(columns) => columns.len(),
            // The pages that have changed may be many.
            Self::Checkpoint => usize::MAX,
            Self::Evict(leaving) => leaving.count(),
            Self::Promote(promotion) => promotion.len(),
            Self::Hold => 0,
        }
    }

    /// Whether it can be done again if it has failed as a whole.
    pub fn can_be_repeated(&self) -> bool {
        match self {
            Self::Batch(..) | Self::Whole(_) | Self::Columns(_) => true,
            Self::Transaction(_, read_set) => read_set.is_live(),
            _ => false,
        }
    }

    /// Whether it deletes, and does nothing else.
    pub fn only_deletes(&self) -> bool {
        match self {
            Self::Batch(requests, _) | Self::Transaction(requests, _) | Self::Whole(requests) => {
                requests.iter().all(Request::is_removal)
            }
            Self::Columns(columns) => columns.only_delete(),
            _ => false,
        }
    }

    /// Drops what has been executed, or has threads do it.
    pub fn discard(self, threads: &Threads) {
        let requests = match self.joined() {
            Some(Batch::Owned(requests)) => requests.len(),
            // Columns are few blocks of memory, and their caller may want them back at once.
            Some(Batch::Columns(_)) | None => 0,
        };
        threads.discard(requests, self);
    }

    /// What it has read, if it is a transaction.
    pub fn read_set(&self) -> Option<&ReadSet> {
        match self {
            Self::Transaction(_, read_set) => Some(read_set),
            _ => None,
        }
    }

    /// Takes what was read early for it.
    pub fn take_early(&mut self) -> Option<OptimisticReads> {
        match self {
            Self::Batch(_, early) => early.take(),
            _ => None,
        }
    }

    /// Whether several threads share it.
    pub fn is_long(&self) -> bool {
        self.len() >= PARALLEL_REQUESTS_MIN
    }

    /// Its requests, if it has some.
    pub fn batch(&self) -> Option<Batch<'_>> {
        match self {
            Self::Batch(requests, _) | Self::Transaction(requests, _) | Self::Whole(requests) => {
                Some(Batch::Owned(requests))
            }
            Self::Columns(columns) => Some(Batch::Columns(columns)),
            _ => None,
        }
    }

    /// The put or deletion that it is, if it is a single one.
    pub fn single_write(&self) -> Option<&Request> {
        match self {
            Self::Batch(requests, None) => match &requests[..] {
                [request @ (Request::Put { .. } | Request::Delete { .. })] => Some(request),
                _ => None,
            },
            _ => None,
        }
    }

    /// Its requests, if they may be executed together with those of others.
    pub fn joined(&self) -> Option<Batch<'_>> {
        match self {
            Self::Whole(_) => None,
            _ => self.batch(),
        }
    }
}

/// What executes the jobs of a queue.
pub trait Leader {
    /// Executes a group of jobs; gives an answer to each.
    fn commit_group(&self, group: &mut [Job]) -> Vec<Answer>;

    /// Takes note that a group has panicked; gives what its callers are told.
    fn broke(&self, words: String) -> Error;

    /// Has [`Queue::run_long_groups`] called by one of the threads that share long work.
    fn share(&self);

    /// Drops what has been executed.
    fn discard(&self, work: Work);

    /// What is set when there is no thread to be had that [serves](Queue::serve) a queue. Whoever holds nothing that a
    /// callback may wait for resets it, and does so himself.
    fn lacks_server(&self) -> &AtomicBool;

    /// Serves queues of others for which there was no thread to be had, also while this one was in a callback. The caller
    /// holds nothing that a callback may wait for.
    fn serve_others(&self) {}

    /// Whether a group takes as long as a disk does.
    fn waits_for_disk(&self) -> bool {
        false
    }

    /// What becomes of an asynchronous request while too many bytes of others wait.
    fn when_full(&self) -> WhenFull {
        WhenFull::Wait
    }
}

/// What has become of it.
pub type Answer = Result<Answers>;

/// What a job is answered by.
#[derive(Debug)]
pub enum Answers {
    /// One for each request; none to what has no requests.
    Responses(Vec<Response>),
    /// Those to a batch in columns; no values if none of its requests has one.
    Columns(Box<ColumnAnswers>),
    /// Those to a batch of several partitions that did not come in columns, as these have given them.
    Split(Box<SplitAnswers<Response>>),
}

impl Answers {
    /// The answer to what has no requests.
    pub const NONE: Self = Self::Responses(Vec::new());

    /// The answers to requests that did not come in columns.
    pub fn into_responses(self) -> Vec<Response> {
        match self {
            Self::Responses(responses) => responses,
            Self::Columns(_) => Vec::new(),
            Self::Split(answers) => answers.in_order(Response::Done),
        }
    }

    /// The answers to requests that came in columns.
    pub fn into_columns(self) -> ColumnAnswers {
        match self {
            Self::Responses(_) | Self::Split(_) => ColumnAnswers::default(),
            Self::Columns(answers) => *answers,
        }
    }
}

/// Who is told of the end of an asynchronous request.
pub type Callback = Box<dyn FnOnce(Answer) + Send>;

/// Something to do, and who waits for it.
pub struct Job {
    pub work: Work,
    /// What of it each partition has, if there are several.
    pub split: Option<Arc<Split>>,
    waiter: Waiter,
}

enum Waiter {
    /// He executes it himself.
    Leader,
    Caller(Arc<Ticket>),
    Callback(Callback, usize),
}

/// What is told to whoever waits. To drop requests takes long, so that is left to him, and the others
/// need not wait for it.
struct Outcome {
    work: Work,
    answer: Answer,
}

/// Who is told what.
type Outcomes = Vec<(Arc<Ticket>, Outcome)>;

/// See the [module](self).
pub struct Queue {
    state: Mutex<QueueInner>,
    /// Leads where nobody waits, and calls the callbacks.
    server: Worker,
    /// Nobody leads, or something finished.
    changed: Condvar,
    /// There is room for asynchronous requests.
    room: Condvar,
    /// Asynchronous requests that wait for room.
    pub(in crate::store) stalls: StallRecorder,
    /// Threads of the store execute what takes long.
    is_shared: bool,
    /// The callers who wait.
    crew: Arc<Crew>,
    /// Threads that can run at a time.
    cores: usize,
    /// Most requests that are executed together.
    group_requests_max: usize,
}

#[derive(Default)]
struct QueueInner {
    waiting: VecDeque<Job>,
    /// Someone is at work, or has been called to it.
    led: bool,
    /// Bytes of the asynchronous requests that wait, or have been executed since callbacks were taken up last.
    bytes: usize,
    /// What their callbacks will be told, and their bytes.
    finished: Vec<(Callback, usize, Outcome)>,
}

/// A queue that is held: nobody executes anything that waits in it.
pub struct Held<'q, L: Leader>(&'q Queue, &'q L);

impl<L: Leader> Drop for Held<'_, L> {
    fn drop(&mut self) {
        self.0.pass_on(self.0.state.lock(), self.1);
    }
}

impl Queue {
    /// An empty one, which a thread of this number serves. With `is_shared`, threads of the store are leaders of what
    /// takes long, else its callers are.
    pub fn new(is_shared: bool, (options, number): (&StoreOptions, usize)) -> Self {
        Self {
            state: Mutex::default(),
            server: Worker::on("gphash-store-queue", options.affinity.clone(), number),
            changed: Condvar::new(),
            room: Condvar::new(),
            stalls: StallRecorder::new(StallReason::Queue),
            is_shared,
            crew: Arc::default(),
            cores: parallel::threads(),
            group_requests_max: options.group_requests_max,
        }
    }

    /// The callers who wait, as far as they are awake. Whoever leads the queue may have them help.
    pub fn crew(&self) -> &Arc<Crew> {
        &self.crew
    }

    /// Lets the thread of a queue [serve](Self::serve) its leader, as long as that is there.
    pub fn attend<T: Send + Sync + 'static>(leader: &Arc<T>, queue: fn(&T) -> &Self)
    where
        Arc<T>: Leader,
    {
        let served = Arc::downgrade(leader);
        queue(leader).server.set_work(move || {
            let leader = served.upgrade()?;
            queue(&leader).serve(&leader);
            leader.serve_others();
            None
        });
    }

    /// Has something done together with what else waits; gives it back with the answer.
    pub fn submit(&self, work: Work, leader: &impl Leader) -> (Work, Answer) {
        self.submit_split(work, None, leader)
    }

    /// As [`submit`](Self::submit), of what several partitions have a part each.
    pub fn submit_split(
        &self,
        work: Work,
        split: Option<Arc<Split>>,
        leader: &impl Leader,
    ) -> (Work, Answer) {
        let mut state = self.state.lock();
        let is_idle = !state.led && state.waiting.is_empty();
        if is_idle && !(self.is_shared && work.is_long()) {
            state.led = true;
            drop(state);
            return self.run_now(work, split, leader);
        }
        let ticket = self.enqueue(state, work, split, leader);
        loop {
            if let Some(outcome) = ticket.wait(&self.crew) {
                return (outcome.work, outcome.answer);
            }
            self.run_next_group(leader);
        }
    }

    fn call_server(&self, leader: &impl Leader) {
        if let Err(error) = self.server.call() {
            tracing::warn!(%error, "callers do what asynchronous requests ask for");
            leader.lacks_server().store(true, Ordering::Relaxed);
        }
    }

    /// Puts work behind what waits; gives where its caller waits for it.
    fn enqueue(
        &self,
        mut state: MutexGuard<'_, QueueInner>,
        work: Work,
        split: Option<Arc<Split>>,
        leader: &impl Leader,
    ) -> Arc<Ticket> {
        let ticket = Arc::new(Ticket::default());
        state.waiting.push_back(Job {
            work,
            split,
            waiter: Waiter::Caller(Arc::clone(&ticket)),
        });
        if !std::mem::replace(&mut state.led, true) {
            self.pass_on(state, leader);
        }
        ticket
    }

    /// Waits until all that waits is done, and keeps the queue from going on. One thread at a time may do so.
    pub fn hold<'q, L: Leader>(&'q self, leader: &'q L) -> Held<'q, L> {
        let mut state = self.state.lock();
        if !state.led && state.waiting.is_empty() {
            state.led = true;
            return Held(self, leader);
        }
        let ticket = self.enqueue(state, Work::Hold, None, leader);
        // Nobody answers it.
        let _leads = ticket.wait(&self.crew);
        loop {
            let mut state = self.state.lock();
            if let Some(Work::Hold) = state.waiting.front().map(|job| &job.work) {
                state.waiting.pop_front();
                return Held(self, leader);
            }
            drop(state);
            let (state, outcomes) = self.run_group(leader);
            drop(state);
            tell(outcomes);
        }
    }

    /// Has something of so many bytes done by whoever is at work next. Waits while too much waits already, but not in a
    /// callback: the thread that calls it is the one that makes room.
    ///
    /// # Errors
    /// [`Error::QueueFull`], with the callback, if the leader refuses what would wait.
    pub fn submit_async(
        &self,
        work: Work,
        split: Option<Arc<Split>>,
        (callback, bytes): (Callback, usize),
        leader: &impl Leader,
    ) -> std::result::Result<(), (Callback, Error)> {
        // Dropped after the lock.
        let mut _stall = None;
        let mut state = self.state.lock();
        let is_full = |state: &mut QueueInner| state.bytes > ASYNC_BYTES_MAX;
        if is_full(&mut state) {
            match leader.when_full() {
                WhenFull::Refuse => {
                    let error = Error::QueueFull {
                        waiting: state.bytes as u64,
                        limit: ASYNC_BYTES_MAX as u64,
                    };
                    return Err((callback, error));
                }
                WhenFull::Wait if user_code::is_callback() => {}
                WhenFull::Wait => {
                    let wait = || {
                        while is_full(&mut state) {
                            // Nobody wakes who waits for a thread that is not there.
                            if leader.lacks_server().load(Ordering::Relaxed) {
                                MutexGuard::unlocked(&mut state, || self.serve(leader));
                            }
                            if is_full(&mut state) {
                                self.room.wait_for(&mut state, ROOM_CHECK_INTERVAL);
                            }
                        }
                    };
                    _stall = Some(self.stalls.measure(wait).1);
                }
            }
        }
        state.bytes += bytes;
        state.waiting.push_back(Job {
            work,
            split,
            waiter: Waiter::Callback(callback, bytes),
        });
        drop(state);
        self.call_server(leader);
        Ok(())
    }

    /// Tells the outcomes of a group, and passes the leadership on. Where as many wait as could run, the next leader
    /// may not run, and until it does all who come would wait. So this thread does some groups more.
    fn tell_and_pass_on(
        &self,
        (mut state, mut outcomes): (MutexGuard<'_, QueueInner>, Outcomes),
        leader: &impl Leader,
    ) {
        for _ in 0..GROUPS_MORE {
            let is_due = state.waiting.front().is_some_and(|job| match job.waiter {
                Waiter::Caller(_) => job.work.batch().is_some() && !job.work.is_long(),
                _ => false,
            });
            if !is_due || state.waiting.len() + 1 < self.cores || leader.waits_for_disk() {
                break;
            }
            drop(state);
            tell(outcomes);
            (state, outcomes) = self.run_group(leader);
        }
        self.pass_on(state, leader);
        tell(outcomes);
    }

    /// Has the next group led by whom it suits. Whoever calls this leads until then.
    fn pass_on(&self, mut state: MutexGuard<'_, QueueInner>, leader: &impl Leader) {
        if self.is_shared && state.waiting.front().is_some_and(|job| job.work.is_long()) {
            drop(state);
            return leader.share();
        }
        // The thread that serves may be in a callback that waits for one of the callers, so it leads
        // only where there are none.
        let caller = state.waiting.iter().find_map(|job| match &job.waiter {
            Waiter::Caller(ticket) => Some(ticket),
            Waiter::Leader | Waiter::Callback(..) => None,
        });
        match caller {
            Some(ticket) => ticket.set(TicketState::Leads),
            None => {
                state.led = false;
                self.changed.notify_all();
                let is_left = !state.waiting.is_empty();
                drop(state);
                if is_left {
                    self.call_server(leader);
                }
            }
        }
    }

    /// Does a group of jobs, and passes the leadership on.
    fn run_next_group(&self, leader: &impl Leader) {
        let done = self.run_group(leader);
        self.tell_and_pass_on(done, leader);
    }

    /// What [`Leader::share`] asks for. Executes the groups of jobs that take long, as long as
    /// there is one next, so that none of them waits for a thread to wake up.
    pub fn run_long_groups(&self, leader: &impl Leader) {
        loop {
            let (state, outcomes) = self.run_group(leader);
            let goes_on = state.waiting.front().is_some_and(|job| job.work.is_long());
            match goes_on {
                true => drop(state),
                false => self.pass_on(state, leader),
            }
            tell(outcomes);
            if !goes_on {
                return;
            }
        }
    }

    /// Does a single job of a caller who has found nobody at work, and passes the leadership on.
    fn run_now(
        &self,
        work: Work,
        split: Option<Arc<Split>>,
        leader: &impl Leader,
    ) -> (Work, Answer) {
        let mut group = [Job {
            work,
            split,
            waiter: Waiter::Leader,
        }];
        let mut answers = commit(&mut group, leader);
        self.tell_and_pass_on((self.state.lock(), Vec::new()), leader);
        let [Job { work, .. }] = group;
        (work, answers.pop().expect("one answer a job"))
    }

    /// Does the next group of jobs; gives the queue, still locked, and what must be told to callers.
    fn run_group(&self, leader: &impl Leader) -> (MutexGuard<'_, QueueInner>, Outcomes) {
        let mut group = self.state.lock().take_group(self.group_requests_max);
        let answers = commit(&mut group, leader);
        let mut outcomes = Vec::new();
        let mut state = self.state.lock();
        for (Job { work, waiter, .. }, answer) in group.into_iter().zip(answers) {
            let outcome = Outcome { work, answer };
            match waiter {
                Waiter::Leader => {}
                Waiter::Caller(ticket) => outcomes.push((ticket, outcome)),
                Waiter::Callback(callback, bytes) => {
                    state.finished.push((callback, bytes, outcome));
                }
            }
        }
        if !state.finished.is_empty() {
            self.changed.notify_all();
            self.call_server(leader);
        }
        (state, outcomes)
    }

    /// Leads where nobody waits, and calls the callbacks, until there is nothing of that.
    pub fn serve(&self, leader: &impl Leader) {
        let mut state = self.state.lock();
        loop {
            let finished = std::mem::take(&mut state.finished);
            if !finished.is_empty() {
                // The callbacks may wait for who puts more.
                state.bytes -= finished.iter().map(|(_, bytes, _)| bytes).sum::<usize>();
                self.room.notify_all();
                drop(state);
                for (callback, _, Outcome { work, answer }) in finished {
                    leader.discard(work);
                    user_code::call_back(|| callback(answer));
                }
                state = self.state.lock();
            } else if !state.waiting.is_empty() && !state.led {
                state.led = true;
                drop(state);
                self.run_next_group(leader);
                state = self.state.lock();
            } else {
                return;
            }
        }
    }

    /// Does all that is left, and ends the thread that serves. Nobody submits anything any more.
    pub fn end(&self, leader: &impl Leader) {
        self.server.stop();
        loop {
            self.serve(leader);
            let mut state = self.state.lock();
            if state.led && state.finished.is_empty() {
                self.changed.wait(&mut state);
            } else if state.finished.is_empty() && state.waiting.is_empty() {
                return;
            }
        }
    }
}

/// Has a group of jobs executed; gives an answer to each, also if that panics.
fn commit(group: &mut [Job], leader: &impl Leader) -> Vec<Answer> {
    let led = catch_unwind(AssertUnwindSafe(|| leader.commit_group(group)));
    led.unwrap_or_else(|panic| {
        let error = leader.broke(words(&*panic));
        group.iter().map(|_| Err(error.clone())).collect()
    })
}

fn tell(outcomes: Outcomes) {
    for (ticket, outcome) in outcomes {
        ticket.set(TicketState::Done(Box::new(outcome)));
    }
}

impl QueueInner {
    /// Takes the first job, and those behind it that can be done together with it.
    fn take_group(&mut self, most: usize) -> Vec<Job> {
        let mut group = Vec::new();
        let mut requests = 0;
        while let Some(job) = self.waiting.front() {
            let Some(more) = job.work.joined() else { break };
            requests += more.len();
            if !group.is_empty() && requests > most {
                return group;
            }
            group.extend(self.waiting.pop_front());
        }
        if group.is_empty() {
            group.extend(self.waiting.pop_front());
        }
        group
    }
}
