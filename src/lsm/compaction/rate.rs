//! How a part of a compaction keeps to the rate of its store.

use std::time::{Duration, Instant};

use crate::lsm::levels::Levels;

/// Bytes after which a part asks.
const CHUNK_BYTES: u64 = 64 << 10;

/// What a part of a compaction has taken of the rate, and the time that it works.
pub struct Throttle<'l> {
    levels: &'l Levels,
    /// Bytes.
    taken: u64,
    started: Instant,
    waited: Duration,
}

impl<'l> Throttle<'l> {
    /// That of a part that begins.
    pub fn new(levels: &'l Levels) -> Self {
        Self {
            levels,
            taken: 0,
            started: Instant::now(),
            waited: Duration::ZERO,
        }
    }

    /// Waits until the part may have read and written so many bytes in all.
    pub fn take(&mut self, bytes: u64) {
        let due = bytes.saturating_sub(self.taken);
        if due > 0 {
            let levels = self.levels;
            let rate = &levels.options().rate;
            // On a full disk files that are half written would be in the way of all else: it fails, and they go.
            let may_wait = || levels.may_compact();
            self.waited += rate.take(due, &levels.counts.rate_waits, may_wait);
            self.taken = bytes;
        }
    }

    /// As [`take`](Self::take), if that is a chunk more than was taken; says whether it is.
    pub fn take_chunk(&mut self, bytes: u64) -> bool {
        let is_due = bytes >= self.taken + CHUNK_BYTES;
        if is_due {
            self.take(bytes);
        }
        is_due
    }

    /// How long the part has worked, that is, not waited.
    pub fn worked(&self) -> Duration {
        self.started.elapsed().saturating_sub(self.waited)
    }
}
