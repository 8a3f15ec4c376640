//! The operations on one key.

mod get;
pub(crate) mod insert;
mod remove;
mod update;
