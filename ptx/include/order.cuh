// A batch in the order of the offsets that it touches in the file. What limits random access to
// host memory is address translation, so neighbours in the file should be touched at the same
// time (docs/performance.md has the measurements).
//
// A counting sort by the upper bits of the offset. The launch that finds a position's offset counts
// it into its bin. `start_bins` and `arrange` then give each position its number, and the next
// launch goes by those numbers. There are some bins for each position, so that hardly two share
// one; within a bin the order is arbitrary.
#pragma once

#include "layout.cuh"

__device__ inline u32 bin_of(const AddressSort &order, u64 offset) {
    u64 bin = offset >> order.shift;
    return bin < order.bin_count ? static_cast<u32>(bin) : order.bin_count - 1;
}

// Counts a position in, `offset` being 0 if it goes nowhere.
__device__ inline void enter_order(const AddressSort &order, u64 position, u64 offset) {
    __stcs(order.offsets + position, offset);
    if (offset == 0) return;
    u32 bin = bin_of(order, offset);
    __stcs(order.ranks + position, atomicAdd(order.bins + bin, 1));
    atomicAdd(order.sums + bin / BIN_CHUNK, 1);
}

// How many positions there are in order.
__device__ inline u32 arranged(const AddressSort &order) {
    return order.sums[MOST_CHUNKS];
}
