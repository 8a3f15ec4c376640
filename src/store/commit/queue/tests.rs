//! The queue with a leader who only counts.

use std::sync::mpsc;
use std::thread::{self, ThreadId};

use super::*;

impl Job {
    /// A job that nobody waits for.
    pub fn of(work: Work) -> Self {
        Self {
            work,
            split: None,
            waiter: Waiter::Callback(Box::new(|_| {}), 0),
        }
    }
}

impl Queue {
    /// As if no thread could be started from now on, which nobody knows yet.
    pub fn lose_server(&self) {
        self.server.stop();
    }
}

/// Answers the requests of each job, and notes how many there were in each group.
struct Counter {
    queue: Queue,
    groups: Mutex<Vec<usize>>,
    /// Who has executed them.
    leaders: Mutex<Vec<ThreadId>>,
    /// Jobs that must wait before the first group ends.
    awaited: usize,
    lacks_server: AtomicBool,
}

impl Default for Counter {
    fn default() -> Self {
        Self {
            queue: Queue::new(true, (&StoreOptions::new(), 0)),
            groups: Mutex::default(),
            leaders: Mutex::default(),
            awaited: 0,
            lacks_server: AtomicBool::new(false),
        }
    }
}

impl Leader for Arc<Counter> {
    fn commit_group(&self, group: &mut [Job]) -> Vec<Answer> {
        let lens = group.iter().map(|job| job.work.len());
        self.groups.lock().push(lens.clone().sum());
        self.leaders.lock().push(thread::current().id());
        while self.groups.lock().len() == 1 && self.queue.state.lock().waiting.len() < self.awaited
        {
            thread::yield_now();
        }
        lens.map(|len| Ok(Answers::Responses(vec![Response::Done; len])))
            .collect()
    }

    fn broke(&self, words: String) -> Error {
        Error::Broken {
            path: "memory".into(),
            found: words,
        }
    }

    fn share(&self) {
        let counter = Arc::clone(self);
        thread::spawn(move || counter.queue.run_long_groups(&counter));
    }

    fn discard(&self, _: Work) {}

    fn lacks_server(&self) -> &AtomicBool {
        &self.lacks_server
    }
}

fn batch(len: usize) -> Work {
    Work::Batch(vec![Request::Delete { key: Vec::new() }; len], None)
}

fn submit(counter: &Arc<Counter>, len: usize) {
    assert_eq!(
        {
            let (_, answer) = counter.queue.submit(batch(len), counter);
            answer.unwrap().into_responses().len()
        },
        len
    );
}

#[test]
fn callers_queue_behind_more_than_a_background_group() {
    for lens in [
        [GROUP_REQUESTS_MAX, 1],
        [1000, GROUP_REQUESTS_MAX - 10],
        [GROUP_REQUESTS_MAX - 1, 2],
    ] {
        let counter = Arc::new(Counter::default());
        let answered = Arc::new(Mutex::new(0));
        // As many small jobs, and one more that does not fit into their group.
        for len in [lens[0] / 2, lens[0] - lens[0] / 2] {
            for part in [len - len / 2, len / 2] {
                let answered = Arc::clone(&answered);
                let callback = move |answer: Answer| {
                    *answered.lock() += answer.unwrap().into_responses().len();
                };
                let callback = Box::new(callback);
                counter
                    .queue
                    .submit_async(batch(part), None, (callback, 1), &counter)
                    .map_err(|(_, error)| error)
                    .unwrap();
            }
        }
        thread::scope(|scope| {
            scope.spawn(|| submit(&counter, lens[1]));
            Queue::attend(&counter, |counter| &counter.queue);
            counter.queue.server.call().unwrap();
            while counter.groups.lock().iter().sum::<usize>() < lens[0] + lens[1] {
                thread::yield_now();
            }
            counter.queue.end(&counter);
        });
        assert_eq!(*answered.lock(), lens[0]);
        assert!(
            counter
                .groups
                .lock()
                .iter()
                .all(|&len| len <= GROUP_REQUESTS_MAX)
        );
    }
}

#[test]
fn queue_serves_long_and_short_work() {
    let counter = Arc::new(Counter::default());
    let lens = [
        1,
        PARALLEL_REQUESTS_MIN - 1,
        PARALLEL_REQUESTS_MIN,
        3 * PARALLEL_REQUESTS_MIN,
    ];
    thread::scope(|scope| {
        for caller in 0..8 {
            let counter = &counter;
            scope.spawn(move || {
                for round in 0..200 {
                    submit(counter, lens[(caller + round) % lens.len()]);
                }
            });
        }
    });
    let all = 8 * 200 / lens.len() * lens.iter().sum::<usize>();
    assert_eq!(counter.groups.lock().iter().sum::<usize>(), all);
    assert!(!counter.queue.state.lock().led);
}

#[test]
fn groups_have_no_more_requests_than_they_may() {
    for (most, groups) in [(1, vec![1, 1, 1, 1, 1]), (2, vec![1, 2, 2])] {
        let mut counter = Counter {
            awaited: 4,
            ..Counter::default()
        };
        counter.queue.group_requests_max = most;
        let counter = Arc::new(counter);
        thread::scope(|scope| {
            for _ in 0..5 {
                scope.spawn(|| submit(&counter, 1));
            }
        });
        assert_eq!(*counter.groups.lock(), groups);
    }
}

#[test]
fn leader_goes_on_where_as_many_wait_as_can_run() {
    for (cores, awaited, goes_on) in [(2, 1, true), (4, 3, true), (4, 2, false)] {
        let mut counter = Counter {
            awaited,
            ..Counter::default()
        };
        counter.queue.cores = cores;
        let counter = Arc::new(counter);
        thread::scope(|scope| {
            for _ in 0..=awaited {
                scope.spawn(|| submit(&counter, 1));
            }
        });
        assert_eq!(*counter.groups.lock(), [1, awaited]);
        let leaders = counter.leaders.lock();
        assert_eq!(leaders[0] == leaders[1], goes_on, "{awaited} for {cores}");
    }
}

#[test]
fn held_queue_is_led_by_who_holds_it() {
    let mut counter = Counter {
        awaited: 1,
        ..Counter::default()
    };
    counter.queue.cores = 1;
    let counter = Arc::new(counter);
    let lens = || counter.groups.lock().clone();
    let (tell_held, is_held) = mpsc::channel();
    let (release, is_released) = mpsc::channel::<()>();
    let holder = Arc::clone(&counter);
    let hold = move || {
        let held = holder.queue.hold(&holder);
        tell_held.send(()).unwrap();
        let _ = is_released.recv();
        drop(held);
    };
    thread::scope(|scope| {
        scope.spawn(|| submit(&counter, 1));
        while lens().is_empty() {
            thread::yield_now();
        }
        // Nobody waits for this thread: it would not end if another one had done what it asks for.
        thread::spawn(hold);
        let held = is_held.recv_timeout(Duration::from_secs(600));
        held.expect("the queue is held");
        scope.spawn(|| submit(&counter, 2));
        thread::sleep(Duration::from_millis(20));
        assert_eq!(lens(), [1], "somebody executes what waits");
        drop(release);
    });
    assert_eq!(lens(), [1, 2]);
}

#[test]
fn callers_make_room_where_no_thread_does() {
    let counter = Arc::new(Counter::default());
    counter.queue.lose_server();
    let (sender, submitted) = std::sync::mpsc::channel();
    let caller = Arc::clone(&counter);
    thread::spawn(move || {
        for _ in 0..4 {
            let callback = (Box::new(|_| ()) as Callback, ASYNC_BYTES_MAX);
            let queued = caller.queue.submit_async(batch(1), None, callback, &caller);
            sender.send(queued.is_ok()).unwrap();
        }
    });
    let next = |wait| submitted.recv_timeout(Duration::from_millis(wait));
    assert_eq!([next(600_000), next(600_000)], [Ok(true); 2]);
    assert!(next(50).is_err(), "there was room");
    counter.lacks_server.store(true, Ordering::Relaxed);
    assert_eq!([next(600_000), next(600_000)], [Ok(true); 2]);
}
