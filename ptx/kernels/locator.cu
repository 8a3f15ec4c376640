// Where the records of a store's keys are (ptx/gpu/locator.rs): its partitions' buckets are copied to device memory, and
// looked up by the fingerprints of keys. The host compares the keys.
#include "group.cuh"
#include "hash.cuh"

// The buckets of a partition's table, as one launch sees them: those of each level as they lie in the file.
struct BucketsView {
    const u8 *levels[DIRECTORY];
    u32 bottom_level;
    u32 level_end; // one above the highest level
    u32 bucket_size;
    u32 slots;
    u32 locations;
    u32 reserved;
};

// The record of the slot in a bucket that has a fingerprint; 0 if none has, or if it was being moved elsewhere when the
// bucket was copied. A group together.
__device__ inline u64 record_in(const u8 *bucket, u32 slots, u64 fingerprint) {
    #pragma unroll 1
    for (u32 first = 0; first < slots; first += GROUP) {
        u32 index = first + group_lane();
        uint4 words{};
        if (index < slots) words = load_unit(reinterpret_cast<const uint4 *>(bucket) + index);
        u64 state = static_cast<u64>(words.y) << 32 | words.x;
        u64 record = static_cast<u64>(words.w) << 32 | words.z;
        bool is_found = state == fingerprint && (record & RECORD_OFFSET) != 0 &&
                        (record & (TENTATIVE | COLLIDED | FROZEN)) == 0;
        u32 found = group_ballot(is_found);
        if (found != 0) return group_word(record, __ffs(found) - 1) & RECORD_OFFSET;
    }
    return 0;
}

// The record of a fingerprint in the first round of its candidate buckets, the highest level's first; 0 for none.
__device__ inline u64 record_of(const BucketsView &view, u64 fingerprint) {
    #pragma unroll 1
    for (u32 level = view.level_end; level-- > view.bottom_level;) {
        #pragma unroll 1
        for (u32 nth = 0; nth < view.locations; nth++) {
            u64 number = bucket_of(location(fingerprint, nth), level);
            u64 found = record_in(view.levels[level] + number * view.bucket_size, view.slots, fingerprint);
            if (found != 0) return found;
        }
    }
    return 0;
}

// For each of `len` fingerprints of keys, whose partitions have these numbers, the offset of the record that a slot
// names beside it in the partition's file, or 0.
KERNEL find_records(const BucketsView *views, const u8 *partitions, const u64 *fingerprints, u64 *records, u32 len) {
    #pragma unroll 1
    for (u64 first = warp_number() * GROUPS; first < len; first += warp_count() * GROUPS) {
        u64 at = first + group_number();
        if (at >= len) continue;
        u64 fingerprint = __ldcs(fingerprints + at);
        u64 found = record_of(views[__ldcs(partitions + at)], fingerprint);
        if (group_lane() == 0) __stcs(records + at, found);
    }
}

// Puts `count` buckets of `units` times 16 bytes each where they belong.
KERNEL store_buckets(const uint4 *buckets, const u64 *targets, u32 count, u32 units) {
    u64 total = static_cast<u64>(count) * units;
    #pragma unroll 1
    for (u64 at = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x; at < total;
         at += static_cast<u64>(gridDim.x) * blockDim.x) {
        auto target = reinterpret_cast<uint4 *>(targets[at / units]);
        target[at % units] = buckets[at];
    }
}
