//! Batches of requests: what is asked, what is answered, and how one is carried out.

mod execute;
mod request;
#[cfg_attr(not(test), expect(dead_code, reason = "no batch goes to a GPU yet"))]
mod threshold;
mod versions;

pub use execute::{Execution, PARALLEL};
pub use request::{Request, Response, WriteBatch, check_key, check_value};

/// Requests or changes that a thread looks through at least: to ask another one takes as long as some
/// thousands.
pub const SHARE: usize = 1 << 12;
