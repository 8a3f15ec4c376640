//! The verbs of a store that do not wait, each with a callback and as a future.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

use super::commit::group::into_unit;
use super::commit::queue::{Answer, Answers, Callback, Work};
use super::commit::user_code;
use super::options::WhenFull;
use super::request::{Request, Response};
use crate::Result;
use crate::metrics::calls::TimedPath;
use crate::store::Store;

/// The outcome of a call that was made without waiting, as a [`Future`] for any executor: the store needs none.
///
/// The request is in its queue before this is returned, and is executed whether this is polled or dropped. It is ready
/// once, and never again.
///
/// # Examples
/// ```
/// use std::future::Future;
/// use std::pin::pin;
/// use std::sync::Arc;
/// use std::task::{Context, Poll, Wake};
/// use std::thread::{self, Thread};
///
/// /// The least that an executor does: it sleeps until it is woken.
/// fn block_on<T>(future: impl Future<Output = T>) -> T {
///     struct Unpark(Thread);
///     impl Wake for Unpark {
///         fn wake(self: Arc<Self>) {
///             self.0.unpark();
///         }
///     }
///     let waker = Arc::new(Unpark(thread::current())).into();
///     let mut future = pin!(future);
///     loop {
///         match future.as_mut().poll(&mut Context::from_waker(&waker)) {
///             Poll::Ready(outcome) => return outcome,
///             Poll::Pending => thread::park(),
///         }
///     }
/// }
///
/// # let dir = tempfile::tempdir()?;
/// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
/// let value = block_on(async {
///     let both = [store.put_future("ada", "byron"), store.put_future("ada", "lovelace")];
///     for put in both {
///         put.await?; // they were executed together
///     }
///     store.get_future("ada").await
/// })?;
/// assert_eq!(value, Some(b"lovelace".to_vec()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "the call may have failed"]
pub struct Pending<T>(Arc<Mutex<Outcome<T>>>);

struct Outcome<T> {
    result: Option<Result<T>>,
    /// Of who has polled last.
    waker: Option<Waker>,
}

impl<T> fmt::Debug for Pending<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_ready = self.0.lock().result.is_some();
        f.debug_struct("Pending")
            .field("is_ready", &is_ready)
            .finish_non_exhaustive()
    }
}

impl<T> Future for Pending<T> {
    type Output = Result<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        // Code of the executor, which may do anything, runs without the lock.
        let waker = context.waker().clone();
        let (result, _before) = {
            let mut outcome = self.0.lock();
            match outcome.result.take() {
                Some(result) => (Poll::Ready(result), None),
                None => (Poll::Pending, outcome.waker.replace(waker)),
            }
        };
        result
    }
}

/// A future, and the callback that makes it ready.
fn pending<T: Send + 'static>() -> (Pending<T>, impl FnOnce(Result<T>) + Send + 'static) {
    let outcome = Arc::new(Mutex::new(Outcome {
        result: None,
        waker: None,
    }));
    let told = Arc::clone(&outcome);
    let tell = move |result| {
        let waker = {
            let mut outcome = told.lock();
            outcome.result = Some(result);
            outcome.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    };
    (Pending(outcome), tell)
}

/// The value that a get has found.
fn into_value(answer: Answer) -> Result<Option<Vec<u8>>> {
    let mut responses = answer?.into_responses();
    match responses.pop() {
        Some(Response::Value(value)) => Ok(value),
        other => unreachable!("a get is answered by a value, not {other:?}"),
    }
}

impl Store {
    /// Has requests executed by whoever is at work next, and `callback` called with what `of` makes of the answer.
    fn start<T: 'static>(
        &self,
        requests: Vec<Request>,
        path: TimedPath,
        of: fn(Answer) -> Result<T>,
        callback: impl FnOnce(Result<T>) + Send + 'static,
    ) {
        if let Err(error) = user_code::may_change().and_then(|()| self.check(&requests)) {
            return user_code::refuse(|| callback(Err(error)));
        }
        let partitions = self.partitions();
        let shared = Arc::clone(&partitions.first().state.shared);
        let started = path.start();
        let callback: Callback = Box::new(move |answer| {
            let outcome = of(answer);
            shared.metrics.finish(path, started);
            callback(outcome);
        });
        let bytes = requests.iter().map(Request::bytes).sum::<usize>();
        let waits = partitions.shared().when_full == WhenFull::Wait
            && !user_code::is_callback()
            && !requests.iter().all(Request::is_get);
        let partition = self.partition_of(&requests);
        let work = Work::Batch(requests, None);
        let refused = match partition {
            Some(partition) => {
                if waits {
                    partition.wait_for_room();
                }
                let queue = &partition.queue;
                queue.submit_async(work, None, (callback, bytes), partition)
            }
            None => partitions.submit_async(work, (callback, bytes), waits),
        };
        if let Err((callback, error)) = refused {
            user_code::refuse(|| callback(Err(error)));
        }
        partitions.serve_if_nobody_does();
    }

    /// Gives a key a value without waiting. `callback` is called with the outcome by a thread of the
    /// store, which does nothing else meanwhile: it should be short. If the process can have no more threads, callers
    /// of the store call it at the end of their verbs. It may call the store; a panic of it is logged.
    /// Asynchronous requests of one thread are executed in their order if their keys are in one
    /// [partition](super::StoreOptions::partitions), or some of them of the same batch, and before changes there that
    /// the thread makes later by verbs that wait. While 64 MiB of them wait there, this call waits, too, but not in a
    /// callback; or it fails. They wait until their callbacks are about to be called; what they answer is not counted. So
    /// a callback must not wait for a thread that calls this, nor for the answer to another asynchronous request, which may
    /// be the same thread's to give: it calls the verb that waits. This may also wait for the memory budget: see [`WhenFull`].
    /// What is refused is told before this returns.
    ///
    /// # Examples
    /// ```
    /// use std::sync::mpsc;
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
    /// let (sender, outcome) = mpsc::channel();
    /// store.put_async(b"ada", b"lovelace", move |result| {
    ///     let _ = sender.send(result);
    /// });
    /// outcome.recv()??;
    /// assert_eq!(store.get(b"ada")?, Some(b"lovelace".to_vec()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`put`](Self::put) are the callback's, all of them, and [`Error::QueueFull`](crate::Error::QueueFull). On a full
    /// disk nothing is tried again once a checkpoint has made room, as `put` and `delete` are: requests that came later
    /// may have been executed. Call it again, or call `delete`.
    pub fn put_async(
        &self,
        key: impl Into<Vec<u8>>,
        value: impl Into<Vec<u8>>,
        callback: impl FnOnce(Result<()>) + Send + 'static,
    ) {
        let (key, value) = (key.into(), value.into());
        let requests = vec![Request::Put { key, value }];
        self.start(requests, TimedPath::SingleChange, into_unit, callback);
    }

    /// As [`put_async`](Self::put_async), with the outcome as a [future](Pending).
    ///
    /// # Examples
    /// ```
    /// # use gphash_test_support::block_on;
    /// # let dir = tempfile::tempdir()?;
    /// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
    /// block_on(store.put_future("ada", "lovelace"))?;
    /// assert_eq!(store.get(b"ada")?, Some(b"lovelace".to_vec()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As there, of the future.
    pub fn put_future(&self, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Pending<()> {
        let (future, callback) = pending();
        self.put_async(key, value, callback);
        future
    }

    /// Takes a key's value away without waiting: see [`put_async`](Self::put_async).
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
    /// store.put("ada", "lovelace")?;
    /// let (sender, outcome) = std::sync::mpsc::channel();
    /// store.delete_async("ada", move |result| sender.send(result).unwrap());
    /// outcome.recv()??;
    /// assert_eq!(store.get(b"ada")?, None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As there.
    pub fn delete_async(
        &self,
        key: impl Into<Vec<u8>>,
        callback: impl FnOnce(Result<()>) + Send + 'static,
    ) {
        let requests = vec![Request::Delete { key: key.into() }];
        self.start(requests, TimedPath::SingleChange, into_unit, callback);
    }

    /// As [`delete_async`](Self::delete_async), with the outcome as a [future](Pending).
    ///
    /// # Examples
    /// ```
    /// # use gphash_test_support::block_on;
    /// # let dir = tempfile::tempdir()?;
    /// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
    /// store.put("ada", "lovelace")?;
    /// block_on(store.delete_future("ada"))?;
    /// assert_eq!(store.get(b"ada")?, None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As there, of the future.
    pub fn delete_future(&self, key: impl Into<Vec<u8>>) -> Pending<()> {
        let (future, callback) = pending();
        self.delete_async(key, callback);
        future
    }

    /// Merges an operand into a key's value without waiting: see [`merge`](Self::merge) and
    /// [`put_async`](Self::put_async).
    ///
    /// # Examples
    /// ```
    /// # struct Append;
    /// # impl gphash::store::MergeOperator for Append {
    /// #     fn name(&self) -> &str { "append" }
    /// #     fn merge(&self, _: &[u8], old: Option<&[u8]>, new: &[u8]) -> Result<Vec<u8>, String> {
    /// #         Ok([old.unwrap_or_default(), new].concat())
    /// #     }
    /// # }
    /// # let options = gphash::store::StoreOptions::new().merge_operator(std::sync::Arc::new(Append));
    /// # let dir = tempfile::tempdir()?;
    /// # let store = gphash::store::Store::open(dir.path(), &options)?;
    /// let (sender, outcome) = std::sync::mpsc::channel();
    /// // The merge operator of this store appends.
    /// store.merge_async("log", "line", move |result| sender.send(result).unwrap());
    /// outcome.recv()??;
    /// assert_eq!(store.get(b"log")?, Some(b"line".to_vec()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of both.
    pub fn merge_async(
        &self,
        key: impl Into<Vec<u8>>,
        operand: impl Into<Vec<u8>>,
        callback: impl FnOnce(Result<()>) + Send + 'static,
    ) {
        let (key, operand) = (key.into(), operand.into());
        let requests = vec![Request::Merge { key, operand }];
        self.start(requests, TimedPath::SingleChange, into_unit, callback);
    }

    /// As [`merge_async`](Self::merge_async), with the outcome as a [future](Pending).
    ///
    /// # Examples
    /// ```
    /// # use gphash_test_support::block_on;
    /// # struct Append;
    /// # impl gphash::store::MergeOperator for Append {
    /// #     fn name(&self) -> &str { "append" }
    /// #     fn merge(&self, _: &[u8], old: Option<&[u8]>, new: &[u8]) -> Result<Vec<u8>, String> {
    /// #         Ok([old.unwrap_or_default(), new].concat())
    /// #     }
    /// # }
    /// # let options = gphash::store::StoreOptions::new().merge_operator(std::sync::Arc::new(Append));
    /// # let dir = tempfile::tempdir()?;
    /// # let store = gphash::store::Store::open(dir.path(), &options)?;
    /// // The merge operator of this store appends.
    /// block_on(store.merge_future("log", "line"))?;
    /// assert_eq!(store.get(b"log")?, Some(b"line".to_vec()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As there, of the future.
    pub fn merge_future(
        &self,
        key: impl Into<Vec<u8>>,
        operand: impl Into<Vec<u8>>,
    ) -> Pending<()> {
        let (future, callback) = pending();
        self.merge_async(key, operand, callback);
        future
    }

    /// The value of a key, without waiting: see [`put_async`](Self::put_async). It sees what the same thread has asked
    /// for before of that key. Many of them at once need memory for all their values.
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
    /// store.put("ada", "lovelace")?;
    /// let (sender, outcome) = std::sync::mpsc::channel();
    /// store.get_async("ada", move |result| sender.send(result).unwrap());
    /// assert_eq!(outcome.recv()??, Some(b"lovelace".to_vec()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`get`](Self::get) and of [`put_async`](Self::put_async) are the callback's.
    pub fn get_async(
        &self,
        key: impl Into<Vec<u8>>,
        callback: impl FnOnce(Result<Option<Vec<u8>>>) + Send + 'static,
    ) {
        let requests = vec![Request::Get { key: key.into() }];
        self.start(requests, TimedPath::Get, into_value, callback);
    }

    /// As [`get_async`](Self::get_async), with the outcome as a [future](Pending).
    ///
    /// # Examples
    /// ```
    /// # use gphash_test_support::block_on;
    /// # let dir = tempfile::tempdir()?;
    /// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
    /// store.put("ada", "lovelace")?;
    /// assert_eq!(block_on(store.get_future("ada"))?, Some(b"lovelace".to_vec()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As there, of the future.
    pub fn get_future(&self, key: impl Into<Vec<u8>>) -> Pending<Option<Vec<u8>>> {
        let (future, callback) = pending();
        self.get_async(key, callback);
        future
    }

    /// Executes requests as [`execute`](Self::execute) does, without waiting: see [`put_async`](Self::put_async).
    ///
    /// # Examples
    /// ```
    /// use gphash::store::{Request, Response};
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
    /// # store.put("ada", "lovelace")?;
    /// let get = Request::Get { key: b"ada".to_vec() };
    /// let (sender, outcome) = std::sync::mpsc::channel();
    /// store.execute_async(vec![get], move |result| sender.send(result).unwrap());
    /// assert!(matches!(outcome.recv()??[..], [Response::Value(Some(_))]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of both are the callback's.
    pub fn execute_async(
        &self,
        requests: Vec<Request>,
        callback: impl FnOnce(Result<Vec<Response>>) + Send + 'static,
    ) {
        let of = |answer: Answer| answer.map(Answers::into_responses);
        self.start(requests, TimedPath::Batch, of, callback);
    }

    /// As [`execute_async`](Self::execute_async), with the outcome as a [future](Pending).
    ///
    /// # Examples
    /// ```
    /// # use gphash_test_support::block_on;
    /// use gphash::store::{Request, Response};
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
    /// # store.put("ada", "lovelace")?;
    /// let get = Request::Get { key: b"ada".to_vec() };
    /// let responses = block_on(store.execute_future(vec![get]))?;
    /// assert!(matches!(responses[..], [Response::Value(Some(_))]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As there, of the future.
    pub fn execute_future(&self, requests: Vec<Request>) -> Pending<Vec<Response>> {
        let (future, callback) = pending();
        self.execute_async(requests, callback);
        future
    }
}
