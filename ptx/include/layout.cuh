// What the host and the kernels share: the words of the file (mirror of src/layout) and the structs
// that a launch passes (mirror of ptx/gpu/abi.rs). A test of gphash compares the offsets
// that layout.cu states.
#pragma once

#include "memory.cuh"

// State words (src/layout/words/bucket.rs).
constexpr u64 EMPTY = 0;
constexpr u64 BUSY = ~0ull;
constexpr u64 RESERVED_WORD = 1;

// A slot's state word and record word, side by side in the file.
constexpr u64 SLOT_WORDS_BYTES = 16;

// Record words (src/layout/words/record.rs).
constexpr u64 RECORD_OFFSET = (1ull << 56) - 1;
constexpr u64 INSERTION = 1ull << 59;
constexpr u64 PARITY = 1ull << 60;
constexpr u64 FROZEN = 1ull << 61;
constexpr u64 COLLIDED = 1ull << 62;
constexpr u64 TENTATIVE = 1ull << 63;

// Offsets and sizes of the file (src/layout/words/lib.rs).
constexpr u64 PAGE = 4096;
constexpr u64 LINE = 128;
constexpr u64 RESERVED_BUCKETS = 2 * PAGE;
constexpr u64 RESERVED_BUCKET_STRIDE = PAGE;
constexpr u64 DATA_START = 30 * PAGE;

// How kernels are launched (ptx/gpu/launch.rs): threads of a block, and how many blocks of
// the verbs' kernels fit on a multiprocessor, which bounds their registers to 64.
constexpr u32 BLOCK_THREADS = 256;
constexpr u32 RESIDENT_BLOCKS = 4;

#define KERNEL extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, RESIDENT_BLOCKS)

constexpr u32 DIRECTORY = 48;
constexpr u32 OVERFLOW_ROUNDS = 3;

// The frozen bucket cache (cache.cuh). A bucket's ordinal is 1 << level plus its number in the
// level. All null: there is no cache; `links` alone: uses are counted, nothing is held yet.
constexpr u32 POLICY_LFU = 0;
constexpr u32 POLICY_LRU = 1;
constexpr u32 POLICY_RANDOM = 2;

struct CacheView {
    u32 *links;         // one a bucket, by its ordinal: 1 + the entry that holds it, 0 for none
    u32 *access_counts; // one a bucket: how often it was used (LFU) or when last (LRU); or null
    u64 *records;       // `slots` an entry: the record whose value is held, 0 for none
    u8 *values;         // `slots` an entry, `value_stride` bytes each
    u8 *buckets;        // `bucket_size` bytes an entry; null if every level has a copy
    u32 value_stride;
    u32 policy; // how the buckets to be held are chosen
};

// The table as one launch sees it. A non-owning view: levels and file outlive the launch.
//
// `level_probe` is where the kernels probe a level and claim its slots: a copy in device memory,
// or the level itself (`file + level_offset`) where no copy is kept. A copy holds the whole level,
// buckets and overflow map.
struct TableView {
    u8 *file;
    u64 file_len;
    u64 hash_seed;
    u32 key_size;
    u32 value_size;
    u32 slots;
    u32 levels;
    u32 locations;
    u32 bottom_level;
    u32 top_level;
    u32 bucket_size;
    u32 record_stride;
    u32 value_offset; // of what a lookup copies of each value; `value_size` bytes of it
    u32 checksum_offset; // of the checksum in a record, 0 if records have none
    u32 reserved;
    u8 *reserved_probe[2];
    u32 *dirty; // one bit for each page of the file, or null
    u64 level_offset[DIRECTORY];
    u8 *level_probe[DIRECTORY];
    CacheView cache;
};

// Records that a launch may take, and where it leaves those it retires. `ring` holds offsets;
// [head, tail) are free, [tail, retired_tail) were retired earlier and are not free yet. The host
// sees to it that a launch's operations find room behind `retired_tail`. Counts are not wrapped;
// entry n stands at n % ring_capacity, a power of two.
struct Records {
    u64 *ring;
    u64 ring_capacity;
    u64 head;
    u64 tail;
    u64 retired_tail;
    u64 bump_offset[2];
    u64 bump_count[2];
    u64 bump_stride;
};

// How the positions of a batch are put in the order of the offsets that they touch in the file: a
// counting sort with a bin for each range of 2^shift bytes. Bins are a power of two, from one chunk of
// them to MOST_CHUNKS.
constexpr u32 BIN_CHUNK = 4096;
constexpr u32 MOST_CHUNKS = 256;

struct AddressSort {
    u64 *offsets;   // one a position: where it goes in the file, 0 for nowhere
    u32 *ranks;     // one a position: how many of its bin came before it
    u32 *positions; // the positions that have an offset, in order
    u32 *bins;      // positions in each bin; zero before and after
    u32 *starts;    // positions in the bins before each one
    u32 *sums;      // positions in each chunk, zero before and after; at MOST_CHUNKS, in all
    u32 bin_count;
    u32 shift;
    u32 wanted; // 0: the batch is executed in the order of its positions
    u32 reserved;
};

constexpr u32 DEEPEST = 4;

// One batch of one verb. Keys and values lie tightly packed in device memory. `entry`, `first`
// and `last` come from batch.cu; without them (null) every position is an operation of its own.
struct Batch {
    const u8 *keys;
    u8 *values;
    u32 *answers; // one bit a position, in whole 64-bit words; zero before a change's first launch
    u8 *pending;  // one byte a position: 1 if it awaits slots or records
    const u32 *entry;
    const u32 *first;
    const u32 *last;
    u32 len;
    u32 tile;  // positions that a warp takes at a time: 4, 8, 16 or 32; at least 8 in a lookup
    u32 retry; // 1: execute pending positions only
    u32 depth; // tiles that share their fences in a change: up to DEEPEST
    u32 sample; // differs from launch to launch: which lookups are counted
    u32 stored; // 1: the values are in records already, whose offsets `values` holds, one a position
    AddressSort order;
};

// The groups of equal keys of a batch: a hash table whose entries are groups, and the entry of each
// position.
struct Groups {
    u32 *claims; // 1 + the position that opened the group, 0 for an empty entry; zero before
    u32 *first;  // the first of its positions; all ones before
    u32 *last;   // the last of them; zero before
    u32 *entry;  // one a position
    u64 mask;    // entries - 1; entries are a power of two, at least twice the batch
    u64 seed;    // of the hash that leads to the entries; differs from batch to batch
};

// What a launch did. Zero before it, read by the host after it.
struct Counters {
    u64 taken;          // records taken, from the ring first, then from the bump ranges
    u64 retired;        // records retired
    u64 items;          // members added less members removed (two's complement)
    u64 full;           // operations or moves that found no slot
    u64 out_of_records; // operations that found no record
    u64 touches;        // lines of the file read or written
    u64 operations;
    u64 damaged;        // file offset of a record word that names no record, 0 for none
    u64 wanted;         // operations that need a record
    u64 cache_lookups;  // values that the cache was asked for
    u64 cache_hits;     // those that it had
};

// One refresh of the cache (cache.cu). Scores say how much a bucket is worth holding; their counts are
// zero before. Both lists hold ordinals and have room for as many as there are entries.
constexpr u32 SCORES = 1024;

struct CacheRefresh {
    u32 *scores;   // buckets of each score that are not linked, then those that are
    u64 *evicted;  // buckets to be given up
    u64 *incoming; // buckets to be filled in
    u32 *free;     // entries that hold no bucket
    u64 entries;
    u64 free_count;
    u64 keep;  // how many linked buckets of the threshold's score stay
    u64 enter; // how many others of that score come in
    u64 room;  // how many buckets come in, whatever their score
    u32 threshold; // buckets of a higher score are held
    u32 round;     // LRU: the tick now; random: differs from refresh to refresh
    u32 ages;      // LFU: 1 if earlier uses count half from now on
    u32 reserved;
};

// What a refresh has come to. Zero before it.
struct CacheOutcome {
    u64 evicted;
    u64 incoming;
    u64 taken; // free entries that were asked for; may exceed what there was
    u64 kept;  // tickets drawn for `keep`, `enter` and `room`; may exceed them
    u64 entered;
    u64 admitted;
    u64 linked; // buckets that are held since this refresh
};

// A range of the file that holds records, which are numbered over all ranges.
struct RecordRange {
    u64 offset;
    u64 count;
    u64 first_ordinal;
};

// What is wrong with a slot and how it is repaired.
constexpr u64 REPAIR_CLEAR = 1;     // half inserted or half removed: state EMPTY, record 0
constexpr u64 REPAIR_DUPLICATE = 2; // moved up already: the same
constexpr u64 REPAIR_THAW = 3;      // about to be moved: record without FROZEN

struct Repair {
    u64 at; // file offset of the slot's state word
    u64 kind;
};

// What no crash leaves, in the top byte of `Findings::damage`.
constexpr u64 DAMAGE_NO_RECORD = 1;      // the record word names no record
constexpr u64 DAMAGE_SHARED_RECORD = 2;  // another item has the same record
constexpr u64 DAMAGE_FOREIGN_BUCKET = 3; // the key cannot stand in this bucket
constexpr u64 DAMAGE_UNSOUND_WORD = 4;   // the record word is nobody's, or has the wrong parity

// Where a recovery scan of the levels puts what it finds.
struct RecoveryScan {
    const RecordRange *ranges;
    u32 *reachable; // one bit a record, by its number
    Repair *repairs;
    u64 repair_capacity;
    u32 range_count;
    u32 reserved;
};

struct Findings {
    u64 members;
    u64 repairs; // may exceed the capacity
    u64 damage;  // kind in the top byte, file offset of the slot's state word below; 0 for none
};
