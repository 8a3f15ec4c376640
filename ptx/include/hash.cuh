// From a key to its buckets (src/layout/words/hash.rs). XXH3-64 with a seed, for keys of 8 to 128 bytes
// in multiples of 8, and the hash locations that come from it.
#pragma once

#include "layout.cuh"

// The first 128 bytes of XXH3's secret.
__device__ constexpr u64 SECRET[16] = {
    0xbe4ba423396cfeb8, 0x1cad21f72c81017c, 0xdb979083e96dd4de, 0x1f67b3b7a4a44072,
    0x78e5c0cc4ee679cb, 0x2172ffcc7dd05a82, 0x8e2443f7744608b8, 0x4c263a81e69035e0,
    0xcb00c391bb52283c, 0xa32e531b8b65d088, 0x4ef90da297486471, 0xd8acdea946ef1938,
    0x3f349ce33f76faa8, 0x1d4f0bc7c7bbdcf9, 0x3159b4cd4be0518a, 0x647378d9c97e9fc8,
};

__device__ inline u64 swap_bytes(u64 word) {
    u32 low = __byte_perm(static_cast<u32>(word), 0, 0x0123);
    u32 high = __byte_perm(static_cast<u32>(word >> 32), 0, 0x0123);
    return static_cast<u64>(low) << 32 | high;
}

__device__ inline u64 rotate_left(u64 word, u32 bits) { return word << bits | word >> (64 - bits); }

__device__ inline u64 multiply_fold(u64 a, u64 b) { return a * b ^ __umul64hi(a, b); }

__device__ inline u64 avalanche(u64 hash) {
    hash = (hash ^ hash >> 37) * 0x165667919e3779f9;
    return hash ^ hash >> 32;
}

// XXH3-64 of eight bytes.
__device__ inline u64 hash_word(u64 key, u64 seed) {
    u32 seed_low = static_cast<u32>(seed);
    seed ^= static_cast<u64>(__byte_perm(seed_low, 0, 0x0123)) << 32;
    u64 flip = (SECRET[1] ^ SECRET[2]) - seed;
    u64 hash = (key << 32 | key >> 32) ^ flip;
    hash ^= rotate_left(hash, 49) ^ rotate_left(hash, 24);
    hash *= 0x9fb21c651e98df25;
    hash ^= (hash >> 35) + 8;
    hash *= 0x9fb21c651e98df25;
    return hash ^ hash >> 28;
}

__device__ inline u64 mix_pair(const u64 *key, u32 secret, u64 seed) {
    u64 low = __ldcs(key) ^ (SECRET[secret] + seed);
    u64 high = __ldcs(key + 1) ^ (SECRET[secret + 1] - seed);
    return multiply_fold(low, high);
}

// XXH3-64 of 16 to 128 bytes, given as words.
__device__ inline u64 hash_words(const u64 *key, u32 words, u64 seed) {
    if (words == 2) {
        u64 low = __ldcs(key) ^ ((SECRET[3] ^ SECRET[4]) + seed);
        u64 high = __ldcs(key + 1) ^ ((SECRET[5] ^ SECRET[6]) - seed);
        return avalanche(16 + swap_bytes(low) + high + multiply_fold(low, high));
    }
    u64 hash = words * 8 * 0x9e3779b185ebca87;
    // Pairs from both ends towards the middle.
    #pragma unroll 1
    for (u32 pair = 0; pair * 4 < words; pair++) {
        hash += mix_pair(key + pair * 2, pair * 4, seed);
        hash += mix_pair(key + words - 2 - pair * 2, pair * 4 + 2, seed);
    }
    return avalanche(hash);
}

// The fingerprint of a wide key: its hash, kept clear of the slot states.
__device__ inline u64 fingerprint(u64 hash) {
    if (hash == EMPTY) return 0xbf58476d1ce4e5b9;
    if (hash == BUSY) return 0x94d049bb133111eb;
    return hash;
}

// An odd number that sets locations, and the words of a value, apart.
constexpr u64 LOCATION_STRIDE = 0x9e3779b97f4a7c15;

// SplitMix64's finalizer.
__device__ inline u64 mix(u64 word) {
    word = (word ^ word >> 30) * 0xbf58476d1ce4e5b9;
    word = (word ^ word >> 27) * 0x94d049bb133111eb;
    return word ^ word >> 31;
}

// The nth hash location of a key.
__device__ inline u64 location(u64 hash, u32 nth) {
    return nth == 0 ? hash : mix(hash ^ nth * LOCATION_STRIDE);
}

// The bucket of a location in a level.
__device__ inline u64 bucket_of(u64 location, u32 level) { return location >> 1 >> (63 - level); }
