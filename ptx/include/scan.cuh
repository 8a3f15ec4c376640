// Sums over the threads of a block.
#pragma once

#include "layout.cuh"

// The sum of a thread block's values up to and with this thread's.
template <class Word>
__device__ inline Word sum_up_to(Word value) {
    __shared__ Word sums[BLOCK_THREADS];
    sums[threadIdx.x] = value;
    __syncthreads();
    #pragma unroll 1
    for (u32 apart = 1; apart < BLOCK_THREADS; apart *= 2) {
        Word before = threadIdx.x >= apart ? sums[threadIdx.x - apart] : 0;
        __syncthreads();
        sums[threadIdx.x] += before;
        __syncthreads();
    }
    return sums[threadIdx.x];
}
