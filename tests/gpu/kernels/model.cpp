// Random batches of every verb, executed by the kernels on a table in memory and, one operation
// after the other, on a std::map. Arguments: the first seed, and how many.

#include <map>
#include <optional>
#include <set>

#include "cache.h"
#include "operations.h"

namespace {

u64 seed;

#define EXPECT(claim)                                                                   \
    do {                                                                                \
        if (!(claim)) fail("seed %llu: line %d: not so: %s", seed, __LINE__, #claim);   \
    } while (0)

using Map = std::map<std::string, std::string>;

// A lookup that runs beside changes.
struct Beside {
    std::vector<std::string> keys;
    Counters counters{};
    std::optional<Operations> operations;
};

class Model {
  public:
    Model(const Settings &settings, u64 of_keys)
        : rng(seed), table(settings), space(of_keys) {
        if (rng() % 3 == 0) return;
        u32 policies[] = {POLICY_LFU, POLICY_LRU, POLICY_RANDOM};
        cache.emplace(table, policies[rng() % 3], 1 + static_cast<u32>(rng() % 60), rng);
    }

    void run_batch() {
        auto operation = static_cast<Operation>(rng() % 6);
        u32 len = 1 + static_cast<u32>(rng() % 150);
        std::vector<std::string> keys, values;
        bool skewed = rng() % 2 != 0;
        if (table.is_draining()) drain(rng() % 3);
        for (u32 at = 0; at < len; at++) {
            keys.push_back(key(skewed && rng() % 2 != 0 ? rng() % 3 : rng() % space));
            values.push_back(random_value());
        }
        Manner manner = drawn_manner(rng, operation);
        if (operation == Operation::GET) draw_part(rng, manner, table.view.value_size);
        u32 skew = rng() % 4 == 0 ? static_cast<u32>(rng() % 16) : 0;
        Operations operations(table, operation, keys, values, manner, skew);
        note_possible(operation, keys, values);
        if (cache && !cache->is_loading()) cache->choose();
        if (changes(operation)) {
            change(operations);
        } else {
            run_beside(operations.lookup(&table.counters));
            operations.fetch_ordered();
            table.settle();
        }
        std::vector<bool> answers = apply(operation, keys, values);
        for (u32 at = 0; at < len; at++) {
            EXPECT(operations.answer(at) == answers[at]);
            if (operation != Operation::GET) continue;
            const std::string &whole = answers[at] ? items[keys[at]] : values[at];
            EXPECT(operations.value(at) == operations.part_of(whole));
        }
        possible.clear();
        // What is filled may wait while other batches come and go.
        if (cache && rng() % 3 == 0) cache->show();
        if (rng() % 4 == 0) sort_free();
    }

    // What the file, the copies, the cache and the supply of records hold, all taken together, is the
    // map's.
    void verify() {
        const TableView &view = table.view;
        table.checkpoint();
        for (u32 level = view.bottom_level; level <= view.top_level; level++) {
            const u8 *in_file = view.file + view.level_offset[level];
            u64 buckets = 1ull << level;
            u64 len = buckets * view.bucket_size;
            const u8 *probe = view.level_probe[level];
            for (u64 at = 0; at < len; at += view.bucket_size) {
                EXPECT(table.has_checksums(in_file + at, nullptr));
            }
            if (probe == in_file) continue;
            EXPECT(table.is_copy_of(probe, in_file, buckets, view.bucket_size));
            EXPECT(std::memcmp(probe + len, in_file + len, table.level_len(level) - len) == 0);
        }
        const u8 *bottom = view.file + view.level_offset[view.bottom_level];
        for (u64 at = 0; at < drained * view.bucket_size; at += view.bucket_size) {
            for (u32 word = 0; word < 2 * view.slots; word++) EXPECT(load(bottom + at + word * 8) == 0);
        }
        u64 reserved = 0;
        for (u32 number = 0; number < 2; number++) {
            const u8 *in_file = view.file + RESERVED_BUCKETS + number * RESERVED_BUCKET_STRIDE;
            const u8 *probe = view.reserved_probe[number];
            EXPECT(probe == in_file ||
                   table.is_copy_of(probe, in_file, 1, view.slots * SLOT_WORDS_BYTES));
            u64 key = number == 0 ? EMPTY : BUSY;
            EXPECT(view.key_size != 8 || table.has_checksums(in_file, &key));
            for (u32 index = 0; index < view.slots; index++) {
                u64 state = load(in_file + index * SLOT_WORDS_BYTES);
                reserved += state != EMPTY;
                EXPECT(is_sound(state, load(in_file + index * SLOT_WORDS_BYTES + 8)));
            }
        }
        Findings findings = recovery_scan();
        EXPECT(findings.damage == 0);
        EXPECT(findings.repairs == 0);
        EXPECT(findings.members + reserved == items.size());
        EXPECT(item_count == items.size());
        EXPECT(items.size() + table.free_records() == table.settings.records);
        std::set<u64> free;
        for (u64 at = table.supply.head; at < table.supply.tail; at++) {
            EXPECT(free.insert(table.supply.ring[at % table.supply.ring_capacity]).second);
        }
        if (cache) cache->verify();
    }

    size_t len() const { return items.size(); }

    u32 levels_added() const { return added; }

  private:
    std::mt19937_64 rng;
    MemoryTable table;
    std::optional<Cache> cache;
    Map items;
    u64 item_count = 0; // as the kernels count
    u64 space;
    u32 added = 0;
    u64 drained = 0; // buckets of the bottom level that are empty
    // Values that the keys of the change under way may have meanwhile.
    std::map<std::string, std::set<std::string>> possible;
    bool removing = false;

    // Those that equal slot states are among them.
    std::string key(u64 number) const {
        u64 word = number;
        if (table.view.key_size == 8 && number == 1) word = BUSY;
        std::string bytes;
        while (bytes.size() < table.view.key_size) {
            bytes.append(reinterpret_cast<const char *>(&word), 8);
        }
        return bytes;
    }

    std::string random_value() {
        std::string value(table.view.value_size, 0);
        for (char &byte : value) byte = static_cast<char>(rng());
        return value;
    }

    // What the verbs answer, and what becomes of the items.
    std::vector<bool> apply(Operation operation, const std::vector<std::string> &keys,
                            const std::vector<std::string> &values) {
        std::vector<bool> answers;
        for (size_t at = 0; at < keys.size(); at++) {
            bool present = items.count(keys[at]) != 0;
            bool stores = operation == Operation::UPSERT ||
                          operation == (present ? Operation::UPDATE : Operation::INSERT);
            bool inserts = operation == Operation::INSERT || operation == Operation::UPSERT;
            answers.push_back(inserts ? !present : present);
            if (stores) items[keys[at]] = values[at];
            if (operation == Operation::REMOVE) items.erase(keys[at]);
        }
        return answers;
    }

    void note_possible(Operation operation, const std::vector<std::string> &keys,
                       const std::vector<std::string> &values) {
        if (!changes(operation)) return;
        removing = operation == Operation::REMOVE;
        for (size_t at = 0; at < keys.size(); at++) {
            auto item = items.find(keys[at]);
            if (item != items.end()) possible[keys[at]].insert(item->second);
            possible[keys[at]];
            if (!removing) possible[keys[at]].insert(values[at]);
        }
    }

    void change(Operations &operations) {
        operations.begin();
        for (u32 round = 0;; round++) {
            EXPECT(round < 40);
            run_beside(operations.find_slots());
            operations.arrange_places();
            if (rng() % 4 == 0) table.withhold(rng() % 20);
            run_beside(operations.store_changes());
            u64 waiting = operations.end_round();
            Counters counters = table.settle();
            item_count += counters.items;
            EXPECT(waiting == counters.full + counters.out_of_records);
            EXPECT(counters.taken == (operations.stored() ? 0 : counters.wanted));
            if (waiting == 0) return;
            if (counters.full == 0) continue;
            if (table.is_draining()) {
                drain(~0ull);
                continue;
            }
            table.grow();
            added++;
            drain(rng() % 4);
        }
    }

    // Empties some buckets of the levels below the resting ones, a slice at a time, with lookups
    // beside. What is left waits while other batches come and go.
    void drain(u64 slices) {
        for (; table.is_draining() && slices != 0; slices--) {
            u64 buckets = 1ull << table.view.bottom_level;
            u64 from = drained;
            u64 to = std::min(buckets, from + 1 + rng() % 9);
            TableView view = table.view;
            Counters *counters = &table.counters;
            u32 blocks = 1 + static_cast<u32>(rng() % 3);
            run_beside({blocks, THREADS, [=, this] { BY_KEY(table, drain, view, from, to, counters); }});
            if (cache) cache->note_moved();
            if (table.settle().full != 0) {
                table.grow();
                added++;
                continue;
            }
            drained = to;
            if (drained != buckets) continue;
            if (cache) cache->remove_bottom();
            table.remove_bottom();
            drained = 0;
        }
    }

    // Runs a launch with lookups and a refresh of the cache beside it.
    void run_beside(emulated::Launch launch) {
        Launches launches{std::move(launch)};
        Beside beside;
        bool looks_up = rng() % 2 != 0;
        if (looks_up) {
            prepare(beside);
            launches.push_back(beside.operations->lookup(&beside.counters));
        }
        bool fills = cache && cache->is_loading();
        if (fills) launches.push_back(cache->fill());
        emulated::run(launches);
        if (looks_up) check(beside);
    }

    void prepare(Beside &beside) {
        for (const auto &item : items) beside.keys.push_back(item.first);
        for (const auto &item : possible) beside.keys.push_back(item.first);
        std::shuffle(beside.keys.begin(), beside.keys.end(), rng);
        if (beside.keys.size() > 40) beside.keys.resize(40);
        beside.keys.push_back(key(space + rng() % 100));
        std::vector<std::string> values(beside.keys.size(), std::string(table.view.value_size, 0));
        Manner manner = drawn_manner(rng, Operation::GET);
        manner.ordered = false;
        draw_part(rng, manner, table.view.value_size);
        beside.operations.emplace(table, Operation::GET, beside.keys, values, manner);
    }

    // A key that no change is about is as it was. Of the others, the values are whole, and none is
    // missing because it gets another value or another slot.
    void check(const Beside &beside) {
        EXPECT(beside.counters.damaged == 0);
        for (u32 at = 0; at < beside.keys.size(); at++) {
            const std::string &key = beside.keys[at];
            bool present = beside.operations->answer(at);
            auto item = items.find(key);
            auto under_way = possible.find(key);
            if (under_way == possible.end()) {
                EXPECT(present == (item != items.end()));
                EXPECT(!present || beside.operations->value(at) == beside.operations->part_of(item->second));
            } else {
                EXPECT(present || removing || item == items.end());
                bool known = false;
                for (const std::string &value : under_way->second) {
                    known |= beside.operations->value(at) == beside.operations->part_of(value);
                }
                EXPECT(!present || known);
            }
        }
    }

    // Sorts the free records of the ring.
    void sort_free() {
        Records supply = table.supply;
        u32 len = static_cast<u32>(supply.tail - supply.head);
        if (len == 0) return;
        Manner manner = drawn_manner(rng, Operation::REMOVE);
        manner.ordered = true;
        Operations free(table, Operation::REMOVE, std::vector<std::string>(len, key(0)),
                        std::vector<std::string>(len, std::string(table.view.value_size, 0)), manner);
        AddressSort order = free.batch.order;
        emulated::run({{manner.blocks, THREADS, [=] { enter_free(supply, supply.head, len, order); }}});
        free.arrange_places();
        emulated::run({{manner.blocks, THREADS, [=] { write_back_free(supply, supply.head, len, order); }}});
        free.end_round();
    }

    Findings recovery_scan() {
        // With the hole between their two runs.
        u64 numbers = table.settings.records + 100;
        RecordRange range{table.arena(), numbers, 0};
        std::vector<u32> used(numbers / 32 + 1);
        std::vector<Repair> repairs(1);
        RecoveryScan scan{&range, used.data(), repairs.data(), repairs.size(), 1, 0};
        Findings findings{};
        for (u32 level = table.view.bottom_level; level <= table.view.top_level; level++) {
            TableView view = table.view;
            view.cache = {};
            emulated::run({{2, THREADS, [&] { BY_KEY(table, recovery_scan, view, level, scan, &findings); }}});
        }
        return findings;
    }
};

void run_seed() {
    emulated::schedule.seed(seed);
    std::mt19937_64 rng(seed * 77 + 1);
    auto one_of = [&](const auto &choices) { return choices[rng() % std::size(choices)]; };
    Shape shapes[] = {{2, 2, 8}, {1, 2, 8}, {3, 1, 4}, {2, 1, 16}, {1, 1, 32}, {2, 2, 3}, {1, 3, 2}, {2, 2, 1}};
    u32 key_sizes[] = {8, 8, 8, 16, 24, 32, 72, 128};
    u32 value_sizes[] = {1, 4, 7, 8, 16, 24, 48, 128, 129, 256, 1000, 4096};
    Settings settings{};
    settings.shape = one_of(shapes);
    settings.key_size = one_of(key_sizes);
    settings.value_size = one_of(value_sizes);
    settings.copies = rng() % 2 != 0;
    settings.notes_pages = rng() % 2 != 0;
    settings.checksums = rng() % 2 != 0;
    settings.hash_seed = rng();
    u64 space = 50 + rng() % 1000;
    // Now and then so few that they are soon used again.
    settings.records = rng() % 2 != 0 ? 4000 : static_cast<u32>(space) + 50;
    std::printf("seed %llu: keys of %u, values of %u bytes, shape %u-%u-%u, %s", seed,
                settings.key_size, settings.value_size, settings.shape.levels,
                settings.shape.locations, settings.shape.slots,
                settings.copies ? "buckets copied" : "buckets in the file");
    std::fflush(stdout);
    Model model(settings, space);
    for (u32 batch = 0; batch < 25; batch++) {
        model.run_batch();
        model.verify();
    }
    std::printf(": %zu items, %u levels added\n", model.len(), model.levels_added());
}

} // namespace

int main(int count, char **arguments) {
    if (count != 3) fail("usage: model FIRST_SEED SEEDS");
    u64 first = std::strtoull(arguments[1], nullptr, 10);
    u64 seeds = std::strtoull(arguments[2], nullptr, 10);
    for (seed = first; seed - first < seeds; seed++) run_seed();
}
