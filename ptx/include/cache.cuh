// The frozen bucket cache (GPHash §3.3): values of the buckets used most, in device memory, and
// the buckets themselves where their level has no copy there. Which buckets it holds changes in
// refreshes alone (cache.cu), which run beside all other launches.
//
// The tag of a cached value is the offset of its record. A record is not stored to while a reader
// may read it, so a value whose tag is the record in the slot is the right one. A writer that puts
// another value there makes the tag 0 first. So a reader that finds the tag unchanged after copying
// has copied one whole value.
//
// A bucket that is being filled in is linked already, marked FILLING: readers pass it by, and who
// changes one of its slots makes the tag 0. A refresh that has read the slot before the change may
// put the old record there after it, but not once that record is used again. So when nothing
// changes the table, a tag that is the record in the slot speaks the truth here, too; cache_link
// makes up for the others.
#pragma once

#include "layout.cuh"

// Of a link: the entry is being filled.
constexpr u32 FILLING = 1u << 31;

// Of a bucket that was used more often than this, one use in so many is counted, for all of them.
// So the many buckets that are used now and then are told apart exactly. Those used by every batch
// cost few atomics.
constexpr u32 SAMPLE = 32;

// Where a value is in the cache.
struct CachedValue {
    u64 *tag;
    u8 *value; // null: none
};

__device__ inline u64 load_tag(const u64 *tag) {
    return load(reinterpret_cast<const u8 *>(tag));
}

__device__ inline void store_tag(u64 *tag, u64 record) {
    store(reinterpret_cast<u8 *>(tag), record);
}

// 1 + the entry that holds a bucket, or that is being filled with it (FILLING); 0: none. Ordinal
// 0, that of the reserved buckets, is never cached.
__device__ inline u32 link_of(const TableView &view, u64 ordinal) {
    if (view.cache.links == nullptr) return 0;
    return load(view.cache.links + ordinal);
}

__device__ inline CachedValue value_of_entry(const TableView &view, u32 entry, u32 index) {
    u64 number = static_cast<u64>(entry) * view.slots + index;
    return {view.cache.records + number, view.cache.values + number * view.cache.value_stride};
}

// ---- Counting uses.

// Counts a use of a bucket by the operation at a position.
__device__ inline void note_access(const TableView &view, u64 ordinal, const Batch &batch,
                                   u64 position) {
    if (view.cache.access_counts == nullptr) return;
    u32 *accesses = view.cache.access_counts + ordinal;
    if (view.cache.policy == POLICY_LRU) {
        // The number of the launch. 0 is that of a bucket which was never used.
        __stcs(accesses, batch.sample != 0 ? batch.sample : 1u);
    } else if (load(accesses) < SAMPLE) {
        atomicAdd(accesses, 1u);
    } else if ((position + batch.sample) % SAMPLE == 0) {
        atomicAdd(accesses, SAMPLE);
    }
}

// ---- Reading values.

// Where the value of `record`, just found in a slot, is cached. Each lane for its own.
__device__ inline CachedValue cached_value(const TableView &view, u64 ordinal, u32 index,
                                           u64 record) {
    u32 link = link_of(view, ordinal);
    if (link == 0 || (link & FILLING) != 0) return {};
    CachedValue cached = value_of_entry(view, link - 1, index);
    if (load_acquire(reinterpret_cast<const u8 *>(cached.tag)) != record) return {};
    return cached;
}

// After the warp has copied from there: whether it was the value of `record` all the while. If not,
// it has to be copied from the record. All lanes call; those without a cached value hear yes.
__device__ inline bool still_cached(const CachedValue &cached, u64 record) {
    order();
    __syncwarp();
    return cached.value == nullptr || load_tag(cached.tag) == record;
}

// ---- Changing values, after the file and the bucket's copy, with order() in between. Launches
// that change values run one after another.

// Takes the value of a slot out, before the record that the slot held is retired. Each lane for
// its own.
__device__ inline void uncache(const TableView &view, u64 ordinal, u32 index) {
    u32 link = link_of(view, ordinal);
    if (link != 0) store_tag(value_of_entry(view, (link & ~FILLING) - 1, index).tag, 0);
}

// The same, and gives the room for the slot's new value, if the bucket is held.
__device__ inline CachedValue recache(const TableView &view, u64 ordinal, u32 index) {
    u32 link = link_of(view, ordinal);
    if (link == 0) return {};
    CachedValue cached = value_of_entry(view, (link & ~FILLING) - 1, index);
    store_tag(cached.tag, 0);
    order();
    if ((link & FILLING) != 0) return {};
    return cached;
}

// Shows the values of `record` that the warp has copied there. All lanes call.
__device__ inline void publish_cached(const CachedValue &cached, u64 record) {
    order();
    __syncwarp();
    if (cached.value != nullptr) store_tag(cached.tag, record);
}

// ---- Buckets of levels that have no copy in device memory.

// The cached bucket, to be probed in place of the one in the file, or changed after it; null if
// there is none. A lookup may go on with it when the bucket has been evicted meanwhile: the entry
// stays as it was at that moment until the lookup has ended.
__device__ inline u8 *cached_bucket(const TableView &view, u64 ordinal) {
    if (view.cache.buckets == nullptr) return nullptr;
    u32 link = link_of(view, ordinal);
    if (link == 0 || (link & FILLING) != 0) return nullptr;
    return view.cache.buckets + static_cast<u64>(link - 1) * view.bucket_size;
}
