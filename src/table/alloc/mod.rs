//! Which records are free, which may be reused, and which a scan has found in use.

pub(crate) mod free_list;

pub(crate) use gphash_arena as arena;
pub(crate) use gphash_arena::epoch;
