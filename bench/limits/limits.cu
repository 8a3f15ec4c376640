// What the machine can do at most: accesses of the kinds that an index makes, and nothing else.
//
// A place is an offset from a base address; `places` says which ones a batch touches, in the order
// in which they are touched.

using u32 = unsigned int;
using u64 = unsigned long long;
using byte = unsigned char;

constexpr u32 RECORD = 128;

__device__ inline u64 thread_number() { return u64{blockIdx.x} * blockDim.x + threadIdx.x; }

__device__ inline u64 threads() { return u64{gridDim.x} * blockDim.x; }

// The widest access of a lane to a place of so many bytes.
template <u32 BYTES> struct Lane { using Word = uint4; };
template <> struct Lane<8> { using Word = uint2; };

// Every place by as many lanes side by side as it has words. Nobody wants the sum, but the compiler
// cannot know that: `never` is no sum of what is there.
template <u32 BYTES>
__device__ void read_places(const byte *base, const u64 *places, u32 count, u32 never, u32 *sink) {
    using Word = typename Lane<BYTES>::Word;
    constexpr u32 LANES = BYTES / sizeof(Word);
    u32 lane = thread_number() % LANES;
    u32 sum = 0;
#pragma unroll 4
    for (u64 i = thread_number() / LANES; i < count; i += threads() / LANES) {
        Word word = reinterpret_cast<const Word *>(base + places[i])[lane];
        sum += word.x | word.y;
        if constexpr (BYTES > 8) sum += word.z | word.w;
    }
    if (sum == never) *sink = sum;
}

template <u32 BYTES>
__device__ void write_places(byte *base, const u64 *places, u32 count) {
    using Word = typename Lane<BYTES>::Word;
    constexpr u32 LANES = BYTES / sizeof(Word);
    u32 lane = thread_number() % LANES;
    for (u64 i = thread_number() / LANES; i < count; i += threads() / LANES) {
        Word word{};
        word.x = static_cast<u32>(i);
        reinterpret_cast<Word *>(base + places[i])[lane] = word;
    }
}

extern "C" __global__ void read_8(const byte *base, const u64 *places, u32 count, u32 never,
                                  u32 *sink) {
    read_places<8>(base, places, count, never, sink);
}

extern "C" __global__ void read_32(const byte *base, const u64 *places, u32 count, u32 never,
                                   u32 *sink) {
    read_places<32>(base, places, count, never, sink);
}

extern "C" __global__ void read_64(const byte *base, const u64 *places, u32 count, u32 never,
                                   u32 *sink) {
    read_places<64>(base, places, count, never, sink);
}

extern "C" __global__ void read_128(const byte *base, const u64 *places, u32 count, u32 never,
                                    u32 *sink) {
    read_places<128>(base, places, count, never, sink);
}

extern "C" __global__ void write_8(byte *base, const u64 *places, u32 count) {
    write_places<8>(base, places, count);
}

extern "C" __global__ void write_128(byte *base, const u64 *places, u32 count) {
    write_places<128>(base, places, count);
}

// What a change writes at least: a record behind the one before it and, in a bucket whose keys stand
// behind its words, the key; a fence, and then the slot's record word (update) or both of its words, which
// lie side by side (insert).
extern "C" __global__ void change(byte *base, u64 records, const u64 *slots, u32 count, u32 words,
                                  u32 key_bytes) {
    constexpr u32 LANES = RECORD / sizeof(uint4);
    constexpr u32 SLOTS = 8;
    u32 lane = threadIdx.x % LANES;
    u32 group = ((1u << LANES) - 1) << (threadIdx.x % 32 / LANES * LANES);
    for (u64 i = thread_number() / LANES; i < count; i += threads() / LANES) {
        uint4 word = {static_cast<u32>(i), lane, 0, 0};
        reinterpret_cast<uint4 *>(base + records + i * RECORD)[lane] = word;
        if (lane < key_bytes / sizeof(uint4)) {
            u64 key = slots[i] + 2 * SLOTS * sizeof(u64) + i % SLOTS * key_bytes;
            reinterpret_cast<uint4 *>(base + key)[lane] = word;
        }
        __threadfence_system();
        __syncwarp(group);
        if (lane != 0) continue;
        byte *slot = base + slots[i] + i % SLOTS * 2 * sizeof(u64);
        if (words > 1) {
            *reinterpret_cast<uint4 *>(slot) = word;
        } else {
            *reinterpret_cast<volatile u64 *>(slot + sizeof(u64)) = i;
        }
        __threadfence_system();
    }
}

extern "C" __global__ void copy(uint4 *to, const uint4 *from, u64 count) {
#pragma unroll 4
    for (u64 i = thread_number(); i < count; i += threads()) to[i] = from[i];
}

// One thread: how long a store takes until it is where everybody sees it.
extern "C" __global__ void store_and_fence(byte *base, u32 count) {
    for (u32 i = 0; i < count; ++i) {
        *reinterpret_cast<volatile u64 *>(base + i % 1024 * RECORD) = i;
        __threadfence_system();
    }
}

// One thread: every place holds the offset of the next one.
extern "C" __global__ void chase(const byte *base, u64 place, u32 hops, u64 *end) {
    for (u32 hop = 0; hop < hops; ++hop) {
        place = *reinterpret_cast<const volatile u64 *>(base + place);
    }
    *end = place;
}

extern "C" __global__ void nothing() {}
