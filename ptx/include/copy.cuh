// Values between a batch and the records, copied by a whole warp, several values at a time.
#pragma once

#include "memory.cuh"

// Moves units of a value, from a byte of it on, with as many lanes as it needs, so that a warp has several
// values in flight. What limits records in host memory is how many reads are in flight at once.
template <class Unit>
__device__ void copy_units(const u8 *from, u8 *to, u32 size, bool wanted, u32 offset) {
    u32 units = size / sizeof(Unit);
    u32 lanes = WARP;
    #pragma unroll 1
    while (lanes > 1 && lanes / 2 >= units) lanes /= 2;
    u32 lane = lane_number();
    u32 present = __ballot_sync(ALL_LANES, wanted);
    #pragma unroll 1
    while (present != 0) {
        // Group g of `lanes` lanes serves the g-th value still to copy.
        u32 rest = present;
        #pragma unroll 1
        for (u32 skip = lane / lanes; skip != 0; skip--) rest &= rest - 1;
        u32 which = rest == 0 ? 0 : __ffs(rest) - 1;
        u64 source = __shfl_sync(ALL_LANES, reinterpret_cast<u64>(from), which);
        u64 target = __shfl_sync(ALL_LANES, reinterpret_cast<u64>(to), which);
        if (rest != 0) {
            #pragma unroll 1
            for (u32 unit = lane % lanes; unit < units; unit += lanes) {
                Unit part = load_unit(reinterpret_cast<const Unit *>(source + offset) + unit);
                store_unit(reinterpret_cast<Unit *>(target) + unit, part);
            }
        }
        #pragma unroll 1
        for (u32 served = WARP / lanes; served != 0; served--) present &= present - 1;
    }
}

// The largest unit, up to 16 bytes, in which values can be copied that are as aligned as these. Bits of
// the offset of a part may be among those of its size.
__device__ inline u32 common_alignment(const u8 *values, u32 size) {
    u64 alignment = reinterpret_cast<u64>(values) | size | 16;
    return static_cast<u32>(alignment & -alignment);
}

// Copies `size` bytes, from byte `offset` of a value on, for each lane that wants it. All lanes of the warp take part; records, cached
// values and `values`, the batch's, are aligned to 16 bytes or to the size of a value.
__device__ __noinline__ void copy_values(const u8 *from, u8 *to, const u8 *values, u32 size,
                                   bool wanted, u32 offset = 0) {
    switch (common_alignment(values, size | offset)) {
    case 16: copy_units<uint4>(from, to, size, wanted, offset); break;
    case 8: copy_units<u64>(from, to, size, wanted, offset); break;
    case 4: copy_units<u32>(from, to, size, wanted, offset); break;
    default: copy_units<u8>(from, to, size, wanted, offset);
    }
}
