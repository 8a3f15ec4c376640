// The table's operations on one item, each carried out by a whole warp: 32 lanes look at all
// candidate slots of a key in one access (GPHash §3.2.1). All lanes call together and get the same
// answer.
//
// Who may run beside whom: look-ups beside anything; what changes the table never beside another
// launch that changes it, and never two of its operations on one key. So a claim is the only
// place where two warps compete, and every other store is plain.
//
// Stores follow the slot protocol on the file; where a level is copied to device memory, the copy
// is changed after the file, and claims are taken on the copy alone.
#pragma once

#include "hash.cuh"
#include "touches.cuh"

// A key on its way through the table.
struct Key {
    u64 hash;
    u64 word;     // its state word in a slot
    u64 part;     // word `lane` of a wide key
    u32 reserved; // 1 + number of its reserved bucket, 0 for an ordinary key
};

// A slot: where its bucket is probed, where its bucket lies in the file, and which one it is.
struct Slot {
    u8 *bucket; // null: none
    u64 offset;
    u32 index;
};

struct Found {
    u64 record; // offset of the record, 0 if the key is absent
    Slot slot;
};

__device__ inline bool is_member(u64 record) {
    return (record & RECORD_OFFSET) != 0 && (record & (TENTATIVE | COLLIDED)) == 0;
}

__device__ inline Slot shuffle(const Slot &slot, u32 lane) {
    Slot there;
    u64 bucket = __shfl_sync(ALL_LANES, reinterpret_cast<u64>(slot.bucket), lane);
    there.bucket = reinterpret_cast<u8 *>(bucket);
    there.offset = __shfl_sync(ALL_LANES, slot.offset, lane);
    there.index = __shfl_sync(ALL_LANES, slot.index, lane);
    return there;
}

// WIDE: keys of more than 8 bytes, whose slots hold a fingerprint and the key.
template <bool WIDE>
struct Table {
    const TableView &view;
    Counters *counters;
    Touches touches;

    __device__ Table(const TableView &table, Counters *counts) : view(table), counters(counts) {}

    // ---- Keys.

    __device__ u32 key_words() const { return WIDE ? view.key_size / 8 : 1; }

    // What lane i needs to know of the key at position i, each lane for its own.
    __device__ Key prepare(const u8 *keys, u64 position) const {
        auto words = reinterpret_cast<const u64 *>(keys + position * view.key_size);
        Key key{};
        if constexpr (WIDE) {
            key.hash = fingerprint(hash_words(words, key_words(), view.hash_seed));
            key.word = key.hash;
        } else {
            key = of_word(words[0]);
        }
        return key;
    }

    __device__ Key of_word(u64 word) const {
        Key key{};
        key.hash = hash_word(word, view.hash_seed);
        key.reserved = word == EMPTY ? 1 : word == BUSY ? 2 : 0;
        key.word = key.reserved != 0 ? RESERVED_WORD : word;
        return key;
    }

    // The key that `lane` prepared, for all lanes.
    __device__ Key share(const Key &own, u32 lane, const u8 *keys, u64 position) const {
        Key key{};
        key.hash = __shfl_sync(ALL_LANES, own.hash, lane);
        key.word = __shfl_sync(ALL_LANES, own.word, lane);
        key.reserved = __shfl_sync(ALL_LANES, own.reserved, lane);
        if (WIDE && lane_number() < key_words()) {
            key.part = load(keys + position * view.key_size + lane_number() * 8);
        }
        return key;
    }

    // The key that an occupied slot holds, given its state word; not for reserved buckets.
    __device__ Key key_of_slot(const Slot &slot, u64 state) {
        if constexpr (!WIDE) return of_word(state);
        Key key{};
        key.hash = state;
        key.word = state;
        if (lane_number() < key_words()) {
            key.part = load(slot.bucket + key_offset(slot.index) + lane_number() * 8);
        }
        if (!is_copy(slot)) touches.range(slot.offset + key_offset(slot.index), view.key_size);
        return key;
    }

    // The hash of the key in this lane's occupied slot.
    __device__ u64 hash_of_slot(const Slot &slot, u64 state) const {
        if constexpr (!WIDE) return hash_word(state, view.hash_seed);
        auto key = reinterpret_cast<const u64 *>(slot.bucket + key_offset(slot.index));
        return fingerprint(hash_words(key, key_words(), view.hash_seed));
    }

    // ---- Slots.

    __device__ u8 *state_of(const Slot &slot) const { return slot.bucket + slot.index * 8; }

    __device__ u8 *record_of(const Slot &slot) const {
        return slot.bucket + (view.slots + slot.index) * 8;
    }

    __device__ u64 key_offset(u32 index) const {
        return view.slots * 16 + static_cast<u64>(index) * view.key_size;
    }

    __device__ bool is_copy(const Slot &slot) const {
        return slot.bucket != view.file + slot.offset;
    }

    __device__ Slot bucket_at(u32 level, u64 bucket) const {
        u64 within = bucket * view.bucket_size;
        return {view.level_probe[level] + within, view.level_offset[level] + within, 0};
    }

    __device__ Slot reserved_bucket(u32 number) const {
        return {view.reserved_probe[number], RESERVED_BUCKETS + number * RESERVED_BUCKET_STRIDE, 0};
    }

    // The lowest level that takes new items; those below it are being drained.
    __device__ u32 resting_bottom() const { return view.top_level + 1 - view.levels; }

    // The candidate slot of this lane among the groups from `group` on: the slots of one bucket
    // are a group, the buckets of one level stand side by side, lower levels first. The reserved
    // keys have one group, in whatever level and round they are looked for.
    __device__ Slot candidate(const Key &key, u32 from, u32 to, u32 round, u32 group) const {
        u32 slots = view.slots;
        group += lane_number() / slots;
        if (lane_number() / slots >= WARP / slots) return {};
        Slot slot;
        if (key.reserved != 0) {
            if (group != 0) return {};
            slot = reserved_bucket(key.reserved - 1);
        } else {
            if (group >= (to - from) * view.locations) return {};
            u32 level = from + group / view.locations;
            u64 there = location(key.hash, round * view.locations + group % view.locations);
            slot = bucket_at(level, bucket_of(there, level));
        }
        slot.index = lane_number() % slots;
        return slot;
    }

    // ---- Look-up.

    // The member with this key.
    __device__ Found find(const Key &key) { return find_from(key, view.bottom_level); }

    // The member with this key in level `from` and above.
    __device__ Found find_from(const Key &key, u32 from) {
        // A resize inserts above before it removes below, so whoever reads below first, all of
        // it, cannot miss an item on the move.
        u32 end = view.top_level + 1;
        #pragma unroll 1
        while (true) {
            u32 to = from < resting_bottom() ? resting_bottom() : end;
            Found found = find_in(key, from, to);
            if (found.record != 0 || to == end) return found;
            order();
            from = to;
        }
    }

    __device__ Found find_in(const Key &key, u32 from, u32 to) {
        u32 groups = (to - from) * view.locations;
        u32 group = 0;
        #pragma unroll 1
        for (u32 round = 0; round <= OVERFLOW_ROUNDS;) {
            Found found = match(key, candidate(key, from, to, round, group));
            if (found.record != 0) return found;
            group += WARP / view.slots;
            if (group < groups) continue;
            group = 0;
            order();
            if (round == 0 && !may_overflow(key)) break;
            round++;
        }
        return {};
    }

    // The member with this key among the lanes' slots.
    __device__ Found match(const Key &key, const Slot &slot) {
        bool present = slot.bucket != nullptr;
        touch_buckets(slot);
        #pragma unroll 1
        while (true) {
            bool same = present && load(state_of(slot)) == key.word;
            u32 matches = __ballot_sync(ALL_LANES, same);
            if (matches == 0) return {};
            if constexpr (WIDE) {
                matches = same_key(key, slot, matches);
                same = matches >> lane_number() & 1;
            }
            // The record is the key's only if the slot was the key's before and after.
            u64 record = 0;
            bool changed = false;
            if (same) {
                order();
                record = load(record_of(slot));
                order();
                changed = load(state_of(slot)) != key.word || load(record_of(slot)) != record;
            }
            touch_records(slot, matches);
            if (__any_sync(ALL_LANES, changed)) continue;
            u32 members = __ballot_sync(ALL_LANES, is_member(record));
            if (members == 0) return {};
            u32 lane = __ffs(members) - 1;
            Found found;
            found.slot = shuffle(slot, lane);
            found.record = __shfl_sync(ALL_LANES, record, lane) & RECORD_OFFSET;
            if (!is_record(found.record)) {
                report_damage(found.slot);
                return {};
            }
            return found;
        }
    }

    // Which of the matching lanes' slots hold the whole key.
    __device__ u32 same_key(const Key &key, const Slot &slot, u32 matches) {
        order();
        u32 equal = 0;
        #pragma unroll 1
        for (u32 rest = matches; rest != 0; rest &= rest - 1) {
            u32 lane = __ffs(rest) - 1;
            Slot there = shuffle(slot, lane);
            bool differs = false;
            if (lane_number() < key_words()) {
                u8 *part = there.bucket + key_offset(there.index) + lane_number() * 8;
                differs = load(part) != key.part;
            }
            if (!is_copy(there)) touches.range(there.offset + key_offset(there.index), view.key_size);
            if (!__any_sync(ALL_LANES, differs)) equal |= 1u << lane;
        }
        return equal;
    }

    // Whether items with this location 0 may have gone past round 0.
    __device__ bool may_overflow(const Key &key) {
        if (key.reserved != 0) return false;
        u32 level = view.bottom_level + lane_number();
        bool marked = level <= view.top_level && is_marked(level, key.hash);
        #pragma unroll 1
        for (u32 each = view.bottom_level; each <= view.top_level; each++) {
            if (view.level_probe[each] != view.file + view.level_offset[each]) continue;
            touches.one(view.level_offset[each] + overflow_word(each, bucket_of(key.hash, each)));
        }
        return __any_sync(ALL_LANES, marked);
    }

    // Whether the overflow map of one level has the bit of this hash.
    __device__ bool is_marked(u32 level, u64 hash) const {
        u64 bucket = bucket_of(hash, level);
        return load(view.level_probe[level] + overflow_word(level, bucket)) >> bucket % 64 & 1;
    }

    __device__ u64 overflow_word(u32 level, u64 bucket) const {
        return (static_cast<u64>(view.bucket_size) << level) + bucket / 64 * 8;
    }

    // Whether an offset that stands in the file can be that of a record.
    __device__ bool is_record(u64 offset) const {
        return offset >= DATA_START && offset % 8 == 0 && offset <= view.file_len &&
               view.record_stride <= view.file_len - offset;
    }

    __device__ void report_damage(const Slot &slot) {
        if (counters != nullptr && lane_number() == 0) {
            counters->damaged = slot.offset + (view.slots + slot.index) * 8;
        }
    }

    // ---- Claim.

    // An empty slot for an absent key, now BUSY where it is probed; none if all are taken.
    __device__ Slot claim(const Key &key) {
        u32 rounds = key.reserved != 0 ? 0 : OVERFLOW_ROUNDS;
        #pragma unroll 1
        for (u32 round = 0; round <= rounds; round++) {
            // Resting levels × locations × slots never exceed a warp.
            Slot slot = candidate(key, resting_bottom(), view.top_level + 1, round, 0);
            slot = claim_among(key, slot, round);
            if (slot.bucket != nullptr) return slot;
        }
        return {};
    }

    __device__ Slot claim_among(const Key &key, const Slot &slot, u32 round) {
        touch_buckets(slot);
        #pragma unroll 1
        while (true) {
            bool empty = slot.bucket != nullptr && load(state_of(slot)) == EMPTY;
            u32 empties = __ballot_sync(ALL_LANES, empty);
            if (empties == 0) return {};
            // A reader that sees the item past round 0 must have been told to look there.
            if (round > 0) mark_overflow(key);
            u32 lane = emptiest(empties);
            bool won = lane_number() == lane && compare_exchange(state_of(slot), EMPTY, BUSY) == EMPTY;
            if (__any_sync(ALL_LANES, won)) return shuffle(slot, lane);
        }
    }

    // The first empty slot of the bucket with the most empty ones; the higher level wins a tie.
    __device__ u32 emptiest(u32 empties) const {
        u32 bucket = ALL_LANES >> (WARP - view.slots);
        u32 best = 0;
        u32 most = 0;
        #pragma unroll 1
        for (u32 group = 0; group < view.levels * view.locations; group++) {
            u32 count = __popc(empties >> group * view.slots & bucket);
            bool higher = group / view.locations != best / view.locations;
            if (count > most || (count != 0 && count == most && higher)) {
                best = group;
                most = count;
            }
        }
        return __ffs(empties & bucket << best * view.slots) - 1;
    }

    __device__ void mark_overflow(const Key &key) {
        u32 top = view.top_level;
        u64 bucket = bucket_of(key.hash, top);
        u64 word = overflow_word(top, bucket);
        u8 *probe = view.level_probe[top] + word;
        u8 *file = view.file + view.level_offset[top] + word;
        touches.one(view.level_offset[top] + word);
        if (lane_number() == 0 && (load(probe) >> bucket % 64 & 1) == 0) {
            fetch_or(file, 1ull << bucket % 64);
            mark_dirty(view.level_offset[top] + word, 8);
            persist();
            if (probe != file) fetch_or(probe, 1ull << bucket % 64);
        }
        __syncwarp();
    }

    // ---- Steps of a change, one lane an item. The callers persist between them.

    __device__ void store_state(const Slot &slot, u64 word) {
        store(view.file + slot.offset + slot.index * 8, word);
        mark_dirty(slot.offset + slot.index * 8, 8);
    }

    __device__ void store_record(const Slot &slot, u64 word) {
        u64 at = slot.offset + (view.slots + slot.index) * 8;
        store(view.file + at, word);
        mark_dirty(at, 8);
    }

    // The same on the copy, where there is one.
    __device__ void copy_state(const Slot &slot, u64 word) {
        if (is_copy(slot)) store(state_of(slot), word);
    }

    __device__ void copy_record(const Slot &slot, u64 word) {
        if (is_copy(slot)) store(record_of(slot), word);
    }

    // Takes the item out of each lane's slot where `gone`, the record word first. All lanes call.
    __device__ void clear(const Slot &slot, bool gone) {
        if (gone) store_record(slot, 0);
        persist();
        if (gone) {
            store_state(slot, EMPTY);
            copy_record(slot, 0);
        }
        order();
        if (gone) copy_state(slot, EMPTY);
    }

    // Writes a wide key into a claimed slot, all lanes together; `part` is word `lane` of it.
    __device__ void store_key(const Slot &slot, u64 part) {
        u64 at = key_offset(slot.index) + lane_number() * 8;
        if (lane_number() < key_words()) {
            store(view.file + slot.offset + at, part);
            if (is_copy(slot)) store(slot.bucket + at, part);
        }
        if (lane_number() == 0) mark_dirty(slot.offset + key_offset(slot.index), view.key_size);
    }

    // Notes that pages of the file differ from the last checkpoint.
    __device__ void mark_dirty(u64 at, u64 len) const {
        if (view.dirty == nullptr) return;
        #pragma unroll 1
        for (u64 page = at / PAGE; page <= (at + len - 1) / PAGE; page++) {
            u32 bit = 1u << page % 32;
            volatile u32 *word = view.dirty + page / 32;
            if ((*word & bit) == 0) atomicOr(view.dirty + page / 32, bit);
        }
    }

    // ---- Touches.

    // The state words of the buckets that the lanes are about to read.
    __device__ void touch_buckets(const Slot &slot) {
        bool reads = slot.bucket != nullptr && !is_copy(slot);
        u32 rest = __ballot_sync(ALL_LANES, reads && slot.index == 0);
        #pragma unroll 1
        for (; rest != 0; rest &= rest - 1) {
            touches.range(__shfl_sync(ALL_LANES, slot.offset, __ffs(rest) - 1), view.slots * 8);
        }
    }

    // The record words of matching lanes.
    __device__ void touch_records(const Slot &slot, u32 matches) {
        u32 rest = __ballot_sync(ALL_LANES, (matches >> lane_number() & 1) && !is_copy(slot));
        #pragma unroll 1
        for (; rest != 0; rest &= rest - 1) {
            Slot there = shuffle(slot, __ffs(rest) - 1);
            touches.one(there.offset + (view.slots + there.index) * 8);
        }
    }

    // What a change writes into a slot.
    __device__ void touch_slot(const Slot &slot, bool state, bool key) {
        if (state) touches.one(slot.offset + slot.index * 8);
        touches.one(slot.offset + (view.slots + slot.index) * 8);
        if (WIDE && key) touches.range(slot.offset + key_offset(slot.index), view.key_size);
    }
};
