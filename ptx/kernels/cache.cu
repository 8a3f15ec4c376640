// Refreshing the frozen bucket cache (GPHash §3.3.3), in launches of these kinds:
//
// cache_score, cache_select, cache_release, cache_assign: choose the buckets, one launch after
//     the other, while nothing changes the table. Lookups may go on.
// cache_fill: copies the values of what was chosen, beside everything. The launch counts as a
//     lookup: no record that it reads is used for another item before it has ended. It comes when
//     the lookups that were under way at cache_release have ended, which may still read what was
//     held before.
// cache_link: makes up for changes since then, and shows what was filled to readers, while nothing
//     changes the table.
//
// cache_remove_level empties the entries of a level that is given up.
#include "cache.cuh"
#include "copy.cuh"
#include "table.cuh"

// How a warp draws numbers from a counter: one for each lane that wants one, which is all ones
// otherwise. All lanes call.
__device__ inline u64 ticket(u64 *counter, bool wants) {
    u32 wanting = __ballot_sync(ALL_LANES, wants);
    if (wanting == 0) return ~0ull;
    u64 number = 0;
    if (lane_number() == 0) number = atomicAdd(counter, static_cast<u64>(__popc(wanting)));
    number = __shfl_sync(ALL_LANES, number, 0);
    return wants ? number + __popc(wanting & ((1u << lane_number()) - 1)) : ~0ull;
}

// ---- Choosing.

// Maps a count to its score: small ones to themselves, larger ones to 32 steps a power of two.
constexpr u32 EXACT = 64;

__device__ inline u32 score_of_count(u32 count) {
    if (count < EXACT) return count;
    u32 power = WARP - 1 - __clz(count);
    return EXACT + (power - 6) * 32 + (count >> (power - 5)) % 32;
}

// How much a bucket is worth holding: 0 if it is not. One that is held counts for half as much
// again, so that chance does not change what is held.
__device__ inline u32 score_of(const TableView &view, const CacheRefresh &choice, u64 ordinal,
                               bool linked) {
    // Items of levels that are being emptied will be elsewhere.
    if (ordinal < 1ull << (view.top_level + 1 - view.levels)) return 0;
    if (view.cache.policy == POLICY_RANDOM) {
        u64 mixed = (ordinal ^ static_cast<u64>(choice.round) << 40) * 0x9E3779B97F4A7C15;
        mixed = (mixed ^ mixed >> 29) * 0xBF58476D1CE4E5B9;
        return 1 + static_cast<u32>((mixed >> 32) % (SCORES - 1));
    }
    u32 accesses = *static_cast<volatile u32 *>(view.cache.access_counts + ordinal);
    if (view.cache.policy == POLICY_LFU) {
        return score_of_count(linked ? accesses + accesses / 2 : accesses);
    }
    if (accesses == 0) return 0;
    // Lookups launched since the refresh began are ahead of it.
    u32 age = choice.round - accesses;
    if (age >> 31 != 0) age = 0;
    return SCORES - 1 - score_of_count(linked ? age - age / 3 : age);
}

__device__ inline u64 first_ordinal(const TableView &view) { return 1ull << view.bottom_level; }

__device__ inline u64 end_ordinal(const TableView &view) { return 2ull << view.top_level; }

// Counts the scores of all buckets.
KERNEL cache_score(const __grid_constant__ TableView view,
                    const __grid_constant__ CacheRefresh choice) {
    // Most buckets have the same few scores: runs of equal ones go into one atomic.
    u32 current = 0;
    u32 run = 0;
    u64 thread = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x;
    #pragma unroll 1
    for (u64 at = first_ordinal(view) + thread; at < end_ordinal(view);
         at += static_cast<u64>(gridDim.x) * blockDim.x) {
        bool linked = link_of(view, at) != 0;
        u32 score = score_of(view, choice, at, linked) + (linked ? SCORES : 0);
        if (score != current) {
            if (run != 0) atomicAdd(choice.scores + current, run);
            current = score;
            run = 0;
        }
        run++;
    }
    if (run != 0) atomicAdd(choice.scores + current, run);
}

// Appends each lane's ordinal to a list. All lanes call.
__device__ inline void append(u64 *list, u64 *count, u64 capacity, u64 ordinal, bool wants) {
    u64 number = ticket(count, wants);
    if (number < capacity) list[number] = ordinal;
}

// Lists the buckets that come in and those that go, and lets earlier uses count half.
KERNEL cache_select(const __grid_constant__ TableView view, const __grid_constant__ CacheRefresh choice,
                   CacheOutcome *outcome) {
    #pragma unroll 1
    for (u64 first = first_ordinal(view) + warp_number() * WARP; first < end_ordinal(view);
         first += warp_count() * WARP) {
        u64 ordinal = first + lane_number();
        bool exists = ordinal < end_ordinal(view);
        u32 link = exists ? link_of(view, ordinal) : 0;
        bool linked = link != 0;
        u32 score = exists ? score_of(view, choice, ordinal, linked) : 0;
        bool above = score > choice.threshold;
        bool tied = score == choice.threshold;
        bool stays = ticket(&outcome->kept, linked && tied) < choice.keep;
        stays = linked && (above || stays);
        bool new_and_tied = exists && !linked && tied && score != 0;
        bool enters = ticket(&outcome->entered, new_and_tied) < choice.enter;
        enters = exists && !linked && (above || enters);
        enters = ticket(&outcome->admitted, enters) < choice.room;
        append(choice.evicted, &outcome->evicted, choice.entries, ordinal, linked && !stays);
        // What an earlier refresh could not finish is filled again.
        bool unfinished = stays && (link & FILLING) != 0;
        append(choice.incoming, &outcome->incoming, choice.entries, ordinal, enters || unfinished);
        if (exists && view.cache.policy == POLICY_LFU && choice.ages != 0) {
            volatile u32 *accesses = view.cache.access_counts + ordinal;
            if (*accesses != 0) *accesses = *accesses / 2;
        }
    }
}

__device__ inline u64 listed(u64 count, u64 capacity) {
    return count < capacity ? count : capacity;
}

// Takes a bucket out of its entry, which becomes the free one at `number`.
__device__ inline void unlink(const TableView &view, const CacheRefresh &choice, u64 ordinal,
                              u64 number) {
    u32 entry = (link_of(view, ordinal) & ~FILLING) - 1;
    view.cache.links[ordinal] = 0;
    #pragma unroll 1
    for (u32 index = 0; index < view.slots; index++) {
        store_tag(value_of_entry(view, entry, index).tag, 0);
    }
    choice.free[number] = entry;
}

// Takes the evicted buckets out.
KERNEL cache_release(const __grid_constant__ TableView view,
                     const __grid_constant__ CacheRefresh choice,
                     const CacheOutcome *outcome) {
    u64 thread = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x;
    #pragma unroll 1
    for (u64 at = thread; at < listed(outcome->evicted, choice.entries);
         at += static_cast<u64>(gridDim.x) * blockDim.x) {
        unlink(view, choice, choice.evicted[at], choice.free_count + at);
    }
}

// Gives each incoming bucket an entry, as far as there are any.
KERNEL cache_assign(const __grid_constant__ TableView view,
                    const __grid_constant__ CacheRefresh choice,
                    CacheOutcome *outcome) {
    u64 count = listed(outcome->incoming, choice.entries);
    u64 available = choice.free_count + listed(outcome->evicted, choice.entries);
    #pragma unroll 1
    for (u64 first = warp_number() * WARP; first < count; first += warp_count() * WARP) {
        u64 at = first + lane_number();
        u64 ordinal = at < count ? choice.incoming[at] : 0;
        u32 link = ordinal != 0 ? link_of(view, ordinal) : 0;
        u64 number = ticket(&outcome->taken, ordinal != 0 && link == 0);
        if (number < available) {
            view.cache.links[ordinal] = FILLING | (choice.free[available - 1 - number] + 1);
        }
    }
}

// ---- Filling.

// The bucket of an ordinal.
__device__ inline Bucket bucket_of_ordinal(const TableView &view, u64 ordinal) {
    u32 level = 63 - __clzll(ordinal);
    u64 within = (ordinal - (1ull << level)) * view.bucket_size;
    return {view.level_probe[level] + within, view.level_offset[level] + within, ordinal};
}

// Where the image of a bucket goes; null if its level has a copy.
__device__ inline u8 *image_of(const TableView &view, const Bucket &bucket, u32 entry) {
    if (view.cache.buckets == nullptr || bucket.probe != view.file + bucket.offset) return nullptr;
    return view.cache.buckets + static_cast<u64>(entry) * view.bucket_size;
}

// A bucket on its way into an entry, for a warp.
struct Incoming {
    u64 ordinal;
    u32 link; // 0: it does not come in any more
    Bucket bucket;
    u8 *image;

    __device__ Incoming(const TableView &view, u64 which) : ordinal(which), link(0) {
        // A level that is given up loses its links meanwhile: the warp goes by one answer.
        u32 now = __shfl_sync(ALL_LANES, link_of(view, ordinal), 0);
        if ((now & FILLING) == 0) return;
        link = now;
        bucket = bucket_of_ordinal(view, ordinal);
        image = image_of(view, bucket, entry());
    }

    __device__ u32 entry() const { return (link & ~FILLING) - 1; }

    // Copies the bucket itself, if its level has no copy.
    __device__ void copy_image(const TableView &view) const {
        if (image == nullptr) return;
        split_slots(bucket.probe, image, view.slots);
        u32 keys = view.slots * SLOT_WORDS_BYTES;
        #pragma unroll 1
        for (u32 at = keys + lane_number() * 8; at < view.bucket_size; at += WARP * 8) {
            store(image + at, load(bucket.probe + at));
        }
    }

    // The record in this lane's slot, 0 for none.
    __device__ u64 record(const TableView &view) const {
        if (lane_number() >= view.slots) return 0;
        Table<false> table(view, nullptr);
        u64 word = load_acquire(table.record_of({bucket, lane_number()}));
        bool valid = is_member(word) && table.is_record(word & RECORD_OFFSET);
        return valid ? word & RECORD_OFFSET : 0;
    }

    __device__ CachedValue value(const TableView &view) const {
        if (lane_number() >= view.slots) return {};
        return value_of_entry(view, entry(), lane_number());
    }
};

// Copies the values of incoming buckets `from` to `to` - 1, a warp a bucket.
KERNEL cache_fill(const __grid_constant__ TableView view,
                  const __grid_constant__ CacheRefresh choice, u64 from, u64 to) {
    #pragma unroll 1
    for (u64 at = from + warp_number(); at < to; at += warp_count()) {
        Incoming incoming(view, choice.incoming[at]);
        if (incoming.link == 0) continue;
        u64 record = incoming.record(view);
        CachedValue cached = incoming.value(view);
        copy_values(view.file + record, cached.value, view.cache.values, view.value_size,
                    record != 0);
        order();
        __syncwarp();
        if (cached.value != nullptr) store_tag(cached.tag, record);
    }
}

// Shows incoming buckets `from` to `to` - 1 to readers, a warp a bucket, after copying the buckets
// themselves and the values that were changed since cache_fill.
KERNEL cache_link(const __grid_constant__ TableView view,
                  const __grid_constant__ CacheRefresh choice, u64 from, u64 to,
                  CacheOutcome *outcome) {
    #pragma unroll 1
    for (u64 at = from + warp_number(); at < to; at += warp_count()) {
        Incoming incoming(view, choice.incoming[at]);
        if (incoming.link == 0) continue;
        incoming.copy_image(view);
        u64 record = incoming.record(view);
        CachedValue cached = incoming.value(view);
        bool missing = cached.value != nullptr && load_tag(cached.tag) != record;
        copy_values(view.file + record, cached.value, view.cache.values, view.value_size,
                    missing && record != 0);
        if (missing) store_tag(cached.tag, record);
        order();
        __syncwarp();
        if (lane_number() == 0) {
            view.cache.links[incoming.ordinal] = incoming.link & ~FILLING;
            atomicAdd(&outcome->linked, 1ull);
        }
    }
}

// ---- Removing.

// Takes all buckets of a level out.
KERNEL cache_remove_level(const __grid_constant__ TableView view, const __grid_constant__ CacheRefresh choice,
                   u32 level, CacheOutcome *outcome) {
    u64 end = 2ull << level;
    #pragma unroll 1
    for (u64 first = (1ull << level) + warp_number() * WARP; first < end;
         first += warp_count() * WARP) {
        u64 ordinal = first + lane_number();
        bool linked = ordinal < end && link_of(view, ordinal) != 0;
        u64 number = ticket(&outcome->evicted, linked);
        if (linked) unlink(view, choice, ordinal, choice.free_count + number);
    }
}
