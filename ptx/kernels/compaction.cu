// Compaction of sorted files (gLSM §4, §5): data blocks are decoded, their entries sorted by their keys, what a newer
// run has of a key left out, and new data blocks encoded, byte for byte those that the host would make
// (src/lsm/sst/block/data, which draws them).
//
// Runs stand one behind the other, the newest first. A sort that keeps the order of equal keys leaves the newest of
// them in front. Where a block ends depends on what all entries before count, which is a sum; so is where each byte goes.
#include "radix.cuh"
#include "xxh3.cuh"

// Mirror of ptx/gpu/compaction/abi.rs.
constexpr u32 BLOCK_HEADER = 12;
constexpr u32 RESTART_INTERVAL = 16;
constexpr u32 ENTRY_OVERHEAD = 8;
constexpr u32 REFERENCE_BYTES = 16;
constexpr u64 KEY_BYTES_MAX = 64 << 10;
constexpr u64 VALUE_BYTES_MAX = 1 << 30;

// What is in the way of a job. The host does it then, and says what is wrong.
constexpr u32 DAMAGED = 1;
constexpr u32 LONG_KEY = 2;
constexpr u32 UNORDERED = 4;
constexpr u32 LONG_VALUE = 8;

// A data block as it stands in its file.
struct InputBlock {
    u64 at;   // in the input
    u64 seed; // of its checksum
    u32 len;
    u32 entries;
    u32 first; // number of its first entry
    u32 reserved;
};

struct CompactionEntry {
    u64 sequence;
    u64 code;     // of its value
    u64 value_at; // in the input
    u32 value_len; // bytes that stand there
    u32 key_len;
};

struct OutputBlock {
    u64 at;       // in the output
    u64 position; // what all entries before count
    u64 smallest_sequence;
    u64 largest_sequence;
    u32 first; // number of its first entry
    u32 tombstones;
    u32 first_key_len;
    u32 last_key_len;
};

struct CompactionStatus {
    u32 problems;
    u32 longest_key;
    u32 tombstones;
    u32 reserved;
};

// Blocks of a filter (src/pool/bloom_filter.rs).
struct FilterRange {
    u32 first;
    u32 blocks;
};

struct ValueUse {
    u64 bytes;
    u64 end;
};

// A job as one launch sees it; all of it lies in device memory.
struct Compaction {
    const u8 *input;
    const InputBlock *blocks;
    const u8 *bounds; // a key from which on, and one before which entries are taken
    CompactionEntry *entries;
    u8 *keys;       // `stride` bytes each, zeros behind the key
    u8 *order;      // numbers of entries in the order of their keys, behind words that are sorted by
    u64 *kept;      // for each in that order how many before it are kept
    u32 *numbers;   // of the entries that are kept
    u64 *positions; // of each of these: what those before count
    u64 *starts;    // how many blocks begin before it
    u32 *firsts;    // of each new block the first of these, and behind the last one their number
    u32 *shared;    // bytes that it shares with the key before
    u64 *offsets;   // where it begins in the output
    u8 *output;
    u32 *filters;               // of all new files
    const FilterRange *filter_ranges; // of each new file
    OutputBlock *described;
    u8 *ends;              // of each new block its first and its last key, `stride` bytes each
    const u64 *seeds;      // of the checksums of new blocks
    const u32 *files;      // of each new block
    const u64 *value_files; // numbers, ascending
    ValueUse *uses;        // of each new file what it has in each of these
    u32 *tombstones;       // their numbers in the order
    CompactionStatus *status;
    u64 hash_seed;
    u64 block_bytes;
    u64 file_bytes;
    u64 value_bytes_min;
    u32 block_count;
    u32 entry_count;
    u32 stride;
    u32 prefix; // bytes that all keys have in common
    u32 from_len;
    u32 to_len; // all bits set if nothing is behind the range
    u32 new_blocks;
    u32 value_file_count;
};

__device__ inline u64 thread_number() { return static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x; }

__device__ inline u64 thread_count() { return static_cast<u64>(gridDim.x) * blockDim.x; }

__device__ inline void refuse(const Compaction &job, u32 problem) { atomicOr(&job.status->problems, problem); }

__device__ inline const u32 *order_of(const Compaction &job) {
    return reinterpret_cast<const u32 *>(job.order + static_cast<u64>(job.entry_count) * sizeof(u64));
}

// How many entries are kept.
__device__ inline u32 kept_count(const Compaction &job) { return static_cast<u32>(job.kept[job.entry_count]); }

// Takes a number of variable length; false if there is none before `end`.
__device__ inline bool take_number(const u8 *bytes, u32 &at, u32 end, u64 &number) {
    number = 0;
    #pragma unroll 1
    for (u32 shift = 0; shift < 64; shift += 7) {
        if (at >= end) return false;
        u32 byte = bytes[at++];
        number |= static_cast<u64>(byte & 0x7f) << shift;
        if (byte < 0x80) return shift < 63 || byte <= 1;
    }
    return false;
}

__device__ inline u32 number_len(u64 number) {
    u32 bits = 64 - static_cast<u32>(__clzll(number | 1));
    return (bits + 6) / 7;
}

__device__ inline u8 *put_number(u8 *to, u64 number) {
    #pragma unroll 1
    for (; number >= 0x80; number >>= 7) *to++ = static_cast<u8>(number | 0x80);
    *to++ = static_cast<u8>(number);
    return to;
}

__device__ inline void put_half(u8 *to, u32 word) {
    #pragma unroll 1
    for (u32 byte = 0; byte < 4; byte++) to[byte] = static_cast<u8>(word >> byte * 8);
}

// Eight lanes a block: whether it is what its checksum says.
KERNEL check_blocks(Compaction job) {
    #pragma unroll 1
    for (u64 nth = thread_number() / GROUP; nth < job.block_count; nth += thread_count() / GROUP) {
        const InputBlock block = job.blocks[nth];
        const u8 *at = job.input + block.at;
        u64 hash = hash_bytes(at + 8, block.len - 8, block.seed);
        bool fits = hash == word_at(at) && half_at(at + 8) == block.len - BLOCK_HEADER;
        if (!fits) refuse(job, DAMAGED);
    }
}

// Decodes the entry at `at`, whose key shares bytes with the one before. False if there can be none.
__device__ inline bool parse_entry(const Compaction &job, const u8 *content, u32 &at, u32 end, u32 number, bool is_first,
                                   u32 &last_len, u64 content_at) {
    u64 shared, rest, sequence, code;
    bool fits = take_number(content, at, end, shared) && take_number(content, at, end, rest) &&
                take_number(content, at, end, sequence) && take_number(content, at, end, code);
    if (!fits || shared > last_len || (is_first && shared != 0) || rest > end - at) return false;
    if (shared + rest > KEY_BYTES_MAX) return false;
    u32 key_len = static_cast<u32>(shared + rest);
    if (key_len > job.stride) {
        atomicMax(&job.status->longest_key, key_len);
        refuse(job, LONG_KEY);
    } else {
        u8 *key = job.keys + static_cast<u64>(number) * job.stride;
        // Nobody looks at it if the one before was too long.
        const u8 *before = is_first ? key : key - job.stride;
        #pragma unroll 1
        for (u32 byte = 0; byte < shared; byte++) key[byte] = before[byte];
        #pragma unroll 1
        for (u32 byte = static_cast<u32>(shared); byte < key_len; byte++) key[byte] = content[at + byte - shared];
        #pragma unroll 1
        for (u32 byte = key_len; byte < job.stride; byte++) key[byte] = 0;
    }
    last_len = key_len;
    at += static_cast<u32>(rest);
    u32 value_at = at;
    bool is_apart = code != 0 && code % 2 == 0;
    if (is_apart) {
        u64 file, offset;
        if (!take_number(content, at, end, file) || !take_number(content, at, end, offset)) return false;
        if (end - at < 8 || code > 2 * VALUE_BYTES_MAX + 2) return false;
        at += 8;
    } else if (code != 0) {
        u64 len = code / 2;
        if (len > end - at) return false;
        if (len >= job.value_bytes_min) refuse(job, LONG_VALUE);
        at += static_cast<u32>(len);
    }
    job.entries[number] = {sequence, code, content_at + value_at, at - value_at, key_len};
    return true;
}

// A warp a block, a lane for each restart point.
KERNEL parse_blocks(Compaction job) {
    #pragma unroll 1
    for (u64 nth = warp_number(); nth < job.block_count; nth += warp_count()) {
        const InputBlock block = job.blocks[nth];
        const u8 *content = job.input + block.at + BLOCK_HEADER;
        u32 len = block.len - BLOCK_HEADER;
        u32 restarts = (block.entries + RESTART_INTERVAL - 1) / RESTART_INTERVAL;
        if (restarts == 0 || len / 4 <= restarts || half_at(content + len - 4) != restarts) {
            refuse(job, DAMAGED);
            continue;
        }
        u32 points = len - 4 * (restarts + 1);
        #pragma unroll 1
        for (u32 restart = lane_number(); restart < restarts; restart += WARP) {
            u32 at = half_at(content + points + 4 * restart);
            u32 end = restart + 1 < restarts ? half_at(content + points + 4 * restart + 4) : points;
            u32 before = restart * RESTART_INTERVAL;
            u32 count = block.entries - before < RESTART_INTERVAL ? block.entries - before : RESTART_INTERVAL;
            bool fits = at < end && end <= points && (restart != 0 || at == 0);
            u32 last_len = 0;
            #pragma unroll 1
            for (u32 entry = 0; fits && entry < count; entry++) {
                fits = parse_entry(job, content, at, end, block.first + before + entry, entry == 0, last_len,
                                   block.at + BLOCK_HEADER);
            }
            if (!fits || at != end) refuse(job, DAMAGED);
        }
    }
}

// Eight bytes of a key behind what all have in common, the first of which is the highest.
__device__ inline u64 key_word(const Compaction &job, u32 number, u32 word) {
    u32 at = job.prefix + word * 8;
    if (at >= job.stride) return 0;
    u64 bytes = word_at(job.keys + static_cast<u64>(number) * job.stride + at);
    u32 left = job.stride - at;
    return swap_bytes(left < 8 ? bytes << (8 - left) * 8 >> (8 - left) * 8 : bytes);
}

// Loads a word of each key. The last one comes first, in the order of the entries; the one before in that of the words
// behind.
KERNEL load_key_words(Compaction job, u32 word, u32 in_order) {
    Changes changes(job.order, job.entry_count);
    #pragma unroll 1
    for (u64 nth = thread_number(); nth < job.entry_count; nth += thread_count()) {
        u32 number = in_order != 0 ? changes.positions[nth] : static_cast<u32>(nth);
        changes.hashes[nth] = key_word(job, number, word);
        if (in_order == 0) changes.positions[nth] = number;
    }
}

// Less than 0 if a key stands before another one, 0 if they are equal.
__device__ inline int compare_keys(const u8 *a, u32 a_len, const u8 *b, u32 b_len, u32 stride) {
    const u64 *words = reinterpret_cast<const u64 *>(a);
    const u64 *others = reinterpret_cast<const u64 *>(b);
    #pragma unroll 1
    for (u32 word = 0; word < stride / 8; word++) {
        if (words[word] != others[word]) return swap_bytes(words[word]) < swap_bytes(others[word]) ? -1 : 1;
    }
    return a_len == b_len ? 0 : a_len < b_len ? -1 : 1;
}

// Keys that are alike in what was sorted by, up to which one thread brings them into order.
constexpr u32 ALIKE_MAX = 64;

__device__ inline bool are_alike(const Compaction &job, u32 a, u32 b) {
    return key_word(job, a, 0) == key_word(job, b, 0) && key_word(job, a, 1) == key_word(job, b, 1);
}

// Brings keys that are alike in what was sorted by into the order of all of their bytes, equal ones as they are. Of
// many, the host takes care.
KERNEL order_alike(Compaction job) {
    u32 *order = const_cast<u32 *>(order_of(job));
    #pragma unroll 1
    for (u64 nth = thread_number(); nth < job.entry_count; nth += thread_count()) {
        // Those of another group may be exchanged; they stay alike.
        if (nth != 0 && are_alike(job, order[nth - 1], order[nth])) continue;
        u64 end = nth + 1;
        #pragma unroll 1
        while (end < job.entry_count && end - nth <= ALIKE_MAX && are_alike(job, order[nth], order[end])) end++;
        if (end - nth > ALIKE_MAX) continue;
        #pragma unroll 1
        for (u64 at = nth + 1; at < end; at++) {
            u32 number = order[at];
            const u8 *key = job.keys + static_cast<u64>(number) * job.stride;
            u64 to = at;
            #pragma unroll 1
            for (; to > nth; to--) {
                u32 before = order[to - 1];
                if (compare_keys(job.keys + static_cast<u64>(before) * job.stride, job.entries[before].key_len, key,
                                 job.entries[number].key_len, job.stride) <= 0) {
                    break;
                }
                order[to] = before;
            }
            order[to] = number;
        }
    }
}

// Marks the entries that are the newest of their key and in the range; lists the tombstones among them.
KERNEL mark_kept(Compaction job) {
    const u32 *order = order_of(job);
    #pragma unroll 1
    for (u64 nth = thread_number(); nth <= job.entry_count; nth += thread_count()) {
        if (nth == job.entry_count) {
            job.kept[nth] = 0;
            continue;
        }
        const CompactionEntry entry = job.entries[order[nth]];
        const u8 *key = job.keys + static_cast<u64>(order[nth]) * job.stride;
        int after = 1;
        if (nth != 0) {
            u32 last = order[nth - 1];
            after = compare_keys(key, entry.key_len, job.keys + static_cast<u64>(last) * job.stride,
                                 job.entries[last].key_len, job.stride);
        }
        // There were many alike.
        if (after < 0) refuse(job, UNORDERED);
        bool is_kept = after > 0 && compare_keys(key, entry.key_len, job.bounds, job.from_len, job.stride) >= 0;
        if (job.to_len != ~0u) {
            is_kept &= compare_keys(key, entry.key_len, job.bounds + job.stride, job.to_len, job.stride) < 0;
        }
        job.kept[nth] = is_kept;
        if (is_kept && entry.code == 0) {
            job.tombstones[atomicAdd(&job.status->tombstones, 1)] = static_cast<u32>(nth);
        }
    }
}

// Copies the keys of tombstones, with their lengths before them.
KERNEL copy_tombstones(Compaction job, u8 *to, u32 count) {
    const u32 *order = order_of(job);
    u32 words = job.stride / 8;
    #pragma unroll 1
    for (u64 nth = thread_number(); nth < count; nth += thread_count()) {
        u32 number = order[job.tombstones[nth]];
        u64 *slot = reinterpret_cast<u64 *>(to) + nth * (words + 1);
        const u64 *key = reinterpret_cast<const u64 *>(job.keys + static_cast<u64>(number) * job.stride);
        slot[0] = job.entries[number].key_len;
        #pragma unroll 1
        for (u32 word = 0; word < words; word++) slot[1 + word] = key[word];
    }
}

// Leaves out the tombstones that hide nothing: those whose byte is not 0.
KERNEL drop_tombstones(Compaction job, const u8 *dropped, u32 count) {
    #pragma unroll 1
    for (u64 nth = thread_number(); nth < count; nth += thread_count()) {
        if (dropped[nth] != 0) job.kept[job.tombstones[nth]] = 0;
    }
}

// Words that a thread adds up.
constexpr u32 SUMMED = 8;
constexpr u32 SUMMED_BY_BLOCK = BLOCK_THREADS * SUMMED;

__device__ inline u64 sum_of(const u64 *words, u64 first, u64 len) {
    u64 sum = 0;
    #pragma unroll 1
    for (u64 at = first; at < first + SUMMED && at < len; at++) sum += words[at];
    return sum;
}

// A block for each part of the words: its sum.
KERNEL sum_parts(const u64 *words, u32 len, u64 *sums) {
    u64 first = thread_number() * SUMMED;
    u64 sum = sum_up_to(sum_of(words, first, len));
    if (threadIdx.x == BLOCK_THREADS - 1) sums[blockIdx.x] = sum;
}

// One block: the sums of the parts before each one.
KERNEL start_parts(u64 *sums, u32 parts) {
    u32 share = (parts + BLOCK_THREADS - 1) / BLOCK_THREADS;
    u32 first = threadIdx.x * share;
    u32 end = first + share < parts ? first + share : parts;
    u64 sum = 0;
    #pragma unroll 1
    for (u32 at = first; at < end; at++) sum += sums[at];
    u64 start = sum_up_to(sum) - sum;
    #pragma unroll 1
    for (u32 at = first; at < end; at++) {
        u64 own = sums[at];
        sums[at] = start;
        start += own;
    }
}

// A block for each part: instead of each word the sum of those before it.
KERNEL add_parts(u64 *words, u32 len, const u64 *sums) {
    u64 first = thread_number() * SUMMED;
    u64 own = sum_of(words, first, len);
    u64 sum = sums[blockIdx.x] + sum_up_to(own) - own;
    #pragma unroll 1
    for (u64 at = first; at < first + SUMMED && at < len; at++) {
        u64 word = words[at];
        words[at] = sum;
        sum += word;
    }
}

// Takes the entries that are kept, and what each counts.
KERNEL take_kept(Compaction job) {
    const u32 *order = order_of(job);
    u32 count = kept_count(job);
    #pragma unroll 1
    for (u64 nth = thread_number(); nth <= job.entry_count; nth += thread_count()) {
        // The rest counts nothing.
        if (nth >= count) job.positions[nth] = 0;
        if (nth == job.entry_count || job.kept[nth] == job.kept[nth + 1]) continue;
        u64 to = job.kept[nth];
        const CompactionEntry entry = job.entries[order[nth]];
        u32 value = entry.code == 0 ? 0 : entry.code % 2 == 0 ? REFERENCE_BYTES : entry.value_len;
        job.numbers[to] = order[nth];
        job.positions[to] = entry.key_len + value + ENTRY_OVERHEAD;
    }
}

// Marks where blocks begin.
KERNEL mark_starts(Compaction job) {
    u32 count = kept_count(job);
    #pragma unroll 1
    for (u64 nth = thread_number(); nth <= job.entry_count; nth += thread_count()) {
        bool starts = nth == 0 && count != 0;
        if (nth != 0 && nth < count) {
            u64 position = job.positions[nth];
            u64 before = job.positions[nth - 1];
            starts = position / job.block_bytes != before / job.block_bytes ||
                     position / job.file_bytes != before / job.file_bytes;
        }
        job.starts[nth] = starts;
    }
}

__device__ inline u32 block_of(const Compaction &job, u64 nth) { return static_cast<u32>(job.starts[nth + 1] - 1); }

// Notes the first entry of each block.
KERNEL note_firsts(Compaction job) {
    u32 count = kept_count(job);
    #pragma unroll 1
    for (u64 nth = thread_number(); nth < count; nth += thread_count()) {
        if (job.starts[nth] != job.starts[nth + 1]) job.firsts[job.starts[nth]] = static_cast<u32>(nth);
        if (nth == count - 1) job.firsts[job.starts[count]] = count;
    }
}

__device__ inline u32 common_prefix(const u8 *a, u32 a_len, const u8 *b, u32 b_len) {
    u32 len = a_len < b_len ? a_len : b_len;
    const u64 *words = reinterpret_cast<const u64 *>(a);
    const u64 *others = reinterpret_cast<const u64 *>(b);
    #pragma unroll 1
    for (u32 word = 0; word * 8 < len; word++) {
        u64 difference = words[word] ^ others[word];
        if (difference == 0) continue;
        u32 common = word * 8 + static_cast<u32>(__clzll(swap_bytes(difference))) / 8;
        return common < len ? common : len;
    }
    return len;
}

// How many bytes each entry takes, with those of its block that come before the first one and behind the last one.
KERNEL measure_entries(Compaction job) {
    u32 count = kept_count(job);
    #pragma unroll 1
    for (u64 nth = thread_number(); nth <= job.entry_count; nth += thread_count()) {
        if (nth >= count) {
            job.offsets[nth] = 0;
            continue;
        }
        u32 number = job.numbers[nth];
        const CompactionEntry entry = job.entries[number];
        u32 block = block_of(job, nth);
        u32 of_block = static_cast<u32>(nth) - job.firsts[block];
        u32 shared = 0;
        if (of_block % RESTART_INTERVAL != 0) {
            u32 last = job.numbers[nth - 1];
            shared = common_prefix(job.keys + static_cast<u64>(last) * job.stride, job.entries[last].key_len,
                                   job.keys + static_cast<u64>(number) * job.stride, entry.key_len);
        }
        job.shared[nth] = shared;
        u32 rest = entry.key_len - shared;
        u64 len = number_len(shared) + number_len(rest) + number_len(entry.sequence) + number_len(entry.code);
        len += rest + entry.value_len;
        if (of_block == 0) len += BLOCK_HEADER;
        if (nth + 1 == job.firsts[block + 1]) len += 4 * (of_block / RESTART_INTERVAL + 2);
        job.offsets[nth] = len;
    }
}

// Eight lanes an entry: writes it, and what its block says of it.
KERNEL encode_entries(Compaction job) {
    u32 count = kept_count(job);
    u32 lane = lane_number() % GROUP;
    #pragma unroll 1
    for (u64 nth = thread_number() / GROUP; nth < count; nth += thread_count() / GROUP) {
        u32 number = job.numbers[nth];
        const CompactionEntry entry = job.entries[number];
        u32 block = block_of(job, nth);
        u32 first = job.firsts[block];
        u32 of_block = static_cast<u32>(nth) - first;
        u32 restarts = (job.firsts[block + 1] - first + RESTART_INTERVAL - 1) / RESTART_INTERVAL;
        u8 *start = job.output + job.offsets[first];
        u8 *end = job.output + job.offsets[job.firsts[block + 1]];
        u8 *to = job.output + job.offsets[nth] + (of_block == 0 ? BLOCK_HEADER : 0);
        u32 shared = job.shared[nth];
        u32 rest = entry.key_len - shared;
        u32 head = number_len(shared) + number_len(rest) + number_len(entry.sequence) + number_len(entry.code);
        if (lane == 0) {
            put_number(put_number(put_number(put_number(to, shared), rest), entry.sequence), entry.code);
            if (of_block == 0) {
                put_half(start + 8, static_cast<u32>(end - start) - BLOCK_HEADER);
                put_half(end - 4, restarts);
            }
            if (of_block % RESTART_INTERVAL == 0) {
                u32 restart = of_block / RESTART_INTERVAL;
                put_half(end - 4 * (restarts + 1 - restart), static_cast<u32>(to - start) - BLOCK_HEADER);
            }
        }
        const u8 *key = job.keys + static_cast<u64>(number) * job.stride + shared;
        #pragma unroll 1
        for (u32 byte = lane; byte < rest; byte += GROUP) to[head + byte] = key[byte];
        const u8 *value = job.input + entry.value_at;
        to += head + rest;
        #pragma unroll 1
        for (u32 byte = lane; byte < entry.value_len; byte += GROUP) to[byte] = value[byte];
    }
}

constexpr u32 FILTER_WORDS = 8;
__device__ constexpr u32 FILTER_SALTS[FILTER_WORDS] = {
    0x47b6137b, 0x44974d91, 0x8824ad5b, 0xa2b7289d, 0x705495c7, 0x2df1424b, 0x9efc4947, 0x5c6bfb31,
};

// Enters the key of each entry into the filter of its file.
KERNEL fill_filters(Compaction job) {
    u32 count = kept_count(job);
    #pragma unroll 1
    for (u64 nth = thread_number(); nth < count; nth += thread_count()) {
        u32 number = job.numbers[nth];
        const u8 *key = job.keys + static_cast<u64>(number) * job.stride;
        u64 hash = hash_short(key, job.entries[number].key_len, job.hash_seed);
        const FilterRange range = job.filter_ranges[job.files[block_of(job, nth)]];
        u64 block = range.first + ((hash >> 32) * range.blocks >> 32);
        u32 *words = job.filters + block * FILTER_WORDS;
        #pragma unroll 1
        for (u32 word = 0; word < FILTER_WORDS; word++) {
            atomicOr(words + word, 1u << (static_cast<u32>(hash) * FILTER_SALTS[word] >> 27));
        }
    }
}

// A warp a new block: says what the host must know of it.
KERNEL describe_blocks(Compaction job) {
    u32 lane = lane_number();
    #pragma unroll 1
    for (u64 block = warp_number(); block < job.new_blocks; block += warp_count()) {
        u32 first = job.firsts[block];
        u32 end = job.firsts[block + 1];
        u64 smallest = ~0ull;
        u64 largest = 0;
        u32 tombstones = 0;
        #pragma unroll 1
        for (u32 nth = first + lane; nth < end; nth += WARP) {
            const CompactionEntry entry = job.entries[job.numbers[nth]];
            smallest = entry.sequence < smallest ? entry.sequence : smallest;
            largest = entry.sequence > largest ? entry.sequence : largest;
            tombstones += entry.code == 0;
        }
        #pragma unroll 1
        for (u32 apart = WARP / 2; apart != 0; apart /= 2) {
            u64 other = __shfl_xor_sync(ALL_LANES, smallest, apart);
            smallest = other < smallest ? other : smallest;
            other = __shfl_xor_sync(ALL_LANES, largest, apart);
            largest = other > largest ? other : largest;
            tombstones += __shfl_xor_sync(ALL_LANES, tombstones, apart);
        }
        u32 numbers[2] = {job.numbers[first], job.numbers[end - 1]};
        if (lane == 0) {
            job.described[block] = {job.offsets[first], job.positions[first], smallest, largest, first, tombstones,
                                    job.entries[numbers[0]].key_len, job.entries[numbers[1]].key_len};
        }
        u32 words = job.stride / 8;
        u64 *to = reinterpret_cast<u64 *>(job.ends + block * 2 * job.stride);
        #pragma unroll 1
        for (u32 word = lane; word < 2 * words; word += WARP) {
            u64 key = static_cast<u64>(numbers[word / words]) * job.stride;
            to[word] = reinterpret_cast<const u64 *>(job.keys + key)[word % words];
        }
    }
}

// Eight lanes a new block: writes its checksum.
KERNEL seal_blocks(Compaction job) {
    #pragma unroll 1
    for (u64 block = thread_number() / GROUP; block < job.new_blocks; block += thread_count() / GROUP) {
        u64 at = job.offsets[job.firsts[block]];
        u64 len = job.offsets[job.firsts[block + 1]] - at;
        u64 hash = hash_bytes(job.output + at + 8, len - 8, job.seeds[block]);
        if (lane_number() % GROUP == 0) {
            put_half(job.output + at, static_cast<u32>(hash));
            put_half(job.output + at + 4, static_cast<u32>(hash >> 32));
        }
    }
}

// What the entries of each new file have in each value file.
KERNEL count_values(Compaction job) {
    u32 count = kept_count(job);
    #pragma unroll 1
    for (u64 nth = thread_number(); nth < count; nth += thread_count()) {
        const CompactionEntry entry = job.entries[job.numbers[nth]];
        if (entry.code == 0 || entry.code % 2 != 0) continue;
        u64 file, offset;
        u32 at = 0;
        const u8 *reference = job.input + entry.value_at;
        take_number(reference, at, entry.value_len, file);
        take_number(reference, at, entry.value_len, offset);
        u32 low = 0;
        u32 high = job.value_file_count;
        #pragma unroll 1
        while (low < high) {
            u32 middle = low + (high - low) / 2;
            if (job.value_files[middle] < file) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        u64 len = entry.code / 2 - 1;
        if (low == job.value_file_count || job.value_files[low] != file || offset + len < offset) {
            refuse(job, DAMAGED);
            continue;
        }
        ValueUse *use = job.uses + static_cast<u64>(job.files[block_of(job, nth)]) * job.value_file_count + low;
        atomicAdd(&use->bytes, len);
        atomicMax(&use->end, offset + len);
    }
}
