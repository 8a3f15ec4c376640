// A radix sort of words that carry a position each, from the lowest digit to the highest. Each pass keeps the order
// of equal digits, so positions that come in order stay so among equal words, and words of several parts are sorted
// part by part, the last one first.
//
// A warp goes through a chunk of the words in order. What the digits of all chunks are counted
// for is where each chunk's words of each digit go, so no warp waits for another one.
#pragma once

#include "scan.cuh"

// Eight bits of a hash: a thread of a block for each value.
constexpr u32 DIGITS = BLOCK_THREADS;
constexpr u32 BLOCK_WARPS = BLOCK_THREADS / WARP;

// Changes that a lane loads at a time, to wait for all of them once.
constexpr u32 LOADED = 4;

// So many changes in a block of device memory: their hashes, and behind these their positions.
struct Changes {
    u64 *hashes;
    u32 *positions;
    u32 len;

    __device__ Changes(u8 *block, u32 of_len)
        : hashes(reinterpret_cast<u64 *>(block)),
          positions(reinterpret_cast<u32 *>(hashes + of_len)),
          len(of_len) {}
};

// The changes of this warp, which may be none.
struct Chunk {
    u32 number;
    u32 count; // of all chunks
    u64 first;
    u64 end;

    __device__ Chunk(u32 len, u32 size)
        : number(static_cast<u32>(warp_number())), count((len + size - 1) / size) {
        first = static_cast<u64>(number) * size;
        end = first + size < len ? first + size : len;
    }
};

__device__ inline u32 digit_of(u64 hash, u32 shift) { return hash >> shift & (DIGITS - 1); }

// Adds the digits of the lanes that have one to their warp's counters. Gives what this lane's
// counter was, those of lower lanes counted in.
__device__ inline u32 count_in(u32 *counters, u32 digit, bool exists) {
    u32 equal = __match_any_sync(ALL_LANES, exists ? digit : DIGITS);
    u32 lower = equal & ((1u << lane_number()) - 1);
    u32 count = exists ? counters[digit] : 0;
    __syncwarp();
    if (exists && lower == 0) counters[digit] = count + __popc(equal);
    __syncwarp();
    return count + __popc(lower);
}

// How often each chunk has each digit; a row of chunks for a digit.
KERNEL count_digits(u8 *block, u32 len, u32 chunk_size, u32 shift, u32 *counts) {
    __shared__ u32 counters[BLOCK_WARPS][DIGITS];
    #pragma unroll 1
    for (u32 warp = 0; warp < BLOCK_WARPS; warp++) counters[warp][threadIdx.x] = 0;
    __syncthreads();

    Changes changes(block, len);
    Chunk chunk(len, chunk_size);
    u32 *own = counters[threadIdx.x / WARP];
    #pragma unroll 1
    for (u64 at = chunk.first + lane_number(); at - lane_number() < chunk.end; at += LOADED * WARP) {
        u64 hashes[LOADED];
        #pragma unroll
        for (u32 nth = 0; nth < LOADED; nth++) {
            hashes[nth] = at + nth * WARP < chunk.end ? changes.hashes[at + nth * WARP] : 0;
        }
        #pragma unroll
        for (u32 nth = 0; nth < LOADED; nth++) {
            count_in(own, digit_of(hashes[nth], shift), at + nth * WARP < chunk.end);
        }
    }
    __syncthreads();

    #pragma unroll 1
    for (u32 warp = 0; warp < BLOCK_WARPS; warp++) {
        u32 number = blockIdx.x * BLOCK_WARPS + warp;
        if (number < chunk.count) counts[threadIdx.x * chunk.count + number] = counters[warp][threadIdx.x];
    }
}

// A block a digit: how many changes of it the chunks before each one have, and behind all rows the
// total of the digit.
KERNEL start_digits(u32 *counts, u32 chunks) {
    u32 *row = counts + blockIdx.x * chunks;
    u32 share = (chunks + BLOCK_THREADS - 1) / BLOCK_THREADS;
    u32 first = threadIdx.x * share;
    u32 end = first + share < chunks ? first + share : chunks;
    u32 sum = 0;
    #pragma unroll 1
    for (u32 at = first; at < end; at++) sum += row[at];
    u32 up_to = sum_up_to(sum);
    u32 start = up_to - sum;
    #pragma unroll 1
    for (u32 at = first; at < end; at++) {
        u32 count = row[at];
        row[at] = start;
        start += count;
    }
    if (threadIdx.x == BLOCK_THREADS - 1) counts[DIGITS * chunks + blockIdx.x] = up_to;
}

// Moves the changes into the order of their digits.
KERNEL scatter_digits(u8 *block, u8 *sorted, u32 len, u32 chunk_size, u32 shift, const u32 *counts) {
    __shared__ u32 next[BLOCK_WARPS][DIGITS];
    Changes from(block, len);
    Changes to(sorted, len);
    Chunk chunk(len, chunk_size);
    u32 total = counts[DIGITS * chunk.count + threadIdx.x];
    u32 start = sum_up_to(total) - total;
    #pragma unroll 1
    for (u32 warp = 0; warp < BLOCK_WARPS; warp++) {
        u32 number = blockIdx.x * BLOCK_WARPS + warp;
        if (number >= chunk.count) break;
        next[warp][threadIdx.x] = start + counts[threadIdx.x * chunk.count + number];
    }
    __syncthreads();

    u32 *own = next[threadIdx.x / WARP];
    #pragma unroll 1
    for (u64 at = chunk.first + lane_number(); at - lane_number() < chunk.end; at += LOADED * WARP) {
        u64 hashes[LOADED];
        u32 positions[LOADED];
        #pragma unroll
        for (u32 nth = 0; nth < LOADED; nth++) {
            bool exists = at + nth * WARP < chunk.end;
            hashes[nth] = exists ? from.hashes[at + nth * WARP] : 0;
            positions[nth] = exists ? from.positions[at + nth * WARP] : 0;
        }
        #pragma unroll
        for (u32 nth = 0; nth < LOADED; nth++) {
            bool exists = at + nth * WARP < chunk.end;
            u32 number = count_in(own, digit_of(hashes[nth], shift), exists);
            if (!exists) continue;
            to.hashes[number] = hashes[nth];
            to.positions[number] = positions[nth];
        }
    }
}
