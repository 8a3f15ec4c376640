// The versions that a batch of the store makes (H-Rocks §5: the G-memtable). Its changes are sorted
// by the hashes of their keys, those of equal hashes by position. For each request it finds the
// newest version before it.
//
// All 64 bits of a hash are sorted by: half of them would leave ties, and a hot key or keys made to collide could
// tie all of a batch.
#include "radix.cuh"

// Fetches the hashes of the changes whose positions are there.
KERNEL gather_changes(u8 *block, u32 len, const u64 *hashes, u32 requests) {
    Changes changes(block, len);
    #pragma unroll 1
    for (u64 at = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x; at < len;
         at += static_cast<u64>(gridDim.x) * blockDim.x) {
        // Nobody has looked at the positions yet.
        u32 position = changes.positions[at];
        changes.hashes[at] = position < requests ? hashes[position] : 0;
    }
}

// For each request the newest change of its hash that is older, as its number among the sorted ones;
// all bits set for none.
KERNEL find_versions(u8 *sorted, u32 len, const u64 *hashes, u32 requests, u32 *before) {
    Changes changes(sorted, len);
    #pragma unroll 1
    for (u64 at = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x; at < requests;
         at += static_cast<u64>(gridDim.x) * blockDim.x) {
        u64 hash = hashes[at];
        u32 older = 0;
        u32 end = len;
        #pragma unroll 1
        while (older < end) {
            u32 middle = older + (end - older) / 2;
            u64 other = changes.hashes[middle];
            if (other < hash || (other == hash && changes.positions[middle] < at)) {
                older = middle + 1;
            } else {
                end = middle;
            }
        }
        bool found = older > 0 && changes.hashes[older - 1] == hash;
        before[at] = found ? older - 1 : ~0u;
    }
}
