// The verbs. Each kernel comes for keys of 8 bytes (`_word`) and for longer ones (`_wide`).
//
// Launches of `get` and `contains` may run beside any other; those of the other verbs, `drain`
// included, one after another.
#include "copy.cuh"
#include "records.cuh"
#include "table.cuh"
#include "tile.cuh"

enum class Verb { INSERT, UPSERT, UPDATE };

// insert, upsert and update: the values of a tile are written first, into fresh records, then its
// state words, then its record words, with one persist between for all its operations.
template <bool WIDE, Verb VERB>
__device__ void write(const TableView &view, const Records &records, const Batch &batch,
                      Counters *counters) {
    Table<WIDE> table(view, counters);
    Tally tally;
    u32 lane = lane_number();
    #pragma unroll 1
    for (Tile tile(batch); tile.exists(); tile.next()) {
        bool mine = tile.executes(VERB == Verb::INSERT ? Pick::FIRST : Pick::LAST);
        Key own = mine ? table.prepare(batch.keys, tile.position()) : Key{};
        u64 part = 0;
        Slot slot{};
        u64 old = 0;
        #pragma unroll 1
        for (u32 rest = __ballot_sync(ALL_LANES, mine); rest != 0; rest &= rest - 1) {
            u32 at = __ffs(rest) - 1;
            Key key = table.share(own, at, batch.keys, tile.first + at);
            Found found = table.find(key);
            if (VERB != Verb::UPDATE && found.record == 0) found.slot = table.claim(key);
            bool writes = found.slot.bucket != nullptr && (VERB != Verb::INSERT || found.record == 0);
            if (writes) table.touch_slot(found.slot, found.record == 0, found.record == 0);
            if (lane == at) {
                old = found.record;
                if (writes) slot = found.slot;
            }
            table.touches.next();
        }

        bool writes = slot.bucket != nullptr;
        u64 record = take_record(records, counters, writes);
        bool inserts = writes && old == 0 && record != 0;
        bool full = VERB != Verb::UPDATE && mine && old == 0 && !writes;
        bool starved = writes && record == 0;
        if (full || starved) tile.postpone();
        // What this launch cannot finish it gives back as it was.
        if (starved && old == 0) {
            store(table.state_of(slot), EMPTY);
            writes = false;
        }

        copy_values<true>(view.file, batch.values, tile.first, view.value_size, record);
        if constexpr (WIDE) {
            #pragma unroll 1
            for (u32 rest = __ballot_sync(ALL_LANES, inserts); rest != 0; rest &= rest - 1) {
                u32 at = __ffs(rest) - 1;
                if (lane < table.key_words()) {
                    part = load(batch.keys + (tile.first + at) * view.key_size + lane * 8);
                }
                table.store_key(shuffle(slot, at), part);
            }
        }
        if (record != 0) table.mark_dirty(record, view.value_size);
        persist();
        __syncwarp();
        if (inserts) table.store_state(slot, own.word);
        persist();
        if (record != 0) table.store_record(slot, record);
        persist();
        if (inserts) table.copy_state(slot, own.word);
        order();
        if (record != 0) table.copy_record(slot, record);
        retire_record(records, counters, record != 0 ? old : 0);

        if (VERB == Verb::UPSERT) {
            tile.answer_first(inserts);
        } else {
            tile.answer(record != 0);
        }
        tally.operations += mine;
        tally.added += inserts;
        tally.full += full;
        tally.starved += starved;
        if (record != 0) tally.touches += places_in(record, view.value_size);
    }
    tally.add_to(counters, table.touches.total);
}

template <bool WIDE>
__device__ void remove(const TableView &view, const Records &records, const Batch &batch,
                       Counters *counters) {
    Table<WIDE> table(view, counters);
    Tally tally;
    #pragma unroll 1
    for (Tile tile(batch); tile.exists(); tile.next()) {
        bool mine = tile.executes(Pick::FIRST);
        Key own = mine ? table.prepare(batch.keys, tile.position()) : Key{};
        Found gone{};
        #pragma unroll 1
        for (u32 rest = __ballot_sync(ALL_LANES, mine); rest != 0; rest &= rest - 1) {
            u32 at = __ffs(rest) - 1;
            Found found = table.find(table.share(own, at, batch.keys, tile.first + at));
            if (found.record != 0) table.touch_slot(found.slot, true, false);
            if (lane_number() == at) gone = found;
            table.touches.next();
        }
        table.clear(gone.slot, gone.record != 0);
        retire_record(records, counters, gone.record);
        tile.answer(gone.record != 0);
        tally.operations += mine;
        tally.removed += gone.record != 0;
    }
    tally.add_to(counters, table.touches.total);
}

template <bool WIDE, bool COPY>
__device__ void look_up(const TableView &view, const Batch &batch, Counters *counters) {
    Table<WIDE> table(view, counters);
    Tally tally;
    #pragma unroll 1
    for (Tile tile(batch); tile.exists(); tile.next()) {
        bool mine = tile.executes(Pick::ALL);
        Key own = mine ? table.prepare(batch.keys, tile.position()) : Key{};
        u64 record = 0;
        #pragma unroll 1
        for (u32 rest = __ballot_sync(ALL_LANES, mine); rest != 0; rest &= rest - 1) {
            u32 at = __ffs(rest) - 1;
            Found found = table.find(table.share(own, at, batch.keys, tile.first + at));
            if (lane_number() == at) record = found.record;
            table.touches.next();
        }
        tile.answer(record != 0);
        if constexpr (COPY) {
            copy_values<false>(view.file, batch.values, tile.first, view.value_size, record);
            if (record != 0) tally.touches += places_in(record, view.value_size);
        }
        tally.operations += mine;
    }
    tally.add_to(counters, table.touches.total);
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
        remove<wide>(view, records, batch, counters);                                   \
    }

#define LOOK_UP_KERNEL(name, wide, copy)                                                \
    KERNEL name(const __grid_constant__ TableView view,                                 \
                const __grid_constant__ Batch batch, Counters *counters) {              \
        look_up<wide, copy>(view, batch, counters);                                     \
    }

WRITE_KERNEL(insert_word, false, Verb::INSERT)
WRITE_KERNEL(insert_wide, true, Verb::INSERT)
WRITE_KERNEL(upsert_word, false, Verb::UPSERT)
WRITE_KERNEL(upsert_wide, true, Verb::UPSERT)
WRITE_KERNEL(update_word, false, Verb::UPDATE)
WRITE_KERNEL(update_wide, true, Verb::UPDATE)
REMOVE_KERNEL(remove_word, false)
REMOVE_KERNEL(remove_wide, true)
LOOK_UP_KERNEL(get_word, false, true)
LOOK_UP_KERNEL(get_wide, true, true)
LOOK_UP_KERNEL(contains_word, false, false)
LOOK_UP_KERNEL(contains_wide, true, false)
