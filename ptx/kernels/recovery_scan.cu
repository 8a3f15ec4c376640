// The recovery scan of the levels of a file that was not cleanly closed. It finds the slots that a
// crash left half done, the records in use, and what no crash can have left. Nothing is changed
// here; the host repairs what is reported.
#include "table.cuh"
#include "tile.cuh"

// Notes a slot to repair; past the capacity only the count goes on.
__device__ inline void note_repair(const RecoveryScan &scan, Findings *findings, u64 at, u64 kind) {
    u64 number = atomicAdd(&findings->repairs, 1ull);
    if (number < scan.repair_capacity) scan.repairs[number] = {at, kind};
}

// Notes damage; the first find stays.
__device__ inline void note_damage(Findings *findings, u64 at, u64 kind) {
    atomicCAS(&findings->damage, 0, kind << 56 | at);
}

constexpr u64 NO_NUMBER = ~0ull;

// Number of the record that starts at an offset.
__device__ inline u64 number_of(const RecoveryScan &scan, u64 record, u32 stride) {
    #pragma unroll 1
    for (u32 each = 0; each < scan.range_count; each++) {
        const RecordRange &range = scan.ranges[each];
        if (record < range.offset || record - range.offset >= range.count * stride) continue;
        u64 within = record - range.offset;
        return within % stride == 0 ? range.first_ordinal + within / stride : NO_NUMBER;
    }
    return NO_NUMBER;
}

// Marks a record as used. False if it was already.
__device__ inline bool mark_reachable(const RecoveryScan &scan, u64 number) {
    u32 bit = 1u << number % 32;
    return (atomicOr(scan.reachable + number / 32, bit) & bit) == 0;
}

// Whether a lookup of a hash comes to this bucket of its level. The overflow bit went to the level
// that was on top: this one or one above. One of a level below would leave with that level.
template <bool WIDE>
__device__ bool belongs(const Table<WIDE> &table, u64 hash, u32 level, u64 bucket) {
    u32 near = table.view.locations;
    #pragma unroll 1
    for (u32 nth = 0; nth < near * (1 + OVERFLOW_ROUNDS); nth++) {
        if (bucket_of(location(hash, nth), level) != bucket) continue;
        if (nth < near) return true;
        #pragma unroll 1
        for (u32 each = level; each <= table.view.top_level; each++) {
            if (table.is_marked(each, hash)) return true;
        }
        return false;
    }
    return false;
}

// Scans one level. The levels that are not being drained come first, since an item of a level
// that is may also stand above already.
template <bool WIDE>
__device__ void scan_level(const TableView &view, u32 level, const RecoveryScan &scan,
                             Findings *findings) {
    Counters *unused = nullptr;
    Table<WIDE> table(view, unused);
    u32 lane = lane_number();
    u32 side_by_side = WARP / view.slots;
    u64 buckets = 1ull << level;
    u64 stride = warp_count() * side_by_side;
    u32 members = 0;
    #pragma unroll 1
    for (u64 first = warp_number() * side_by_side; first < buckets; first += stride) {
        u64 bucket = first + lane / view.slots;
        Slot slot{};
        u64 state = EMPTY;
        u64 record = 0;
        if (lane / view.slots < side_by_side && bucket < buckets) {
            slot = {table.bucket_at(level, bucket), lane % view.slots};
            state = load(table.state_of(slot));
            record = load(table.record_of(slot));
        }
        u64 at = table.offset_of(slot);
        bool member = state != EMPTY && state != BUSY && is_member(record);
        if (!member && (state != EMPTY || record != 0)) note_repair(scan, findings, at, REPAIR_CLEAR);
        if (!is_member(record) && !is_sound(state, record)) note_damage(findings, at, DAMAGE_UNSOUND_WORD);

        bool duplicate = false;
        if (level < table.resting_bottom()) {
            Key own = member ? table.key_of_slot(slot, state) : Key{};
            u32 members = __ballot_sync(ALL_LANES, member);
            #pragma unroll 1
            for (u32 turn = 0; turn < GROUP; turn++) {
                Key key = table.share(own, served_lane(turn));
                u32 above = 0;
                if (members >> served_lane(turn) & 1) {
                    above = table.find_from(key, table.resting_bottom()).record != 0;
                }
                above = __shfl_sync(ALL_LANES, above, server_of_lane());
                if (turn_of_lane() == turn) duplicate = above != 0;
            }
        }
        if (!member) continue;
        u64 hash = table.hash_of_slot(slot, state);
        u64 number = number_of(scan, record & RECORD_OFFSET, view.record_stride);
        if ((WIDE && hash != state) || !belongs(table, hash, level, bucket)) {
            note_damage(findings, at, DAMAGE_FOREIGN_BUCKET);
        } else if (number == NO_NUMBER) {
            note_damage(findings, at, DAMAGE_NO_RECORD);
        } else if (!is_sound(state, record)) {
            note_damage(findings, at, DAMAGE_UNSOUND_WORD);
        } else if (duplicate) {
            note_repair(scan, findings, at, REPAIR_DUPLICATE);
        } else {
            members++;
            if ((record & FROZEN) != 0) note_repair(scan, findings, at, REPAIR_THAW);
            if (!mark_reachable(scan, number)) note_damage(findings, at, DAMAGE_SHARED_RECORD);
        }
    }
    Tally::sum(&findings->members, members);
}

KERNEL recovery_scan_word(const __grid_constant__ TableView view, u32 level,
                   const __grid_constant__ RecoveryScan scan, Findings *findings) {
    scan_level<false>(view, level, scan, findings);
}

KERNEL recovery_scan_wide(const __grid_constant__ TableView view, u32 level,
                   const __grid_constant__ RecoveryScan scan, Findings *findings) {
    scan_level<true>(view, level, scan, findings);
}
