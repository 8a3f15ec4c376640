// Random batches whose changes the kernels sort and whose versions they find, beside std::stable_sort
// and a std::map. Arguments: the first seed, and how many.

#include <map>

#include "cuda.h"

#include "versions.cu"

namespace {

u64 seed;

// Passes over a hash: its digits.
constexpr u32 PASSES = 8;

constexpr u32 MOST_REQUESTS = 3000;

// Words that the kernels do not touch stand behind each block.
constexpr u64 CANARY = 0xa5a5a5a5a5a5a5a5;

// A block of device memory.
struct Block {
    std::vector<u64> words;

    explicit Block(u64 bytes) : words(bytes / 8 + 2, CANARY) {}

    u8 *bytes() { return reinterpret_cast<u8 *>(words.data()); }

    void check() const {
        if (words.back() != CANARY) fail("seed %llu: a store behind a block", seed);
    }
};

struct Batch {
    std::vector<u64> hashes;
    std::vector<u32> changes;
};

// Few hashes that differ in a few bits, of which some digits may have none; many; one for all; or one
// for most.
Batch random_batch(std::mt19937_64 &rng) {
    u32 requests = static_cast<u32>(rng() % (rng() % 4 == 0 ? 4 : MOST_REQUESTS));
    u64 kinds = 1 + rng() % (1ull << rng() % 12);
    u64 bits = rng() % 2 != 0 ? ~0ull : rng() & rng();
    u32 hot = rng() % 3 == 0 ? 2 : 0;
    u32 reads = static_cast<u32>(rng() % 5);
    u64 first = rng();
    Batch batch;
    for (u32 at = 0; at < requests; at++) {
        bool is_hot = hot != 0 && rng() % hot != 0;
        u64 kind = is_hot ? 0 : rng() % kinds;
        batch.hashes.push_back((first ^ kind * 0x9e3779b97f4a7c15) & bits);
        if (rng() % 4 >= reads) batch.changes.push_back(at);
    }
    return batch;
}

void launch_alone(u32 blocks, std::function<void()> kernel) {
    emulated::run({{blocks, BLOCK_THREADS, std::move(kernel)}});
}

// Of kernels with shared memory.
void launch(u32 blocks, std::function<void()> kernel) {
    emulated::run_in_turns({blocks, BLOCK_THREADS, std::move(kernel)});
}

void run_seed() {
    emulated::schedule.seed(seed);
    std::mt19937_64 rng(seed);
    Batch batch = random_batch(rng);
    u32 requests = static_cast<u32>(batch.hashes.size());
    u32 len = static_cast<u32>(batch.changes.size());
    u32 chunk_size = 1 + static_cast<u32>(rng() % (rng() % 2 != 0 ? 700 : 64));
    u32 chunks = (len + chunk_size - 1) / chunk_size;
    u32 blocks = (chunks + BLOCK_WARPS - 1) / BLOCK_WARPS;
    u32 any = 1 + static_cast<u32>(rng() % 3); // blocks of kernels that take any number of them

    Block turns[] = {Block(len * 12ull), Block(len * 12ull)};
    Block counts(4ull * DIGITS * (chunks + 1));
    Block found(4ull * requests);
    u8 *from = turns[0].bytes();
    u8 *to = turns[1].bytes();
    auto count_of = reinterpret_cast<u32 *>(counts.bytes());
    auto before = reinterpret_cast<u32 *>(found.bytes());
    std::copy(batch.changes.begin(), batch.changes.end(), Changes(from, len).positions);
    const u64 *hashes = batch.hashes.data();
    launch_alone(any, [=] { gather_changes(from, len, hashes, requests); });
    for (u32 pass = 0; pass < PASSES && len != 0; pass++) {
        u32 shift = pass * 8;
        launch(blocks, [=] { count_digits(from, len, chunk_size, shift, count_of); });
        launch(DIGITS, [=] { start_digits(count_of, chunks); });
        launch(blocks, [=] { scatter_digits(from, to, len, chunk_size, shift, count_of); });
        std::swap(from, to);
    }
    launch_alone(any, [=] { find_versions(from, len, hashes, requests, before); });
    turns[0].check();
    turns[1].check();
    counts.check();
    found.check();

    std::vector<u32> order = batch.changes;
    std::stable_sort(order.begin(), order.end(),
                     [&](u32 a, u32 b) { return batch.hashes[a] < batch.hashes[b]; });
    std::vector<u32> number_of(requests, ~0u);
    for (u32 number = 0; number < len; number++) {
        Changes sorted(from, len);
        if (sorted.positions[number] != order[number] ||
            sorted.hashes[number] != batch.hashes[order[number]]) {
            fail("seed %llu: not in order at %u of %u", seed, number, len);
        }
        number_of[order[number]] = number;
    }
    std::map<u64, u32> newest;
    for (u32 at = 0; at < requests; at++) {
        auto version = newest.find(batch.hashes[at]);
        u32 wanted = version == newest.end() ? ~0u : version->second;
        if (before[at] != wanted) {
            fail("seed %llu: request %u finds %x, not %x", seed, at, before[at], wanted);
        }
        if (number_of[at] != ~0u) newest[batch.hashes[at]] = number_of[at];
    }
}

} // namespace

int main(int count, char **arguments) {
    if (count != 3) fail("usage: versions FIRST_SEED SEEDS");
    u64 first = std::strtoull(arguments[1], nullptr, 10);
    u64 seeds = std::strtoull(arguments[2], nullptr, 10);
    for (seed = first; seed - first < seeds; seed++) run_seed();
}
