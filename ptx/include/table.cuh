// The table's operations on one item, each executed by a group of lanes, four items side by
// side in a warp. All lanes of a group call together and get the same answer.
//
// Who may run beside whom: lookups run beside anything; what changes the table never beside
// another launch that changes it, and never two of its operations on one key. So a claim is the
// only point where two groups compete, and every other store is plain.
//
// Stores follow the slot protocol on the file. Where a level is copied to device memory, the copy
// is changed after the file, and claims are taken on the copy alone.
#pragma once

#include "cache.cuh"
#include "group.cuh"
#include "hash.cuh"

// Empty slots that a home bucket must have to be taken before all others (src/table/ops/insert.rs).
constexpr u32 HOME_SPARE = 2;

// A key on its way through the table.
struct Key {
    u64 hash;
    u64 word;        // its state word in a slot
    const u8 *bytes; // where a wide key stands
    u32 reserved;    // 1 + number of its reserved bucket, 0 for an ordinary key
};

// A bucket: where it is probed, where it lies in the file, and its number in the table: 1 << level
// plus its number in the level; 0 for the reserved ones.
struct Bucket {
    u8 *probe; // null: none
    u64 offset;
    u64 ordinal;
};

struct Slot {
    Bucket bucket;
    u32 index;
};

struct Found {
    u64 record; // offset of the record, 0 if the key is absent
    Slot slot;
    bool is_sound; // whether no bit of the slot's words is known to be flipped
};

__device__ inline bool is_member(u64 record) {
    return (record & RECORD_OFFSET) != 0 && (record & (TENTATIVE | COLLIDED)) == 0;
}

// The record word of a member, beside its state word or in place of another word of its slot: they have
// the same parity.
__device__ inline u64 member_word(u64 other, u64 record) {
    return (__popcll(other ^ record) & 1) != 0 ? record | PARITY : record;
}

// Whether a record word can stand beside a state word (RecordWord::is_sound in src/layout/words/record.rs).
__device__ inline bool is_sound(u64 state, u64 record) {
    if (record == 0) return true;
    if (is_member(record)) return (__popcll(state ^ record) & 1) == 0;
    return (record & INSERTION) != 0;
}

// Number of lines in a range of the file.
__device__ inline u32 lines_in(u64 offset, u64 len) {
    return static_cast<u32>((offset + len - 1) / LINE - offset / LINE + 1);
}

// Puts the words of a bucket's slots, which lie side by side in the file, in the order of a copy: all state
// words, then all record words. `to` may be `from`. A warp together.
__device__ inline void split_slots(const u8 *from, u8 *to, u32 slots) {
    u32 index = lane_number();
    u64 state = 0;
    u64 record = 0;
    if (index < slots) {
        state = load(from + index * SLOT_WORDS_BYTES);
        record = load(from + index * SLOT_WORDS_BYTES + 8);
    }
    __syncwarp();
    if (index < slots) {
        store(to + index * 8, state);
        store(to + (slots + index) * 8, record);
    }
    __syncwarp();
}

// WIDE: keys of more than 8 bytes, whose slots hold a fingerprint and the key.
template <bool WIDE>
struct Table {
    const TableView &view;
    Counters *counters;
    // Lines of the file that were read or written; the same in all lanes of a group.
    u32 touches = 0;
    // Whether the group has met a damaged slot; for callers to reset.
    bool met_damage = false;

    __device__ Table(const TableView &table, Counters *counts) : view(table), counters(counts) {}

    // ---- Keys.

    __device__ u32 key_words() const { return WIDE ? view.key_size / 8 : 1; }

    // The key that stands at `bytes`, each lane for its own.
    __device__ Key prepare(const u8 *bytes) const {
        auto words = reinterpret_cast<const u64 *>(bytes);
        if constexpr (!WIDE) return of_word(__ldcs(words));
        u64 hash = fingerprint(hash_words(words, key_words(), view.hash_seed));
        return {hash, hash, bytes, 0};
    }

    // Where the key of a position of a batch stands.
    __device__ const u8 *key_at(const Batch &batch, u64 position) const {
        return batch.keys + position * view.key_size;
    }

    __device__ Key of_word(u64 word) const {
        u32 reserved = word == EMPTY ? 1 : word == BUSY ? 2 : 0;
        u64 state = reserved != 0 ? RESERVED_WORD : word;
        return {hash_word(word, view.hash_seed), state, nullptr, reserved};
    }

    // For each group the key that lane `lane` has, which may differ from group to group. All lanes
    // of the warp call.
    __device__ Key share(const Key &own, u32 lane) const {
        Key key{};
        key.hash = __shfl_sync(ALL_LANES, own.hash, lane);
        key.word = __shfl_sync(ALL_LANES, own.word, lane);
        if constexpr (WIDE) {
            u64 bytes = __shfl_sync(ALL_LANES, reinterpret_cast<u64>(own.bytes), lane);
            key.bytes = reinterpret_cast<const u8 *>(bytes);
        } else {
            key.reserved = __shfl_sync(ALL_LANES, own.reserved, lane);
        }
        return key;
    }

    // The key that an occupied slot holds, given its state word; not for reserved buckets. Each
    // lane for its own.
    __device__ Key key_of_slot(const Slot &slot, u64 state) const {
        if constexpr (!WIDE) return of_word(state);
        return {state, state, slot.bucket.probe + key_offset(slot.index), 0};
    }

    // The hash of the key in this lane's occupied slot.
    __device__ u64 hash_of_slot(const Slot &slot, u64 state) const {
        if constexpr (!WIDE) return hash_word(state, view.hash_seed);
        auto key = reinterpret_cast<const u64 *>(slot.bucket.probe + key_offset(slot.index));
        return fingerprint(hash_words(key, key_words(), view.hash_seed));
    }

    // ---- Slots.

    // The words of a slot where its bucket is probed. In the file they lie side by side, so that a
    // change writes one line. In a copy all states come first, so that a lookup reads no record
    // word of another key.
    __device__ u8 *state_of(const Slot &slot) const {
        return slot.bucket.probe + (slot.index << (is_copy(slot.bucket) ? 3 : 4));
    }

    __device__ u8 *record_of(const Slot &slot) const {
        return slot.bucket.probe +
               (is_copy(slot.bucket) ? (view.slots + slot.index) << 3 : (slot.index << 4) + 8);
    }

    // Where a slot's record word lies in its bucket of the file.
    __device__ u64 record_offset(u32 index) const { return index * SLOT_WORDS_BYTES + 8; }

    __device__ u64 key_offset(u32 index) const {
        return view.slots * SLOT_WORDS_BYTES + static_cast<u64>(index) * view.key_size;
    }

    // Offset of a slot's state word in the file, by which a slot is named between launches.
    __device__ u64 offset_of(const Slot &slot) const {
        return slot.bucket.offset + slot.index * SLOT_WORDS_BYTES;
    }

    // The slot whose state word lies at this offset.
    __device__ Slot slot_at(u64 offset) const {
        if (offset < DATA_START) {
            u32 number = offset >= RESERVED_BUCKETS + RESERVED_BUCKET_STRIDE;
            Bucket bucket = reserved_bucket(number);
            return {bucket, static_cast<u32>((offset - bucket.offset) / SLOT_WORDS_BYTES)};
        }
        u32 level = view.bottom_level;
        #pragma unroll 1
        while (offset - view.level_offset[level] >= static_cast<u64>(view.bucket_size) << level) {
            level++;
        }
        u64 within = offset - view.level_offset[level];
        u64 number = within / view.bucket_size;
        u32 index = static_cast<u32>((within - number * view.bucket_size) / SLOT_WORDS_BYTES);
        return {bucket_at(level, number), index};
    }

    __device__ bool is_copy(const Bucket &bucket) const {
        return bucket.probe != view.file + bucket.offset;
    }

    __device__ Bucket bucket_at(u32 level, u64 number) const {
        u64 within = number * view.bucket_size;
        Bucket bucket{view.level_probe[level] + within, view.level_offset[level] + within,
                      (1ull << level) + number};
        if (view.cache.buckets != nullptr && !is_copy(bucket)) {
            u8 *cached = cached_bucket(view, bucket.ordinal);
            if (cached != nullptr) bucket.probe = cached;
        }
        return bucket;
    }

    __device__ Bucket reserved_bucket(u32 number) const {
        return {view.reserved_probe[number], RESERVED_BUCKETS + number * RESERVED_BUCKET_STRIDE, 0};
    }

    // The lowest level that takes new items; those below it are being drained.
    __device__ u32 resting_bottom() const { return view.top_level + 1 - view.levels; }

    // Slots of a bucket are looked at in stripes, one slot a lane.
    __device__ u32 stripes() const { return (view.slots + GROUP - 1) / GROUP; }

    // The state word of this lane's slot of a stripe; BUSY, which is nobody's, past the last slot.
    __device__ u64 state_in(const Bucket &bucket, u32 stripe) const {
        u32 index = stripe * GROUP + group_lane();
        return index < view.slots ? load(state_of({bucket, index})) : BUSY;
    }

    // Visits the candidate buckets of one round in levels `from` to `to` - 1, the highest level
    // first, until `visit` says that it has what it wants. Says whether it did. The reserved keys
    // have one bucket, in whatever levels they are looked for.
    template <class Visit>
    __device__ bool any_candidate(const Key &key, u32 from, u32 to, u32 round, Visit visit) const {
        if (key.reserved != 0) return round == 0 && visit(reserved_bucket(key.reserved - 1));
        #pragma unroll 1
        for (u32 level = to; level-- > from;) {
            #pragma unroll 1
            for (u32 nth = round * view.locations; nth < (round + 1) * view.locations; nth++) {
                if (visit(bucket_at(level, bucket_of(location(key.hash, nth), level)))) return true;
            }
        }
        return false;
    }

    // ---- Lookup.

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
        Found found{};
        #pragma unroll 1
        for (u32 round = 0; round <= OVERFLOW_ROUNDS; round++) {
            any_candidate(key, from, to, round, [&](const Bucket &bucket) {
                found = match(key, bucket);
                return found.record != 0;
            });
            if (found.record != 0) break;
            if (round == 0 && !may_overflow(key)) break;
        }
        return found;
    }

    // The member with this key in one bucket.
    __device__ Found match(const Key &key, Bucket bucket) {
        if (view.cache.buckets != nullptr) {
            // A refresh may show or evict the bucket between two lanes' reads of its link.
            u64 probe = group_word(reinterpret_cast<u64>(bucket.probe), 0);
            bucket.probe = reinterpret_cast<u8 *>(probe);
        }
        touch_states(bucket);
        #pragma unroll 1
        for (u32 stripe = 0; stripe < stripes(); stripe++) {
            u32 matches = group_ballot(state_in(bucket, stripe) == key.word);
            #pragma unroll 1
            for (; matches != 0; matches &= matches - 1) {
                Slot slot{bucket, stripe * GROUP + __ffs(matches) - 1};
                u64 word = record_if_member(key, slot);
                if (word == 0) continue;
                u64 record = word & RECORD_OFFSET;
                if (is_record(record)) return {record, slot, is_sound(key.word, word)};
                report_damage(slot);
            }
        }
        return {};
    }

    // The record word of a slot if it holds the key's member.
    __device__ u64 record_if_member(const Key &key, const Slot &slot) {
        #pragma unroll 1
        while (true) {
            u64 record = group_load_acquire(record_of(slot));
            bool same = holds(key, slot);
            // The record is the key's only if it was there before and after the key was.
            if (group_load(record_of(slot)) != record) continue;
            return same && is_member(record) ? record : 0;
        }
    }

    // Whether a slot holds the state word of the key, and all of a wide one: a lane a word, so that they
    // are read side by side.
    __device__ bool holds(const Key &key, const Slot &slot) {
        if constexpr (!WIDE) return group_load_acquire(state_of(slot)) == key.word;
        touch_key(slot);
        bool differs = false;
        #pragma unroll 1
        for (u32 word = group_lane(); word <= key_words(); word += GROUP) {
            bool of_key = word < key_words();
            u64 wanted = of_key ? load(key.bytes + word * 8) : key.word;
            u8 *at = of_key ? slot.bucket.probe + key_offset(slot.index) + word * 8 : state_of(slot);
            differs |= load_acquire(at) != wanted;
        }
        return !group_any(differs);
    }

    // Whether items with this location 0 may have gone past round 0. Asked after round 0 was read.
    __device__ bool may_overflow(const Key &key) {
        if (key.reserved != 0) return false;
        order();
        bool marked = false;
        #pragma unroll 1
        for (u32 each = view.bottom_level; each <= view.top_level; each++) {
            if (each % GROUP == group_lane()) marked |= is_marked(each, key.hash);
            touches += view.level_probe[each] == view.file + view.level_offset[each];
        }
        return group_any(marked);
    }

    // Whether the overflow map of one level has the bit of this hash.
    __device__ bool is_marked(u32 level, u64 hash) const {
        u64 bucket = bucket_of(hash, level);
        return load(view.level_probe[level] + overflow_word(level, bucket)) >> bucket % 64 & 1;
    }

    __device__ u64 overflow_word(u32 level, u64 bucket) const {
        return (static_cast<u64>(view.bucket_size) << level) + bucket / 64 * 8;
    }

    // Whether an offset can be that of a record (record_in_bounds in src/table/record.rs).
    __device__ bool is_record(u64 offset) const {
        u32 alignment = view.record_stride < 64 ? view.record_stride : 64;
        return offset >= DATA_START && (offset & (alignment - 1)) == 0 && offset <= view.file_len &&
               view.record_stride <= view.file_len - offset;
    }

    __device__ void report_damage(const Slot &slot) {
        met_damage = true;
        if (counters != nullptr && group_lane() == 0) {
            counters->damaged = slot.bucket.offset + record_offset(slot.index);
        }
    }

    // ---- Claim.

    // An empty slot for an absent key, now BUSY where it is probed; none if all are taken.
    __device__ Slot claim(const Key &key) {
        u32 rounds = key.reserved != 0 ? 0 : OVERFLOW_ROUNDS;
        #pragma unroll 1
        for (u32 round = 0; round <= rounds; round++) {
            #pragma unroll 1
            while (true) {
                Bucket bucket = roomiest(key, round);
                if (bucket.probe == nullptr) break;
                // A reader that sees the item past round 0 must have been told to look there.
                if (round > 0) mark_overflow(key);
                Slot slot = claim_in(bucket);
                if (slot.bucket.probe != nullptr) return slot;
            }
        }
        return {};
    }

    // The home bucket while it has HOME_SPARE empty slots, so that most lookups end there. Else the
    // candidate with most of them, the higher level in a tie. None if all are full.
    __device__ Bucket roomiest(const Key &key, u32 round) {
        Bucket best{};
        u32 most = 0;
        bool home = round == 0;
        any_candidate(key, resting_bottom(), view.top_level + 1, round, [&](const Bucket &bucket) {
            // The lookup before has counted those of round 0.
            if (round > 0) touch_states(bucket);
            u32 empty = 0;
            #pragma unroll 1
            for (u32 stripe = 0; stripe < stripes(); stripe++) {
                empty += __popc(group_ballot(state_in(bucket, stripe) == EMPTY));
            }
            if (empty > most) {
                best = bucket;
                most = empty;
            }
            bool enough = home && empty >= HOME_SPARE;
            home = false;
            return enough;
        });
        return best;
    }

    // The first empty slot of a bucket, claimed; none if there is none any more.
    __device__ Slot claim_in(const Bucket &bucket) {
        #pragma unroll 1
        for (u32 stripe = 0; stripe < stripes(); stripe++) {
            #pragma unroll 1
            while (true) {
                u32 empty = group_ballot(state_in(bucket, stripe) == EMPTY);
                if (empty == 0) break;
                u32 lane = __ffs(empty) - 1;
                Slot slot{bucket, stripe * GROUP + lane};
                bool won = group_lane() == lane &&
                           compare_exchange(state_of(slot), EMPTY, BUSY) == EMPTY;
                if (group_any(won)) return slot;
            }
        }
        return {};
    }

    __device__ void mark_overflow(const Key &key) {
        u32 top = view.top_level;
        u64 bucket = bucket_of(key.hash, top);
        u64 word = overflow_word(top, bucket);
        u8 *probe = view.level_probe[top] + word;
        u8 *file = view.file + view.level_offset[top] + word;
        touches++;
        if (group_lane() == 0 && (load(probe) >> bucket % 64 & 1) == 0) {
            fetch_or(file, 1ull << bucket % 64);
            mark_dirty(view.level_offset[top] + word, 8);
            persist();
            if (probe != file) fetch_or(probe, 1ull << bucket % 64);
        }
        __syncwarp(group_mask());
    }

    // ---- Steps of a change, one lane an item. The callers persist between them.

    // Both words of the slot whose state word lies at an offset of the file, by one store. A crash that leaves
    // one of them leaves no member, since the slot was durably empty before it was filled.
    __device__ void store_words(u64 offset, u64 state, u64 record) const {
        uint4 words{static_cast<u32>(state), static_cast<u32>(state >> 32), static_cast<u32>(record),
                    static_cast<u32>(record >> 32)};
        store_unit(reinterpret_cast<uint4 *>(view.file + offset), words);
        mark_dirty(offset, SLOT_WORDS_BYTES);
    }

    // The same on the copy, where there is one.
    __device__ void copy_state(const Slot &slot, u64 word) {
        if (is_copy(slot.bucket)) store(state_of(slot), word);
    }

    __device__ void copy_record(const Slot &slot, u64 word) {
        if (is_copy(slot.bucket)) store(record_of(slot), word);
    }

    // Takes the item out of each lane's slot where `gone`. All lanes call.
    __device__ void clear(const Slot &slot, bool gone) {
        if (gone) store_words(offset_of(slot), EMPTY, 0);
        persist();
        if (gone) copy_record(slot, 0);
        order();
        if (gone) copy_state(slot, EMPTY);
    }

    // Writes a wide key into a claimed slot, a group together, in the file and on the copy.
    __device__ void store_key(const Slot &slot, const u8 *bytes) {
        u64 at = key_offset(slot.index);
        #pragma unroll 1
        for (u32 word = group_lane(); word < key_words(); word += GROUP) {
            u64 part = load(bytes + word * 8);
            store(view.file + slot.bucket.offset + at + word * 8, part);
            if (is_copy(slot.bucket)) store(slot.bucket.probe + at + word * 8, part);
        }
        if (group_lane() == 0) mark_dirty(slot.bucket.offset + at, view.key_size);
    }

    // The same for every lane of the warp that `wants` it, `offset` naming its slot.
    __device__ void store_keys(u64 offset, const u8 *bytes, bool wants) {
        u32 wanting = __ballot_sync(ALL_LANES, wants);
        #pragma unroll 1
        for (u32 turn = 0; turn < GROUP; turn++) {
            u32 at = served_lane(turn);
            u64 there = __shfl_sync(ALL_LANES, offset, at);
            u64 key = __shfl_sync(ALL_LANES, reinterpret_cast<u64>(bytes), at);
            if (wanting >> at & 1) store_key(slot_at(there), reinterpret_cast<const u8 *>(key));
        }
    }

    // Bytes of a record that mean something.
    __device__ u32 record_len() const {
        return view.checksum_offset != 0 ? view.checksum_offset + 8 : view.value_size;
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

    // ---- Touches of probing, where a bucket is probed in the file.

    __device__ void touch_states(const Bucket &bucket) {
        if (!is_copy(bucket)) touches += lines_in(bucket.offset, view.slots * SLOT_WORDS_BYTES);
    }

    __device__ void touch_key(const Slot &slot) {
        if (!is_copy(slot.bucket)) touches += key_lines(slot);
    }

    // ---- Touches of a change in one slot of the file, each lane for its own.

    // Lines of the slot's key that hold no word of the slot.
    __device__ u32 key_lines(const Slot &slot) const {
        u64 at = slot.bucket.offset + key_offset(slot.index);
        return lines_in(at, view.key_size) - (at / LINE == offset_of(slot) / LINE);
    }
};
