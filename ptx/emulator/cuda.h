// What the kernels know of CUDA, on the lanes of warp.h: include it before them.
#pragma once

#include <type_traits>

#include "warp.h"

#define __device__
#define __global__
#define __grid_constant__
#define __noinline__
#define __launch_bounds__(threads, blocks)
#define __shared__ static thread_local

struct uint4 {
    u32 x, y, z, w;
};

inline u32 __ballot_sync(u32 mask, bool vote) {
    return static_cast<u32>(emulated::meet(emulated::Meeting::BALLOT, mask, vote, 0));
}

inline bool __any_sync(u32 mask, bool vote) {
    return emulated::meet(emulated::Meeting::ANY, mask, vote, 0) != 0;
}

template <class Word>
u32 __match_any_sync(u32 mask, Word word) {
    return static_cast<u32>(emulated::meet(emulated::Meeting::MATCH, mask, word, 0));
}

template <class Word>
Word __shfl_sync(u32 mask, Word word, u32 lane) {
    u32 source = lane % emulated::LANES;
    return static_cast<Word>(emulated::meet(emulated::Meeting::SHUFFLE, mask, word, source));
}

template <class Word>
Word __shfl_xor_sync(u32 mask, Word word, u32 apart) {
    return __shfl_sync(mask, word, emulated::running_lane ^ apart);
}

inline void __syncwarp(u32 mask = ~0u) { emulated::meet(emulated::Meeting::WARP, mask, 0, 0); }

inline void __syncthreads() { emulated::meet(emulated::Meeting::BLOCK, ~0u, 0, 0); }

inline void __threadfence() {
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    emulated::pause();
}

inline void __threadfence_system() { __threadfence(); }

inline int __ffs(u32 word) { return __builtin_ffs(static_cast<int>(word)); }

inline int __popc(u32 word) { return __builtin_popcount(word); }
inline int __popcll(u64 word) { return __builtin_popcountll(word); }

inline int __clz(u32 word) { return word == 0 ? 32 : __builtin_clz(word); }

inline int __clzll(u64 word) { return word == 0 ? 64 : __builtin_clzll(word); }

inline u64 __umul64hi(u64 a, u64 b) {
    return static_cast<u64>(static_cast<unsigned __int128>(a) * b >> 64);
}

// The kernels reverse bytes with it and do nothing else.
inline u32 __byte_perm(u32 word, u32, u32 selector) {
    if (selector != 0x0123) fail("__byte_perm with selector %x is not emulated", selector);
    return __builtin_bswap32(word);
}

template <class Word>
Word __ldcs(const Word *at) {
    return *at;
}

template <class Word>
void __stcs(Word *at, std::type_identity_t<Word> word) {
    *at = word;
}

// The loads of memory.cuh.
inline u64 load(const u8 *at) { return *reinterpret_cast<const volatile u64 *>(at); }

inline u32 load(const u32 *at) { return *static_cast<const volatile u32 *>(at); }

template <class Unit>
Unit load_unit(const Unit *at) {
    emulated::pause();
    return *at;
}

inline u64 load_acquire(const u8 *at) {
    emulated::pause();
    return __atomic_load_n(reinterpret_cast<const u64 *>(at), __ATOMIC_ACQUIRE);
}

// Launches of other threads may be at the same words.
template <class Word>
Word atomicCAS(Word *at, std::type_identity_t<Word> current, std::type_identity_t<Word> wanted) {
    emulated::pause();
    __atomic_compare_exchange_n(at, &current, wanted, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return current;
}

template <class Word>
Word atomicOr(Word *at, std::type_identity_t<Word> bits) {
    emulated::pause();
    return __atomic_fetch_or(at, bits, __ATOMIC_SEQ_CST);
}

template <class Word>
Word atomicAnd(Word *at, std::type_identity_t<Word> bits) {
    emulated::pause();
    return __atomic_fetch_and(at, bits, __ATOMIC_SEQ_CST);
}

template <class Word>
Word atomicAdd(Word *at, std::type_identity_t<Word> part) {
    emulated::pause();
    return __atomic_fetch_add(at, part, __ATOMIC_SEQ_CST);
}

template <class Word>
Word atomicMin(Word *at, std::type_identity_t<Word> word) {
    emulated::pause();
    Word old = __atomic_load_n(at, __ATOMIC_SEQ_CST);
    while (word < old && !__atomic_compare_exchange_n(at, &old, word, false, __ATOMIC_SEQ_CST,
                                                      __ATOMIC_SEQ_CST)) {
    }
    return old;
}

template <class Word>
Word atomicMax(Word *at, std::type_identity_t<Word> word) {
    emulated::pause();
    Word old = __atomic_load_n(at, __ATOMIC_SEQ_CST);
    while (word > old && !__atomic_compare_exchange_n(at, &old, word, false, __ATOMIC_SEQ_CST,
                                                      __ATOMIC_SEQ_CST)) {
    }
    return old;
}
