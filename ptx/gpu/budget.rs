//! Bounds of the device memory that an index or a store takes. It is counted where it is allocated.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Fewest bytes of the budget of an index or a store.
pub const BUDGET_MIN: u64 = 64 << 20;

/// Bytes that some blocks of device memory may have together, and those that they have.
#[derive(Debug)]
pub struct Quota {
    bytes_max: u64,
    taken: AtomicU64,
}

impl Quota {
    /// None are taken yet.
    pub fn new(bytes_max: u64) -> Arc<Self> {
        Arc::new(Self {
            bytes_max,
            taken: AtomicU64::new(0),
        })
    }

    /// Without a bound.
    pub fn unbounded() -> Arc<Self> {
        Self::new(u64::MAX)
    }

    /// Bytes that the blocks have.
    pub fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Bytes that all of them may have.
    pub fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Bytes that more blocks may have.
    pub fn left(&self) -> u64 {
        self.bytes_max.saturating_sub(self.taken())
    }

    /// Counts a block, if it may be allocated.
    pub(super) fn take(&self, len: usize) -> bool {
        let more = |taken: u64| {
            let sum = taken.checked_add(len as u64)?;
            (sum <= self.bytes_max).then_some(sum)
        };
        let taken = self
            .taken
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.is_ok()
    }

    /// A block is freed.
    pub(super) fn give_back(&self, len: usize) {
        self.taken.fetch_sub(len as u64, Ordering::Relaxed);
    }
}

/// How an index shares its budget out, so that what batches cannot do without is there whatever is copied. Without a budget
/// nothing is bounded.
#[derive(Debug, Clone)]
pub struct IndexBudget {
    /// Copies of levels, the bucket cache, and what puts lookups on streams of callers in order: there may be less of it.
    pub copies: Arc<Quota>,
    /// Streams with the buffers of their batches, and the ring of free records.
    pub buffers: Arc<Quota>,
    /// The map of changed pages.
    pub dirty: Arc<Quota>,
    /// Bytes that the buffers of a stream may have.
    pub stream_bytes_max: u64,
    /// Lookups of slices of the host at a time.
    pub lookups_max: usize,
    /// Entries of the ring.
    pub ring_records_max: u64,
}

/// Streams of a lookup: two parts under way, and one whose values are copied.
pub const LOOKUP_STREAMS: u64 = 3;

/// Streams of who changes the table: two parts, and one that sorts free records.
const WRITER_STREAMS: u64 = 3;

/// Lookups at a time, at most: for more of them copies are worth more.
const LOOKUPS_MAX: u64 = 8;

/// Bytes of a stream's buffers: room for 64 values of 64 KiB, and for those of the longest part.
const STREAM_BYTES: (u64, u64) = (5 << 20, 320 << 20);

/// A stream's share of the budget.
const STREAM_FRACTION: u64 = 64;

/// Of so many such shares, so many are for all streams.
const STREAMS_PARTS: u64 = 30;

/// The share of the map of changed pages, and that of the ring.
const SHARE_FRACTION: u64 = 32;

/// Bytes of counters of all kinds.
const COUNTERS_BYTES: u64 = 1 << 20;

impl IndexBudget {
    /// Shares so many bytes out, at least [`BUDGET_MIN`].
    pub fn new(bytes: Option<u64>) -> Self {
        let Some(bytes) = bytes else {
            return Self {
                copies: Quota::unbounded(),
                buffers: Quota::unbounded(),
                dirty: Quota::unbounded(),
                stream_bytes_max: u64::MAX,
                lookups_max: usize::MAX,
                ring_records_max: u64::MAX,
            };
        };
        let bytes = bytes.max(BUDGET_MIN);
        let share = bytes / STREAM_FRACTION;
        let stream_bytes_max = share.clamp(STREAM_BYTES.0, STREAM_BYTES.1);
        let streams = share * STREAMS_PARTS / stream_bytes_max;
        let lookups =
            (streams.saturating_sub(WRITER_STREAMS) / LOOKUP_STREAMS).clamp(1, LOOKUPS_MAX);
        let streams = lookups * LOOKUP_STREAMS + WRITER_STREAMS;
        let (ring, dirty) = (bytes / SHARE_FRACTION, bytes / SHARE_FRACTION);
        let buffers = streams * stream_bytes_max + ring + COUNTERS_BYTES;
        // While the ring grows, there are two of eight bytes an entry.
        let ring_records = ring / 16;
        Self {
            copies: Quota::new(bytes.saturating_sub(buffers + dirty)),
            buffers: Quota::new(buffers),
            dirty: Quota::new(dirty),
            stream_bytes_max,
            lookups_max: usize::try_from(lookups).unwrap_or(usize::MAX),
            ring_records_max: 1 << ring_records.ilog2(),
        }
    }

    /// Whether there is a budget.
    pub fn is_bounded(&self) -> bool {
        self.stream_bytes_max < u64::MAX
    }

    /// Bytes that are taken.
    pub fn taken(&self) -> u64 {
        let parts = [&self.copies, &self.buffers, &self.dirty];
        parts.map(|part| part.taken()).iter().sum()
    }
}

/// How a store shares its budget out: copies may not take what questions, answers, sorts and compaction work with.
#[derive(Debug, Clone)]
pub struct StoreBudget {
    /// Copies of tables and records.
    pub copies: Arc<Quota>,
    pub buffers: Arc<Quota>,
}

/// The share of buffers in the budget of a store, and what they have of a large one.
const STORE_BUFFERS_FRACTION: u64 = 2;
const STORE_BUFFERS_BYTES_MAX: u64 = 1 << 30;

impl StoreBudget {
    /// Shares so many bytes out, at least [`BUDGET_MIN`].
    pub fn new(bytes: Option<u64>) -> Self {
        let Some(bytes) = bytes else {
            return Self {
                copies: Quota::unbounded(),
                buffers: Quota::unbounded(),
            };
        };
        let bytes = bytes.max(BUDGET_MIN);
        let buffers = (bytes / STORE_BUFFERS_FRACTION).min(STORE_BUFFERS_BYTES_MAX);
        Self {
            copies: Quota::new(bytes - buffers),
            buffers: Quota::new(buffers),
        }
    }

    /// Bytes that all buffers may have.
    pub fn buffers_max(&self) -> u64 {
        self.buffers.bytes_max
    }

    /// Bytes that are taken.
    pub fn taken(&self) -> u64 {
        self.copies.taken() + self.buffers.taken()
    }
}

#[cfg(test)]
mod tests;
