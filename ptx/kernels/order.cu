// The later steps of ordering a batch; order.cuh describes them. And a batch to measure with whether
// ordering pays.
#include "hash.cuh"
#include "order.cuh"
#include "scan.cuh"

constexpr u32 BINS_OF_A_THREAD = BIN_CHUNK / BLOCK_THREADS;

// The counts of this thread's share of its block's chunk of bins, four at a time.
__device__ inline u32 load_bins(const AddressSort &order, uint4 *counts) {
    auto bins = reinterpret_cast<const uint4 *>(order.bins + blockIdx.x * BIN_CHUNK);
    u32 sum = 0;
    #pragma unroll
    for (u32 nth = 0; nth < BINS_OF_A_THREAD / 4; nth++) {
        counts[nth] = __ldcs(bins + threadIdx.x * (BINS_OF_A_THREAD / 4) + nth);
        sum += counts[nth].x + counts[nth].y + counts[nth].z + counts[nth].w;
    }
    return sum;
}

// A block a chunk of bins.
KERNEL start_bins(const __grid_constant__ AddressSort order) {
    __shared__ u32 chunk_start;
    static_assert(MOST_CHUNKS <= BLOCK_THREADS, "a thread a chunk");
    u32 chunk = threadIdx.x < gridDim.x ? order.sums[threadIdx.x] : 0;
    u32 up_to = sum_up_to(chunk);
    if (threadIdx.x == blockIdx.x) chunk_start = up_to - chunk;
    if (blockIdx.x == 0 && threadIdx.x == BLOCK_THREADS - 1) order.sums[MOST_CHUNKS] = up_to;
    __syncthreads();

    uint4 counts[BINS_OF_A_THREAD / 4];
    u32 sum = load_bins(order, counts);
    u32 start = chunk_start + sum_up_to(sum) - sum;
    auto starts = reinterpret_cast<uint4 *>(order.starts + blockIdx.x * BIN_CHUNK);
    #pragma unroll
    for (u32 nth = 0; nth < BINS_OF_A_THREAD / 4; nth++) {
        uint4 four;
        four.x = start;
        four.y = four.x + counts[nth].x;
        four.z = four.y + counts[nth].y;
        four.w = four.z + counts[nth].z;
        start = four.w + counts[nth].w;
        __stcs(starts + threadIdx.x * (BINS_OF_A_THREAD / 4) + nth, four);
    }
}

// Puts the positions in their order, and leaves the bins as the next batch needs them.
KERNEL arrange(const __grid_constant__ AddressSort order, u32 len) {
    if (blockIdx.x == 0 && threadIdx.x < order.bin_count / BIN_CHUNK) order.sums[threadIdx.x] = 0;
    #pragma unroll 1
    for (u64 at = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x; at < len;
         at += static_cast<u64>(gridDim.x) * blockDim.x) {
        u64 offset = __ldcs(order.offsets + at);
        if (offset == 0) continue;
        u32 bin = bin_of(order, offset);
        u32 number = __ldcs(order.starts + bin) + __ldcs(order.ranks + at);
        __stcs(order.positions + number, static_cast<u32>(at));
        order.bins[bin] = 0;
    }
}

// Gives each position an offset of its own, spread over the file, and others with each seed.
KERNEL scatter(const __grid_constant__ AddressSort order, u32 len, u64 file_len, u32 value_size,
               u64 seed) {
    u64 choices = (file_len - DATA_START - value_size) / LINE;
    #pragma unroll 1
    for (u64 at = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x; at < len;
         at += static_cast<u64>(gridDim.x) * blockDim.x) {
        u64 offset = DATA_START + hash_word(at, seed) % choices * LINE;
        if (order.wanted != 0) {
            enter_order(order, at, offset);
        } else {
            __stcs(order.offsets + at, offset);
        }
    }
}

// Free records are handed out in the order in which they stand in the ring. Sorted, a batch's values
// go to neighbouring offsets, although they were freed one here, one there.
KERNEL enter_free(const __grid_constant__ Records records, u64 first, u32 len,
                  const __grid_constant__ AddressSort order) {
    #pragma unroll 1
    for (u64 at = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x; at < len;
         at += static_cast<u64>(gridDim.x) * blockDim.x) {
        enter_order(order, at, __ldcs(records.ring + ((first + at) & (records.ring_capacity - 1))));
    }
}

KERNEL write_back_free(const __grid_constant__ Records records, u64 first, u32 len,
                  const __grid_constant__ AddressSort order) {
    #pragma unroll 1
    for (u64 at = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x; at < len;
         at += static_cast<u64>(gridDim.x) * blockDim.x) {
        u64 record = __ldcs(order.offsets + __ldcs(order.positions + at));
        __stcs(records.ring + ((first + at) & (records.ring_capacity - 1)), record);
    }
}
