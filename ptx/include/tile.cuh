// How a batch is dealt to warps: a warp takes `tile` neighbouring positions at a time. Its groups
// resolve them four at a time, then it finishes them side by side, one lane each.
#pragma once

#include "group.cuh"
#include "order.cuh"

// Which of several operations with one key is executed for all of them.
enum class Pick { FIRST, LAST };

struct Tile {
    const Batch &batch;
    u64 first; // position of lane 0

    __device__ Tile(const Batch &whole) : batch(whole), first(warp_number() * whole.tile) {}

    __device__ bool exists() const { return first < batch.len; }

    __device__ void next() { first += warp_count() * batch.tile; }

    __device__ u64 position() const { return first + lane_number(); }

    __device__ bool has_position() const {
        return lane_number() < batch.tile && position() < batch.len;
    }

    // Whether this lane's position is executed in this launch.
    __device__ bool executes(Pick pick) const {
        if (!has_position()) return false;
        if (batch.retry != 0) return __ldcs(batch.pending + position()) != 0;
        if (batch.entry == nullptr) return true;
        const u32 *picked = pick == Pick::FIRST ? batch.first : batch.last;
        return __ldcs(picked + __ldcs(batch.entry + position())) == position();
    }

    // Answers a lookup: the bits of this tile, in whole bytes, since its first position is a
    // multiple of 8. The last tile answers no to what stands behind it in the last word.
    __device__ void answer_all(bool yes) const {
        u32 bits = __ballot_sync(ALL_LANES, yes);
        auto bytes = reinterpret_cast<u8 *>(batch.answers);
        u64 end = first + batch.tile;
        if (end >= batch.len) end = (static_cast<u64>(batch.len) + 63) / 64 * 64;
        #pragma unroll 1
        for (u64 at = first / 8 + lane_number(); at < end / 8; at += WARP) {
            u64 byte = at - first / 8;
            bytes[at] = byte < WARP / 8 ? static_cast<u8>(bits >> byte * 8) : 0;
        }
    }
};

// The bus finds pages of host memory quickly that are near each other, and all of a region that is
// not too large. Offsets so near have their pages in common, more or less.
constexpr u64 NEAR = 128 << 10;

// In a larger region than this, warps that are far apart take each other's pages away.
constexpr u64 LARGE = 8ull << 30;

// Then so many are enough to keep the bus busy.
constexpr u64 FEW_WARPS = 128;

// How the positions that have an offset are dealt to warps, one a lane, in the order of their offsets if
// the batch was put in order.
struct Share {
    const Batch &batch;
    u32 len;
    u32 tile;
    u32 depth;
    u64 warps; // that take part
    u64 first;

    // A warp takes `depth` tiles at a time.
    __device__ Share(const Batch &whole, u32 tiles)
        : batch(whole),
          len(whole.order.wanted != 0 ? arranged(whole.order) : whole.len),
          tile(whole.tile),
          depth(tiles),
          warps(warp_count()),
          first(warp_number() * whole.tile * tiles) {}

    // Deals offsets that are read, in a file of so many bytes.
    __device__ void read_from(u64 file_len) {
        if (batch.order.wanted == 0) return;
        if (file_len / NEAR <= len) tile = WARP;
        if (file_len > LARGE && warps > FEW_WARPS) warps = FEW_WARPS;
        first = warp_number() < warps ? warp_number() * tile : len;
    }

    __device__ bool exists() const { return first < len; }

    __device__ void next() { first += warps * tile * depth; }

    // This lane's position in the nth tile, and its offset, 0 for none.
    __device__ u32 position(u32 nth, u64 *offset) const {
        *offset = 0;
        u64 number = first + nth * tile + lane_number();
        if (lane_number() >= tile || number >= len) return 0;
        if (batch.order.wanted == 0) {
            *offset = __ldcs(batch.order.offsets + number);
            return static_cast<u32>(number);
        }
        u32 position = __ldcs(batch.order.positions + number);
        *offset = __ldcs(batch.order.offsets + position);
        return position;
    }
};

// Sets the answer of one position.
__device__ inline void answer_yes(const Batch &batch, u64 position) {
    atomicOr(batch.answers + position / 32, 1u << position % 32);
}

// What a warp did, summed over its lanes when it is done.
struct Tally {
    u64 touches = 0;
    u32 operations = 0;
    u32 added = 0;
    u32 removed = 0;
    u32 full = 0;
    u32 out_of_records = 0;
    u32 wanted = 0;
    u32 cache_lookups = 0;
    u32 cache_hits = 0;

    // `shared_touches` are those that a group's lanes have all counted.
    __device__ void add_to(Counters *counters, u32 shared_touches) {
        if (group_lane() == 0) touches += shared_touches;
        sum(&counters->touches, touches);
        sum(&counters->operations, operations);
        sum(&counters->items, static_cast<u64>(added) - removed);
        sum(&counters->full, full);
        sum(&counters->out_of_records, out_of_records);
        sum(&counters->wanted, wanted);
        sum(&counters->cache_lookups, cache_lookups);
        sum(&counters->cache_hits, cache_hits);
    }

    __device__ static void sum(u64 *total, u64 part) {
        if (!__any_sync(ALL_LANES, part != 0)) return;
        #pragma unroll 1
        for (u32 apart = WARP / 2; apart != 0; apart /= 2) {
            part += __shfl_xor_sync(ALL_LANES, part, apart);
        }
        if (lane_number() == 0) atomicAdd(total, part);
    }
};
