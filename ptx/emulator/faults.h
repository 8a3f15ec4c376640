// Faults of the emulated driver, and what of the memory a launch may reach.
//
// Every call is counted, so that a test can let any one of them fail, whichever it is of, or all of them from
// one on. A launch that is told of memory which the device could not reach is a stray: it is counted and
// not run.
#pragma once

#include <atomic>
#include <cstdio>
#include <map>
#include <mutex>

#include "layout.cuh"

namespace faults {

inline std::atomic<u64> calls{0};       // since the last `arm`
inline std::atomic<u64> first{~0ull};   // the first call that fails
inline std::atomic<u64> last{0};        // the one behind the last
inline std::atomic<bool> loses{false};  // the first one, if it is a launch, says nothing of it
inline std::atomic<u64> failures{0};
inline std::atomic<u64> strays{0};
inline std::atomic<const char *> failed{""};

// Whether the call of this name, which has just begun, fails.
inline bool fails(const char *name) {
    u64 nth = calls++;
    if (nth < first || nth >= last) return false;
    failed = name;
    failures++;
    return true;
}

// Whether a launch is not to be run, and what it answers then.
inline bool launch_fails(const char *name, int error, int *answer) {
    if (!fails(name)) return false;
    *answer = loses && failures == 1 ? 0 : error;
    return true;
}

// Blocks of memory that the device reaches, by their first addresses.
class Blocks {
    std::mutex lock;
    std::map<u64, u64> lens;

  public:
    void add(u64 at, u64 len) {
        std::lock_guard<std::mutex> guard(lock);
        lens[at] = len;
    }

    bool remove(u64 at) {
        std::lock_guard<std::mutex> guard(lock);
        return lens.erase(at) != 0;
    }

    // Whether neighbouring blocks hold all of these bytes.
    bool hold(u64 at, u64 len) {
        std::lock_guard<std::mutex> guard(lock);
        u64 end = at + len;
        while (at < end) {
            auto block = lens.upper_bound(at);
            if (block == lens.begin()) return false;
            --block;
            if (block->first + block->second <= at) return false;
            at = block->first + block->second;
        }
        return true;
    }

    void clear() {
        std::lock_guard<std::mutex> guard(lock);
        lens.clear();
    }

    bool overlap(u64 at, u64 len) {
        std::lock_guard<std::mutex> guard(lock);
        auto block = lens.lower_bound(at + len);
        if (block == lens.begin()) return false;
        --block;
        return block->first + block->second > at;
    }
};

inline Blocks allocated;  // of the device
inline Blocks pinned;     // of the host, allocated by the driver
inline Blocks registered; // of the host, the caller's

// What the parameters of one launch lead to.
class Reach {
    u64 file = 0;

    static u64 address(const void *pointer) { return reinterpret_cast<u64>(pointer); }

    void expect(bool reached, const char *what) {
        if (!reached && !is_stray) std::fprintf(stderr, "a launch does not reach its %s\n", what);
        is_stray |= !reached;
    }

    void expect_on_device(const void *at, u64 len, const char *what) {
        if (at != nullptr) expect(allocated.hold(address(at), len), what);
    }

  public:
    bool is_stray = false;

    template <class Other>
    void examine(const Other &) {}

    void examine(const TableView &view) {
        file = address(view.file);
        expect(registered.hold(file, view.file_len), "file");
        for (u32 level = view.bottom_level; level <= view.top_level; level++) {
            u64 buckets = static_cast<u64>(view.bucket_size) << level;
            u64 len = buckets + ((1ull << level) + 63) / 64 * 8;
            u64 probe = address(view.level_probe[level]);
            u64 offset = view.level_offset[level];
            expect(offset >= DATA_START && registered.hold(file + offset, len), "level");
            expect(probe == file + offset || allocated.hold(probe, len), "copy of a level");
        }
        for (const u8 *probe : view.reserved_probe) {
            u64 at = address(probe);
            expect(registered.hold(at, view.bucket_size) || allocated.hold(at, view.bucket_size),
                   "reserved buckets");
        }
        expect_on_device(view.dirty, (view.file_len / PAGE + 63) / 64 * 8, "map of pages");
        u64 uses = 4ull << (view.top_level + 1);
        expect_on_device(view.cache.links, uses, "cache's links");
        expect_on_device(view.cache.access_counts, uses, "cache's uses");
        expect_on_device(view.cache.records, 8, "cache's records");
        expect_on_device(view.cache.values, 1, "cache's values");
        expect_on_device(view.cache.buckets, 1, "cache's buckets");
    }

    // Comes behind the table.
    void examine(const Records &records) {
        expect_on_device(records.ring, records.ring_capacity * 8, "ring of records");
        for (u32 run = 0; run < 2 && file != 0; run++) {
            u64 len = records.bump_count[run] * records.bump_stride;
            if (len == 0) continue;
            expect(registered.hold(file + records.bump_offset[run], len), "records");
        }
    }

    void examine(const Batch &batch) {
        expect_on_device(batch.keys, batch.len * 8ull, "keys");
        expect_on_device(batch.pending, batch.len, "pending positions");
    }
};

} // namespace faults
