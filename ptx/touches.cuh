// Counting PM touches: the distinct places of the file that one operation reads or writes.
#pragma once

#include "layout.cuh"

// Number of places in a range of the file.
__device__ inline u32 places_in(u64 offset, u64 len) {
    return static_cast<u32>((offset + len - 1) / PLACE - offset / PLACE + 1);
}

// The places of the operation at hand, one a lane. An operation that touches more than a warp has
// lanes counts a place again when it comes back to one that was pushed out.
struct Touches {
    u64 mine = ~0ull;
    u32 count = 0;
    u32 total = 0; // of the operations before this one; the same in all lanes

    // The place at an offset; all lanes pass the same.
    __device__ void one(u64 offset) {
        u64 place = offset / PLACE;
        if (__any_sync(ALL_LANES, mine == place)) return;
        if (lane_number() == count % WARP) mine = place;
        count++;
    }

    __device__ void range(u64 offset, u64 len) {
        #pragma unroll 1
        for (u64 place = offset / PLACE; place <= (offset + len - 1) / PLACE; place++) {
            one(place * PLACE);
        }
    }

    // Goes on to the next operation.
    __device__ void next() {
        total += count;
        count = 0;
        mine = ~0ull;
    }
};
