// The stores of memory.cuh for tests of crashes (GPHASH_WRITE_TRACE): each one that goes into the file
// is noted, and so is each fence, in one order for all threads. Those past a budget are noted and not
// done, as if the process had died before them, and the device with it.
//
// Included by memory.cuh.
#pragma once

// What was noted: the bytes that a store writes, up to eight of them, or one of the others.
constexpr u32 NOTE_FENCE = 0;
constexpr u32 NOTE_OR = 16;
constexpr u32 NOTE_NOTHING = 32; // a compare-exchange that has failed

struct Note {
    u64 at; // offset in the file
    u64 word;
    u32 thread;
    u32 kind;
};

// Mirror of src/engine/cuda/write_trace.rs.
struct WriteTrace {
    u8 *file;
    u64 reserved; // addresses that the file may come to have
    Note *notes;
    u64 capacity;
    u64 budget;
    u64 *count; // may exceed the capacity
};

#ifdef __CUDACC__
__device__ WriteTrace write_trace;
#else
thread_local WriteTrace write_trace; // a thread's launches are its own
#endif

extern "C" __global__ void set_write_trace(const __grid_constant__ WriteTrace log) { write_trace = log; }

// Notes what this thread does, and gives its number. What is noted first is done first, but for
// stores of different threads to different words.
__device__ inline u64 note(u64 at, u64 word, u32 kind) {
    u64 number = atomicAdd(write_trace.count, 1ull);
    if (number < write_trace.capacity) {
        u32 thread = blockIdx.x * blockDim.x + threadIdx.x;
        write_trace.notes[number] = {at, word, thread, kind};
    }
    return number;
}

__device__ inline u64 offset_in_file(const void *at) {
    return reinterpret_cast<u64>(at) - reinterpret_cast<u64>(write_trace.file);
}

// Says whether a store is done.
__device__ inline bool note_store(const void *at, u64 word, u32 kind) {
    u64 offset = offset_in_file(at);
    return offset >= write_trace.reserved || note(offset, word, kind) < write_trace.budget;
}

__device__ inline void store(u8 *at, u64 word) {
    if (note_store(at, word, 8)) *reinterpret_cast<volatile u64 *>(at) = word;
}

template <class Unit>
__device__ inline void store_unit(Unit *at, Unit unit) {
    if (note_store(at, unit, sizeof(Unit))) *at = unit;
}

// Eight bytes are what memory takes whole.
__device__ inline void store_unit(uint4 *at, uint4 unit) {
    u8 *halves = reinterpret_cast<u8 *>(at);
    store(halves, unit.x | static_cast<u64>(unit.y) << 32);
    store(halves + 8, unit.z | static_cast<u64>(unit.w) << 32);
}

__device__ inline u64 compare_exchange(u8 *at, u64 current, u64 wanted) {
    u64 offset = offset_in_file(at);
    u64 *word = reinterpret_cast<u64 *>(at);
    if (offset >= write_trace.reserved) return atomicCAS(word, current, wanted);
    u64 number = note(offset, wanted, 8);
    u64 found = number < write_trace.budget ? atomicCAS(word, current, wanted) : load(at);
    if (found != current && number < write_trace.capacity) write_trace.notes[number].kind = NOTE_NOTHING;
    return found;
}

__device__ inline void fetch_or(u8 *at, u64 bits) {
    if (note_store(at, bits, NOTE_OR)) atomicOr(reinterpret_cast<u64 *>(at), bits);
}

// Noted when it has come about: what this thread has stored before is durable then.
__device__ inline void persist() {
    __threadfence_system();
    if (write_trace.reserved != 0) note(0, 0, NOTE_FENCE);
}
