//! Bytes that could not be given back, and when that is tried again.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The next attempt is so long after one, and so many times as long as it took.
const REST_MIN: Duration = Duration::from_secs(10);
const REST_TIMES: u32 = 50;

/// See the [module](self).
#[derive(Debug, Default)]
pub struct Forgiven {
    bytes: AtomicU64,
    /// Until when they are not asked for.
    until: Mutex<Option<Instant>>,
}

impl Forgiven {
    /// How many they are.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// How many of them need not be given back now.
    pub fn bytes_now(&self) -> u64 {
        match self.bytes() {
            0 => 0,
            _ if self
                .until
                .lock()
                .is_some_and(|until| until <= Instant::now()) =>
            {
                0
            }
            bytes => bytes,
        }
    }

    /// Says how many are left by an attempt that has begun then, and has ended.
    pub fn note(&self, bytes: u64, begun: Instant) {
        let rest = REST_MIN.max(begun.elapsed().saturating_mul(REST_TIMES));
        *self.until.lock() = Instant::now().checked_add(rest);
        self.bytes.store(bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_asked_for_again_after_a_rest() {
        let forgiven = Forgiven::default();
        assert_eq!((forgiven.bytes(), forgiven.bytes_now()), (0, 0));
        forgiven.note(7, Instant::now());
        assert_eq!((forgiven.bytes(), forgiven.bytes_now()), (7, 7));
        *forgiven.until.lock() = Some(Instant::now());
        assert_eq!((forgiven.bytes(), forgiven.bytes_now()), (7, 0));
        // One that took a second is not repeated for most of a minute.
        let begun = Instant::now().checked_sub(Duration::from_secs(1)).unwrap();
        forgiven.note(5, begun);
        assert_eq!(forgiven.bytes_now(), 5);
        let until = forgiven.until.lock().unwrap();
        assert!(until > Instant::now() + Duration::from_secs(49));
    }
}
