// Values between a batch and the records, copied by a whole warp, several values at a time.
#pragma once

#include "memory.cuh"


// Moves units of a value with as many lanes as it needs, so that a warp has several values in
// flight: what limits a record in host memory is how many reads are under way at once.
//
// Lane i names the value at position `first + i` of `values` and its record (0: none).
template <class Unit, bool TO_RECORD>
__device__ void copy_units(u8 *file, u8 *values, u64 first, u32 size, u64 record) {
    u32 units = size / sizeof(Unit);
    u32 lanes = WARP;
    #pragma unroll 1
    while (lanes > 1 && lanes / 2 >= units) lanes /= 2;
    u32 lane = lane_number();
    u32 present = __ballot_sync(ALL_LANES, record != 0);
    #pragma unroll 1
    while (present != 0) {
        // Group g of `lanes` lanes serves the g-th value still to copy.
        u32 rest = present;
        #pragma unroll 1
        for (u32 skip = lane / lanes; skip != 0; skip--) rest &= rest - 1;
        u32 which = rest == 0 ? 0 : __ffs(rest) - 1;
        u64 at = __shfl_sync(ALL_LANES, record, which);
        if (rest != 0) {
            auto stored = reinterpret_cast<Unit *>(file + at);
            auto given = reinterpret_cast<Unit *>(values + (first + which) * size);
            #pragma unroll 1
            for (u32 unit = lane % lanes; unit < units; unit += lanes) {
                if constexpr (TO_RECORD) {
                    stored[unit] = given[unit];
                } else {
                    // Past the first-level cache, which may hold an older neighbour of the record.
                    given[unit] = __ldcg(stored + unit);
                }
            }
        }
        #pragma unroll 1
        for (u32 served = WARP / lanes; served != 0; served--) present &= present - 1;
    }
}

// Copies one value for each lane whose `record` is not 0. All lanes of the warp take part.
template <bool TO_RECORD>
__device__ void copy_values(u8 *file, u8 *values, u64 first, u32 size, u64 record) {
    u64 alignment = reinterpret_cast<u64>(values) | size;
    if (alignment % 16 == 0) {
        copy_units<uint4, TO_RECORD>(file, values, first, size, record);
    } else if (alignment % 8 == 0) {
        copy_units<u64, TO_RECORD>(file, values, first, size, record);
    } else if (alignment % 4 == 0) {
        copy_units<u32, TO_RECORD>(file, values, first, size, record);
    } else {
        copy_units<u8, TO_RECORD>(file, values, first, size, record);
    }
}
