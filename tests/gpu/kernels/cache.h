// The frozen bucket cache of a table, and its loads, as src/engine/cuda/cache does them.
#pragma once

#include <set>

#include "table.h"

class Cache {
  public:
    Cache(MemoryTable &on, u32 policy, u32 count, std::mt19937_64 &random)
        : table(on), rng(random), entries(count), free_count(count) {
        TableView &view = table.view;
        u32 value_stride = static_cast<u32>(round_up(view.value_size, 16));
        links.resize(ORDINALS);
        access_counts.resize(policy == POLICY_RANDOM ? 0 : ORDINALS);
        records.resize(entries * view.slots);
        values.resize(entries * view.slots * value_stride / 16);
        evicted.resize(entries);
        incoming.resize(entries);
        for (u32 entry = 0; entry < entries; entry++) free.push_back(entry);
        view.cache.links = links.data();
        view.cache.access_counts = access_counts.empty() ? nullptr : access_counts.data();
        view.cache.records = records.data();
        view.cache.values = reinterpret_cast<u8 *>(values.data());
        view.cache.value_stride = value_stride;
        view.cache.policy = policy;
        if (!table.settings.copies) {
            buckets.resize(entries * view.bucket_size / 8);
            view.cache.buckets = reinterpret_cast<u8 *>(buckets.data());
        }
    }

    Cache(const Cache &) = delete;

    // Whether there is more to fill.
    bool is_loading() const { return filled != incoming_len; }

    // Chooses what is to be held. No change is under way.
    void choose() {
        std::vector<u32> scores(2 * SCORES);
        refresh = as_refresh();
        refresh.scores = scores.data();
        refresh.round = static_cast<u32>(rng());
        TableView view = table.view;
        emulated::run({launch([=, this] { cache_score(view, refresh); })});
        // Which score that is the host reckons from all scores; a drawn one does as well.
        refresh.threshold = drawn_threshold(scores);
        refresh.keep = rng() % 4;
        refresh.enter = rng() % 4;
        refresh.room = entries;
        outcome = {};
        emulated::run({launch([=, this] { cache_select(view, refresh, &outcome); })});
        emulated::run({launch([=, this] { cache_release(view, refresh, &outcome); })});
        emulated::run({launch([=, this] { cache_assign(view, refresh, &outcome); })});
        u64 available = free_count + std::min(outcome.evicted, entries);
        free_count = available - std::min(outcome.taken, available);
        incoming_len = std::min(outcome.incoming, entries);
        filled = 0;
        shown = 0;
    }

    // The launch that fills some of it, which may run beside everything.
    emulated::Launch fill() {
        u64 from = filled;
        filled = std::min(incoming_len, filled + 1 + rng() % 40);
        TableView view = table.view;
        return launch([=, this] { cache_fill(view, refresh, from, filled); });
    }

    // Shows what was filled. No change is under way, nor between its launches.
    void show() {
        TableView view = table.view;
        emulated::run({launch([=, this] { cache_link(view, refresh, shown, filled, &outcome); })});
        shown = filled;
    }

    // Takes the buckets of the bottom level out, before it is taken out itself.
    void remove_bottom() {
        CacheOutcome left{};
        TableView view = table.view;
        CacheRefresh removal = as_refresh();
        emulated::run({launch([=, &left] { cache_remove_level(view, removal, view.bottom_level, &left); })});
        free_count += left.evicted;
    }

    // Takes note of what a drain has just put into buckets that are held, past the cache.
    void note_moved() {
        const TableView &view = table.view;
        for (u64 ordinal = 1; ordinal < ORDINALS; ordinal++) {
            if (links[ordinal] == 0 || (links[ordinal] & FILLING) != 0) continue;
            for (u32 index = 0; index < view.slots; index++) {
                u64 record = record_of(ordinal, index);
                if (*value_of_entry(view, links[ordinal] - 1, index).tag == 0) moved.insert(record);
            }
        }
    }

    // Every entry is free or holds one bucket, and what is shown is what the file has. Nothing else
    // is under way.
    void verify() const {
        const TableView &view = table.view;
        std::vector<u32> held(free.begin(), free.begin() + free_count);
        for (u64 ordinal = 1; ordinal < ORDINALS; ordinal++) {
            if (links[ordinal] == 0) continue;
            u32 entry = (links[ordinal] & ~FILLING) - 1;
            held.push_back(entry);
            if ((links[ordinal] & FILLING) == 0) verify_entry(view, ordinal, entry);
        }
        std::sort(held.begin(), held.end());
        for (u32 entry = 0; entry < entries; entry++) {
            if (held.size() != entries || held[entry] != entry) fail("an entry of the cache is lost");
        }
    }

  private:
    // Of the levels that a test comes to.
    static constexpr u64 ORDINALS = 1 << 16;

    MemoryTable &table;
    std::mt19937_64 &rng;
    u64 entries;
    u64 free_count;
    u64 incoming_len = 0;
    u64 shown = 0;
    u64 filled = 0;
    CacheRefresh refresh{};
    CacheOutcome outcome{};
    std::vector<u32> links, access_counts, free;
    std::vector<u64> records, evicted, incoming, buckets;
    std::vector<uint4> values;
    std::set<u64> moved;

    emulated::Launch launch(std::function<void()> kernel) {
        return {1 + static_cast<u32>(rng() % 3), THREADS, std::move(kernel)};
    }

    CacheRefresh as_refresh() {
        CacheRefresh now{};
        now.evicted = evicted.data();
        now.incoming = incoming.data();
        now.free = free.data();
        now.entries = entries;
        now.free_count = free_count;
        return now;
    }

    // One from among those that buckets have.
    u32 drawn_threshold(const std::vector<u32> &scores) {
        std::vector<u32> present{0};
        for (u32 score = 1; score < SCORES; score++) {
            if (scores[score] + scores[SCORES + score] != 0) present.push_back(score);
        }
        return present[rng() % present.size()];
    }

    u64 record_of(u64 ordinal, u32 index) const {
        const u8 *in_file = table.view.file + bucket_of_ordinal(table.view, ordinal).offset;
        return ::load(in_file + index * SLOT_WORDS_BYTES + 8) & RECORD_OFFSET;
    }

    void verify_entry(const TableView &view, u64 ordinal, u32 entry) const {
        Bucket bucket = bucket_of_ordinal(view, ordinal);
        const u8 *in_file = view.file + bucket.offset;
        if (view.cache.buckets != nullptr &&
            !table.is_copy_of(view.cache.buckets + u64{entry} * view.bucket_size, in_file, 1,
                              view.bucket_size)) {
            fail("the cached bucket %llu is not that of the file", ordinal);
        }
        for (u32 index = 0; index < view.slots; index++) {
            u64 record = record_of(ordinal, index);
            CachedValue cached = value_of_entry(view, entry, index);
            if (*cached.tag == 0) {
                if (record != 0 && moved.count(record) == 0) fail("the cached bucket %llu lacks a value", ordinal);
                continue;
            }
            // It would be taken for the value of another item that gets the same record and slot.
            if (*cached.tag != record) fail("the cached bucket %llu has a value that has left", ordinal);
            if (std::memcmp(cached.value, view.file + record, view.value_size) != 0) {
                fail("a value of the cached bucket %llu is not that of the file", ordinal);
            }
        }
    }
};
