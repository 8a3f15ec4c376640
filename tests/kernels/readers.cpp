// Look-ups between whose steps whole changes come and go: slots change hands, also back again, and
// values are replaced while they are read. Arguments: the first seed, and how many.

#include <optional>
#include <set>

#include "cache.h"
#include "operations.h"

namespace {

u64 seed;

constexpr u32 LOOK_UPS = 16;

// One more than there are slots, so that they take turns.
struct Item {
    std::string key;
    std::optional<std::string> value;
    // What it was since the look-up under way began.
    std::set<std::optional<std::string>> seen;
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

    void look_up() {
        // A load fills its entries when the look-ups that ran before it have ended.
        if (cache && !cache->is_loading()) cache->choose();
        std::vector<std::string> sought, before;
        for (Item &item : items) {
            item.seen = {item.value};
            sought.push_back(item.key);
            before.push_back(random_value());
        }
        Manner manner{1, 8, 1, false, 1, 14, static_cast<u32>(rng())};
        Operations operations(table, Operation::GET, sought, before, manner);
        Counters counters{};
        // Now and then so few that the look-up comes to its values, now and then so many that a slot
        // changes hands more than once at each step.
        u64 rest = 1ull << rng() % 6;
        table.is_read = true;
        emulated::UnderWay reader(operations.look_up(&counters));
        while (!reader.done()) {
            reader.step();
            if (rng() % rest == 0) {
                for (u32 some = 1 + static_cast<u32>(rng() % 2); some != 0; some--) change();
            }
            if (cache && cache->is_loading() && rng() % 4 == 0) {
                emulated::run({cache->fill()});
                cache->show();
            }
        }
        table.is_read = false;
        table.settle();
        for (u32 at = 0; at < items.size(); at++) {
            std::optional<std::string> found;
            if (operations.answer(at)) found = operations.value(at);
            if (items[at].seen.count(found) == 0) {
                fail("seed %llu: key %u had another value than was found, or none", seed, at);
            }
        }
        if (cache) cache->verify();
    }

  private:
    std::mt19937_64 rng;
    MemoryTable table;
    std::optional<Cache> cache;
    std::vector<Item> items;

    std::string random_value() {
        std::string value(table.view.value_size, 0);
        for (char &byte : value) byte = static_cast<char>(rng());
        return value;
    }

    // Of one item that has something to do, or of two that take turns in a slot.
    void change() {
        std::vector<Item *> held;
        for (Item &item : items) {
            if (item.value) held.push_back(&item);
        }
        Item &item = items[rng() % items.size()];
        if (item.value) {
            carry_out(rng() % 3 == 0 ? Operation::UPDATE : Operation::REMOVE, item);
            return;
        }
        if (held.size() == table.view.slots) carry_out(Operation::REMOVE, *held[rng() % held.size()]);
        carry_out(Operation::INSERT, item);
    }

    void carry_out(Operation operation, Item &item) {
        std::string value = random_value();
        Manner manner{1, 4, 1, false, 1, 14, 0};
        Operations operations(table, operation, {item.key}, {value}, manner);
        operations.begin();
        emulated::run({operations.find_slots()});
        emulated::run({operations.store_changes()});
        if (operations.end_round() != 0) fail("seed %llu: no slot or no record", seed);
        if (!operations.answer(0)) fail("seed %llu: a wrong answer", seed);
        table.settle();
        item.value = std::move(value);
        if (operation == Operation::REMOVE) item.value.reset();
        item.seen.insert(item.value);
    }
};

void run_seed() {
    emulated::schedule.seed(seed);
    std::mt19937_64 rng(seed * 77 + 1);
    Settings settings{};
    settings.shape = {1, 1, 1 + static_cast<u32>(rng() % 2)};
    settings.key_size = rng() % 2 != 0 ? 8 : 24;
    u32 value_sizes[] = {8, 24, 200};
    settings.value_size = value_sizes[rng() % 3];
    settings.copies = rng() % 2 != 0;
    settings.records = 4000;
    settings.hash_seed = rng();
    bool has_cache = rng() % 2 != 0;
    Turns turns(settings, has_cache);
    for (u32 look_up = 0; look_up < LOOK_UPS; look_up++) turns.look_up();
}

} // namespace

int main(int count, char **arguments) {
    if (count != 3) fail("usage: readers FIRST_SEED SEEDS");
    u64 first = std::strtoull(arguments[1], nullptr, 10);
    u64 seeds = std::strtoull(arguments[2], nullptr, 10);
    for (seed = first; seed - first < seeds; seed++) run_seed();
}
