// PM touches of the kernels: the distinct lines of the file that an operation reads or writes, on a
// table whose buckets are copied to device memory, held to the numbers of docs/performance.md. And
// lookups there must not reach the file's buckets at all. Beside them the lines of 64 bytes that an operation
// changes, of which the bus takes so many a second.

#include "operations.h"

namespace {

// A load factor of 0.64.
constexpr u32 BOTTOM_LEVEL = 9;
constexpr u32 ITEMS = 7864;

constexpr u32 LONGEST_BATCH = 128;

struct Limits {
    double hit, miss, insert, update, remove;
};

// Lines that changes write.
struct Lines {
    double insert, update, remove;
};

using Strings = std::vector<std::string>;

// A different key for each number, and none that equals a slot state.
Strings keys(u32 key_size, u64 from, u64 to) {
    Strings keys;
    for (u64 number = from; number < to; number++) {
        u64 word = (number + 1) * 0x9e3779b97f4a7c15;
        std::string bytes(reinterpret_cast<const char *>(&word), 8);
        keys.push_back(bytes + std::string(key_size - 8, static_cast<char>(number)));
    }
    return keys;
}

// Carries an operation out for all keys, batch by batch, and holds its touches to a limit.
void hold(MemoryTable &table, Operation operation, const Strings &keys, const char *name, bool answer,
          double most, double most_lines) {
    static char fill = 0;
    bool lookup = !changes(operation);
    u64 touches = 0;
    u64 lines = 0;
    for (size_t from = 0; from < keys.size(); from += LONGEST_BATCH) {
        size_t to = std::min(keys.size(), from + LONGEST_BATCH);
        Strings part(keys.begin() + from, keys.begin() + to);
        // No record holds this value yet.
        Strings values(part.size(), std::string(table.view.value_size, ++fill));
        bool stored = operation < Operation::REMOVE && from / LONGEST_BATCH % 4 < 2;
        Manner manner{4, WARP, 1, from / LONGEST_BATCH % 2 != 0, 1, 14, 0, stored};
        std::vector<u8> before = table.image();
        Operations operations(table, operation, part, values, manner);
        if (lookup) {
            table.allow_buckets(false);
            emulated::run({operations.lookup(&table.counters)});
            operations.fetch_ordered();
            table.allow_buckets(true);
        } else {
            operations.begin();
            emulated::run({operations.find_slots()});
            operations.arrange_places();
            emulated::run({operations.store_changes()});
            if (operations.end_round() != 0) fail("%s: no slot or no record", name);
            lines += table.lines_changed_since(before);
        }
        for (u32 at = 0; at < part.size(); at++) {
            if (operations.answer(at) != answer) fail("%s: a wrong answer", name);
        }
        Counters counters = table.settle();
        if (counters.operations != part.size()) fail("%s: operations not counted", name);
        touches += counters.touches;
    }
    double each = static_cast<double>(touches) / static_cast<double>(keys.size());
    double written = static_cast<double>(lines) / static_cast<double>(keys.size());
    std::printf("  %s: %.3f touches, at most %.1f; %.3f lines, at most %.1f\n", name, each, most, written,
                most_lines);
    if (each > most) fail("%s: %.3f touches, at most %.1f", name, each, most);
    if (written > most_lines) fail("%s: %.3f lines, at most %.1f", name, written, most_lines);
}

void hold_all(u32 key_size, const Limits &limits, const Lines &lines) {
    Settings settings{};
    settings.key_size = key_size;
    settings.value_size = 128;
    settings.shape = {2, 2, 8};
    settings.copies = true;
    settings.bottom_level = BOTTOM_LEVEL;
    settings.records = 2 * ITEMS;
    settings.hash_seed = 0x5eed;
    MemoryTable table(settings);
    double load_factor = static_cast<double>(ITEMS) / static_cast<double>(table.item_slots());
    std::printf("keys of %u bytes, load factor %.2f\n", key_size, load_factor);
    if (load_factor < 0.635 || load_factor > 0.645) fail("another load factor");
    Strings present = keys(key_size, 0, ITEMS);
    Strings absent = keys(key_size, ITEMS, 2 * ITEMS);
    hold(table, Operation::INSERT, present, "insert", true, limits.insert, lines.insert);
    hold(table, Operation::GET, present, "get, hit", true, limits.hit, 0.0);
    hold(table, Operation::GET, absent, "get, miss", false, limits.miss, 0.0);
    hold(table, Operation::UPDATE, present, "update", true, limits.update, lines.update);
    hold(table, Operation::UPSERT, present, "upsert of present keys", false, limits.update, lines.update);
    hold(table, Operation::REMOVE, present, "remove", true, limits.remove, lines.remove);
}

} // namespace

int main() {
    hold_all(8, {.hit = 1.1, .miss = 0.1, .insert = 2.2, .update = 2.2, .remove = 1.1},
             {.insert = 3.1, .update = 3.0, .remove = 1.0});
    // A new key stands in a line of its own.
    hold_all(32, {.hit = 1.1, .miss = 0.1, .insert = 3.2, .update = 2.2, .remove = 1.1},
             {.insert = 4.1, .update = 3.0, .remove = 1.0});
}
