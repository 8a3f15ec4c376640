//! The queue of what changes a store: callers who come while others are at work wait in it, and one
//! of them does the work of all who wait (group commit).

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::batch::{Request, Response};
use super::tiers::Stamp;
use super::transaction::Claims;
use crate::Result;

/// Most requests that are carried out together, but for those of a single caller.
const GROUP: usize = 1 << 16;

/// From how many requests on nobody waits until they are dropped.
const MANY: usize = 1 << 14;

/// Most bytes of requests that wait without a caller who waits for them.
const MOST_ASYNC: usize = 64 << 20;

/// What is to be done.
pub enum Work {
    /// Requests, which may be carried out together with those of others.
    Batch(Vec<Request>),
    /// As a batch, if the claims still hold.
    Transaction(Vec<Request>, Claims),
    /// Requests that are done together or not at all, some of which may fail.
    Whole(Vec<Request>),
    /// The beginning of a checkpoint.
    Checkpoint,
    /// Items that are in a file now leave the table, if they still have these stamps.
    Leave(Vec<(Vec<u8>, Stamp)>),
    /// Items of these keys come up into the table.
    Rise(Vec<Vec<u8>>),
}

impl Work {
    /// How much there is to do, in requests.
    pub fn len(&self) -> usize {
        match self {
            Self::Batch(requests) | Self::Transaction(requests, _) | Self::Whole(requests) => {
                requests.len()
            }
            // The pages that have changed may be many.
            Self::Checkpoint => usize::MAX,
            Self::Leave(items) => items.len(),
            Self::Rise(keys) => keys.len(),
        }
    }

    /// Its requests, if they may be carried out together with those of others.
    pub fn joined(&self) -> Option<&[Request]> {
        match self {
            Self::Batch(requests) | Self::Transaction(requests, _) => Some(requests),
            _ => None,
        }
    }
}

/// What has become of it.
pub type Answer = Result<Vec<Response>>;

/// Who is told of the end of an asynchronous request.
pub type Callback = Box<dyn FnOnce(Answer) + Send>;

/// Something to do, and who waits for it.
pub struct Job {
    pub work: Work,
    waiter: Waiter,
}

enum Waiter {
    Caller(Arc<Ticket>),
    Callback(Callback, usize),
}

#[cfg(all(test, not(loom)))]
impl Job {
    /// A job that nobody waits for.
    pub fn of(work: Work) -> Self {
        let waiter = Waiter::Callback(Box::new(|_| {}), 0);
        Self { work, waiter }
    }
}

/// Where a caller waits.
#[derive(Default)]
struct Ticket {
    state: Mutex<TicketState>,
    changed: Condvar,
}

#[derive(Default)]
enum TicketState {
    #[default]
    Waiting,
    /// The caller does what is in the queue, its own job first.
    Leads,
    Answered(Answer),
}

impl Ticket {
    fn set(&self, state: TicketState) {
        *self.state.lock() = state;
        self.changed.notify_one();
    }

    /// Waits for the answer; `None` if the caller is to lead.
    fn wait(&self) -> Option<Answer> {
        let mut state = self.state.lock();
        loop {
            match std::mem::take(&mut *state) {
                TicketState::Waiting => {}
                TicketState::Leads => return None,
                TicketState::Answered(answer) => return Some(answer),
            }
            self.changed.wait(&mut state);
        }
    }
}

/// See the [module](self).
#[derive(Default)]
pub struct Queue {
    state: Mutex<State>,
    /// There is work, or something finished, for the thread without a caller.
    called: Condvar,
    /// There is room for asynchronous requests.
    room: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Job>,
    /// Someone is at work.
    led: bool,
    /// Bytes of the asynchronous requests that wait.
    bytes: usize,
    finished: Vec<(Callback, Answer)>,
    closed: bool,
}

impl Queue {
    /// Has something done, by `lead` if nobody else is at work: it gets groups of jobs, and answers
    /// each.
    pub fn submit(&self, work: Work, lead: impl Fn(&[Job]) -> Vec<Answer>) -> Answer {
        let ticket = Arc::new(Ticket::default());
        let mut state = self.state.lock();
        state.waiting.push_back(Job {
            work,
            waiter: Waiter::Caller(Arc::clone(&ticket)),
        });
        if state.led {
            drop(state);
            if let Some(answer) = ticket.wait() {
                return answer;
            }
            state = self.state.lock();
        }
        self.lead_once(state, lead);
        ticket.wait().expect("the leader's own job is the first")
    }

    /// Has something done by whoever is at work next. Waits while too much waits already.
    pub fn submit_async(&self, work: Work, bytes: usize, callback: Callback) {
        let mut state = self.state.lock();
        while state.bytes > MOST_ASYNC {
            self.room.wait(&mut state);
        }
        state.bytes += bytes;
        state.waiting.push_back(Job {
            work,
            waiter: Waiter::Callback(callback, bytes),
        });
        self.called.notify_one();
    }

    /// Does a group of jobs, and lets the next one be led.
    fn lead_once(&self, mut state: MutexGuard<'_, State>, lead: impl Fn(&[Job]) -> Vec<Answer>) {
        state.led = true;
        let group = state.take_group();
        drop(state);
        let answers = lead(&group);
        let split = |job: Job| (job.work, job.waiter);
        let (works, waiters): (Vec<Work>, Vec<Waiter>) = group.into_iter().map(split).unzip();
        let requests = works.iter().filter_map(Work::joined);
        discard(requests.map(<[Request]>::len).sum(), works);
        let mut tickets = Vec::new();
        let mut state = self.state.lock();
        for (waiter, answer) in waiters.into_iter().zip(answers) {
            match waiter {
                Waiter::Caller(ticket) => tickets.push((ticket, answer)),
                Waiter::Callback(callback, bytes) => {
                    state.bytes -= bytes;
                    state.finished.push((callback, answer));
                }
            }
        }
        if !state.finished.is_empty() {
            self.room.notify_all();
            self.called.notify_one();
        }
        match state.waiting.front() {
            Some(Job {
                waiter: Waiter::Caller(ticket),
                ..
            }) => ticket.set(TicketState::Leads),
            Some(_) => {
                state.led = false;
                self.called.notify_one();
            }
            None => state.led = false,
        }
        drop(state);
        for (ticket, answer) in tickets {
            ticket.set(TicketState::Answered(answer));
        }
    }

    /// The life of the thread that leads where nobody waits, and calls the callbacks. It ends when the
    /// queue is closed and empty.
    pub fn serve(&self, lead: impl Fn(&[Job]) -> Vec<Answer>) {
        let mut state = self.state.lock();
        loop {
            let finished = std::mem::take(&mut state.finished);
            if !finished.is_empty() {
                drop(state);
                for (callback, answer) in finished {
                    callback(answer);
                }
                state = self.state.lock();
            } else if !state.waiting.is_empty() && !state.led {
                self.lead_once(state, &lead);
                state = self.state.lock();
            } else if state.closed && state.waiting.is_empty() && !state.led {
                return;
            } else {
                self.called.wait(&mut state);
            }
        }
    }

    /// Lets the serving thread end once all is done.
    pub fn close(&self) {
        self.state.lock().closed = true;
        self.called.notify_all();
    }
}

/// Drops so many requests. To free the memory of very many takes about as long as to carry them out,
/// so another thread does that.
pub fn discard<T: Send + 'static>(requests: usize, them: T) {
    match requests {
        0..MANY => drop(them),
        _ => rayon::spawn(move || drop(them)),
    }
}

impl State {
    /// Takes the first job, and those behind it that can be done together with it.
    fn take_group(&mut self) -> Vec<Job> {
        let mut group = Vec::new();
        let mut requests = 0;
        while let Some(job) = self.waiting.front() {
            let Some(more) = job.work.joined() else { break };
            requests += more.len();
            if !group.is_empty() && requests > GROUP {
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
