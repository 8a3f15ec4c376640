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

// Most of what a kernel loads from device memory, or stores there, is needed once. It should be the first
// to leave the second-level cache, for what translates the file's addresses quickly stays there (docs/performance.md).
// These loads ask for that, whatever they load; so do __ldcs, for what nobody changes meanwhile, and __stcs.
// PTX calls it a priority of the first-level cache; the device minds it in both.
#ifdef __CUDACC__
#define LOAD(Word, name, At, Register, constraint, how)                                          \
    __device__ inline Word name(const At *at) {                                                  \
        Register word;                                                                           \
        asm volatile("{ .reg .u64 g; cvta.to.global.u64 g, %1; " how " %0, [g]; }"               \
                     : constraint(word) : "l"(at) : "memory");                                   \
        return static_cast<Word>(word);                                                          \
    }

// Words that change under a running kernel.
LOAD(u64, load, u8, u64, "=l", "ld.relaxed.sys.global.L1::evict_first.u64")
LOAD(u32, load, u32, u32, "=r", "ld.relaxed.sys.global.L1::evict_first.u32")

// What this thread loads afterwards is loaded after this word.
LOAD(u64, load_acquire, u8, u64, "=l", "ld.acquire.gpu.global.L1::evict_first.u64")

// Parts of a value, past the first-level cache, which may hold an older neighbour of the record.
LOAD(u64, load_unit, u64, u64, "=l", "ld.relaxed.gpu.global.L1::evict_first.u64")
LOAD(u32, load_unit, u32, u32, "=r", "ld.relaxed.gpu.global.L1::evict_first.u32")
LOAD(u8, load_unit, u8, u32, "=r", "ld.relaxed.gpu.global.L1::evict_first.u8")

__device__ inline uint4 load_unit(const uint4 *at) {
    uint4 unit;
    asm volatile("{ .reg .u64 g; cvta.to.global.u64 g, %4; "
                 "ld.relaxed.gpu.global.L1::evict_first.v4.u32 {%0, %1, %2, %3}, [g]; }"
                 : "=r"(unit.x), "=r"(unit.y), "=r"(unit.z), "=r"(unit.w) : "l"(at) : "memory");
    return unit;
}
#undef LOAD
#endif

// Orders what this thread loaded and stored before against what it does after, as seen by other
// warps.
__device__ inline void order() { __threadfence(); }

#ifdef GPHASH_WRITE_TRACE
#include "write_trace.cuh"
#else
__device__ inline void store(u8 *at, u64 word) { *reinterpret_cast<volatile u64 *>(at) = word; }

// A part of a value.
template <class Unit>
__device__ inline void store_unit(Unit *at, Unit unit) { __stcs(at, unit); }

// Atomic among the warps of this device, also on the file. No processor promises more there without
// native host atomics. None is needed, because the engine alone changes the file.
__device__ inline u64 compare_exchange(u8 *at, u64 current, u64 wanted) {
    return atomicCAS(reinterpret_cast<u64 *>(at), current, wanted);
}

__device__ inline void fetch_or(u8 *at, u64 bits) {
    atomicOr(reinterpret_cast<u64 *>(at), bits);
}

// Makes this thread's stores to the file durable, in the domains where a fence can.
__device__ inline void persist() { __threadfence_system(); }
#endif
