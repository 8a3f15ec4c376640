// A batch in the order of the places that it touches in the file. What limits random access to
// host memory is address translation, so neighbours in the file should be touched at the same
// time (docs/performance.md has the figures).
//
// A counting sort by the upper bits of the place: whoever finds a position's place counts it into
// its bin, `arrange` then gives each position its number, and the launch after that one goes by
// those numbers. Within a bin the order is arbitrary.
#pragma once

#include "layout.cuh"

__device__ inline u32 bin_of(const Order &order, u64 place) {
    u64 bin = place >> order.shift;
    return bin < BINS ? static_cast<u32>(bin) : BINS - 1;
}

// Counts a position in, `place` being 0 if it goes nowhere.
__device__ inline void enter_order(const Order &order, u64 position, u64 place) {
    order.places[position] = place;
    if (place != 0) order.ranks[position] = atomicAdd(order.bins + bin_of(order, place), 1);
}

// Leaves the bins as the next batch needs them. To be called by one thread block of a launch that
// comes after `arrange`.
__device__ inline void clear_bins(const Order &order) {
    #pragma unroll 1
    for (u32 bin = threadIdx.x; bin < BINS; bin += blockDim.x) order.bins[bin] = 0;
}

// How many positions there are in order, and which one comes at `number`.
__device__ inline u32 arranged(const Order &order) { return order.bins[BINS]; }
