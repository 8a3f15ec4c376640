// Emptying the bottom level of a table that has grown (GPHash §3.3.5): every item is inserted
// above and only then removed below, so a look-up that reads below first always finds it.
#include "table.cuh"
#include "tile.cuh"

// Moves the items of buckets `from` to `to` - 1 of the bottom level to the resting levels; a warp
// takes a bucket at a time. Items that find no slot stay, and count as `full`.
template <bool WIDE>
__device__ void drain_buckets(const TableView &view, u64 from, u64 to, Counters *counters) {
    Table<WIDE> table(view, counters);
    Tally tally;
    u32 lane = lane_number();
    u32 level = view.bottom_level;
    u64 warp = (static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x) / WARP;
    u64 warps = static_cast<u64>(gridDim.x) * blockDim.x / WARP;
    #pragma unroll 1
    for (u64 bucket = from + warp; bucket < to; bucket += warps) {
        Slot below{};
        u64 state = EMPTY;
        u64 record = 0;
        if (lane < view.slots) {
            below = table.bucket_at(level, bucket);
            below.index = lane;
            state = load(table.state_of(below));
            record = load(table.record_of(below));
        }
        table.touch_buckets(below);
        bool member = state != EMPTY && state != BUSY && is_member(record);
        table.touch_records(below, __ballot_sync(ALL_LANES, member));

        Slot above{};
        bool moved_before = false;
        #pragma unroll 1
        for (u32 rest = __ballot_sync(ALL_LANES, member); rest != 0; rest &= rest - 1) {
            u32 at = __ffs(rest) - 1;
            Key key = table.key_of_slot(shuffle(below, at), __shfl_sync(ALL_LANES, state, at));
            Found found = table.find_from(key, table.resting_bottom());
            Slot target{};
            if (found.record == 0) {
                target = table.claim(key);
                if (target.bucket != nullptr) {
                    table.touch_slot(target, true, true);
                    if constexpr (WIDE) table.store_key(target, key.part);
                }
            }
            if (lane == at) {
                above = target;
                moved_before = found.record != 0;
            }
            table.touch_slot(shuffle(below, at), true, false);
        }
        table.touches.next();

        bool moves = above.bucket != nullptr;
        persist();
        __syncwarp();
        if (moves) table.store_state(above, state);
        persist();
        if (moves) table.store_record(above, record & RECORD_OFFSET);
        persist();
        if (moves) table.copy_state(above, state);
        order();
        if (moves) table.copy_record(above, record & RECORD_OFFSET);
        order();
        table.clear(below, moves || moved_before);
        tally.operations += moves;
        tally.full += member && !moves && !moved_before;
    }
    tally.add_to(counters, table.touches.total);
}

KERNEL drain_word(const __grid_constant__ TableView view, u64 from, u64 to,
                  Counters *counters) {
    drain_buckets<false>(view, from, to, counters);
}

KERNEL drain_wide(const __grid_constant__ TableView view, u64 from, u64 to,
                  Counters *counters) {
    drain_buckets<true>(view, from, to, counters);
}
