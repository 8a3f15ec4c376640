//! Which items are resident in the table, and which are below it in sorted files.

pub mod access_counts;
pub mod budget;
pub mod room;
pub mod tiers;
