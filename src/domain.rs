//! Persistence domains.

use std::fmt;

/// When a change is durable, and which crash it survives.
///
/// | domain | file | durable | process crash | power cut |
/// | --- | --- | --- | --- | --- |
/// | `Dax` | DAX file | when the operation returns | nothing acknowledged is lost | the same |
/// | `Shared` | tmpfs, hugetlbfs | when the operation returns | nothing acknowledged is lost | the file is gone |
/// | `Checkpointed` | any file | at [`sync`](crate::Index::sync) | state of the last `sync` | state of the last `sync` |
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Domain {
    /// The strongest domain that the file can have; [`Stats`](crate::Stats) says which.
    #[default]
    Auto,
    /// A file whose mapped stores become durable at a fence (`MAP_SYNC`).
    Dax,
    /// A file in memory that all processes see: survives a process, not a power cut.
    Shared,
    /// Any ordinary file; [`sync`](crate::Index::sync) takes an atomic checkpoint.
    Checkpointed,
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Domain::Auto => "auto",
            Domain::Dax => "dax",
            Domain::Shared => "shared",
            Domain::Checkpointed => "checkpointed",
        })
    }
}
