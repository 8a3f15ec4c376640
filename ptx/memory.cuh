// How the kernels touch memory: every access that another warp, another kernel or the file's
// persistence cares about goes through one of these. Nothing else stores into the file.
#pragma once

using u8 = unsigned char;
using u32 = unsigned int;
using u64 = unsigned long long;

constexpr u32 WARP = 32;
constexpr u32 ALL_LANES = 0xffffffff;

__device__ inline u32 lane_number() { return threadIdx.x % WARP; }

// The warps of a launch, numbered through.
__device__ inline u64 warp_number() {
    return (static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x) / WARP;
}

__device__ inline u64 warp_count() { return static_cast<u64>(gridDim.x) * blockDim.x / WARP; }

// Words that change under a running kernel.
__device__ inline u64 load(const u8 *at) { return *reinterpret_cast<const volatile u64 *>(at); }

#ifdef __CUDACC__
// What this thread loads afterwards is loaded after this word.
__device__ inline u64 load_acquire(const u8 *at) {
    u64 word;
    asm volatile("ld.acquire.gpu.u64 %0, [%1];" : "=l"(word) : "l"(at) : "memory");
    return word;
}
#endif

// Orders what this thread loaded and stored before against what it does after, as seen by other
// warps.
__device__ inline void order() { __threadfence(); }

#ifdef GPHASH_STORE_LOG
#include "store_log.cuh"
#else
__device__ inline void store(u8 *at, u64 word) { *reinterpret_cast<volatile u64 *>(at) = word; }

// A part of a value.
template <class Unit>
__device__ inline void store_unit(Unit *at, Unit unit) { *at = unit; }

// Atomic among the warps of this device, also on the file: no processor promises more there
// without native host atomics, and none is needed, because the engine alone changes the file.
__device__ inline u64 compare_exchange(u8 *at, u64 current, u64 wanted) {
    return atomicCAS(reinterpret_cast<u64 *>(at), current, wanted);
}

__device__ inline void fetch_or(u8 *at, u64 bits) {
    atomicOr(reinterpret_cast<u64 *>(at), bits);
}

// Makes this thread's stores to the file durable, in the domains where a fence can.
__device__ inline void persist() { __threadfence_system(); }
#endif
