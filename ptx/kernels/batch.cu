// Equal keys of a batch. Operations of one verb with one key come down to a single one: the first
// insert or remove, the last update or upsert. So the kernels of index.cu execute one position a
// key, and the keys in any order. Lookups find all positions, and are brought to agree if a change
// ran beside them.
//
// The groups are found by a hash table in device memory, made anew for each batch, by a hash with a seed
// that nobody can know who chooses the keys.
#include "hash.cuh"

__device__ inline bool equal_keys(const u8 *keys, u64 a, u64 b, u32 key_size) {
    // All words are loaded at once: most keys of one hash are equal.
    bool differ = false;
    #pragma unroll 4
    for (u32 at = 0; at < key_size; at += 8) {
        differ |= load(keys + a * key_size + at) != load(keys + b * key_size + at);
    }
    return !differ;
}

// Entries behind that of a hash which are looked at before another hash of the key says where to go on: keys
// that meet there part again.
constexpr u64 MOST_NEIGHBOURS = 32;

// The entry of the group of the key at a position.
__device__ inline u64 group_entry(const Groups &groups, const u8 *keys, u32 position, u32 key_size) {
    auto words = reinterpret_cast<const u64 *>(keys + static_cast<u64>(position) * key_size);
    u64 entry = 0;
    #pragma unroll 1
    for (u64 nth = 0;; nth++) {
        if (nth % MOST_NEIGHBOURS == 0) {
            u64 seed = groups.seed + nth;
            u64 hash = key_size == 8 ? hash_word(__ldcs(words), seed)
                                     : hash_words(words, key_size / 8, seed);
            entry = hash & groups.mask;
        } else {
            entry = (entry + 1) & groups.mask;
        }
        u32 opened = load(groups.claims + entry);
        if (opened == 0) opened = atomicCAS(groups.claims + entry, 0, position + 1);
        if (opened == 0 || equal_keys(keys, opened - 1, position, key_size)) return entry;
    }
}

// Output everything as a batch that changes the table finds it: one launch in place of a fill for
// each array. `entries` is 0 for a batch without groups.
KERNEL clear_batch(const __grid_constant__ Groups groups, u64 entries, u64 *answers, u32 words,
                   Counters *counters) {
    u64 thread = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x;
    u64 threads = static_cast<u64>(gridDim.x) * blockDim.x;
    if (thread == 0) *counters = {};
    #pragma unroll 1
    for (u64 at = thread; at < words; at += threads) answers[at] = 0;
    #pragma unroll 1
    for (u64 at = thread; at < entries; at += threads) {
        __stcs(groups.claims + at, 0u);
        __stcs(groups.first + at, ~0u);
        __stcs(groups.last + at, 0u);
    }
}

// Sorts the positions of a batch into groups of equal keys.
KERNEL group_keys(const __grid_constant__ Groups groups, const u8 *keys, u32 len,
                  u32 key_size) {
    #pragma unroll 1
    for (u64 at = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x; at < len;
         at += static_cast<u64>(gridDim.x) * blockDim.x) {
        u32 position = static_cast<u32>(at);
        u64 entry = group_entry(groups, keys, position, key_size);
        __stcs(groups.entry + position, static_cast<u32>(entry));
        // A popular key would queue its atomics at one address, and few of them change anything.
        if (position < load(groups.first + entry)) {
            atomicMin(groups.first + entry, position);
        }
        if (position > load(groups.last + entry)) {
            atomicMax(groups.last + entry, position);
        }
    }
}

// Gives every position of a group the answer of its last one, and its value of `size` bytes, if
// there are values. Of an update the last one was executed for all. The positions of a lookup so
// agree, although changes came between them.
KERNEL spread(const __grid_constant__ Groups groups, u32 *answers, u8 *values, u32 size, u32 len) {
    #pragma unroll 1
    for (u64 at = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x; at < len;
         at += static_cast<u64>(gridDim.x) * blockDim.x) {
        u64 last = __ldcs(groups.last + __ldcs(groups.entry + at));
        if (last == at) continue;
        u32 answer = load(answers + last / 32) >> last % 32 & 1;
        if (answer != 0) {
            atomicOr(answers + at / 32, 1u << at % 32);
        } else {
            atomicAnd(answers + at / 32, ~(1u << at % 32));
        }
        #pragma unroll 1
        for (u32 byte = 0; byte < size; byte++) values[at * size + byte] = values[last * size + byte];
    }
}

// Brings the counters, and as many words of answers as the host wants, to memory of the host. A copy
// of the driver's would queue behind the values of other batches.
KERNEL report(const Counters *counters, const u64 *answers, u32 words, u64 *to) {
    constexpr u32 COUNTERS = sizeof(Counters) / sizeof(u64);
    auto counts = reinterpret_cast<const u64 *>(counters);
    #pragma unroll 1
    for (u64 at = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x; at < COUNTERS + words;
         at += static_cast<u64>(gridDim.x) * blockDim.x) {
        to[at] = at < COUNTERS ? counts[at] : answers[at - COUNTERS];
    }
}
