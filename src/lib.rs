//! A persistent hash index that lives in one file and is used in place by GPU kernels and by CPU
//! threads. See [`Index`].

mod engine;
mod error;
mod index;
pub mod layout;
mod options;
pub mod pm;
mod sync;

pub use error::{Error, Result};
#[cfg(feature = "cuda")]
pub use index::answer_words;
pub use index::{Index, Iter, Progress, Recovery, Report, ReportState, Stats, recover};
pub use options::{Domain, Engine, Options};
