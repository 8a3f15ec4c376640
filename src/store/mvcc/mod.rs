//! Reads of one moment: old versions of keys, and what a transaction has read.

pub mod old_versions;
pub mod read_keys;
pub mod read_set;
pub mod spill_file;
