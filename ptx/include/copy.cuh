// Values between a batch and the records, copied by a whole warp, several values at a time.
#pragma once

#include "hash.cuh"
#include "memory.cuh"

// How many lanes share a value of so many units: a power of two.
__device__ inline u32 lanes_for(u32 units) {
    u32 lanes = WARP;
    #pragma unroll 1
    while (lanes > 1 && lanes / 2 >= units) lanes /= 2;
    return lanes;
}

// A set of lanes without so many of its first ones.
__device__ inline u32 without_first(u32 set, u32 count) {
    #pragma unroll 1
    for (; count != 0; count--) set &= set - 1;
    return set;
}

// Moves units of a value with as many lanes as it needs, so that a warp has several values in
// flight. What limits records in host memory is how many reads are in flight at once.
template <class Unit>
__device__ void copy_units(const u8 *from, u8 *to, u32 size, bool wanted) {
    u32 units = size / sizeof(Unit);
    u32 lanes = lanes_for(units);
    u32 lane = lane_number();
    u32 present = __ballot_sync(ALL_LANES, wanted);
    #pragma unroll 1
    while (present != 0) {
        // Group g of `lanes` lanes serves the g-th value still to copy.
        u32 rest = without_first(present, lane / lanes);
        u32 which = rest == 0 ? 0 : __ffs(rest) - 1;
        u64 source = __shfl_sync(ALL_LANES, reinterpret_cast<u64>(from), which);
        u64 target = __shfl_sync(ALL_LANES, reinterpret_cast<u64>(to), which);
        if (rest != 0) {
            #pragma unroll 1
            for (u32 unit = lane % lanes; unit < units; unit += lanes) {
                Unit part = load_unit(reinterpret_cast<const Unit *>(source) + unit);
                store_unit(reinterpret_cast<Unit *>(target) + unit, part);
            }
        }
        present = without_first(present, WARP / lanes);
    }
}

// The largest unit, up to 16 bytes, in which values can be copied that are as aligned as these.
__device__ inline u32 common_alignment(const u8 *values, u32 size) {
    u64 alignment = reinterpret_cast<u64>(values) | size | 16;
    return static_cast<u32>(alignment & -alignment);
}

// A pointer that is as aligned as the values of a batch and as a part of each value, from a byte of it on, are
// both. Nothing lies there.
__device__ inline const u8 *aligned_as_part(const u8 *values, u32 offset) {
    return reinterpret_cast<const u8 *>(reinterpret_cast<u64>(values) | offset);
}

// Copies `size` bytes for each lane that wants it. All lanes of the warp take part; records, cached
// values and `values`, the batch's, are aligned to 16 bytes or to the size of a value.
__device__ __noinline__ void copy_values(const u8 *from, u8 *to, const u8 *values, u32 size,
                                   bool wanted) {
    switch (common_alignment(values, size)) {
    case 16: copy_units<uint4>(from, to, size, wanted); break;
    case 8: copy_units<u64>(from, to, size, wanted); break;
    case 4: copy_units<u32>(from, to, size, wanted); break;
    default: copy_units<u8>(from, to, size, wanted);
    }
}

// A word of a value, filled up with zeros, where values are aligned to `alignment` bytes.
__device__ inline u64 value_word(const u8 *value, u32 word, u32 size, u32 alignment) {
    const u8 *at = value + u64{word} * 8;
    if (alignment >= 8) return load_unit(reinterpret_cast<const u64 *>(at));
    u64 bits = 0;
    #pragma unroll 1
    for (u32 byte = size - word * 8 < 8 ? size - word * 8 : 8; byte-- > 0;) bits = bits << 8 | load_unit(at + byte);
    return bits;
}

// The checksum of a value for each lane that wants it, under the hash of its key (src/layout/words/checksum.rs).
// All lanes of the warp take part, each value with as many of them as it has words.
__device__ __noinline__ u64 checksum_values(const u8 *from, u64 hash, const u8 *values, u32 size,
                                            bool wanted) {
    u32 alignment = common_alignment(values, size);
    u32 words = (size + 7) / 8;
    u32 lanes = lanes_for(words);
    u32 lane = lane_number();
    u32 present = __ballot_sync(ALL_LANES, wanted);
    u64 own = 0;
    #pragma unroll 1
    while (present != 0) {
        u32 rest = without_first(present, lane / lanes);
        u32 which = rest == 0 ? 0 : __ffs(rest) - 1;
        u64 source = __shfl_sync(ALL_LANES, reinterpret_cast<u64>(from), which);
        u64 salt = __shfl_sync(ALL_LANES, hash, which);
        u64 sum = 0;
        if (rest != 0) {
            #pragma unroll 1
            for (u32 word = lane % lanes; word < words; word += lanes) {
                u64 bits = value_word(reinterpret_cast<const u8 *>(source), word, size, alignment);
                sum += mix(bits ^ (salt + (word + 1) * LOCATION_STRIDE));
            }
        }
        #pragma unroll 1
        for (u32 apart = lanes / 2; apart != 0; apart /= 2) sum += __shfl_xor_sync(ALL_LANES, sum, apart);
        // The value of the nth lane that is present was summed by the nth group of lanes.
        u32 nth = __popc(present & ((1u << lane) - 1));
        u64 given = __shfl_sync(ALL_LANES, sum, nth * lanes % WARP);
        if ((present >> lane & 1) != 0 && nth < WARP / lanes) own = given;
        present = without_first(present, WARP / lanes);
    }
    return mix(own);
}
