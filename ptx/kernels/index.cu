// The verbs. Each kernel comes for keys of 8 bytes (`_word`) and for longer ones (`_wide`).
//
// A lookup is `get`, `contains` or `locate`. It finds the records, and copies the values or says
// where they are. Of a batch that is put in order (order.cuh) `get` leaves the values in the file
// to `fetch`. A change is two launches. The first finds the slots, claims among them. The second
// stores into the file. In between the batch may be put in order.
//
// Launches of lookups may run beside any other; those of changes, `drain` included, one after
// another.
#include "cache.cuh"
#include "copy.cuh"
#include "order.cuh"
#include "records.cuh"
#include "table.cuh"
#include "tile.cuh"

enum class Verb { INSERT, UPSERT, UPDATE, REMOVE };

// Between the two launches of a change, a slot is its offset; this bit of it says that the slot was
// claimed for a new item.
constexpr u64 CLAIMED = 1;

// ---- Lookups.

// What a lookup gives beside its answers.
enum class Output { NONE, OFFSETS, VALUES };

// What a lookup has found, in the lane that it is for.
struct Hit {
    u64 record; // 0 if the key is absent
    u64 ordinal;
    u32 index;
};

// Copies what is wanted of the values that are cached, and if the batch is not put in order of the others
// too.
__device__ inline void copy_found(const TableView &view, const Batch &batch, u64 position,
                                  bool mine, const Hit &hit, Tally &tally) {
    u8 *value = batch.values + position * view.value_size;
    const u8 *aligned = aligned_as_part(batch.values, view.value_offset);
    u64 record = hit.record;
    if (view.cache.links != nullptr) {
        bool found = record != 0;
        if (found) note_access(view, hit.ordinal, batch, position);
        CachedValue cached{};
        if (found) cached = cached_value(view, hit.ordinal, hit.index, record);
        bool is_cached = cached.value != nullptr;
        copy_values(cached.value + view.value_offset, value, aligned, view.value_size, is_cached);
        if (still_cached(cached, record) && is_cached) record = 0;
        tally.cache_lookups += found;
        tally.cache_hits += found && record == 0;
    }
    if (record != 0) tally.touches += lines_in(record + view.value_offset, view.value_size);
    if (batch.order.wanted != 0) {
        if (mine) enter_order(batch.order, position, record);
    } else {
        const u8 *wanted = view.file + record + view.value_offset;
        copy_values(wanted, value, aligned, view.value_size, record != 0);
    }
}

template <bool WIDE, Output OUTPUT>
__device__ void lookup(const TableView &view, const Batch &batch, Counters *counters) {
    Table<WIDE> table(view, counters);
    Tally tally;
    #pragma unroll 1
    for (Tile tile(batch); tile.exists(); tile.next()) {
        bool mine = tile.has_position();
        u64 position = tile.position();
        Key own = mine ? table.prepare(table.key_at(batch, position)) : Key{};
        u32 executes = __ballot_sync(ALL_LANES, mine);
        Hit hit{};
        #pragma unroll 1
        for (u32 turn = 0; turn < batch.tile / GROUPS; turn++) {
            Key key = table.share(own, served_lane(turn));
            Found found{};
            if (executes >> served_lane(turn) & 1) found = table.find(key);
            u32 server = server_of_lane();
            u64 record = __shfl_sync(ALL_LANES, found.record, server);
            u64 ordinal = __shfl_sync(ALL_LANES, found.slot.bucket.ordinal, server);
            u32 index = __shfl_sync(ALL_LANES, found.slot.index, server);
            if (turn_of_lane() == turn) hit = {record, ordinal, index};
        }
        tile.answer_all(hit.record != 0);
        tally.operations += mine;
        if constexpr (OUTPUT == Output::VALUES) {
            copy_found(view, batch, position, mine, hit, tally);
        }
        if constexpr (OUTPUT == Output::OFFSETS) {
            u64 wanted = hit.record == 0 ? 0 : hit.record + view.value_offset;
            if (mine) __stcs(reinterpret_cast<u64 *>(batch.values) + position, wanted);
            if (wanted != 0) tally.touches += lines_in(wanted, view.value_size);
        }
    }
    tally.add_to(counters, table.touches);
}

// Copies what is wanted for each lane that has an offset in the file, much of it under way at once: a few warps
// are enough to keep the bus busy.
template <class Unit>
__device__ void fetch_units(const TableView &view, const Batch &batch, u64 record, u64 position) {
    constexpr u32 UNDER_WAY = 8;
    u32 units = view.value_size / sizeof(Unit);
    u32 lanes = lanes_for(units);
    u32 group = lane_number() / lanes;
    u32 groups = WARP / lanes;
    #pragma unroll 1
    for (u32 first = 0; first < WARP; first += groups * UNDER_WAY) {
        #pragma unroll 1
        for (u32 part = 0; part < units; part += lanes) {
            u32 unit = part + lane_number() % lanes;
            Unit held[UNDER_WAY];
            Unit *to[UNDER_WAY];
            #pragma unroll
            for (u32 nth = 0; nth < UNDER_WAY; nth++) {
                u32 which = first + nth * groups + group;
                u64 from = __shfl_sync(ALL_LANES, record, which % WARP);
                u64 at = __shfl_sync(ALL_LANES, position, which % WARP);
                to[nth] = nullptr;
                if (which >= WARP || from == 0 || unit >= units) continue;
                to[nth] = reinterpret_cast<Unit *>(batch.values + at * view.value_size) + unit;
                held[nth] = load_unit(reinterpret_cast<const Unit *>(view.file + from) + unit);
            }
            #pragma unroll
            for (u32 nth = 0; nth < UNDER_WAY; nth++) {
                if (to[nth] != nullptr) __stcs(to[nth], held[nth]);
            }
        }
    }
}

// Copies the values that a `get` has found, in the order of their records.
KERNEL fetch(const __grid_constant__ TableView view, const __grid_constant__ Batch batch) {
    Share share(batch, 1);
    share.read_from(view.file_len);
    #pragma unroll 1
    for (; share.exists(); share.next()) {
        u64 record;
        u64 position = share.position(0, &record);
        if (record != 0) record += view.value_offset;
        switch (common_alignment(batch.values, view.value_size | view.value_offset)) {
        case 16: fetch_units<uint4>(view, batch, record, position); break;
        case 8: fetch_units<u64>(view, batch, record, position); break;
        case 4: fetch_units<u32>(view, batch, record, position); break;
        default: fetch_units<u8>(view, batch, record, position);
        }
    }
}

// ---- Changes.

// The record in which the host has put a position's value.
__device__ inline u64 stored_record(const Batch &batch, u64 position) {
    return __ldcs(reinterpret_cast<const u64 *>(batch.values) + position);
}

// Finds the slot of each operation that has something to do: the one of its member, or for a new
// item one that it claims. Retires the records of values that are stored for nothing.
template <bool WIDE, Verb VERB>
__device__ void resolve(const TableView &view, const Records &records, const Batch &batch,
                        Counters *counters) {
    constexpr bool INSERTS = VERB == Verb::INSERT || VERB == Verb::UPSERT;
    constexpr Pick PICK = VERB == Verb::INSERT || VERB == Verb::REMOVE ? Pick::FIRST : Pick::LAST;
    Table<WIDE> table(view, counters);
    Tally tally;
    #pragma unroll 1
    for (Tile tile(batch); tile.exists(); tile.next()) {
        bool mine = tile.executes(PICK);
        u64 position = tile.position();
        Key own = mine ? table.prepare(table.key_at(batch, position)) : Key{};
        u32 executes = __ballot_sync(ALL_LANES, mine);
        u64 offset = 0;
        bool full = false;
        #pragma unroll 1
        for (u32 turn = 0; turn < batch.tile / GROUPS; turn++) {
            Key key = table.share(own, served_lane(turn));
            u64 there = 0;
            bool nowhere = false;
            if (executes >> served_lane(turn) & 1) {
                table.met_damage = false;
                Found found = table.find(key);
                if (found.record != 0) {
                    if (VERB != Verb::INSERT) {
                        // A damaged word may name the record of another item.
                        if (found.is_sound) there = table.offset_of(found.slot);
                        else table.report_damage(found.slot);
                    }
                } else if (INSERTS && !table.met_damage) {
                    // A damaged slot is the key's own: one more would be a second item.
                    Slot slot = table.claim(key);
                    nowhere = slot.bucket.probe == nullptr;
                    if (!nowhere) there = table.offset_of(slot) | CLAIMED;
                }
            }
            there = __shfl_sync(ALL_LANES, there, server_of_lane());
            nowhere = __shfl_sync(ALL_LANES, static_cast<u32>(nowhere), server_of_lane()) != 0;
            if (turn_of_lane() == turn) {
                offset = there;
                full = nowhere;
            }
        }
        if (tile.has_position()) {
            if (batch.order.wanted != 0) {
                enter_order(batch.order, position, offset);
            } else {
                __stcs(batch.order.offsets + position, offset);
            }
            __stcs(batch.pending + position, static_cast<u8>(full));
        }
        if (batch.stored != 0) {
            bool given = batch.retry != 0 ? mine : tile.has_position();
            bool needless = given && offset == 0 && !full;
            retire_record(records, counters, needless ? stored_record(batch, position) : 0);
        }
        tally.operations += mine;
        tally.full += full;
        if (VERB != Verb::REMOVE) tally.wanted += offset != 0;
    }
    tally.add_to(counters, table.touches);
}

// One operation of a change, in the lane that executes it.
struct Mutation {
    u64 offset;  // of its slot, as `resolve` has left it; 0 for none
    u64 record; // the new one; 0 for none
    u32 position;

    __device__ bool writes() const { return record != 0; }

    __device__ bool inserts() const { return record != 0 && (offset & CLAIMED) != 0; }

    __device__ u64 state_at() const { return offset & ~CLAIMED; }
};

// Writes the value of a new item or a new value of an old one into a fresh record, unless it is in one
// already, and the key of a new wide item.
template <bool WIDE>
__device__ Mutation write_value(Table<WIDE> &table, const Records &records, const Batch &batch,
                                const Share &share, u32 nth, Tally &tally) {
    const TableView &view = table.view;
    Mutation change{};
    change.position = share.position(nth, &change.offset);
    bool wants = change.offset != 0;
    if (batch.stored != 0) {
        if (wants) change.record = stored_record(batch, change.position);
    } else {
        change.record = take_record(records, table.counters, wants);
        if (wants && !change.writes()) {
            // What this launch cannot finish it gives back as it was.
            batch.pending[change.position] = 1;
            if ((change.offset & CLAIMED) != 0) {
                store(table.state_of(table.slot_at(change.state_at())), EMPTY);
            }
            tally.out_of_records++;
        }
        const u8 *value = batch.values + static_cast<u64>(change.position) * view.value_size;
        copy_values(value, view.file + change.record, batch.values, view.value_size, change.writes());
        if (view.checksum_offset != 0) {
            // Of what lies in device memory: the file is not read.
            u64 hash = change.writes() ? table.prepare(table.key_at(batch, change.position)).hash : 0;
            u64 sum = checksum_values(value, hash, batch.values, view.value_size, change.writes());
            if (change.writes()) store(view.file + change.record + view.checksum_offset, sum);
        }
        if (change.writes()) table.mark_dirty(change.record, table.record_len());
    }
    if constexpr (WIDE) {
        table.store_keys(change.state_at(), table.key_at(batch, change.position), change.inserts());
    }
    return change;
}

// Writes both words of a new item's slot, or the record word of an old item's.
template <bool WIDE>
__device__ void write_words(Table<WIDE> &table, const Records &records, const Batch &batch,
                            const Mutation &change) {
    u64 old = 0;
    if (change.writes() && !change.inserts()) {
        old = load(table.record_of(table.slot_at(change.state_at())));
    }
    retire_record(records, table.counters, old & RECORD_OFFSET);
    if (change.inserts()) {
        u64 state = table.prepare(table.key_at(batch, change.position)).word;
        table.store_words(change.state_at(), state, member_word(state, change.record));
    } else if (change.writes()) {
        u64 at = change.state_at() + 8;
        store(table.view.file + at, member_word(old, change.record));
        table.mark_dirty(at, 8);
    }
}

// Replaces the old value by the new one where its bucket is cached.
__device__ inline void show_cached(const TableView &view, const Batch &batch, const Mutation &change,
                                   const Slot &slot) {
    if (view.cache.links == nullptr) return;
    order();
    CachedValue cached{};
    if (change.writes()) cached = recache(view, slot.bucket.ordinal, slot.index);
    const u8 *values = batch.stored != 0 ? view.file : batch.values;
    u64 at = batch.stored != 0 ? change.record : static_cast<u64>(change.position) * view.value_size;
    copy_values(values + at, cached.value, values, view.value_size, cached.value != nullptr);
    publish_cached(cached, change.record);
}

// Shows lookups what now stands in the file, and answers.
template <bool WIDE, Verb VERB>
__device__ void show(Table<WIDE> &table, const Batch &batch, const Mutation &change, Tally &tally) {
    bool writes = change.writes();
    bool inserts = change.inserts();
    Slot slot{};
    if (writes) slot = table.slot_at(change.state_at());
    if (inserts) table.copy_state(slot, table.prepare(table.key_at(batch, change.position)).word);
    order();
    if (writes && table.is_copy(slot.bucket)) {
        u64 beside = load(inserts ? table.state_of(slot) : table.record_of(slot));
        table.copy_record(slot, member_word(beside, change.record));
    }
    show_cached(table.view, batch, change, slot);
    if (!writes) return;

    if (VERB != Verb::UPSERT) {
        answer_yes(batch, change.position);
    } else if (inserts) {
        answer_yes(batch, batch.entry == nullptr ? change.position
                                                 : __ldcs(batch.first + __ldcs(batch.entry + change.position)));
    }
    tally.added += inserts;
    tally.touches += lines_in(change.record, table.record_len());
    tally.touches += table.is_copy(slot.bucket);
    if (WIDE && inserts) tally.touches += table.key_lines(slot);
}

// insert, upsert and update. A warp writes the values of several shares first, then their words,
// with one fence between for all of them. A fence costs as much as some accesses of the file.
template <bool WIDE, Verb VERB>
__device__ void write(const TableView &view, const Records &records, const Batch &batch,
                      Counters *counters) {
    Table<WIDE> table(view, counters);
    Tally tally;
    #pragma unroll 1
    for (Share share(batch, batch.depth); share.exists(); share.next()) {
        Mutation changes[DEEPEST];
        #pragma unroll 1
        for (u32 nth = 0; nth < batch.depth; nth++) {
            changes[nth] = write_value<WIDE>(table, records, batch, share, nth, tally);
        }
        persist();
        __syncwarp();
        #pragma unroll 1
        for (u32 nth = 0; nth < batch.depth; nth++) {
            write_words<WIDE>(table, records, batch, changes[nth]);
        }
        persist();
        __syncwarp();
        #pragma unroll 1
        for (u32 nth = 0; nth < batch.depth; nth++) {
            show<WIDE, VERB>(table, batch, changes[nth], tally);
        }
    }
    tally.add_to(counters, 0);
}

template <bool WIDE>
__device__ void take_out(const TableView &view, const Records &records, const Batch &batch,
                         Counters *counters) {
    Table<WIDE> table(view, counters);
    Tally tally;
    #pragma unroll 1
    for (Share share(batch, 1); share.exists(); share.next()) {
        u64 offset;
        u64 position = share.position(0, &offset);
        bool gone = offset != 0;
        Slot slot{};
        u64 record = 0;
        if (gone) {
            slot = table.slot_at(offset);
            record = load(table.record_of(slot)) & RECORD_OFFSET;
        }
        table.clear(slot, gone);
        order();
        if (gone) uncache(view, slot.bucket.ordinal, slot.index);
        retire_record(records, counters, record);
        if (gone) {
            answer_yes(batch, position);
            tally.touches += table.is_copy(slot.bucket);
        }
        tally.removed += gone;
    }
    tally.add_to(counters, 0);
}

#define LOOK_UP_KERNEL(name, wide, output)                                              \
    KERNEL name(const __grid_constant__ TableView view,                                 \
                const __grid_constant__ Batch batch, Counters *counters) {              \
        lookup<wide, output>(view, batch, counters);                                   \
    }

#define RESOLVE_KERNEL(name, wide, verb)                                                \
    KERNEL name(const __grid_constant__ TableView view,                                 \
                const __grid_constant__ Records records,                                \
                const __grid_constant__ Batch batch, Counters *counters) {              \
        resolve<wide, verb>(view, records, batch, counters);                            \
    }

#define WRITE_KERNEL(name, wide, verb)                                                  \
    KERNEL name(const __grid_constant__ TableView view,                                 \
                const __grid_constant__ Records records,                                \
                const __grid_constant__ Batch batch, Counters *counters) {              \
        write<wide, verb>(view, records, batch, counters);                              \
    }

#define REMOVE_KERNEL(name, wide)                                                       \
    KERNEL name(const __grid_constant__ TableView view,                                 \
                const __grid_constant__ Records records,                                \
                const __grid_constant__ Batch batch, Counters *counters) {              \
        take_out<wide>(view, records, batch, counters);                                 \
    }

LOOK_UP_KERNEL(get_word, false, Output::VALUES)
LOOK_UP_KERNEL(get_wide, true, Output::VALUES)
LOOK_UP_KERNEL(contains_word, false, Output::NONE)
LOOK_UP_KERNEL(contains_wide, true, Output::NONE)
LOOK_UP_KERNEL(locate_word, false, Output::OFFSETS)
LOOK_UP_KERNEL(locate_wide, true, Output::OFFSETS)
RESOLVE_KERNEL(resolve_insert_word, false, Verb::INSERT)
RESOLVE_KERNEL(resolve_insert_wide, true, Verb::INSERT)
RESOLVE_KERNEL(resolve_upsert_word, false, Verb::UPSERT)
RESOLVE_KERNEL(resolve_upsert_wide, true, Verb::UPSERT)
RESOLVE_KERNEL(resolve_update_word, false, Verb::UPDATE)
RESOLVE_KERNEL(resolve_update_wide, true, Verb::UPDATE)
RESOLVE_KERNEL(resolve_remove_word, false, Verb::REMOVE)
RESOLVE_KERNEL(resolve_remove_wide, true, Verb::REMOVE)
WRITE_KERNEL(insert_word, false, Verb::INSERT)
WRITE_KERNEL(insert_wide, true, Verb::INSERT)
WRITE_KERNEL(upsert_word, false, Verb::UPSERT)
WRITE_KERNEL(upsert_wide, true, Verb::UPSERT)
WRITE_KERNEL(update_word, false, Verb::UPDATE)
WRITE_KERNEL(update_wide, true, Verb::UPDATE)
REMOVE_KERNEL(remove_word, false)
REMOVE_KERNEL(remove_wide, true)
