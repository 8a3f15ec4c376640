// Emptying the bottom level of a table that has grown (GPHash §3.3.5). Every item is inserted above
// and only then removed below, so a lookup that reads below first always finds it.
#include "cache.cuh"
#include "table.cuh"
#include "tile.cuh"

// Moves the items of buckets `from` to `to` - 1 of the bottom level to the resting levels; a warp
// takes a bucket at a time. Items that find no slot stay, and count as `full`.
template <bool WIDE>
__device__ void drain_buckets(const TableView &view, u64 from, u64 to, Counters *counters) {
    Table<WIDE> table(view, counters);
    Tally tally;
    u32 lane = lane_number();
    #pragma unroll 1
    for (u64 number = from + warp_number(); number < to; number += warp_count()) {
        Slot below{table.bucket_at(view.bottom_level, number), lane};
        u64 state = EMPTY;
        u64 record = 0;
        if (lane < view.slots) {
            state = load(table.state_of(below));
            record = load(table.record_of(below));
        }
        bool member = state != EMPTY && state != BUSY && is_member(record);
        u32 members = __ballot_sync(ALL_LANES, member);
        Key own = member ? table.key_of_slot(below, state) : Key{};

        u64 offset = 0;
        bool moved_before = false;
        #pragma unroll 1
        for (u32 turn = 0; turn < GROUP; turn++) {
            Key key = table.share(own, served_lane(turn));
            u64 there = 0;
            bool copied = false;
            if (members >> served_lane(turn) & 1) {
                copied = table.find_from(key, table.resting_bottom()).record != 0;
                if (!copied) {
                    Slot slot = table.claim(key);
                    if (slot.bucket.probe != nullptr) there = table.offset_of(slot);
                }
            }
            there = __shfl_sync(ALL_LANES, there, server_of_lane());
            copied = __shfl_sync(ALL_LANES, static_cast<u32>(copied), server_of_lane()) != 0;
            if (turn_of_lane() == turn) {
                offset = there;
                moved_before = copied;
            }
        }

        bool moves = offset != 0;
        u64 moved = member_word(record, record & RECORD_OFFSET);
        Slot above{};
        if (moves) above = table.slot_at(offset);
        if constexpr (WIDE) {
            table.store_keys(offset, own.bytes, moves);
            persist();
            __syncwarp();
        }
        if (moves) table.store_words(offset, state, moved);
        persist();
        if (moves) table.copy_state(above, state);
        order();
        if (moves) table.copy_record(above, moved);
        order();
        // What a load of the cache has found there before was another item's, perhaps in this record. Lookups find the one
        // below until it is cleared.
        if (moves) uncache(view, above.bucket.ordinal, above.index);
        order();
        table.clear(below, moves || moved_before);
        order();
        if (moves || moved_before) uncache(view, below.bucket.ordinal, below.index);
        tally.operations += moves;
        tally.full += member && !moves && !moved_before;
        if (moves) tally.touches += 2;
    }
    tally.add_to(counters, table.touches);
}

KERNEL drain_word(const __grid_constant__ TableView view, u64 from, u64 to,
                  Counters *counters) {
    drain_buckets<false>(view, from, to, counters);
}

KERNEL drain_wide(const __grid_constant__ TableView view, u64 from, u64 to,
                  Counters *counters) {
    drain_buckets<true>(view, from, to, counters);
}
