//! Which records are free, which may be reused, and which a scan has found in use.

pub(crate) mod arena;
pub(crate) mod epoch;
pub(crate) mod free_list;
pub(crate) mod reachable;
