//! A bound on the bytes a second of work in the background: a token bucket.
//!
//! All who share work have one. The bound is [lifted](RateLimiter::lift) for all of them at once: they share threads, so
//! one that waited would hold up others.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// For how long the bound saves up what is not used: then so much is read and written at once.
const BURST: Duration = Duration::from_millis(100);

/// How often a thread that waits says for how long it has, and asks whether it may go on to wait.
const ASK_INTERVAL: Duration = Duration::from_secs(1);

const NANOS_PER_SECOND: u128 = 1_000_000_000;

/// The tokens, one a byte, as the time until which all that were taken are paid (GCRA, the generic cell rate algorithm).
/// Times are since any start.
struct TokenBucket {
    bytes_per_second: u64,
    paid_at: Duration,
}

impl TokenBucket {
    /// Takes so many tokens, more than there are if need be. While such a debt is not paid, nobody is given any.
    ///
    /// # Errors
    /// For how long it is not paid yet.
    fn take(&mut self, bytes: u64, now: Duration) -> Result<(), Duration> {
        if now < self.paid_at {
            return Err(self.paid_at - now);
        }
        let nanos = (u128::from(bytes) * NANOS_PER_SECOND).div_ceil(self.bytes_per_second.into());
        let time = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        let since = self.paid_at.max(now.saturating_sub(BURST));
        self.paid_at = since.saturating_add(time);
        Ok(())
    }
}

/// See the [module](self).
pub struct RateLimiter {
    /// None without a bound.
    bucket: Option<Mutex<TokenBucket>>,
    started: Instant,
    /// Reasons not to wait.
    lifts: AtomicUsize,
    lifted: Condvar,
}

/// While this is there, nobody waits.
pub struct Lift(Arc<RateLimiter>);

impl Drop for Lift {
    fn drop(&mut self) {
        self.0.lifts.fetch_sub(1, Ordering::Release);
    }
}

impl RateLimiter {
    /// One of so many bytes a second, not 0, or without a bound.
    pub fn new(bytes_per_second: Option<u64>) -> Self {
        let bucket = bytes_per_second.map(|bytes_per_second| TokenBucket {
            bytes_per_second,
            paid_at: Duration::ZERO,
        });
        Self {
            bucket: bucket.map(Mutex::new),
            started: Instant::now(),
            lifts: AtomicUsize::new(0),
            lifted: Condvar::new(),
        }
    }

    /// Whether there is a bound.
    pub fn has_bound(&self) -> bool {
        self.bucket.is_some()
    }

    /// Takes so many bytes once those that were taken before are paid, unless there is a reason not to wait; `may_wait` is
    /// asked now and then for others. Gives how long that was waited for, which is also added to `waited`, in nanoseconds,
    /// while it goes on.
    pub fn take(&self, bytes: u64, waited: &AtomicU64, may_wait: impl Fn() -> bool) -> Duration {
        let mut total = Duration::ZERO;
        let Some(bucket) = &self.bucket else {
            return total;
        };
        let mut bucket = bucket.lock();
        while self.lifts.load(Ordering::Acquire) == 0
            && may_wait()
            && let Err(wait) = bucket.take(bytes, self.started.elapsed())
        {
            let began = Instant::now();
            self.lifted.wait_for(&mut bucket, wait.min(ASK_INTERVAL));
            let took = began.elapsed();
            total += took;
            let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
            waited.fetch_add(nanos, Ordering::Relaxed);
        }
        total
    }

    /// Lifts the bound until what this gives is dropped. Who waits goes on.
    #[must_use]
    pub fn lift(self: &Arc<Self>) -> Lift {
        self.end();
        Lift(Arc::clone(self))
    }

    /// Lifts the bound for good.
    pub fn end(&self) {
        self.lifts.fetch_add(1, Ordering::Release);
        if let Some(bucket) = &self.bucket {
            // Who has just seen that there was no reason waits by then.
            drop(bucket.lock());
            self.lifted.notify_all();
        }
    }
}

#[cfg(test)]
mod tests;
