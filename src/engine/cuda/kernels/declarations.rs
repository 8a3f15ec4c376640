//! Every kernel of the engine, and the types of its arguments, as `ptx/kernels/*.cu` has them.
//!
//! The compiler holds each launch against them, a test holds them against the compiled kernels.

#[cfg(test)]
mod tests;

use super::Read;
use crate::engine::Write;
use crate::gpu::abi::{
    AddressSortView, BatchView, CacheRefresh, GroupsView, RecordsView, RecoveryScanView, TableView,
};
use crate::gpu::kernel::Kernel;
use crate::gpu::memory::Address;
use crate::gpu::write_trace::LogView;

/// What a verb that changes the table is told, and the address of its counters.
pub type WriteArguments = (TableView, RecordsView, BatchView, Address);

/// What a lookup is told, and the address of its counters.
pub type ReadArguments = (TableView, BatchView, Address);

const RESOLVE_INSERT: Kernel<WriteArguments> =
    Kernel::new("resolve_insert").by_key_size().writing();
const RESOLVE_UPSERT: Kernel<WriteArguments> =
    Kernel::new("resolve_upsert").by_key_size().writing();
const RESOLVE_UPDATE: Kernel<WriteArguments> =
    Kernel::new("resolve_update").by_key_size().writing();
const RESOLVE_REMOVE: Kernel<WriteArguments> =
    Kernel::new("resolve_remove").by_key_size().writing();

const INSERT: Kernel<WriteArguments> = Kernel::new("insert").by_key_size().writing();
const UPSERT: Kernel<WriteArguments> = Kernel::new("upsert").by_key_size().writing();
const UPDATE: Kernel<WriteArguments> = Kernel::new("update").by_key_size().writing();
const REMOVE: Kernel<WriteArguments> = Kernel::new("remove").by_key_size().writing();

const GET: Kernel<ReadArguments> = Kernel::new("get").by_key_size();
const CONTAINS: Kernel<ReadArguments> = Kernel::new("contains").by_key_size();
const LOCATE: Kernel<ReadArguments> = Kernel::new("locate").by_key_size();

/// Finds the slots of a batch of a verb that changes the table.
pub const fn resolve(verb: Write) -> Kernel<WriteArguments> {
    match verb {
        Write::Insert => RESOLVE_INSERT,
        Write::Upsert => RESOLVE_UPSERT,
        Write::Update => RESOLVE_UPDATE,
        Write::Remove => RESOLVE_REMOVE,
    }
}

/// Stores what a batch changes, at the slots that were found.
pub const fn write(verb: Write) -> Kernel<WriteArguments> {
    match verb {
        Write::Insert => INSERT,
        Write::Upsert => UPSERT,
        Write::Update => UPDATE,
        Write::Remove => REMOVE,
    }
}

/// Executes a batch of a verb that looks up.
pub const fn read(verb: Read) -> Kernel<ReadArguments> {
    match verb {
        Read::Get => GET,
        Read::Contains => CONTAINS,
        Read::Locate => LOCATE,
    }
}

/// Copies the values of a batch whose offsets are known.
pub const FETCH: Kernel<(TableView, BatchView)> = Kernel::new("fetch");

/// Makes up the offsets of so many positions in a file of so many bytes, for values of so many, from a seed.
pub const SCATTER: Kernel<(AddressSortView, u32, u64, u32, u64)> = Kernel::new("scatter");

/// Sums up the bins of a batch.
pub const START_BINS: Kernel<(AddressSortView,)> = Kernel::new("start_bins");

/// Puts so many positions in the order of their bins.
pub const ARRANGE: Kernel<(AddressSortView, u32)> = Kernel::new("arrange");

/// Enters entries of the ring of records, from a first one on so many, as offsets to be put in order.
pub const ENTER_FREE: Kernel<(RecordsView, u64, u32, AddressSortView)> = Kernel::new("enter_free");

/// Writes them back to the ring in that order.
pub const WRITE_BACK_FREE: Kernel<(RecordsView, u64, u32, AddressSortView)> =
    Kernel::new("write_back_free");

/// Clears so many entries of groups, so many words of the answers at an address, and the counters at another.
pub const CLEAR_BATCH: Kernel<(GroupsView, u64, Address, u32, Address)> =
    Kernel::new("clear_batch");

/// Finds the groups of equal keys: the keys' address, how many they are, and the size of one.
pub const GROUP_KEYS: Kernel<(GroupsView, Address, u32, u32)> = Kernel::new("group_keys");

/// Gives every position the answer of the last one of its group, and its value: the addresses of both, the
/// bytes of a value, and how many positions.
pub const SPREAD: Kernel<(GroupsView, Address, Address, u32, u32)> = Kernel::new("spread");

/// Brings the counters at an address, and so many words of the answers at another, to memory of the host.
pub const REPORT: Kernel<(Address, Address, u32, Address)> = Kernel::new("report");

/// Moves the items of buckets of the bottom level up, from one to before another; the address of the counters.
pub const DRAIN: Kernel<(TableView, u64, u64, Address)> =
    Kernel::new("drain").by_key_size().writing();

/// Puts the slots of copied buckets in the order in which they are probed. It is passed the address
/// of the first, how many there are, the bytes from one to the next, and the slots of each.
pub const SPLIT_BUCKETS: Kernel<(Address, u64, u32, u32)> = Kernel::new("split_buckets");

/// Scans one level, and adds what it finds to the findings at an address.
pub const RECOVERY_SCAN: Kernel<(TableView, u32, RecoveryScanView, Address)> =
    Kernel::new("recovery_scan").by_key_size();

/// Finds out the scores of all buckets.
pub const CACHE_SCORE: Kernel<(TableView, CacheRefresh)> = Kernel::new("cache_score");

/// Chooses the buckets that a refresh evicts and those that it fills in. All kernels that choose are told where
/// the outcome is.
pub const CACHE_SELECT: Kernel<(TableView, CacheRefresh, Address)> = Kernel::new("cache_select");

/// Takes the evicted ones out of their entries.
pub const CACHE_RELEASE: Kernel<(TableView, CacheRefresh, Address)> = Kernel::new("cache_release");

/// Gives entries to the incoming ones.
pub const CACHE_ASSIGN: Kernel<(TableView, CacheRefresh, Address)> = Kernel::new("cache_assign");

/// Fills entries that a refresh has given, from one to before another.
pub const CACHE_FILL: Kernel<(TableView, CacheRefresh, u64, u64)> = Kernel::new("cache_fill");

/// Shows what was filled to readers, from one to before another.
pub const CACHE_LINK: Kernel<(TableView, CacheRefresh, u64, u64, Address)> =
    Kernel::new("cache_link");

/// Takes the buckets of a level out of the cache.
pub const CACHE_REMOVE_LEVEL: Kernel<(TableView, CacheRefresh, u32, Address)> =
    Kernel::new("cache_remove_level");

/// Says where stores are noted from here on. Only kernels that are compiled for it have it.
pub const SET_WRITE_TRACE: Kernel<(LogView,)> = Kernel::new("set_write_trace");
