// A batch, the device memory that it has, and the launches of each verb, as
// src/engine/cuda/kernels/batch.rs puts them on a stream.
#pragma once

#include <string>

#include "table.h"

enum class Operation { INSERT, UPSERT, UPDATE, REMOVE, GET, CONTAINS };

inline bool changes(Operation operation) { return operation < Operation::GET; }

// How the launches of a batch are made. What the host takes from the device's size and the batch's
// length is drawn here.
struct Manner {
    u32 blocks;
    u32 tile;
    u32 depth;
    bool ordered;
    u32 chunks; // of bins
    u32 shift;  // of bins
    u32 sample;
    bool stored; // the host writes the values, if there are records enough
    u32 value_offset; // of the part of each value that a lookup copies
    u32 value_size;   // of that part; 0: all of the value
};

inline Manner drawn_manner(std::mt19937_64 &rng, Operation operation) {
    Manner manner{};
    manner.blocks = 1 + rng() % 3;
    manner.tile = (changes(operation) ? 4u : 8u) << rng() % 3;
    manner.depth = 1 + rng() % DEEPEST;
    manner.ordered = rng() % 2 != 0;
    manner.chunks = 1u << rng() % 3;
    manner.shift = 6 + rng() % 16;
    manner.sample = static_cast<u32>(rng());
    manner.stored = operation < Operation::REMOVE && rng() % 2 != 0;
    return manner;
}

// Lets a lookup copy a part of each value, of so many bytes.
inline void draw_part(std::mt19937_64 &rng, Manner &manner, u32 value_size) {
    if (rng() % 2 == 0) return;
    manner.value_offset = static_cast<u32>(rng() % value_size);
    // Often such as columns have: whole words at whole words.
    if (rng() % 2 == 0) manner.value_offset &= ~7u;
    manner.value_size = 1 + static_cast<u32>(rng() % (value_size - manner.value_offset));
    if (rng() % 2 == 0 && manner.value_size > 8) manner.value_size &= ~7u;
}

class Operations {
  public:
    Batch batch{};

    // `values` are those to be stored, or what is where the answer goes before; `skew` moves them
    // from their alignment.
    Operations(MemoryTable &on, Operation what, const std::vector<std::string> &keys,
               const std::vector<std::string> &given, const Manner &how, u32 skew = 0)
        : table(on), operation(what), manner(how), len(static_cast<u32>(keys.size())) {
        const TableView view = lookup_view();
        key_words.resize(u64{len} * view.key_size / 8);
        value_words.resize(u64{len} * view.value_size / 16 + 2);
        auto key_bytes = reinterpret_cast<u8 *>(key_words.data());
        batch.keys = key_bytes;
        batch.values = reinterpret_cast<u8 *>(value_words.data()) + skew;
        for (u32 at = 0; at < len; at++) {
            std::memcpy(key_bytes + u64{at} * view.key_size, keys[at].data(), view.key_size);
            std::memcpy(batch.values + u64{at} * view.value_size, given[at].data() + view.value_offset,
                        view.value_size);
        }
        // What is there before must not matter.
        answer_words.assign((len + 63) / 64, ~0ull);
        batch.answers = reinterpret_cast<u32 *>(answer_words.data());
        pending.assign(len, 7);
        batch.pending = pending.data();
        batch.len = len;
        batch.tile = manner.tile;
        batch.depth = manner.depth;
        batch.sample = manner.sample;
        make_order(len);
        batch.order.wanted = manner.ordered;
        if (manner.stored && table.free_records() >= len) store_values();
    }

    Operations(const Operations &) = delete;

    bool answer(u32 at) const { return answer_words[at / 64] >> at % 64 & 1; }

    std::string value(u32 at) const {
        u32 size = lookup_view().value_size;
        return {reinterpret_cast<const char *>(batch.values) + u64{at} * size, size};
    }

    // What a lookup copies of a value.
    std::string part_of(const std::string &value) const {
        TableView view = lookup_view();
        return value.substr(view.value_offset, view.value_size);
    }

    // ---- Lookups.

    // The launch that finds the items, and copies their values unless they are wanted in order.
    emulated::Launch lookup(Counters *counters) {
        TableView view = lookup_view();
        if (operation == Operation::GET) {
            return launch([=, this] { BY_KEY(table, get, view, batch, counters); });
        }
        return launch([=, this] { BY_KEY(table, contains, view, batch, counters); });
    }

    // What comes after it.
    void fetch_ordered() {
        if (operation != Operation::GET || !manner.ordered) return;
        arrange_places();
        TableView view = lookup_view();
        emulated::run({launch([=, this] { fetch(view, batch); })});
        expect_empty_bins();
    }

    // ---- Changes.

    // Clears the answers and finds the groups of equal keys.
    void begin() {
        u32 words = (len + 63) / 64;
        u64 entries = len > 1 ? make_groups() : 0;
        emulated::run({launch([=, this] {
            clear_batch(groups, entries, answer_words.data(), words, &table.counters);
        })});
        if (entries == 0) return;
        u32 key_size = table.view.key_size;
        emulated::run({launch([=, this] { group_keys(groups, batch.keys, len, key_size); })});
        batch.entry = groups.entry;
        batch.first = groups.first;
        batch.last = groups.last;
    }

    emulated::Launch find_slots() {
        TableView view = table.view;
        Records supply = table.supply;
        Counters *counters = &table.counters;
        switch (operation) {
        case Operation::INSERT:
            return launch([=, this] { BY_KEY(table, resolve_insert, view, supply, batch, counters); });
        case Operation::UPSERT:
            return launch([=, this] { BY_KEY(table, resolve_upsert, view, supply, batch, counters); });
        case Operation::UPDATE:
            return launch([=, this] { BY_KEY(table, resolve_update, view, supply, batch, counters); });
        default:
            return launch([=, this] { BY_KEY(table, resolve_remove, view, supply, batch, counters); });
        }
    }

    // Between the two launches of a change.
    void arrange_places() {
        if (!manner.ordered) return;
        AddressSort order = batch.order;
        emulated::run_in_turns({manner.chunks, BLOCK_THREADS, [=] { start_bins(order); }});
        emulated::run({launch([=, this] { arrange(order, len); })});
        expect_order();
    }

    emulated::Launch store_changes() {
        TableView view = table.view;
        Records supply = table.supply;
        Counters *counters = &table.counters;
        switch (operation) {
        case Operation::INSERT:
            return launch([=, this] { BY_KEY(table, insert, view, supply, batch, counters); });
        case Operation::UPSERT:
            return launch([=, this] { BY_KEY(table, upsert, view, supply, batch, counters); });
        case Operation::UPDATE:
            return launch([=, this] { BY_KEY(table, update, view, supply, batch, counters); });
        default:
            return launch([=, this] { BY_KEY(table, remove, view, supply, batch, counters); });
        }
    }

    // What comes after it. Says how many operations wait for slots or records.
    u64 end_round() {
        expect_empty_bins();
        if (operation == Operation::UPDATE && batch.entry != nullptr) {
            u32 *answers = batch.answers;
            emulated::run({launch([=, this] { spread(groups, answers, nullptr, 0, len); })});
        }
        u64 waiting = 0;
        for (u8 waits : pending) waiting += waits;
        batch.retry = 1;
        return waiting;
    }

    // Whether the host has written the values.
    bool stored() const { return batch.stored != 0; }

  private:
    MemoryTable &table;
    Operation operation;
    Manner manner;
    u32 len;
    std::vector<u64> key_words;
    std::vector<uint4> value_words;
    std::vector<u64> answer_words;
    std::vector<u8> pending;
    Groups groups{};
    u64 seed = 0;
    std::vector<u32> claims, first, last, entry;
    std::vector<u64> records; // that hold the values, where the host has written them
    std::vector<u64> offsets;
    std::vector<u32> ranks, positions, sums;
    std::vector<uint4> bins, starts;

    // The table as a lookup sees it.
    TableView lookup_view() const {
        TableView view = table.view;
        view.value_offset = manner.value_offset;
        if (manner.value_size != 0) view.value_size = manner.value_size;
        return view;
    }

    emulated::Launch launch(std::function<void()> kernel) const {
        return {manner.blocks, THREADS, std::move(kernel)};
    }

    // As the host does it with the values of long batches.
    void store_values() {
        u32 size = table.view.value_size;
        records = table.take(len);
        for (u32 at = 0; at < len; at++) {
            const u8 *value = batch.values + u64{at} * size;
            table.write(records[at], value, size);
            if (table.view.checksum_offset == 0) continue;
            u64 sum = table.checksum(batch.keys + u64{at} * table.view.key_size, value);
            table.write(records[at] + table.view.checksum_offset, reinterpret_cast<u8 *>(&sum), 8);
        }
        batch.values = reinterpret_cast<u8 *>(records.data());
        batch.stored = 1;
    }

    u64 make_groups() {
        u64 entries = 2;
        while (entries < 2 * u64{len}) entries *= 2;
        claims.assign(entries, 7);
        first.assign(entries, 7);
        last.assign(entries, 7);
        entry.assign(len, 0);
        groups = {claims.data(), first.data(), last.data(), entry.data(), entries - 1, seed++};
        return entries;
    }

    void make_order(u32 positions_len) {
        offsets.resize(positions_len);
        ranks.resize(positions_len);
        positions.resize(positions_len);
        u32 bin_count = manner.chunks * BIN_CHUNK;
        bins.assign(bin_count / 4, uint4{});
        starts.resize(bin_count / 4);
        sums.assign(MOST_CHUNKS + 1, 0);
        AddressSort &order = batch.order;
        order.offsets = offsets.data();
        order.ranks = ranks.data();
        order.positions = positions.data();
        order.bins = reinterpret_cast<u32 *>(bins.data());
        order.starts = reinterpret_cast<u32 *>(starts.data());
        order.sums = sums.data();
        order.bin_count = bin_count;
        order.shift = manner.shift;
    }

    // Every position that has an offset is there once, in the order of the bins.
    void expect_order() const {
        const AddressSort &order = batch.order;
        std::vector<u32> arranged_ones(positions.begin(), positions.begin() + arranged(order));
        for (size_t at = 1; at < arranged_ones.size(); at++) {
            u32 before = bin_of(order, offsets[arranged_ones[at - 1]]);
            if (before > bin_of(order, offsets[arranged_ones[at]])) fail("offsets out of order");
        }
        std::sort(arranged_ones.begin(), arranged_ones.end());
        std::vector<u32> wanted;
        for (u32 at = 0; at < len; at++) {
            if (offsets[at] != 0) wanted.push_back(at);
        }
        if (arranged_ones != wanted) fail("the order lacks positions");
    }

    // As the next batch needs them.
    void expect_empty_bins() const {
        for (const uint4 &four : bins) {
            if ((four.x | four.y | four.z | four.w) != 0) fail("a bin was left full");
        }
        for (u32 chunk = 0; chunk < manner.chunks; chunk++) {
            if (sums[chunk] != 0) fail("a chunk of bins was left full");
        }
    }
};
