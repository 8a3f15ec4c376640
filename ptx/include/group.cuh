// Groups of lanes. A warp probes four keys at a time, eight lanes each. The state words of a bucket
// of eight slots are one access of a group. GPHash §3.2.1 takes a whole warp for a key. With
// groups, four keys' accesses are in flight side by side, and each group ends at the first bucket
// that answers.
//
// The lanes of a group stay together, and get the same answers; groups need not.
#pragma once

#include "memory.cuh"

constexpr u32 GROUP = 8;
constexpr u32 GROUPS = WARP / GROUP;

__device__ inline u32 group_lane() { return threadIdx.x % GROUP; }

__device__ inline u32 group_number() { return lane_number() / GROUP; }

__device__ inline u32 group_mask() { return ((1u << GROUP) - 1) << group_number() * GROUP; }

// Bit i is the vote of the group's lane i.
__device__ inline u32 group_ballot(bool vote) {
    return __ballot_sync(group_mask(), vote) >> group_number() * GROUP & ((1u << GROUP) - 1);
}

__device__ inline bool group_any(bool vote) { return __any_sync(group_mask(), vote); }

// The word of the group's lane `from`.
__device__ inline u64 group_word(u64 word, u32 from) {
    return __shfl_sync(group_mask(), word, group_number() * GROUP + from);
}

// A word that changes under a running kernel, the same for all lanes of a group.
__device__ inline u64 group_load(const u8 *at) { return group_word(load(at), 0); }

__device__ inline u64 group_load_acquire(const u8 *at) { return group_word(load_acquire(at), 0); }

// A warp deals its lanes' tasks to its groups in turns: in turn t, group g works for lane
// t × GROUPS + g. Here, which lane that is; and for a lane, its turn and the first lane of the
// group that works for it.
__device__ inline u32 served_lane(u32 turn) { return turn * GROUPS + group_number(); }

__device__ inline u32 turn_of_lane() { return lane_number() / GROUPS; }

__device__ inline u32 server_of_lane() { return lane_number() % GROUPS * GROUP; }
