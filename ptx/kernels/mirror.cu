// Copies of buckets in device memory (src/engine/cuda/table/mirror.rs), which the copy engine brings there as
// they lie in the file.
#include "table.cuh"

// Puts the slots of `count` buckets, `stride` bytes apart, in the order of a copy; a warp takes a bucket at a
// time.
KERNEL split_buckets(u8 *buckets, u64 count, u32 stride, u32 slots) {
    #pragma unroll 1
    for (u64 number = warp_number(); number < count; number += warp_count()) {
        u8 *bucket = buckets + number * stride;
        split_slots(bucket, bucket, slots);
    }
}
