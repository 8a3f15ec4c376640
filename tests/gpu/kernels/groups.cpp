// Batches of keys that were chosen to meet in the table in which a batch's groups are found. What one key
// has to pass by is bounded by the longest run of entries that are taken.

#include <cstdio>

#include "cuda.h"

#include "batch.cu"

namespace {

constexpr u32 LEN = 4096;
constexpr u64 ENTRIES = 2 * LEN;

// Keys of one entry under a seed.
std::vector<u64> meeting_keys(u64 seed) {
    std::vector<u64> keys;
    for (u64 key = 1; keys.size() < LEN; key++) {
        if ((hash_word(key, seed) & (ENTRIES - 1)) == 0) keys.push_back(key);
    }
    return keys;
}

// The longest run of entries that are taken once these keys have been grouped.
u64 longest_run(const std::vector<u64> &keys, u64 seed) {
    std::vector<u32> claims(ENTRIES), first(ENTRIES, ~0u), last(ENTRIES), entry(LEN);
    Groups groups{claims.data(), first.data(), last.data(), entry.data(), ENTRIES - 1, seed};
    auto bytes = reinterpret_cast<const u8 *>(keys.data());
    emulated::run({{4, BLOCK_THREADS, [=] { group_keys(groups, bytes, LEN, 8); }}});
    u64 longest = 0, run = 0, taken = 0;
    // Twice around, since a run may go on at the start.
    for (u64 at = 0; at < 2 * ENTRIES; at++) {
        bool is_taken = claims[at % ENTRIES] != 0;
        taken += is_taken;
        run = is_taken ? run + 1 : 0;
        longest = std::max(longest, run);
    }
    if (taken != 2 * LEN) fail("%llu entries for %u keys", taken / 2, LEN);
    return longest;
}

} // namespace

int main() {
    emulated::schedule.seed(1);
    constexpr u64 SEED = 0x1234567890abcdef;
    std::vector<u64> usual(LEN);
    for (u32 at = 0; at < LEN; at++) usual[at] = (1ull << 40) + at;
    u64 least = longest_run(usual, SEED);
    // Chosen without knowing the seed, and with it.
    u64 blind = longest_run(meeting_keys(0), SEED);
    u64 chosen = longest_run(meeting_keys(SEED), SEED);
    std::printf("longest runs: %llu, %llu and %llu of %u keys\n", least, blind, chosen, LEN);
    if (blind > 4 * least + 64) fail("keys chosen for the seed 0 make runs of %llu", blind);
    if (chosen > 4 * least + 64) fail("keys chosen for the seed make runs of %llu", chosen);
    return 0;
}
