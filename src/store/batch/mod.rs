//! Batches of requests: what is asked, what is answered, and how one is carried out.

mod early;
mod execute;
mod request;
mod sorter;
mod threshold;
mod versions;

pub use early::{Changed, Early};
pub use execute::{Execution, PARALLEL};
pub use request::{Request, Response, WriteBatch, check_key, check_value};
pub use sorter::Sorter;

/// Requests or changes that a thread looks through at least: to ask another one takes as long as some
/// thousands.
pub const SHARE: usize = 1 << 12;
