// What the kernels believe about the structs they share with the host, for the host's tests to
// read out of the compiled module.
#include "layout.cuh"

// NVRTC has no offsetof; this is the compiler's own word for it.
#define OFFSET(type, field) (__INTADDR__(&((type *)0)->field))

extern "C" {
__device__ u64 layout_table_view[] = {
    sizeof(TableView),
    OFFSET(TableView, file),
    OFFSET(TableView, file_len),
    OFFSET(TableView, hash_seed),
    OFFSET(TableView, key_size),
    OFFSET(TableView, value_size),
    OFFSET(TableView, slots),
    OFFSET(TableView, levels),
    OFFSET(TableView, locations),
    OFFSET(TableView, bottom_level),
    OFFSET(TableView, top_level),
    OFFSET(TableView, bucket_size),
    OFFSET(TableView, record_stride),
    OFFSET(TableView, reserved_probe),
    OFFSET(TableView, dirty),
    OFFSET(TableView, level_offset),
    OFFSET(TableView, level_probe),
    OFFSET(TableView, cache),
    sizeof(CacheView),
    OFFSET(CacheView, links),
    OFFSET(CacheView, heat),
    OFFSET(CacheView, records),
    OFFSET(CacheView, values),
    OFFSET(CacheView, buckets),
    OFFSET(CacheView, value_stride),
    OFFSET(CacheView, policy),
};

__device__ u64 layout_records[] = {
    sizeof(Records),
    OFFSET(Records, ring),
    OFFSET(Records, ring_capacity),
    OFFSET(Records, head),
    OFFSET(Records, tail),
    OFFSET(Records, retired_tail),
    OFFSET(Records, bump_offset),
    OFFSET(Records, bump_count),
    OFFSET(Records, bump_stride),
};

__device__ u64 layout_batch[] = {
    sizeof(Batch),
    OFFSET(Batch, keys),
    OFFSET(Batch, values),
    OFFSET(Batch, answers),
    OFFSET(Batch, pending),
    OFFSET(Batch, entry),
    OFFSET(Batch, first),
    OFFSET(Batch, last),
    OFFSET(Batch, len),
    OFFSET(Batch, tile),
    OFFSET(Batch, retry),
    OFFSET(Batch, depth),
    OFFSET(Batch, sample),
    OFFSET(Batch, order),
    sizeof(Order),
    OFFSET(Order, places),
    OFFSET(Order, ranks),
    OFFSET(Order, positions),
    OFFSET(Order, bins),
    OFFSET(Order, starts),
    OFFSET(Order, sums),
    OFFSET(Order, bin_count),
    OFFSET(Order, shift),
    OFFSET(Order, wanted),
};

__device__ u64 layout_groups[] = {
    sizeof(Groups),
    OFFSET(Groups, claims),
    OFFSET(Groups, first),
    OFFSET(Groups, last),
    OFFSET(Groups, entry),
    OFFSET(Groups, mask),
};

__device__ u64 layout_counters[] = {
    sizeof(Counters),
    OFFSET(Counters, taken),
    OFFSET(Counters, retired),
    OFFSET(Counters, items),
    OFFSET(Counters, full),
    OFFSET(Counters, starved),
    OFFSET(Counters, touches),
    OFFSET(Counters, operations),
    OFFSET(Counters, damaged),
    OFFSET(Counters, wanted),
    OFFSET(Counters, cache_lookups),
    OFFSET(Counters, cache_hits),
};

__device__ u64 layout_survey[] = {
    sizeof(Survey),
    OFFSET(Survey, ranges),
    OFFSET(Survey, used),
    OFFSET(Survey, repairs),
    OFFSET(Survey, repair_capacity),
    OFFSET(Survey, range_count),
    sizeof(RecordRange),
    OFFSET(RecordRange, offset),
    OFFSET(RecordRange, count),
    OFFSET(RecordRange, first_ordinal),
    sizeof(Repair),
    OFFSET(Repair, at),
    OFFSET(Repair, kind),
    sizeof(Findings),
    OFFSET(Findings, members),
    OFFSET(Findings, repairs),
    OFFSET(Findings, damage),
};

__device__ u64 layout_words[] = {
    EMPTY,
    BUSY,
    RESERVED_WORD,
    RECORD_OFFSET,
    FROZEN,
    COLLIDED,
    TENTATIVE,
    PAGE,
    PLACE,
    RESERVED_BUCKETS,
    RESERVED_BUCKET_STRIDE,
    DATA_START,
    DIRECTORY,
    OVERFLOW_ROUNDS,
    BLOCK_THREADS,
    RESIDENT_BLOCKS,
    BIN_CHUNK,
    DEEPEST,
    REPAIR_CLEAR,
    REPAIR_DUPLICATE,
    REPAIR_THAW,
};
}
