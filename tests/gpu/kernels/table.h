// A table in memory, set up as src/engine/cuda sets one up in a file, and the host's part of its
// growth and its supply of records.
#pragma once

#include <algorithm>
#include <cstring>
#include <utility>

#include <sys/mman.h>

#include "cuda.h"

#include "batch.cu"
#include "cache.cu"
#include "index.cu"
#include "mirror.cu"
#include "order.cu"
#include "recovery_scan.cu"
#include "resize.cu"

using Launches = std::vector<emulated::Launch>;

// The kernel of that name for this table's keys.
#define BY_KEY(table, name, ...)                                                        \
    ((table).view.key_size == 8 ? name##_word(__VA_ARGS__) : name##_wide(__VA_ARGS__))

// Fewer threads than a GPU's blocks have, so that short batches have several blocks.
constexpr u32 THREADS = 64;

inline u64 round_up(u64 number, u64 unit) { return (number + unit - 1) / unit * unit; }

struct Shape {
    u32 levels, locations, slots;
};

struct Settings {
    u32 key_size;
    u32 value_size;
    Shape shape;
    bool copies;        // whether levels are copied to device memory
    bool notes_pages;   // whether changed pages are noted
    bool checksums;     // whether records have checksums
    u32 bottom_level;
    u32 records;
    u64 hash_seed;
};

class MemoryTable {
  public:
    Settings settings;
    TableView view{};
    Records supply{};
    Counters counters{}; // of the launches since the last `settle`
    bool is_read = false; // lookups are under way that may still read what is retired

    explicit MemoryTable(const Settings &wanted) : settings(wanted) {
        void *mapped = mmap(nullptr, FILE_LEN, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (mapped == MAP_FAILED) fail("no memory for a file");
        view.file = static_cast<u8 *>(mapped);
        view.file_len = FILE_LEN;
        view.hash_seed = settings.hash_seed;
        view.key_size = settings.key_size;
        view.value_size = settings.value_size;
        view.slots = settings.shape.slots;
        view.levels = settings.shape.levels;
        view.locations = settings.shape.locations;
        u32 slot_len = 16 + (view.key_size == 8 ? 0 : view.key_size);
        view.bucket_size = static_cast<u32>(round_up(u64{view.slots} * slot_len, 64));
        if (settings.checksums) view.checksum_offset = static_cast<u32>(round_up(view.value_size, 8));
        view.record_stride = stride_of(settings.checksums ? view.checksum_offset + 8 : view.value_size);
        if (settings.notes_pages) {
            dirty.resize(FILE_LEN / PAGE / 32);
            saved.resize(FILE_LEN);
            view.dirty = dirty.data();
        }
        for (u32 number = 0; number < 2; number++) {
            u8 *reserved = view.file + RESERVED_BUCKETS + number * RESERVED_BUCKET_STRIDE;
            if (settings.copies) reserved_copies[number].resize(PAGE / 8);
            view.reserved_probe[number] =
                settings.copies ? reinterpret_cast<u8 *>(reserved_copies[number].data()) : reserved;
        }
        view.bottom_level = settings.bottom_level;
        view.top_level = settings.bottom_level + view.levels - 1;
        for (u32 level = view.bottom_level; level <= view.top_level; level++) add_level(level);
        make_supply();
    }

    MemoryTable(const MemoryTable &) = delete;

    ~MemoryTable() { munmap(view.file, FILE_LEN); }

    u64 level_len(u32 level) const {
        u64 buckets = 1ull << level;
        return buckets * view.bucket_size + round_up(buckets, 64) / 8;
    }

    u64 arena() const { return ARENA; }

    u64 item_slots() const {
        u64 buckets = 0;
        for (u32 level = view.bottom_level; level <= view.top_level; level++) buckets += 1ull << level;
        return buckets * view.slots;
    }

    u64 free_records() const {
        return supply.tail - supply.head + supply.bump_count[0] + supply.bump_count[1];
    }

    // ---- Growth.

    void grow() {
        view.top_level++;
        add_level(view.top_level);
    }

    bool is_draining() const { return view.top_level + 1 - view.bottom_level > view.levels; }

    // Takes the bottom level out, which is empty.
    void remove_bottom() {
        view.level_offset[view.bottom_level] = 0;
        view.level_probe[view.bottom_level] = nullptr;
        copies[view.bottom_level] = {};
        view.bottom_level++;
    }

    // ---- Between launches.

    // Output a few records from each source for the next launch; `settle` gives the others back.
    void withhold(u64 few) {
        supply.tail = std::min(supply.tail, supply.head + few);
        for (u32 run = 0; run < 2; run++) {
            u64 left = std::min(supply.bump_count[run], few);
            withheld[run] = supply.bump_count[run] - left;
            supply.bump_count[run] = left;
        }
    }

    // Takes records for values that the host writes.
    std::vector<u64> take(u64 count) {
        std::vector<u64> taken;
        for (; taken.size() < count && supply.head < supply.tail; supply.head++) {
            taken.push_back(ring[supply.head % ring.size()]);
        }
        for (u32 run = 0; run < 2; run++) {
            for (; taken.size() < count && supply.bump_count[run] > 0; supply.bump_count[run]--) {
                taken.push_back(supply.bump_offset[run]);
                supply.bump_offset[run] += supply.bump_stride;
            }
        }
        return taken;
    }

    // Writes to the file as the host does, which notes the pages itself.
    void write(u64 at, const u8 *bytes, u64 len) {
        std::memcpy(view.file + at, bytes, len);
        if (dirty.empty()) return;
        for (u64 page = at / PAGE; page <= (at + len - 1) / PAGE; page++) {
            dirty[page / 32] |= 1u << page % 32;
        }
    }

    // Takes note of what the launches since the last time have taken and retired. What was retired is
    // free unless somebody may read it.
    Counters settle() {
        if (counters.damaged != 0) fail("damage reported at %llu", counters.damaged);
        u64 taken = counters.taken;
        u64 from_ring = std::min(taken, supply.tail - supply.head);
        supply.head += from_ring;
        taken -= from_ring;
        for (u32 run = 0; run < 2; run++) {
            u64 from_run = std::min(taken, supply.bump_count[run]);
            supply.bump_offset[run] += from_run * supply.bump_stride;
            supply.bump_count[run] += std::exchange(withheld[run], 0) - from_run;
            taken -= from_run;
        }
        supply.retired_tail += counters.retired;
        if (!is_read) supply.tail = supply.retired_tail;
        if (supply.retired_tail - supply.head > supply.ring_capacity) fail("the ring has run over");
        return std::exchange(counters, Counters{});
    }

    // Ends the program if a page differs from the last checkpoint and is not noted; then takes one.
    void checkpoint() {
        if (dirty.empty()) return;
        expect_noted(0, levels_end);
        expect_noted(ARENA, supply_end);
        std::fill(dirty.begin(), dirty.end(), 0);
    }

    // What levels and records hold.
    std::vector<u8> image() const {
        std::vector<u8> bytes(view.file, view.file + levels_end);
        bytes.insert(bytes.end(), view.file + ARENA, view.file + supply_end);
        return bytes;
    }

    // Lines in which the file differs from an earlier image of it, as host memory gets them.
    u64 lines_changed_since(const std::vector<u8> &image) const {
        constexpr u64 HOST_LINE = 64;
        std::vector<u8> now = this->image();
        u64 lines = 0;
        for (u64 at = 0; at < now.size(); at += HOST_LINE) {
            u64 len = std::min(HOST_LINE, now.size() - at);
            lines += std::memcmp(now.data() + at, image.data() + at, len) != 0;
        }
        return lines;
    }

    // Whether a copy of `count` buckets, `stride` bytes apart, holds what these of the file do.
    bool is_copy_of(const u8 *copy, const u8 *in_file, u64 count, u32 stride) const {
        std::vector<u64> words(count * stride / 8);
        u8 *split = reinterpret_cast<u8 *>(words.data());
        std::memcpy(split, in_file, count * stride);
        u32 slots = view.slots;
        emulated::Launch launch{1, THREADS, [=] { split_buckets(split, count, stride, slots); }};
        emulated::run({launch});
        return std::memcmp(copy, split, count * stride) == 0;
    }

    u64 hash_of(const u8 *key) const {
        auto words = reinterpret_cast<const u64 *>(key);
        if (view.key_size == 8) return hash_word(*words, view.hash_seed);
        return fingerprint(hash_words(words, view.key_size / 8, view.hash_seed));
    }

    // The checksum of a value and its key, a word after the other.
    u64 checksum(const u8 *key, const u8 *value) const {
        u64 hash = hash_of(key);
        u64 sum = 0;
        for (u32 at = 0; at < view.value_size; at += 8) {
            u64 word = 0;
            std::memcpy(&word, value + at, std::min(8u, view.value_size - at));
            sum += mix(word ^ (hash + (at / 8 + 1) * LOCATION_STRIDE));
        }
        return mix(sum);
    }

    // Whether the record of each item in a bucket of the file has its checksum. The keys of a reserved bucket
    // are all `reserved`.
    bool has_checksums(const u8 *bucket, const u64 *reserved) const {
        for (u32 index = 0; view.checksum_offset != 0 && index < view.slots; index++) {
            const u8 *slot = bucket + index * SLOT_WORDS_BYTES;
            u64 record = load(slot + 8);
            if (!is_member(record)) continue;
            const u8 *key = view.key_size == 8 ? slot : bucket + view.slots * SLOT_WORDS_BYTES + index * view.key_size;
            if (reserved != nullptr) key = reinterpret_cast<const u8 *>(reserved);
            const u8 *value = view.file + (record & RECORD_OFFSET);
            if (load(value + view.checksum_offset) != checksum(key, value)) return false;
        }
        return true;
    }

    // Whether lookups may reach anything of the file but the values. Without access, the first
    // touch ends the program.
    void allow_buckets(bool allowed) {
        mprotect(view.file, ARENA, allowed ? PROT_READ | PROT_WRITE : PROT_NONE);
    }

  private:
    static constexpr u64 FILE_LEN = 64 << 20;
    static constexpr u64 ARENA = FILE_LEN / 2;

    u64 levels_end = DATA_START;
    u64 withheld[2]{};
    std::vector<u64> copies[DIRECTORY];
    std::vector<u64> reserved_copies[2];
    u64 supply_end = 0;
    std::vector<u32> dirty;
    std::vector<u8> saved; // the file at the last checkpoint
    std::vector<u64> ring;

    // As src/layout does: values of up to a line do not cross one.
    static u32 stride_of(u32 value_size) {
        if (value_size > 128) return static_cast<u32>(round_up(value_size, 64));
        u32 stride = 8;
        while (stride < value_size) stride *= 2;
        return stride;
    }

    void add_level(u32 level) {
        u64 at = round_up(levels_end, PAGE);
        levels_end = at + level_len(level);
        if (levels_end > ARENA) fail("level %u does not fit into the file", level);
        view.level_offset[level] = at;
        if (settings.copies) {
            copies[level].assign(level_len(level) / 8, 0);
            view.level_probe[level] = reinterpret_cast<u8 *>(copies[level].data());
        } else {
            view.level_probe[level] = view.file + at;
        }
    }

    void expect_noted(u64 from, u64 to) {
        for (u64 at = from; at < to; at += PAGE) {
            u64 page = at / PAGE;
            if (std::memcmp(view.file + at, &saved[at], PAGE) == 0) continue;
            if ((dirty[page / 32] >> page % 32 & 1) == 0) fail("page %llu is not noted as changed", page);
            std::memcpy(&saved[at], view.file + at, PAGE);
        }
    }

    // Two runs of fresh records with a hole between them.
    void make_supply() {
        u64 first = settings.records / 3;
        u64 hole = 100 * u64{view.record_stride};
        supply.bump_count[0] = first;
        supply.bump_count[1] = settings.records - first;
        supply.bump_offset[0] = ARENA;
        supply.bump_offset[1] = ARENA + first * view.record_stride + hole;
        supply.bump_stride = view.record_stride;
        supply_end = supply.bump_offset[1] + supply.bump_count[1] * view.record_stride;
        if (supply_end > FILE_LEN) fail("%u records do not fit into the file", settings.records);
        u64 capacity = 2;
        while (capacity < 2 * settings.records) capacity *= 2;
        ring.resize(capacity);
        supply.ring = ring.data();
        supply.ring_capacity = capacity;
    }
};
