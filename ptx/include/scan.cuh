// Sums over the threads of a block.
#pragma once

#include "layout.cuh"

// The sum of a thread block's values up to and with this thread's.
__device__ inline u32 sum_up_to(u32 value) {
    __shared__ u32 sums[BLOCK_THREADS];
    sums[threadIdx.x] = value;
    __syncthreads();
    #pragma unroll 1
    for (u32 apart = 1; apart < BLOCK_THREADS; apart *= 2) {
        u32 before = threadIdx.x >= apart ? sums[threadIdx.x - apart] : 0;
        __syncthreads();
        sums[threadIdx.x] += before;
        __syncthreads();
    }
    return sums[threadIdx.x];
}
