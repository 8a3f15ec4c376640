//! From opening to closing: recovery, and what runs in the background.

pub mod background;
pub mod checkpoint;
pub mod eviction;
pub mod groups;
pub mod hiding;
pub mod open;
pub mod rebuild;
pub mod recover;
pub mod report;
