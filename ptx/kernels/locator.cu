// Where the records of a store's keys are, and what values they have (ptx/gpu/locator.rs): buckets and records of its
// partitions are copied to device memory, and looked up by keys. The host looks at the rest.
#include "group.cuh"
#include "hash.cuh"
#include "scan.cuh"
#include "xxh3.cuh"

constexpr u32 COPY_LINE = 64;            // bytes of a file that are copied at a time
constexpr u64 PIECE_TAIL = 4096;         // bytes that are also behind the piece before: records end there
constexpr u64 PIECE = (16 << 20) - PIECE_TAIL; // bytes of a file whose copies lie side by side
constexpr u32 RECORD_HEADER = 24;        // bytes: lengths of key and value, sequence number, checksum
constexpr u32 VALUE_MAX = 1024;          // bytes of a value that is copied here
constexpr u32 NO_VALUE = 1u << 31;       // beside where a value ends: it is not known
constexpr u32 ABSENT = 1u << 30;         // the same: it is known that there is none
constexpr u32 END = ABSENT - 1;          // bits of where it ends
constexpr u32 ASKED = ~0u;               // of a key: the host does not say what it has
constexpr u32 CHUNK_THREAD_KEYS = 2;
constexpr u32 CHUNK = BLOCK_THREADS * CHUNK_THREAD_KEYS; // keys whose values a block puts side by side
constexpr u64 NO_ROOM = ~0ull;           // in place of where the values of a chunk begin

// The table of a partition, as one launch sees it: the buckets of each level, and records, as they lie in the file.
struct PartitionView {
    const u8 *levels[DIRECTORY];
    u32 bottom_level;
    u32 level_end; // one above the highest level
    u32 bucket_size;
    u32 slots;
    u32 locations;
    u32 is_checked; // whether checksums of records are compared
    const u8 *const *pieces;
    u64 covered; // bytes of the file that there are pieces for
    u64 hash_seed;
};

// The record of the slot in a bucket that has a fingerprint; 0 if none has, or if it was being moved elsewhere when the
// bucket was copied: then it `is_seen`. A group together.
__device__ inline u64 record_in(const u8 *bucket, u32 slots, u64 fingerprint, bool &is_seen) {
    #pragma unroll 1
    for (u32 first = 0; first < slots; first += GROUP) {
        u32 index = first + group_lane();
        uint4 words{};
        if (index < slots) words = load_unit(reinterpret_cast<const uint4 *>(bucket) + index);
        u64 state = static_cast<u64>(words.y) << 32 | words.x;
        u64 record = static_cast<u64>(words.w) << 32 | words.z;
        bool is_found = state == fingerprint && (record & RECORD_OFFSET) != 0 &&
                        (record & (TENTATIVE | COLLIDED | FROZEN)) == 0;
        u32 found = group_ballot(is_found);
        if (found != 0) return group_word(record, __ffs(found) - 1) & RECORD_OFFSET;
        is_seen |= group_any(state == fingerprint);
    }
    return 0;
}

// The record of a fingerprint in its candidate buckets, the nearest round's first, and there the highest level's; 0 for none,
// or for one that `is_seen`.
// Few keys are past the nearest round, but some of most batches are, and the host would wait for those.
__device__ inline u64 record_of(const PartitionView &view, u64 fingerprint, bool &is_seen) {
    #pragma unroll 1
    for (u32 round = 0; round <= OVERFLOW_ROUNDS; round++) {
        #pragma unroll 1
        for (u32 level = view.level_end; level-- > view.bottom_level;) {
            #pragma unroll 1
            for (u32 nth = 0; nth < view.locations; nth++) {
                u64 number = bucket_of(location(fingerprint, round * view.locations + nth), level);
                const u8 *bucket = view.levels[level] + number * view.bucket_size;
                u64 found = record_in(bucket, view.slots, fingerprint, is_seen);
                if (found != 0) return found;
            }
        }
    }
    return 0;
}

// The copy of `len` bytes of a file at an offset, if they are copied side by side. Eight bytes behind them may be read.
__device__ inline const u8 *copy_of(const PartitionView &view, u64 at, u64 len) {
    u64 end = at + len + sizeof(u64);
    if (end > view.covered || end - at / PIECE * PIECE > PIECE + PIECE_TAIL) return nullptr;
    return view.pieces[at / PIECE] + at % PIECE;
}

// The value of a key in the copy of the record at an offset, and its length; null unless the record is the key's, whole
// and short, and has no bit of `excluded` in its sequence number. A group together.
__device__ inline const u8 *value_in(const PartitionView &view, u64 at, const u8 *key, u32 key_len, u64 excluded, u32 *len) {
    const u8 *record = copy_of(view, at, RECORD_HEADER);
    if (at % 8 != 0 || record == nullptr) return nullptr;
    auto header = reinterpret_cast<const u64 *>(record);
    u64 lengths = header[0], sequence = header[1], checksum = header[2];
    *len = static_cast<u32>(lengths >> 32);
    if (static_cast<u32>(lengths) != key_len || *len > VALUE_MAX || (sequence & excluded) != 0) return nullptr;
    u32 value_at = RECORD_HEADER + (key_len + 7) / 8 * 8;
    if (copy_of(view, at, value_at + *len) == nullptr) return nullptr;
    bool differs = false;
    #pragma unroll 1
    for (u32 nth = group_lane(); nth < key_len; nth += GROUP) differs |= record[RECORD_HEADER + nth] != key[nth];
    if (group_any(differs)) return nullptr;
    u64 body = value_at - RECORD_HEADER + *len;
    bool is_whole = view.is_checked == 0 || hash_bytes(record + RECORD_HEADER, body, mix(lengths) ^ sequence) == checksum;
    return is_whole ? record + value_at : nullptr;
}

// Copies a value to anywhere. A group together.
__device__ inline void copy_value(u8 *to, const u8 *from, u32 len) {
    if ((reinterpret_cast<u64>(to) | reinterpret_cast<u64>(from) | len) % sizeof(u32) == 0) {
        #pragma unroll 1
        for (u32 nth = group_lane(); nth < len / sizeof(u32); nth += GROUP) {
            reinterpret_cast<u32 *>(to)[nth] = reinterpret_cast<const u32 *>(from)[nth];
        }
        return;
    }
    #pragma unroll 1
    for (u32 nth = group_lane(); nth < len; nth += GROUP) to[nth] = from[nth];
}

// Keys that are asked for.
struct Questions {
    const u32 *ends;       // where each key ends in `keys`
    const u8 *keys;        // eight bytes behind them may be read
    const u32 *given;      // ASKED, or what the host says of a key: NO_VALUE, ABSENT, or the length of its value; or null
    const u8 *partitions;  // their numbers, or null: a hash of the key says which
    u64 excluded;          // bits of sequence numbers whose records are for the host alone
    u64 usable[4];         // a bit for each number of a partition whose copy is up to date
    u64 route_seed;
    u32 partition_count;
    u32 len;
    u32 values_wanted;
    u32 absence_known; // whether a key in no slot has no value
};

// What is known of the keys of a chunk.
struct ChunkAnswer {
    u64 start; // where their values begin among all, or NO_ROOM
    u32 bytes; // of all values
    u32 left;  // keys of which it is not known what value they have, if any
};

// What is known of them.
struct Answers {
    u64 *records; // the offset of the record that a slot names beside the fingerprint, or 0
    ChunkAnswer *chunks;
    u64 *used;    // bytes that all values have, or would have
    u32 *ends;    // where the value of each key ends among all, which lie in the order of the keys; perhaps with NO_VALUE, ABSENT
    const u8 **sources; // where the copy of each value is, or null
    u8 *values;
    u64 room;
};

// The number of the partition that has a key (src/store/partitions/route.rs). A group together.
__device__ inline u32 partition_of(const Questions &asked, u64 at, const u8 *key, u32 len) {
    if (asked.partitions != nullptr) return asked.partitions[at];
    if (asked.partition_count == 1) return 0;
    return static_cast<u32>(__umul64hi(hash_bytes(key, len, asked.route_seed), asked.partition_count));
}

// Answers questions but for where chunks of values begin: ends are counted from there. Each number of a partition has a view.
KERNEL find_records(const PartitionView *views, Questions asked, Answers found) {
    __shared__ u32 lens[CHUNK];
    constexpr u32 GROUPS_OF_BLOCK = BLOCK_THREADS / GROUP;
    #pragma unroll 1
    for (u64 chunk = blockIdx.x; chunk * CHUNK < asked.len; chunk += gridDim.x) {
        u64 first = chunk * CHUNK;
        #pragma unroll 1
        for (u32 nth = threadIdx.x / GROUP; nth < CHUNK; nth += GROUPS_OF_BLOCK) {
            u64 at = first + nth, record = 0;
            u32 len = 0;
            bool is_absent = false;
            const u8 *value = nullptr;
            u32 given = at < asked.len && asked.given != nullptr ? asked.given[at] : ASKED;
            if (at < asked.len && given == ASKED) {
                u32 begin = at == 0 ? 0 : asked.ends[at - 1], key_len = asked.ends[at] - begin;
                const u8 *key = asked.keys + begin;
                u32 number = partition_of(asked, at, key, key_len);
                const PartitionView &view = views[number];
                if ((asked.usable[number / 64] >> number % 64 & 1) != 0) {
                    bool is_seen = false;
                    record = record_of(view, fingerprint(hash_bytes(key, key_len, view.hash_seed)), is_seen);
                    is_absent = record == 0 && !is_seen && asked.absence_known != 0;
                }
                if (record != 0 && asked.values_wanted != 0) {
                    value = value_in(view, record, key, key_len, asked.excluded, &len);
                }
            }
            if (group_lane() != 0) continue;
            lens[nth] = given != ASKED ? given : is_absent ? ABSENT : value == nullptr ? NO_VALUE : len;
            if (at >= asked.len) continue;
            __stcs(found.records + at, record);
            found.sources[at] = value;
        }
        __syncthreads();
        // Bytes, and above them the keys that are left.
        u64 mine = 0;
        #pragma unroll
        for (u32 nth = 0; nth < CHUNK_THREAD_KEYS; nth++) {
            u32 at = threadIdx.x * CHUNK_THREAD_KEYS + nth;
            bool is_left = lens[at] == NO_VALUE;
            if (first + at < asked.len) mine += is_left ? 1ull << 32 : lens[at] & END;
        }
        u64 all = sum_up_to(mine);
        u32 end = static_cast<u32>(all);
        if (threadIdx.x == BLOCK_THREADS - 1) found.chunks[chunk] = {0, end, static_cast<u32>(all >> 32)};
        end -= static_cast<u32>(mine);
        #pragma unroll
        for (u32 nth = 0; nth < CHUNK_THREAD_KEYS; nth++) {
            u32 at = threadIdx.x * CHUNK_THREAD_KEYS + nth;
            if (first + at >= asked.len) break;
            end += lens[at] & END;
            found.ends[first + at] = end | (lens[at] & ~END);
        }
        __syncthreads();
    }
}

// Copies the values that were found to where they belong, one behind the other in the order of the keys, as far as there is
// room for the chunk that they are in, and counts their ends from there.
KERNEL place_values(u32 len, Answers found) {
    __shared__ u32 ends[CHUNK];
    __shared__ u64 start;
    constexpr u32 GROUPS_OF_BLOCK = BLOCK_THREADS / GROUP;
    u64 room = found.room < END ? found.room : END;
    #pragma unroll 1
    for (u64 chunk = blockIdx.x; chunk * CHUNK < len; chunk += gridDim.x) {
        u64 first = chunk * CHUNK, before = 0;
        #pragma unroll 1
        for (u64 nth = threadIdx.x; nth < chunk; nth += BLOCK_THREADS) before += found.chunks[nth].bytes;
        u64 begin = sum_up_to(before);
        if (threadIdx.x == BLOCK_THREADS - 1) {
            u64 end = begin + found.chunks[chunk].bytes;
            start = end <= room ? begin : NO_ROOM;
            found.chunks[chunk].start = start;
            if (first + CHUNK >= len) *found.used = end;
        }
        #pragma unroll 1
        for (u32 nth = threadIdx.x; nth < CHUNK && first + nth < len; nth += BLOCK_THREADS) ends[nth] = found.ends[first + nth];
        __syncthreads();
        u32 base = static_cast<u32>(start);
        #pragma unroll 1
        for (u32 nth = threadIdx.x; start != NO_ROOM && nth < CHUNK && first + nth < len; nth += BLOCK_THREADS) {
            found.ends[first + nth] = ends[nth] + base;
        }
        #pragma unroll 1
        for (u32 nth = threadIdx.x / GROUP; start != NO_ROOM && nth < CHUNK && first + nth < len; nth += GROUPS_OF_BLOCK) {
            const u8 *source = found.sources[first + nth];
            if (source == nullptr) continue;
            u32 at = nth == 0 ? 0 : ends[nth - 1] & END;
            copy_value(found.values + base + at, source, ends[nth] - at);
        }
        __syncthreads();
    }
}

// An id of slots: the number of the partition, that of the level, and the 16 bytes of the level that they begin with. An id
// of a line: the number of the partition, and its own in the file.
constexpr u32 ID_PARTITION_SHIFT = 56;
constexpr u32 ID_LEVEL_SHIFT = 48;

// Puts `count` blocks of `units` times 16 bytes each, of slots, where they belong.
KERNEL store_slots(const PartitionView *views, const uint4 *blocks, const u64 *ids, u32 count, u32 units) {
    u64 total = static_cast<u64>(count) * units;
    #pragma unroll 1
    for (u64 at = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x; at < total;
         at += static_cast<u64>(gridDim.x) * blockDim.x) {
        u64 id = ids[at / units];
        const PartitionView &view = views[id >> ID_PARTITION_SHIFT];
        u32 level = id >> ID_LEVEL_SHIFT & 0xff;
        u64 unit = (id & ((1ull << ID_LEVEL_SHIFT) - 1)) + at % units;
        if (level < view.bottom_level || level >= view.level_end) continue;
        if (unit >= static_cast<u64>(view.bucket_size / sizeof(uint4)) << level) continue;
        reinterpret_cast<uint4 *>(const_cast<u8 *>(view.levels[level]))[unit] = blocks[at];
    }
}

// The same of lines of records. What a piece begins with also stands behind the one before.
KERNEL store_lines(const PartitionView *views, const uint4 *blocks, const u64 *ids, u32 count) {
    constexpr u32 UNITS = COPY_LINE / sizeof(uint4);
    u64 total = static_cast<u64>(count) * UNITS;
    #pragma unroll 1
    for (u64 at = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x; at < total;
         at += static_cast<u64>(gridDim.x) * blockDim.x) {
        u64 id = ids[at / UNITS];
        const PartitionView &view = views[id >> ID_PARTITION_SHIFT];
        u64 first = (id & ((1ull << ID_PARTITION_SHIFT) - 1)) * COPY_LINE;
        if (first >= view.covered) continue;
        u64 piece = first / PIECE, within = first % PIECE;
        auto to = [&](u64 piece, u64 within) {
            reinterpret_cast<uint4 *>(const_cast<u8 *>(view.pieces[piece]) + within)[at % UNITS] = blocks[at];
        };
        to(piece, within);
        if (piece > 0 && within < PIECE_TAIL) to(piece - 1, PIECE + within);
    }
}
