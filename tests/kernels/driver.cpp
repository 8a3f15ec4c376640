// A driver whose device is the CPU of warp.h: as much of libcuda.so.1 as the CUDA engine calls, so
// that all of the engine runs where there is no GPU, with the kernels of ptx/.
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
#include "index.cu"
#include "order.cu"
#include "recover.cu"
#include "resize.cu"
#include "versions.cu"

namespace {

enum Answer : int { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_FOUND = 500 };

// Attributes of the device that the engine asks for (CUdevice_attribute).
constexpr int MULTIPROCESSORS = 16;
constexpr int CAN_MAP_HOST_MEMORY = 19;
constexpr int UNIFIED_ADDRESSING = 41;
constexpr int CAPABILITY_MAJOR = 75;
constexpr int CAPABILITY_MINOR = 76;

struct Kernel {
    std::function<std::function<void()>(void **)> bind;
    bool in_turns; // blocks share what is __shared__
};

// Binds a kernel to copies of its parameters, which a launch has as an address each.
template <class... Parameters>
Kernel kernel(void (*function)(Parameters...), bool in_turns = false) {
    auto bind = [=](void **addresses) -> std::function<void()> {
        return [&]<size_t... At>(std::index_sequence<At...>) {
            return [=, copies = std::tuple<std::remove_const_t<Parameters>...>(
                           *static_cast<std::remove_const_t<Parameters> *>(addresses[At])...)] {
                std::apply(function, copies);
            };
        }(std::index_sequence_for<Parameters...>{});
    };
    return {bind, in_turns};
}

#define ENTRY(name) {#name, kernel(name)}
#define BOTH(name) {#name "_word", kernel(name##_word)}, {#name "_wide", kernel(name##_wide)}

std::unordered_map<std::string, Kernel> kernels = {
    BOTH(get), BOTH(contains), BOTH(locate), BOTH(insert), BOTH(upsert), BOTH(update), BOTH(remove),
    BOTH(resolve_insert), BOTH(resolve_upsert), BOTH(resolve_update), BOTH(resolve_remove),
    BOTH(drain), BOTH(survey),
    ENTRY(fetch), ENTRY(clear_batch), ENTRY(group_keys), ENTRY(spread), ENTRY(report),
    {"start_bins", kernel(start_bins, true)},
    ENTRY(arrange), ENTRY(scatter), ENTRY(enter_free), ENTRY(leave_free),
    ENTRY(cache_survey), ENTRY(cache_elect), ENTRY(cache_release), ENTRY(cache_assign),
    ENTRY(cache_fill), ENTRY(cache_link), ENTRY(cache_leave),
    ENTRY(gather_changes), ENTRY(find_versions),
    {"count_digits", kernel(count_digits, true)},
    {"start_digits", kernel(start_digits, true)},
    {"scatter_digits", kernel(scatter_digits, true)},
#ifdef GPHASH_STORE_LOG
    ENTRY(set_store_log),
#endif
};

// A kernel with its parameters.
struct Bound {
    const Kernel *kernel;
    u32 blocks;
    u32 threads;
    std::function<void()> call;
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
    emulated::Launch launch{bound.blocks, bound.threads, bound.call};
    if (bound.kernel->in_turns) {
        emulated::run_in_turns(launch);
    } else {
        emulated::run({launch});
    }
}

// Contexts, streams and events are only names.
char context, stream, event, module_of_kernels;
thread_local void *current;

} // namespace

extern "C" {

// Draws the order of lanes and warps anew, for the launches of the calling thread.
void gphash_emulation_seed(u64 seed) { emulated::schedule.seed(seed); }

int cuInit(u32) { return SUCCESS; }

int cuDeviceGetCount(int *count) { return *count = 1, SUCCESS; }

int cuDeviceGet(int *which, int ordinal) { return *which = ordinal, SUCCESS; }

int cuDeviceGetName(char *name, int len, int) {
    std::snprintf(name, static_cast<size_t>(len), "emulated warps");
    return SUCCESS;
}

int cuDeviceGetAttribute(int *value, int attribute, int) {
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

int cuDevicePrimaryCtxRetain(void **retained, int) { return *retained = &context, SUCCESS; }

int cuDevicePrimaryCtxRelease_v2(int) { return SUCCESS; }

int cuCtxSetCurrent(void *wanted) { return current = wanted, SUCCESS; }

int cuCtxGetCurrent(void **found) { return *found = current, SUCCESS; }

int cuStreamCreateWithPriority(void **made, u32, int) { return *made = &stream, SUCCESS; }

int cuStreamDestroy_v2(void *) { return SUCCESS; }

int cuStreamSynchronize(void *) { return SUCCESS; }

int cuStreamWaitEvent(void *, void *, u32) { return SUCCESS; }

int cuEventCreate(void **made, u32) { return *made = &event, SUCCESS; }

int cuEventDestroy_v2(void *) { return SUCCESS; }

int cuEventRecord(void *, void *) { return SUCCESS; }

int cuEventQuery(void *) { return SUCCESS; }

int cuEventSynchronize(void *) { return SUCCESS; }

int cuMemAlloc_v2(u64 *address, size_t len) {
    void *block = std::aligned_alloc(256, (len + 255) / 256 * 256);
    if (block == nullptr) return OUT_OF_MEMORY;
    // Whoever takes it for zero is found out.
    std::memset(block, 0xa5, len);
    *address = reinterpret_cast<u64>(block);
    return SUCCESS;
}

int cuMemFree_v2(u64 address) {
    std::free(reinterpret_cast<void *>(address));
    return SUCCESS;
}

int cuMemAllocHost_v2(void **start, size_t len) {
    *start = std::aligned_alloc(256, (len + 255) / 256 * 256);
    return *start == nullptr ? OUT_OF_MEMORY : SUCCESS;
}

int cuMemFreeHost(void *start) { return std::free(start), SUCCESS; }

int cuMemGetInfo_v2(size_t *free, size_t *all) {
    *free = *all = size_t{1} << 30;
    return SUCCESS;
}

int cuMemHostRegister_v2(void *, size_t, u32) { return SUCCESS; }

int cuMemHostUnregister(void *) { return SUCCESS; }

// Nothing of the caller's is pinned.
int cuPointerGetAttribute(void *, int, u64) { return INVALID_VALUE; }

int cuMemcpyHtoDAsync_v2(u64 to, const void *from, size_t len, void *) {
    std::memcpy(reinterpret_cast<void *>(to), from, len);
    return SUCCESS;
}

int cuMemcpyDtoHAsync_v2(void *to, u64 from, size_t len, void *) {
    std::memcpy(to, reinterpret_cast<const void *>(from), len);
    return SUCCESS;
}

int cuMemcpyDtoDAsync_v2(u64 to, u64 from, size_t len, void *) {
    std::memmove(reinterpret_cast<void *>(to), reinterpret_cast<const void *>(from), len);
    return SUCCESS;
}

int cuMemsetD8Async(u64 to, u8 byte, size_t len, void *) {
    std::memset(reinterpret_cast<void *>(to), byte, len);
    return SUCCESS;
}

int cuModuleLoadDataEx(void **loaded, const void *, u32, void *, void *) {
    return *loaded = &module_of_kernels, SUCCESS;
}

int cuModuleUnload(void *) { return SUCCESS; }

int cuModuleGetFunction(void **function, void *, const char *name) {
    auto found = kernels.find(name);
    if (found == kernels.end()) return NOT_FOUND;
    *function = &found->second;
    return SUCCESS;
}

int cuLaunchKernel(void *function, u32 blocks, u32, u32, u32 threads, u32, u32, u32, void *,
                   void **parameters, void **) {
    run({static_cast<Kernel *>(function), blocks, threads,
         static_cast<Kernel *>(function)->bind(parameters)});
    return SUCCESS;
}

int cuGraphCreate(Graph **made, u32) { return *made = new Graph, SUCCESS; }

int cuGraphDestroy(Graph *graph) { return delete graph, SUCCESS; }

// Nodes are named by their numbers; each comes after the one before.
int cuGraphAddKernelNode(size_t *node, Graph *graph, const size_t *, size_t,
                         const NodeParameters *parameters) {
    graph->push_back(bound(*parameters));
    *node = graph->size() - 1;
    return SUCCESS;
}

int cuGraphInstantiateWithFlags(Graph **made, const Graph *graph, u64) {
    return *made = new Graph(*graph), SUCCESS;
}

int cuGraphExecDestroy(Graph *graph) { return delete graph, SUCCESS; }

int cuGraphExecKernelNodeSetParams(Graph *graph, size_t node, const NodeParameters *parameters) {
    return (*graph)[node] = bound(*parameters), SUCCESS;
}

int cuGraphLaunch(const Graph *graph, void *) {
    for (const Bound &node : *graph) run(node);
    return SUCCESS;
}

} // extern "C"
