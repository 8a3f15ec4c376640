// Lookups between whose steps whole changes come and go: slots change hands, also back again, and
// values are replaced while they are read. And lookups that end while a change rests at one of its
// steps. Arguments: the first seed, and how many.

#include <optional>
#include <set>

#include "cache.h"
#include "operations.h"

namespace {

u64 seed;

constexpr u32 LOOK_UPS = 16;

// The same beside a change that rests.
constexpr u32 RESTS = 100;

// Most steps that a lookup takes here, and a change, or nearly so.
constexpr u32 LOOK_UP_STEPS = 64;
constexpr u32 CHANGE_STEPS = 128;

// One more than there are slots, so that they take turns.
struct Item {
    std::string key;
    std::optional<std::string> value;
    // What it was since the lookup under way began.
    std::set<std::optional<std::string>> seen;
};

// A change of one item, under way.
struct Change {
    Item &item;
    std::optional<std::string> after;
    Operations operations;
    bool stores = false; // the launch is the second one of two
    std::optional<emulated::RunningLaunch> launch;

    Change(MemoryTable &table, Operation what, Item &of, const std::string &value)
        : item(of), operations(table, what, {of.key}, {value}, {1, 4, 1, false, 1, 14, 0}) {
        if (what != Operation::REMOVE) after = value;
        item.seen.insert(after);
        operations.begin();
        launch.emplace(operations.find_slots());
    }

    bool done() const { return stores && launch->done(); }

    void step() {
        launch->step();
        if (stores || !launch->done()) return;
        stores = true;
        launch.emplace(operations.store_changes());
    }
};

// A lookup of all items, under way.
struct LookUp {
    Counters counters{};
    Operations operations;
    emulated::RunningLaunch launch;

    LookUp(MemoryTable &table, const std::vector<std::string> &keys,
           const std::vector<std::string> &values, u32 sample)
        : operations(table, Operation::GET, keys, values, {1, 8, 1, false, 1, 14, sample}),
          launch(operations.lookup(&counters)) {}
};

class Turns {
  public:
    Turns(const Settings &settings, bool has_cache) : rng(seed), table(settings) {
        if (has_cache) cache.emplace(table, POLICY_RANDOM, 1, rng);
        for (u32 number = 0; number <= table.view.slots; number++) {
            std::string key(table.view.key_size, static_cast<char>('a' + number));
            items.push_back({key, {}, {}});
        }
    }

    void look_up_amid_changes() {
        LookUp lookup = begin();
        // Now and then so few that the lookup comes to its values, now and then so many that a slot
        // changes hands more than once at each step.
        u64 rest = 1ull << rng() % 6;
        while (!lookup.launch.done()) {
            lookup.launch.step();
            if (rng() % rest == 0) {
                for (u32 some = 1 + static_cast<u32>(rng() % 2); some != 0; some--) {
                    begin_change();
                    end_change();
                }
            }
            if (rng() % 4 == 0) refresh();
        }
        end(lookup);
    }

    // Either may come to the place that the other one is about to read or has just written.
    void look_up_beside_a_change_that_rests() {
        LookUp lookup = begin();
        if (rng() % 4 != 0) refresh();
        u64 steps = rng() % LOOK_UP_STEPS;
        for (; steps != 0 && !lookup.launch.done(); steps--) lookup.launch.step();
        begin_change();
        steps = rng() % CHANGE_STEPS;
        for (; steps != 0 && !under_way->done(); steps--) under_way->step();
        while (!lookup.launch.done()) lookup.launch.step();
        end_change();
        end(lookup);
    }

  private:
    std::mt19937_64 rng;
    MemoryTable table;
    std::optional<Cache> cache;
    std::vector<Item> items;
    std::optional<Change> under_way;

    std::string random_value() {
        std::string value(table.view.value_size, 0);
        for (char &byte : value) byte = static_cast<char>(rng());
        return value;
    }

    LookUp begin() {
        // A refresh fills its entries when the lookups that ran before it have ended.
        if (cache && !cache->is_loading()) cache->choose();
        std::vector<std::string> sought, before;
        for (Item &item : items) {
            item.seen = {item.value};
            sought.push_back(item.key);
            before.push_back(random_value());
        }
        table.is_read = true;
        return {table, sought, before, static_cast<u32>(rng())};
    }

    void end(const LookUp &lookup) {
        table.is_read = false;
        table.settle();
        for (u32 at = 0; at < items.size(); at++) {
            std::optional<std::string> found;
            if (lookup.operations.answer(at)) found = lookup.operations.value(at);
            if (items[at].seen.count(found) == 0) {
                fail("seed %llu: key %u had another value than was found, or none", seed, at);
            }
        }
        if (cache) cache->verify();
    }

    // Fills the cache with what was chosen for it. No change is under way.
    void refresh() {
        if (!cache || !cache->is_loading()) return;
        emulated::run({cache->fill()});
        cache->show();
    }

    // Of one item that has something to do, or first of the one whose slot it needs.
    void begin_change() {
        std::vector<Item *> held;
        for (Item &item : items) {
            if (item.value) held.push_back(&item);
        }
        Item &item = items[rng() % items.size()];
        if (item.value) {
            Operation operation = rng() % 2 == 0 ? Operation::UPDATE : Operation::REMOVE;
            under_way.emplace(table, operation, item, random_value());
        } else if (held.size() == table.view.slots) {
            Item &leaving = *held[rng() % held.size()];
            under_way.emplace(table, Operation::REMOVE, leaving, random_value());
        } else {
            under_way.emplace(table, Operation::INSERT, item, random_value());
        }
    }

    void end_change() {
        while (!under_way->done()) under_way->step();
        if (under_way->operations.end_round() != 0) fail("seed %llu: no slot or no record", seed);
        if (!under_way->operations.answer(0)) fail("seed %llu: a wrong answer", seed);
        table.settle();
        under_way->item.value = under_way->after;
        under_way.reset();
    }
};

void run_seed() {
    emulated::schedule.seed(seed);
    std::mt19937_64 rng(seed * 77 + 1);
    Settings settings{};
    settings.shape = {1, 1, 1 + static_cast<u32>(rng() % 2)};
    settings.key_size = rng() % 2 != 0 ? 8 : 24;
    u32 value_sizes[] = {8, 200, 16000};
    settings.value_size = value_sizes[rng() % 3];
    settings.copies = rng() % 2 != 0;
    settings.records = 1000;
    settings.hash_seed = rng();
    bool has_cache = rng() % 4 != 0;
    Turns turns(settings, has_cache);
    for (u32 lookup = 0; lookup < LOOK_UPS; lookup++) turns.look_up_amid_changes();
    for (u32 lookup = 0; lookup < RESTS; lookup++) turns.look_up_beside_a_change_that_rests();
}

} // namespace

int main(int count, char **arguments) {
    if (count != 3) fail("usage: readers FIRST_SEED SEEDS");
    u64 first = std::strtoull(arguments[1], nullptr, 10);
    u64 seeds = std::strtoull(arguments[2], nullptr, 10);
    for (seed = first; seed - first < seeds; seed++) run_seed();
}
