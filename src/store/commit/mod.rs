//! How batches are committed, in the order in which data flows: callers queue, a leader takes a group,
//! executes its requests, logs and applies what they change.

pub mod apply;
pub mod execute;
pub mod group;
pub mod optimistic_reads;
pub mod queue;
pub mod requests;
pub mod room;
pub mod sorter;
pub mod user_code;

pub use crate::pool::threads::REQUESTS_PER_THREAD_MIN;
