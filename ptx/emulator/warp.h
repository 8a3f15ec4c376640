// A CPU that steps the lanes of warps together.
//
// Each lane is a fiber that runs until it meets others of its warp (a vote, a shuffle) or of its
// block (__syncthreads). It goes on when all lanes that it named have come there and named the same
// lanes. If they never do, which on a GPU is undefined or hangs, the program says which lane waits
// where and aborts. Now and then a lane also pauses before an access that is meant for others to
// see, or at a fence.
//
// In which order lanes and warps go on, and how far ahead of others, is drawn from a seed. Memory is
// that of one CPU thread: each access takes effect at once and for all, so missing fences are not
// found here, but missing meetings of lanes are, and races.
#pragma once

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include <setjmp.h>
#include <ucontext.h>

using u8 = unsigned char;
using u32 = unsigned int;
using u64 = unsigned long long;

// Ends the program, whatever fiber it is in.
[[noreturn]] inline void fail(const char *format, ...) {
    va_list values;
    va_start(values, format);
    std::fflush(stdout);
    std::vfprintf(stderr, format, values);
    std::fputc('\n', stderr);
    std::abort();
}

struct Index {
    u32 x;
};

// Those of the lane that runs. Launches run on the thread that asks for them, each thread's apart
// from the others'.
inline thread_local Index threadIdx, blockIdx, blockDim, gridDim;

namespace emulated {

constexpr u32 LANES = 32;

// The kernels call nothing deep.
constexpr size_t STACK = 32 << 10;

enum class Meeting { NONE, BALLOT, ANY, MATCH, SHUFFLE, WARP, BLOCK };

struct Lane {
    ucontext_t begin; // at the beginning of its first kernel
    jmp_buf point;    // where it is since
    bool begun;
    bool done;
    Meeting meeting; // where it waits
    u32 mask;        // for whom
    u64 word;        // what it brings along
    u32 source;      // whose word it wants
    u64 answer;      // what it takes away
};

// A kernel on its way, as a launch asked for it.
struct Launch {
    u32 blocks;
    u32 threads; // of a block; whole warps
    std::function<void()> kernel;
};

struct Warp {
    Lane lanes[LANES];
    const Launch *launch;
    u32 block;
    u32 first_thread;
    std::unique_ptr<char[]> stacks{new char[LANES * STACK]};

    bool done() const {
        for (const Lane &lane : lanes) {
            if (!lane.done) return false;
        }
        return true;
    }

    bool waits_for_block() const {
        for (const Lane &lane : lanes) {
            if (lane.meeting != Meeting::BLOCK) return false;
        }
        return true;
    }
};

using Warps = std::vector<std::unique_ptr<Warp>>;

inline thread_local std::mt19937_64 schedule;

inline u32 drawn(u32 below) { return static_cast<u32>(schedule() % below); }

inline thread_local jmp_buf scheduler;
inline thread_local Warp *running_warp;
inline thread_local u32 running_lane;

// A lane that is done waits for its warp's next launch.
inline void run_kernel() {
    for (;;) {
        running_warp->launch->kernel();
        Lane &lane = running_warp->lanes[running_lane];
        lane.done = true;
        if (_setjmp(lane.point) == 0) _longjmp(scheduler, 1);
    }
}

// Lets a lane run until it waits or is done. Only its first launch takes a ucontext: to make one, or to
// change to it, takes a call of the kernel of the operating system, for the signals.
inline void resume(Warp &warp, u32 number) {
    running_warp = &warp;
    running_lane = number;
    threadIdx.x = warp.first_thread + number;
    blockIdx.x = warp.block;
    blockDim.x = warp.launch->threads;
    gridDim.x = warp.launch->blocks;
    Lane &lane = warp.lanes[number];
    if (_setjmp(scheduler) != 0) return;
    if (lane.begun) _longjmp(lane.point, 1);
    lane.begun = true;
    setcontext(&lane.begin);
}

// Called by a lane: waits for the others.
inline u64 meet(Meeting meeting, u32 mask, u64 word, u32 source) {
    Lane &lane = running_warp->lanes[running_lane];
    if (meeting != Meeting::BLOCK && (mask >> running_lane & 1) == 0) {
        fail("lane %u is not in the mask %08x that it names", running_lane, mask);
    }
    if (meeting == Meeting::SHUFFLE && (mask >> source & 1) == 0) {
        fail("lane %u wants the word of lane %u, outside of %08x", running_lane, source, mask);
    }
    lane.meeting = meeting;
    lane.mask = mask;
    lane.word = word;
    lane.source = source;
    if (_setjmp(lane.point) == 0) _longjmp(scheduler, 1);
    return lane.answer;
}

// Called by a lane: lets others go first, one time in so many.
constexpr u32 PAUSES = 8;

inline void pause() {
    if (drawn(PAUSES) != 0) return;
    if (_setjmp(running_warp->lanes[running_lane].point) == 0) _longjmp(scheduler, 1);
}

// What a lane takes away of a meeting of which these are the votes.
inline u64 answer_of(const Warp &warp, const Lane &lane, u64 votes) {
    if (lane.meeting == Meeting::SHUFFLE) return warp.lanes[lane.source].word;
    if (lane.meeting != Meeting::MATCH) return votes;
    u64 equal = 0;
    for (u32 number = 0; number < LANES; number++) {
        bool named = (lane.mask >> number & 1) != 0;
        equal |= static_cast<u64>(named && warp.lanes[number].word == lane.word) << number;
    }
    return equal;
}

// Lets the lanes of a mask go on if all of them have come.
inline bool release(Warp &warp, const Lane &first) {
    Meeting meeting = first.meeting;
    u32 mask = first.mask;
    u64 votes = 0;
    for (u32 number = 0; number < LANES; number++) {
        if ((mask >> number & 1) == 0) continue;
        const Lane &lane = warp.lanes[number];
        if (lane.meeting != meeting || lane.mask != mask) return false;
        votes |= static_cast<u64>(lane.word != 0) << number;
    }
    for (u32 number = 0; number < LANES; number++) {
        if ((mask >> number & 1) == 0) continue;
        Lane &lane = warp.lanes[number];
        lane.answer = answer_of(warp, lane, votes);
        lane.meeting = Meeting::NONE;
    }
    return true;
}

// Runs lanes up to their next meeting, some of them later than others. False if none can run.
inline bool step(Warp &warp) {
    u32 start = drawn(LANES);
    u32 stride = 2 * drawn(LANES / 2) + 1;
    bool late = drawn(4) == 0;
    bool runs = false;
    for (u32 nth = 0; nth < LANES; nth++) {
        // An odd stride comes to every lane once.
        u32 number = (start + nth * stride) % LANES;
        const Lane &lane = warp.lanes[number];
        if (lane.done || lane.meeting != Meeting::NONE) continue;
        runs = true;
        if (!late || drawn(2) == 0) resume(warp, number);
    }
    for (const Lane &lane : warp.lanes) {
        if (lane.meeting == Meeting::NONE || lane.meeting == Meeting::BLOCK) continue;
        runs |= release(warp, lane);
    }
    return runs;
}

// Lets the blocks go on of which every lane has come to __syncthreads.
inline bool release_blocks(const Warps &warps) {
    bool released = false;
    for (const auto &warp : warps) {
        if (!warp->waits_for_block()) continue;
        u32 waiting = 0;
        auto is_of_block = [&](const Warp &other) {
            return other.launch == warp->launch && other.block == warp->block;
        };
        for (const auto &other : warps) waiting += is_of_block(*other) && other->waits_for_block();
        if (waiting != warp->launch->threads / LANES) continue;
        released = true;
        for (const auto &other : warps) {
            if (!is_of_block(*other)) continue;
            for (Lane &lane : other->lanes) lane.meeting = Meeting::NONE;
        }
    }
    return released;
}

[[noreturn]] inline void report_stuck(const Warps &warps) {
    const char *names[] = {"nothing", "ballot", "any", "match", "shuffle", "syncwarp", "syncthreads"};
    for (const auto &warp : warps) {
        std::fprintf(stderr, "block %u, from thread %u on:", warp->block, warp->first_thread);
        for (const Lane &lane : warp->lanes) {
            const char *state = lane.done ? "done" : names[static_cast<int>(lane.meeting)];
            std::fprintf(stderr, " %s/%08x", state, lane.mask);
        }
        std::fputc('\n', stderr);
    }
    fail("lanes wait for others that do not come");
}

// Stacks are costly to map anew for each warp, and so are lanes to begin.
inline thread_local Warps spare;

inline std::unique_ptr<Warp> new_warp() {
    auto warp = std::make_unique<Warp>();
    for (u32 number = 0; number < LANES; number++) {
        Lane &lane = warp->lanes[number];
        lane.begun = false;
        getcontext(&lane.begin);
        lane.begin.uc_stack.ss_sp = warp->stacks.get() + number * STACK;
        lane.begin.uc_stack.ss_size = STACK;
        lane.begin.uc_link = nullptr;
        makecontext(&lane.begin, run_kernel, 0);
    }
    return warp;
}

inline std::unique_ptr<Warp> make_warp(const Launch &launch, u32 block, u32 first_thread) {
    std::unique_ptr<Warp> warp;
    if (spare.empty()) {
        warp = new_warp();
    } else {
        warp = std::move(spare.back());
        spare.pop_back();
    }
    warp->launch = &launch;
    warp->block = block;
    warp->first_thread = first_thread;
    for (Lane &lane : warp->lanes) {
        lane.done = false;
        lane.meeting = Meeting::NONE;
        lane.mask = 0;
    }
    return warp;
}

// Takes out the warps that are done.
inline void leave_done(Warps &warps) {
    for (size_t at = 0; at < warps.size();) {
        if (!warps[at]->done()) {
            at++;
            continue;
        }
        spare.push_back(std::move(warps[at]));
        warps[at] = std::move(warps.back());
        warps.pop_back();
    }
}

// Runs warps beside each other to their end.
inline void run_warps(Warps warps) {
    while (!warps.empty()) {
        std::shuffle(warps.begin(), warps.end(), schedule);
        bool runs = false;
        for (const auto &warp : warps) {
            // Some get far ahead.
            u32 steps = 1u << drawn(6);
            while (steps-- != 0 && step(*warp)) runs = true;
        }
        runs |= release_blocks(warps);
        if (!runs) report_stuck(warps);
        leave_done(warps);
    }
}

inline void add_block(Warps &warps, const Launch &launch, u32 block) {
    for (u32 thread = 0; thread < launch.threads; thread += LANES) {
        warps.push_back(make_warp(launch, block, thread));
    }
}

// Runs launches beside each other to their end.
inline void run(const std::vector<Launch> &launches) {
    Warps warps;
    for (const Launch &launch : launches) {
        for (u32 block = 0; block < launch.blocks; block++) add_block(warps, launch, block);
    }
    run_warps(std::move(warps));
}

// The same for one launch, block by block: what a kernel shares within a block is here one variable
// for all blocks.
inline void run_in_turns(const Launch &launch) {
    for (u32 block = 0; block < launch.blocks; block++) {
        Warps warps;
        add_block(warps, launch, block);
        run_warps(std::move(warps));
    }
}

// A running launch: whole other launches may begin and end between two of its steps.
class RunningLaunch {
  public:
    explicit RunningLaunch(Launch begun) : launch(std::move(begun)) {
        for (u32 block = 0; block < launch.blocks; block++) add_block(warps, launch, block);
    }

    RunningLaunch(const RunningLaunch &) = delete;

    bool done() const { return warps.empty(); }

    // Lets each warp go on to its next meeting.
    void step() {
        bool runs = false;
        for (const auto &warp : warps) runs |= emulated::step(*warp);
        runs |= release_blocks(warps);
        if (!runs) report_stuck(warps);
        leave_done(warps);
    }

  private:
    Launch launch;
    Warps warps;
};

} // namespace emulated
