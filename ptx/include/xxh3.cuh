// XXH3-64 with a seed, of any bytes: what keys of sorted files are known by in filters, and the checksums of blocks.
#pragma once

#include "group.cuh"
#include "hash.cuh"

constexpr u64 PRIME32_1 = 0x9e3779b1, PRIME32_2 = 0x85ebca77, PRIME32_3 = 0xc2b2ae3d;
constexpr u64 PRIME64_1 = 0x9e3779b185ebca87, PRIME64_2 = 0xc2b2ae3d27d4eb4f, PRIME64_3 = 0x165667b19e3779f9;
constexpr u64 PRIME64_4 = 0x85ebca77c2b2ae63, PRIME64_5 = 0x27d4eb2f165667c5;

// All of XXH3's secret, and its length in bytes.
__device__ constexpr u64 WHOLE_SECRET[24] = {
    0xbe4ba423396cfeb8, 0x1cad21f72c81017c, 0xdb979083e96dd4de, 0x1f67b3b7a4a44072,
    0x78e5c0cc4ee679cb, 0x2172ffcc7dd05a82, 0x8e2443f7744608b8, 0x4c263a81e69035e0,
    0xcb00c391bb52283c, 0xa32e531b8b65d088, 0x4ef90da297486471, 0xd8acdea946ef1938,
    0x3f349ce33f76faa8, 0x1d4f0bc7c7bbdcf9, 0x3159b4cd4be0518a, 0x647378d9c97e9fc8,
    0xc3ebd33483acc5ea, 0xeb6313faffa081c5, 0x49daf0b751dd0d17, 0x9e68d429265516d3,
    0xfca1477d58be162b, 0xce31d07ad1b8f88f, 0x280416958f3acb45, 0x7e404bbbcafbd7af,
};
constexpr u32 SECRET_BYTES = 192;

constexpr u32 STRIPE = 64;             // bytes, eight for each of the lanes of a group
constexpr u32 STRIPES_PER_BLOCK = 16;  // after which the lanes are scrambled
constexpr u32 SHORT_MAX = 240;         // bytes, up to which one thread hashes alone

// Eight bytes from anywhere. Up to seven behind them are read, too.
__device__ inline u64 word_at(const u8 *at) {
    u64 address = reinterpret_cast<u64>(at);
    const u64 *words = reinterpret_cast<const u64 *>(address & ~7ull);
    u32 shift = static_cast<u32>(address & 7) * 8;
    return shift == 0 ? words[0] : words[0] >> shift | words[1] << (64 - shift);
}

__device__ inline u32 half_at(const u8 *at) { return static_cast<u32>(word_at(at)); }

// Eight bytes of the secret that a seed makes: it is added to every even word, and taken off every odd one.
__device__ inline u64 secret_at(u32 at, u64 seed) {
    u32 word = at / 8;
    u32 shift = at % 8 * 8;
    u64 low = WHOLE_SECRET[word] + (word % 2 == 0 ? seed : 0 - seed);
    if (shift == 0) return low;
    u64 high = WHOLE_SECRET[word + 1] + (word % 2 == 0 ? 0 - seed : seed);
    return low >> shift | high << (64 - shift);
}

__device__ inline u64 mix_at(const u8 *at, u32 secret, u64 seed) {
    u64 low = word_at(at) ^ (secret_at(secret, 0) + seed);
    u64 high = word_at(at + 8) ^ (secret_at(secret + 8, 0) - seed);
    return multiply_fold(low, high);
}

// The finalizer of XXH64.
__device__ inline u64 old_avalanche(u64 hash) {
    hash = (hash ^ hash >> 33) * PRIME64_2;
    hash = (hash ^ hash >> 29) * PRIME64_3;
    return hash ^ hash >> 32;
}

// Of at most 240 bytes, by one thread.
__device__ inline u64 hash_short(const u8 *at, u32 len, u64 seed) {
    if (len == 0) return old_avalanche(seed ^ secret_at(56, 0) ^ secret_at(64, 0));
    if (len <= 3) {
        u32 word = static_cast<u32>(at[0]) << 16 | static_cast<u32>(at[len / 2]) << 24 | at[len - 1] | len << 8;
        u64 flip = (static_cast<u32>(WHOLE_SECRET[0]) ^ static_cast<u32>(WHOLE_SECRET[0] >> 32)) + seed;
        return old_avalanche(word ^ flip);
    }
    if (len <= 8) {
        seed ^= static_cast<u64>(__byte_perm(static_cast<u32>(seed), 0, 0x0123)) << 32;
        u64 word = half_at(at + len - 4) + (static_cast<u64>(half_at(at)) << 32);
        u64 hash = word ^ ((WHOLE_SECRET[1] ^ WHOLE_SECRET[2]) - seed);
        hash ^= rotate_left(hash, 49) ^ rotate_left(hash, 24);
        hash *= 0x9fb21c651e98df25;
        hash ^= (hash >> 35) + len;
        hash *= 0x9fb21c651e98df25;
        return hash ^ hash >> 28;
    }
    if (len <= 16) {
        u64 low = word_at(at) ^ ((WHOLE_SECRET[3] ^ WHOLE_SECRET[4]) + seed);
        u64 high = word_at(at + len - 8) ^ ((WHOLE_SECRET[5] ^ WHOLE_SECRET[6]) - seed);
        return avalanche(len + swap_bytes(low) + high + multiply_fold(low, high));
    }
    u64 hash = len * PRIME64_1;
    if (len <= 128) {
        // Pairs from both ends towards the middle.
        #pragma unroll 1
        for (u32 pair = 0; pair * 32 < len; pair++) {
            hash += mix_at(at + pair * 16, pair * 32, seed);
            hash += mix_at(at + len - 16 - pair * 16, pair * 32 + 16, seed);
        }
        return avalanche(hash);
    }
    #pragma unroll 1
    for (u32 part = 0; part < 8; part++) hash += mix_at(at + part * 16, part * 16, seed);
    hash = avalanche(hash);
    #pragma unroll 1
    for (u32 part = 8; part < len / 16; part++) hash += mix_at(at + part * 16, part * 16 - 128 + 3, seed);
    return avalanche(hash + mix_at(at + len - 16, 136 - 17, seed));
}

// What a lane of a group has of a stripe: its own word, and that of its neighbour.
__device__ inline u64 with_stripe(u64 sum, const u8 *stripe, u32 secret, u64 seed, u32 lane) {
    u64 key = word_at(stripe + lane * 8) ^ secret_at(secret + lane * 8, seed);
    return sum + word_at(stripe + (lane ^ 1) * 8) + (key & 0xffffffff) * (key >> 32);
}

// Of any bytes, by the lanes of a group. All of them have the hash.
__device__ inline u64 hash_bytes(const u8 *at, u64 len, u64 seed) {
    if (len <= SHORT_MAX) return hash_short(at, static_cast<u32>(len), seed);
    u32 lane = lane_number() % GROUP;
    constexpr u64 STARTS[GROUP] = {
        PRIME32_3, PRIME64_1, PRIME64_2, PRIME64_3, PRIME64_4, PRIME32_2, PRIME64_5, PRIME32_1,
    };
    u64 sum = STARTS[lane];
    u64 stripes = (len - 1) / STRIPE;
    #pragma unroll 1
    for (u64 stripe = 0; stripe < stripes; stripe++) {
        u32 nth = static_cast<u32>(stripe % STRIPES_PER_BLOCK);
        sum = with_stripe(sum, at + stripe * STRIPE, nth * 8, seed, lane);
        if (nth == STRIPES_PER_BLOCK - 1) {
            sum = (sum ^ sum >> 47 ^ secret_at(SECRET_BYTES - STRIPE + lane * 8, seed)) * PRIME32_1;
        }
    }
    sum = with_stripe(sum, at + len - STRIPE, SECRET_BYTES - STRIPE - 7, seed, lane);
    u64 mixed = sum ^ secret_at(11 + lane * 8, seed);
    u32 mask = group_mask();
    u64 neighbour = __shfl_xor_sync(mask, mixed, 1);
    // Each pair counts once in the sum over all lanes.
    u64 hash = lane % 2 == 0 ? multiply_fold(mixed, neighbour) : 0;
    #pragma unroll 1
    for (u32 apart = 1; apart < GROUP; apart *= 2) hash += __shfl_xor_sync(mask, hash, apart);
    return avalanche(len * PRIME64_1 + hash);
}
