//! How batches are committed, in the order in which data flows: callers queue, a leader takes a group,
//! executes its requests, logs and applies what they change.

pub mod apply;
pub mod execute;
pub mod group;
pub mod key_writes;
pub mod optimistic_reads;
pub mod queue;
pub mod room;
pub mod sorter;
pub mod threshold;
pub mod user_code;

/// Requests or changes that a thread looks through at least: to ask another one takes as long as some
/// thousands.
pub const REQUESTS_PER_THREAD_MIN: usize = 1 << 12;
