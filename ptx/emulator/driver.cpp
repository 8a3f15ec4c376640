// A driver whose device is the CPU of warp.h: as much of libcuda.so.1 as the CUDA engine calls. So
// all of the engine runs without a GPU, with the kernels of ptx/.
//
// Everything is done when it is asked for, by the thread that asks. Device memory is the host's. A
// program takes it for the driver once it has been loaded by its path.

#include <cstring>
#include <functional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cuda.h"

#include "batch.cu"
#include "cache.cu"
#include "compaction.cu"
#include "index.cu"
#include "locator.cu"
#include "mirror.cu"
#include "order.cu"
#include "recovery_scan.cu"
#include "resize.cu"
#include "versions.cu"

#include "faults.h"

namespace {

enum Answer : int {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NO_DEVICE = 100,
    NOT_FOUND = 500,
    NOT_READY = 600,
    ALREADY_REGISTERED = 712,
    NOT_REGISTERED = 713,
    UNKNOWN = 999,
};

// Begins a call of the driver, which may fail here.
#define CALL(name, error) \
    if (faults::fails(#name)) return error

// Attributes of the device that the engine asks for (CUdevice_attribute).
constexpr int MULTIPROCESSORS = 16;
constexpr int CAN_MAP_HOST_MEMORY = 19;
constexpr int UNIFIED_ADDRESSING = 41;
constexpr int CAPABILITY_MAJOR = 75;
constexpr int CAPABILITY_MINOR = 76;

// A kernel's parameters: whether the device reaches what they lead to, and the kernel with them.
struct Parameters {
    std::function<bool()> lead_astray;
    std::function<void()> call;
};

struct Kernel {
    std::function<Parameters(void **)> bind;
    bool in_turns; // blocks share what is __shared__
};

// Binds a kernel to copies of its parameters, which a launch has as an address each.
template <class... Types>
Kernel kernel(void (*function)(Types...), bool in_turns = false) {
    auto bind = [=](void **addresses) -> Parameters {
        return [&]<size_t... At>(std::index_sequence<At...>) -> Parameters {
            std::tuple<std::remove_cvref_t<Types>...> copies(
                *static_cast<std::remove_cvref_t<Types> *>(addresses[At])...);
            auto lead_astray = [=] {
                faults::Reach reach;
                (reach.examine(std::get<At>(copies)), ...);
                return reach.is_stray;
            };
            return {lead_astray, [=] { std::apply(function, copies); }};
        }(std::index_sequence_for<Types...>{});
    };
    return {bind, in_turns};
}

#define ENTRY(name) {#name, kernel(name)}
#define BOTH(name) {#name "_word", kernel(name##_word)}, {#name "_wide", kernel(name##_wide)}

std::unordered_map<std::string, Kernel> kernels = {
    BOTH(get), BOTH(contains), BOTH(locate), BOTH(insert), BOTH(upsert), BOTH(update), BOTH(remove),
    BOTH(resolve_insert), BOTH(resolve_upsert), BOTH(resolve_update), BOTH(resolve_remove),
    BOTH(drain), BOTH(recovery_scan),
    ENTRY(fetch), ENTRY(clear_batch), ENTRY(group_keys), ENTRY(spread), ENTRY(report),
    {"start_bins", kernel(start_bins, true)},
    ENTRY(arrange), ENTRY(scatter), ENTRY(enter_free), ENTRY(write_back_free),
    ENTRY(cache_score), ENTRY(cache_select), ENTRY(cache_release), ENTRY(cache_assign),
    ENTRY(cache_fill), ENTRY(cache_link), ENTRY(cache_remove_level),
    ENTRY(split_buckets),
    ENTRY(gather_changes), ENTRY(find_versions),
    {"find_records", kernel(find_records, true)},
    {"place_values", kernel(place_values, true)},
    ENTRY(store_slots),
    ENTRY(store_lines),
    ENTRY(check_blocks), ENTRY(parse_blocks), ENTRY(load_key_words), ENTRY(order_alike),
    ENTRY(mark_kept),
    ENTRY(copy_tombstones), ENTRY(drop_tombstones), ENTRY(take_kept), ENTRY(mark_starts),
    ENTRY(note_firsts), ENTRY(measure_entries), ENTRY(encode_entries), ENTRY(fill_filters),
    ENTRY(describe_blocks), ENTRY(seal_blocks), ENTRY(count_values),
    {"sum_parts", kernel(sum_parts, true)},
    {"start_parts", kernel(start_parts, true)},
    {"add_parts", kernel(add_parts, true)},
    {"count_digits", kernel(count_digits, true)},
    {"start_digits", kernel(start_digits, true)},
    {"scatter_digits", kernel(scatter_digits, true)},
#ifdef GPHASH_WRITE_TRACE
    ENTRY(set_write_trace),
#endif
};

// A kernel with its parameters.
struct Bound {
    const Kernel *kernel;
    u32 blocks;
    u32 threads;
    Parameters parameters;
};

using Graph = std::vector<Bound>;

// CUDA_KERNEL_NODE_PARAMS.
struct NodeParameters {
    Kernel *kernel;
    u32 blocks[3];
    u32 threads[3];
    u32 shared_bytes;
    void **parameters;
    void **extra;
};

Bound bound(const NodeParameters &node) {
    return {node.kernel, node.blocks[0], node.threads[0], node.kernel->bind(node.parameters)};
}

void run(const Bound &bound) {
    if (bound.parameters.lead_astray()) {
        faults::strays++;
        return;
    }
    emulated::Launch launch{bound.blocks, bound.threads, bound.parameters.call};
    if (bound.kernel->in_turns) {
        emulated::run_in_turns(launch);
    } else {
        emulated::run({launch});
    }
}

// Contexts and modules are only names.
char context, module_of_kernels;

// How much was put on a stream, and how much of it somebody has waited for: only that is known to be done.
// Streams stay for as long as events may name them.
struct Stream {
    std::atomic<u64> put{0};
    std::atomic<u64> done{0};

    void wait(u64 until) {
        u64 before = done;
        while (before < until && !done.compare_exchange_weak(before, until)) {
        }
    }
};

// A point of a stream; none yet has come to pass.
struct Event {
    std::atomic<Stream *> stream{nullptr};
    std::atomic<u64> at{0};
};

// Calls that wait for the legacy default stream, or that it waits for.
std::atomic<u64> serialized{0};

// Puts work on a stream; null is the legacy default stream.
void put_on(void *stream) {
    if (stream == nullptr) {
        serialized++;
    } else {
        static_cast<Stream *>(stream)->put++;
    }
}

constexpr u32 NON_BLOCKING = 1;
thread_local std::vector<void *> currents;
std::atomic<long> retained{0};

} // namespace

extern "C" {

// Draws the order of lanes and warps anew, for the launches of the calling thread.
void gphash_emulation_seed(u64 seed) { emulated::schedule.seed(seed); }

// The calls numbered `first` to `last` - 1 from now on fail. If the first one is a launch, and `lost`, it is
// accepted and does nothing, as one that fails on the device. No index is open: what one has left registered or
// retained, by a call that failed, is forgotten.
void gphash_emulation_fail(u64 first, u64 last, int lost) {
    faults::registered.clear();
    retained = 0;
    faults::first = ~0ull;
    faults::last = last;
    faults::loses = lost != 0;
    faults::calls = 0;
    faults::failures = 0;
    faults::failed = "";
    faults::first = first;
}

// Calls since then.
u64 gphash_emulation_calls() { return faults::calls; }

// Those of them that failed, and the name of the last one.
u64 gphash_emulation_failures() { return faults::failures; }

const char *gphash_emulation_failed() { return faults::failed; }

// Launches that were told of memory which the device does not reach.
u64 gphash_emulation_strays() { return faults::strays; }

// How often the primary context was retained and not released.
long gphash_emulation_retained() { return retained; }

// Calls that wait for the legacy default stream, or that it waits for.
u64 gphash_emulation_serialized() { return serialized; }

// How much was put on a stream that nobody has waited for.
u64 gphash_emulation_unfinished(void *stream) {
    const Stream *which = static_cast<Stream *>(stream);
    return which->put - which->done;
}

int cuGetErrorName(int error, const char **name) {
    switch (error) {
    case OUT_OF_MEMORY:
        return *name = "CUDA_ERROR_OUT_OF_MEMORY", SUCCESS;
    case UNKNOWN:
        return *name = "CUDA_ERROR_UNKNOWN", SUCCESS;
    default:
        return INVALID_VALUE;
    }
}

int cuInit(u32) {
    CALL(cuInit, UNKNOWN);
    const char *visible = std::getenv("CUDA_VISIBLE_DEVICES");
    return visible != nullptr && *visible == '\0' ? NO_DEVICE : SUCCESS;
}

int cuDeviceGetCount(int *count) {
    CALL(cuDeviceGetCount, UNKNOWN);
    return *count = 1, SUCCESS;
}

int cuDeviceGet(int *which, int ordinal) {
    CALL(cuDeviceGet, UNKNOWN);
    return *which = ordinal, SUCCESS;
}

int cuDeviceGetName(char *name, int len, int) {
    CALL(cuDeviceGetName, UNKNOWN);
    std::snprintf(name, static_cast<size_t>(len), "emulated warps");
    return SUCCESS;
}

int cuDeviceGetAttribute(int *value, int attribute, int) {
    CALL(cuDeviceGetAttribute, UNKNOWN);
    switch (attribute) {
    case MULTIPROCESSORS:
    case CAN_MAP_HOST_MEMORY:
    case UNIFIED_ADDRESSING:
        return *value = 1, SUCCESS;
    case CAPABILITY_MAJOR:
        return *value = 7, SUCCESS;
    case CAPABILITY_MINOR:
        return *value = 0, SUCCESS;
    default:
        return INVALID_VALUE;
    }
}

int cuDevicePrimaryCtxRetain(void **made, int) {
    CALL(cuDevicePrimaryCtxRetain, OUT_OF_MEMORY);
    retained++;
    return *made = &context, SUCCESS;
}

int cuDevicePrimaryCtxRelease_v2(int) {
    CALL(cuDevicePrimaryCtxRelease_v2, UNKNOWN);
    // With the last of its users the context goes, and all memory with it.
    if (--retained == 0) faults::allocated.clear();
    return SUCCESS;
}

int cuCtxSetCurrent(void *wanted) {
    CALL(cuCtxSetCurrent, UNKNOWN);
    if (!currents.empty()) currents.pop_back();
    if (wanted != nullptr) currents.push_back(wanted);
    return SUCCESS;
}

int cuCtxGetCurrent(void **found) {
    CALL(cuCtxGetCurrent, UNKNOWN);
    return *found = currents.empty() ? nullptr : currents.back(), SUCCESS;
}

int cuCtxPushCurrent_v2(void *wanted) {
    CALL(cuCtxPushCurrent_v2, UNKNOWN);
    return currents.push_back(wanted), SUCCESS;
}

int cuCtxPopCurrent_v2(void **left) {
    CALL(cuCtxPopCurrent_v2, UNKNOWN);
    if (currents.empty()) return INVALID_VALUE;
    *left = currents.back();
    return currents.pop_back(), SUCCESS;
}

int cuStreamCreateWithPriority(void **made, u32 flags, int) {
    CALL(cuStreamCreateWithPriority, OUT_OF_MEMORY);
    if ((flags & NON_BLOCKING) == 0) serialized++;
    return *made = new Stream, SUCCESS;
}

int cuStreamDestroy_v2(void *) {
    CALL(cuStreamDestroy_v2, UNKNOWN);
    return SUCCESS;
}

int cuStreamSynchronize(Stream *stream) {
    CALL(cuStreamSynchronize, UNKNOWN);
    if (stream == nullptr) return serialized++, SUCCESS;
    return stream->wait(stream->put), SUCCESS;
}

int cuStreamWaitEvent(void *stream, void *, u32) {
    CALL(cuStreamWaitEvent, UNKNOWN);
    return put_on(stream), SUCCESS;
}

int cuEventCreate(void **made, u32) {
    CALL(cuEventCreate, OUT_OF_MEMORY);
    return *made = new Event, SUCCESS;
}

int cuEventDestroy_v2(Event *event) {
    CALL(cuEventDestroy_v2, UNKNOWN);
    return delete event, SUCCESS;
}

int cuEventRecord(Event *event, Stream *stream) {
    CALL(cuEventRecord, UNKNOWN);
    if (stream == nullptr) return serialized++, SUCCESS;
    event->stream = stream;
    return event->at = stream->put.load(), SUCCESS;
}

int cuEventQuery(Event *event) {
    CALL(cuEventQuery, UNKNOWN);
    const Stream *stream = event->stream;
    return stream == nullptr || event->at <= stream->done ? SUCCESS : NOT_READY;
}

int cuEventSynchronize(Event *event) {
    CALL(cuEventSynchronize, UNKNOWN);
    if (event->stream != nullptr) event->stream.load()->wait(event->at);
    return SUCCESS;
}

int cuMemAlloc_v2(u64 *address, size_t len) {
    CALL(cuMemAlloc_v2, OUT_OF_MEMORY);
    void *block = std::aligned_alloc(256, (len + 255) / 256 * 256);
    if (block == nullptr) return OUT_OF_MEMORY;
    // Whoever takes it for zero is found out.
    std::memset(block, 0xa5, len);
    *address = reinterpret_cast<u64>(block);
    faults::allocated.add(*address, len);
    return SUCCESS;
}

int cuMemFree_v2(u64 address) {
    CALL(cuMemFree_v2, UNKNOWN);
    if (!faults::allocated.remove(address)) return INVALID_VALUE;
    std::free(reinterpret_cast<void *>(address));
    return SUCCESS;
}

int cuMemAllocHost_v2(void **start, size_t len) {
    CALL(cuMemAllocHost_v2, OUT_OF_MEMORY);
    *start = std::aligned_alloc(256, (len + 255) / 256 * 256);
    if (*start == nullptr) return OUT_OF_MEMORY;
    faults::pinned.add(reinterpret_cast<u64>(*start), len);
    return SUCCESS;
}

int cuMemFreeHost(void *start) {
    CALL(cuMemFreeHost, UNKNOWN);
    if (!faults::pinned.remove(reinterpret_cast<u64>(start))) return INVALID_VALUE;
    return std::free(start), SUCCESS;
}

int cuMemGetInfo_v2(size_t *free, size_t *all) {
    CALL(cuMemGetInfo_v2, UNKNOWN);
    *free = *all = size_t{1} << 30;
    return SUCCESS;
}

int cuMemHostRegister_v2(void *start, size_t len, u32) {
    CALL(cuMemHostRegister_v2, OUT_OF_MEMORY);
    u64 at = reinterpret_cast<u64>(start);
    if (faults::registered.overlap(at, len)) return ALREADY_REGISTERED;
    faults::registered.add(at, len);
    return SUCCESS;
}

int cuMemHostUnregister(void *start) {
    CALL(cuMemHostUnregister, UNKNOWN);
    return faults::registered.remove(reinterpret_cast<u64>(start)) ? SUCCESS : NOT_REGISTERED;
}

// Nothing of the caller's is pinned.
int cuPointerGetAttribute(void *, int, u64) { return INVALID_VALUE; }

int cuMemcpyHtoDAsync_v2(u64 to, const void *from, size_t len, void *stream) {
    CALL(cuMemcpyHtoDAsync_v2, UNKNOWN);
    put_on(stream);
    std::memcpy(reinterpret_cast<void *>(to), from, len);
    return SUCCESS;
}

int cuMemcpyDtoHAsync_v2(void *to, u64 from, size_t len, void *stream) {
    CALL(cuMemcpyDtoHAsync_v2, UNKNOWN);
    put_on(stream);
    std::memcpy(to, reinterpret_cast<const void *>(from), len);
    return SUCCESS;
}

int cuMemcpyDtoDAsync_v2(u64 to, u64 from, size_t len, void *stream) {
    CALL(cuMemcpyDtoDAsync_v2, UNKNOWN);
    put_on(stream);
    std::memmove(reinterpret_cast<void *>(to), reinterpret_cast<const void *>(from), len);
    return SUCCESS;
}

int cuMemsetD8Async(u64 to, u8 byte, size_t len, void *stream) {
    CALL(cuMemsetD8Async, UNKNOWN);
    put_on(stream);
    std::memset(reinterpret_cast<void *>(to), byte, len);
    return SUCCESS;
}

int cuModuleLoadDataEx(void **loaded, const void *, u32, void *, void *) {
    CALL(cuModuleLoadDataEx, OUT_OF_MEMORY);
    return *loaded = &module_of_kernels, SUCCESS;
}

int cuModuleUnload(void *) {
    CALL(cuModuleUnload, UNKNOWN);
    return SUCCESS;
}

int cuModuleGetFunction(void **function, void *, const char *name) {
    CALL(cuModuleGetFunction, UNKNOWN);
    auto found = kernels.find(name);
    if (found == kernels.end()) return NOT_FOUND;
    *function = &found->second;
    return SUCCESS;
}

int cuLaunchKernel(void *function, u32 blocks, u32, u32, u32 threads, u32, u32, u32, void *stream,
                   void **parameters, void **) {
    int answer = SUCCESS;
    if (faults::launch_fails("cuLaunchKernel", UNKNOWN, &answer)) return answer;
    put_on(stream);
    run({static_cast<Kernel *>(function), blocks, threads,
         static_cast<Kernel *>(function)->bind(parameters)});
    return SUCCESS;
}

int cuGraphCreate(Graph **made, u32) {
    CALL(cuGraphCreate, OUT_OF_MEMORY);
    return *made = new Graph, SUCCESS;
}

int cuGraphDestroy(Graph *graph) {
    CALL(cuGraphDestroy, UNKNOWN);
    return delete graph, SUCCESS;
}

// Nodes are named by their numbers; each comes after the one before.
int cuGraphAddKernelNode(size_t *node, Graph *graph, const size_t *, size_t,
                         const NodeParameters *parameters) {
    CALL(cuGraphAddKernelNode, OUT_OF_MEMORY);
    graph->push_back(bound(*parameters));
    *node = graph->size() - 1;
    return SUCCESS;
}

int cuGraphInstantiateWithFlags(Graph **made, const Graph *graph, u64) {
    CALL(cuGraphInstantiateWithFlags, OUT_OF_MEMORY);
    return *made = new Graph(*graph), SUCCESS;
}

int cuGraphExecDestroy(Graph *graph) {
    CALL(cuGraphExecDestroy, UNKNOWN);
    return delete graph, SUCCESS;
}

int cuGraphExecKernelNodeSetParams(Graph *graph, size_t node, const NodeParameters *parameters) {
    CALL(cuGraphExecKernelNodeSetParams, UNKNOWN);
    return (*graph)[node] = bound(*parameters), SUCCESS;
}

int cuGraphLaunch(const Graph *graph, void *stream) {
    int answer = SUCCESS;
    if (faults::launch_fails("cuGraphLaunch", UNKNOWN, &answer)) return answer;
    put_on(stream);
    for (const Bound &node : *graph) run(node);
    return SUCCESS;
}

} // extern "C"
