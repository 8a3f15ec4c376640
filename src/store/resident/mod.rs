//! Which items are resident in the table, and which are below it in sorted files.

pub mod budget;
pub mod evict;
pub mod promote;
pub mod room;
pub mod tiers;
