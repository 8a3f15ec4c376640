// How a batch is dealt to warps: a warp takes `tile` neighbouring positions at a time, resolves
// their operations one after another with all lanes, then finishes them side by side, one lane
// each.
#pragma once

#include "layout.cuh"

// Which of several operations with one key is executed for all of them.
enum class Pick { ALL, FIRST, LAST };

struct Tile {
    const Batch &batch;
    u64 first; // position of lane 0

    __device__ Tile(const Batch &whole) : batch(whole) {
        u64 warp = (static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x) / WARP;
        first = warp * batch.tile;
    }

    __device__ bool exists() const { return first < batch.len; }

    __device__ void next() {
        first += static_cast<u64>(gridDim.x) * blockDim.x / WARP * batch.tile;
    }

    __device__ u64 position() const { return first + lane_number(); }

    // Whether this lane's position is executed in this launch.
    __device__ bool executes(Pick pick) const {
        if (lane_number() >= batch.tile || position() >= batch.len) return false;
        if (batch.retry != 0) {
            bool pending = batch.pending[position()] != 0;
            batch.pending[position()] = 0;
            return pending;
        }
        if (pick == Pick::ALL || batch.entry == nullptr) return true;
        const u32 *picked = pick == Pick::FIRST ? batch.first : batch.last;
        return picked[batch.entry[position()]] == position();
    }

    __device__ void postpone() const { batch.pending[position()] = 1; }

    // Sets the answer bits of this tile's lanes. A tile never straddles an answer word.
    __device__ void answer(bool yes) const {
        u32 bits = __ballot_sync(ALL_LANES, yes);
        if (bits != 0 && lane_number() == 0) {
            atomicOr(batch.answers + first / 32, bits << first % 32);
        }
    }

    // Sets this lane's answer at the first position that has its key.
    __device__ void answer_first(bool yes) const {
        if (!yes) return;
        u64 at = batch.entry == nullptr ? position() : batch.first[batch.entry[position()]];
        atomicOr(batch.answers + at / 32, 1u << at % 32);
    }
};

// What a warp did, summed over its lanes when it is done.
struct Tally {
    u64 touches = 0;
    u32 operations = 0;
    u32 added = 0;
    u32 removed = 0;
    u32 full = 0;
    u32 starved = 0;

    __device__ void add_to(Counters *counters, u32 shared_touches) {
        if (lane_number() == 0) touches += shared_touches;
        sum(&counters->touches, touches);
        sum(&counters->operations, operations);
        sum(&counters->items, static_cast<u64>(added) - removed);
        sum(&counters->full, full);
        sum(&counters->starved, starved);
    }

    __device__ static void sum(u64 *total, u64 part) {
        #pragma unroll 1
        for (u32 apart = WARP / 2; apart != 0; apart /= 2) {
            part += __shfl_xor_sync(ALL_LANES, part, apart);
        }
        if (part != 0 && lane_number() == 0) atomicAdd(total, part);
    }
};
