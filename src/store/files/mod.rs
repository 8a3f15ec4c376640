//! The files of a store beside its index, its log and its sorted files.

pub mod dir;
pub mod identity;
pub mod manifest;
pub mod reserve;
pub mod segment;
pub mod unopened;
