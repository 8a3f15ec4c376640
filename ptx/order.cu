// The second step of ordering a batch; order.cuh describes them. And a batch to measure with whether
// ordering pays.
#include "hash.cuh"
#include "order.cuh"

KERNEL arrange(const __grid_constant__ Order order, u32 len) {
    constexpr u32 EACH = BINS / BLOCK_THREADS;
    __shared__ u32 starts[BINS];
    __shared__ u32 sums[BLOCK_THREADS];

    // Where each bin starts: every block finds it for itself.
    u32 mine = threadIdx.x * EACH;
    u32 sum = 0;
    #pragma unroll 1
    for (u32 bin = mine; bin < mine + EACH; bin++) sum += order.bins[bin];
    sums[threadIdx.x] = sum;
    __syncthreads();
    #pragma unroll 1
    for (u32 apart = 1; apart < BLOCK_THREADS; apart *= 2) {
        u32 before = threadIdx.x >= apart ? sums[threadIdx.x - apart] : 0;
        __syncthreads();
        sums[threadIdx.x] += before;
        __syncthreads();
    }
    u32 start = sums[threadIdx.x] - sum;
    #pragma unroll 1
    for (u32 bin = mine; bin < mine + EACH; bin++) {
        starts[bin] = start;
        start += order.bins[bin];
    }
    if (blockIdx.x == 0 && threadIdx.x == BLOCK_THREADS - 1) order.bins[BINS] = start;
    __syncthreads();

    #pragma unroll 1
    for (u64 at = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x; at < len;
         at += static_cast<u64>(gridDim.x) * blockDim.x) {
        u64 place = order.places[at];
        if (place == 0) continue;
        order.positions[starts[bin_of(order, place)] + order.ranks[at]] = static_cast<u32>(at);
    }
}

// Gives each position a place of its own, spread over the file.
KERNEL scatter(const __grid_constant__ Order order, u32 len, u64 file_len, u32 value_size) {
    u64 choices = (file_len - DATA_START - value_size) / PLACE;
    #pragma unroll 1
    for (u64 at = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x; at < len;
         at += static_cast<u64>(gridDim.x) * blockDim.x) {
        u64 place = DATA_START + hash_word(at, len) % choices * PLACE;
        if (order.wanted != 0) {
            enter_order(order, at, place);
        } else {
            order.places[at] = place;
        }
    }
}

// Free records are handed out in the order in which they stand in the ring. Sorted, a batch's values
// go to neighbouring places, although they were freed one here, one there.
KERNEL enter_free(const __grid_constant__ Records records, u64 first, u32 len,
                  const __grid_constant__ Order order) {
    #pragma unroll 1
    for (u64 at = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x; at < len;
         at += static_cast<u64>(gridDim.x) * blockDim.x) {
        enter_order(order, at, records.ring[(first + at) & (records.ring_capacity - 1)]);
    }
}

KERNEL leave_free(const __grid_constant__ Records records, u64 first, u32 len,
                  const __grid_constant__ Order order) {
    #pragma unroll 1
    for (u64 at = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x; at < len;
         at += static_cast<u64>(gridDim.x) * blockDim.x) {
        records.ring[(first + at) & (records.ring_capacity - 1)] = order.places[order.positions[at]];
    }
    if (blockIdx.x == 0) clear_bins(order);
}
