//! Reads of one moment: what the table does not have yet, what it has no more, and what a transaction has read.

pub mod group_writes;
pub mod old_versions;
pub mod published;
pub mod read_keys;
pub mod read_set;
pub mod spill_file;
