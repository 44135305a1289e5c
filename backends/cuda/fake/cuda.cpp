// The functions of the CUDA for tests.
#include "backends/cuda/fake/cuda.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "backends/cuda/fake/state.hpp"

namespace bp::cuda::fake {
namespace {

// One definition per entry of the table, by the same name.
// NOLINTBEGIN(readability-identifier-naming)
namespace entries {

Context* context_of(int ordinal) {
  State& s = state();
  if (ordinal < 0 || ordinal >= static_cast<int>(s.contexts.size())) return nullptr;
  return &s.contexts[static_cast<size_t>(ordinal)];
}

// ---- What is there ------------------------------------------------------------------------------

cudaError_t cudaDriverGetVersion(int* version) {
  *version = state().setup.driver_version;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = state().setup.device_count;
  if (state().setup.driver_version < CUDART_VERSION) return cudaErrorInsufficientDriver;
  return *count == 0 ? cudaErrorNoDevice : cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int device) {
  if (context_of(device) == nullptr) return cudaErrorInvalidDevice;
  std::memset(p, 0, sizeof(*p));
  std::snprintf(p->name, sizeof(p->name), "fake accelerator %d", device);
  std::memset(&p->uuid, 0x40 + device, sizeof(p->uuid));
  p->totalGlobalMem = state().setup.memory_bytes;
  p->sharedMemPerBlock = 48 << 10;
  p->sharedMemPerBlockOptin = 227 << 10;
  p->sharedMemPerMultiprocessor = 228 << 10;
  p->warpSize = 32;
  p->maxThreadsPerBlock = 1024;
  p->maxThreadsPerMultiProcessor = 2048;
  p->multiProcessorCount = 4;
  p->major = state().setup.major;
  p->memoryBusWidth = 128;
  p->l2CacheSize = 1 << 20;
  p->memoryPoolsSupported = state().setup.has_pools ? 1 : 0;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = 1'000'000;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int size, int device) {
  std::snprintf(text, static_cast<size_t>(size), "0000:%02x:00.0", device);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetByPCIBusId(int* device, const char* text) {
  unsigned bus = 0;
  if (std::sscanf(text, "%*x:%x", &bus) != 1 || context_of(static_cast<int>(bus)) == nullptr) {
    return cudaErrorInvalidDevice;
  }
  *device = static_cast<int>(bus);
  return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  *can = device != peer ? 1 : 0;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaGetLastError() { return cudaSuccess; }

// ---- Memory -------------------------------------------------------------------------------------

uint64_t used_bytes(int ordinal) {
  uint64_t used = 0;
  for (const auto& [pointer, allocation] : state().memory) {
    const bool is_device =
        allocation.kind == MemoryKind::kPlain || allocation.kind == MemoryKind::kPool;
    if (is_device && allocation.ordinal == ordinal) used += allocation.size_bytes;
  }
  return used;
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  const std::lock_guard lock(state().mutex);
  *total = state().setup.memory_bytes;
  *free = *total - used_bytes(current()->ordinal);
  return cudaSuccess;
}

cudaError_t take(void** pointer, size_t size, MemoryKind kind) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  const int ordinal = current()->ordinal;
  if (kind != MemoryKind::kPinned && size > s.setup.memory_bytes - used_bytes(ordinal)) {
    return cudaErrorMemoryAllocation;
  }
  void* const memory = std::aligned_alloc(256, (size + 255) & ~size_t{255});
  if (memory == nullptr) return cudaErrorMemoryAllocation;
  s.memory[memory] = {size, ordinal, kind};
  *pointer = memory;
  return cudaSuccess;
}

// False if there is no such memory of the kind.
bool give(const void* pointer, std::initializer_list<MemoryKind> kinds) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  const auto found = s.memory.find(pointer);
  if (found == s.memory.end() ||
      std::find(kinds.begin(), kinds.end(), found->second.kind) == kinds.end()) {
    s.violations.push_back("memory was freed that is not there, or by the wrong function");
    return false;
  }
  if (found->second.kind != MemoryKind::kRegistered) std::free(const_cast<void*>(pointer));
  s.memory.erase(found);
  return true;
}

cudaError_t cudaMalloc(void** pointer, size_t size) {
  return take(pointer, size, MemoryKind::kPlain);
}

// Memory of a pool is freed at once, other memory when the device has nothing to do.
cudaError_t cudaFree(void* pointer) {
  State& s = state();
  bool is_plain = false;
  {
    const std::lock_guard lock(s.mutex);
    const auto found = s.memory.find(pointer);
    is_plain = found != s.memory.end() && found->second.kind == MemoryKind::kPlain;
  }
  if (is_plain) s.wait_for_all(current());
  return give(pointer, {MemoryKind::kPlain, MemoryKind::kPool}) ? cudaSuccess
                                                                : cudaErrorInvalidValue;
}

cudaError_t cudaMallocFromPoolAsync(void** pointer, size_t size, cudaMemPool_t pool, cudaStream_t) {
  if (reinterpret_cast<FakePool*>(pool)->waits) {
    state().break_rule("memory was taken of a pool that may wait for other streams");
  }
  return take(pointer, size, MemoryKind::kPool);
}

cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream) {
  return state().submit(stream, reinterpret_cast<const void*>(&give),
                        [pointer] { give(pointer, {MemoryKind::kPool}); });
}

cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* properties) {
  auto made = std::make_unique<FakePool>();
  made->context = context_of(properties->location.id);
  *pool = reinterpret_cast<cudaMemPool_t>(made.get());
  const std::lock_guard lock(state().mutex);
  state().pools[made.get()] = std::move(made);
  return cudaSuccess;
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  const std::lock_guard lock(state().mutex);
  state().pools.erase(reinterpret_cast<FakePool*>(pool));
  return cudaSuccess;
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t, cudaMemPoolAttr, void* value) {
  *static_cast<uint64_t*>(value) = 0;
  return cudaSuccess;
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  if (attribute != cudaMemPoolReuseAllowInternalDependencies) return cudaErrorInvalidValue;
  reinterpret_cast<FakePool*>(pool)->waits = *static_cast<const int*>(value) != 0;
  return cudaSuccess;
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, size_t) { return cudaSuccess; }

cudaError_t cudaMemPoolSetAccess(cudaMemPool_t, const cudaMemAccessDesc*, size_t) {
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** pointer, size_t size, unsigned) {
  return take(pointer, size, MemoryKind::kPinned);
}

cudaError_t cudaFreeHost(void* pointer) {
  return give(pointer, {MemoryKind::kPinned}) ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaHostRegister(void* pointer, size_t size, unsigned) {
  const std::lock_guard lock(state().mutex);
  const auto* const begin = static_cast<const std::byte*>(pointer);
  for (const auto& [other, allocation] : state().memory) {
    const auto* const theirs = static_cast<const std::byte*>(other);
    if (begin < theirs + allocation.size_bytes && theirs < begin + size) {
      return cudaErrorHostMemoryAlreadyRegistered;
    }
  }
  state().memory[pointer] = {size, current()->ordinal, MemoryKind::kRegistered};
  return cudaSuccess;
}

cudaError_t cudaHostUnregister(void* pointer) {
  return give(pointer, {MemoryKind::kRegistered}) ? cudaSuccess : cudaErrorHostMemoryNotRegistered;
}

cudaError_t cudaHostGetDevicePointer(void** pointer, void* host, unsigned) {
  *pointer = host;
  return cudaSuccess;
}

// The kind of the memory that `pointer` lies in.
cudaMemoryType type_of(const void* pointer) {
  const std::lock_guard lock(state().mutex);
  auto found = state().memory.upper_bound(pointer);
  if (found == state().memory.begin()) return cudaMemoryTypeUnregistered;
  --found;
  const auto* const begin = static_cast<const std::byte*>(found->first);
  if (static_cast<const std::byte*>(pointer) >= begin + found->second.size_bytes) {
    return cudaMemoryTypeUnregistered;
  }
  const MemoryKind kind = found->second.kind;
  return kind == MemoryKind::kPlain || kind == MemoryKind::kPool ? cudaMemoryTypeDevice
                                                                 : cudaMemoryTypeHost;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  std::memset(attributes, 0, sizeof(*attributes));
  attributes->type = type_of(pointer);
  return cudaSuccess;
}

// Like CUDA's own, it blocks until the copy is made where one side is pageable.
cudaError_t cudaMemcpyAsync(void* dst, const void* src, size_t size, cudaMemcpyKind,
                            cudaStream_t stream) {
  const bool is_pageable =
      type_of(dst) == cudaMemoryTypeUnregistered || type_of(src) == cudaMemoryTypeUnregistered;
  const cudaError_t error = state().submit(stream, reinterpret_cast<const void*>(&type_of),
                                           [dst, src, size] { std::memmove(dst, src, size); });
  FakeStream* const s = state().find(stream);
  if (error == cudaSuccess && is_pageable && s->capture == nullptr) s->queue->wait(UINT64_MAX);
  return error;
}

cudaError_t cudaMemcpyPeerAsync(void* dst, int, const void* src, int, size_t size,
                                cudaStream_t stream) {
  return state().submit(stream, reinterpret_cast<const void*>(&used_bytes),
                        [dst, src, size] { std::memmove(dst, src, size); });
}

cudaError_t cudaMemsetAsync(void* dst, int value, size_t size, cudaStream_t stream) {
  return state().submit(stream, reinterpret_cast<const void*>(&take),
                        [dst, value, size] { std::memset(dst, value, size); });
}

cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return cudaSuccess; }

// ---- Streams ------------------------------------------------------------------------------------

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  State& s = state();
  auto made = std::make_shared<FakeStream>();
  made->context = current();
  made->queue = std::make_shared<Queue>(s.host, s.executor, false);
  *stream = reinterpret_cast<cudaStream_t>(made.get());
  const std::lock_guard lock(s.mutex);
  FakeStream* const key = made.get();
  s.streams[key] = std::move(made);
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const std::lock_guard lock(state().mutex);
  const bool is_known = state().streams.erase(reinterpret_cast<FakeStream*>(stream)) != 0;
  return is_known ? cudaSuccess : cudaErrorInvalidResourceHandle;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  FakeStream* const s = state().find(stream);
  if (s == nullptr) return cudaErrorInvalidResourceHandle;
  return s->queue->is_idle() ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  FakeStream* const s = state().find(stream);
  if (s == nullptr) return cudaErrorInvalidResourceHandle;
  s->queue->wait(UINT64_MAX);
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  FakeStream* const s = state().find(stream);
  auto* const e = reinterpret_cast<FakeEvent*>(event);
  if (s == nullptr) return cudaErrorInvalidResourceHandle;
  if (e->latest != nullptr) s->queue->wait_for(e->latest);
  return cudaSuccess;
}

cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void* data,
                                  unsigned) {
  return state().submit(stream, reinterpret_cast<const void*>(callback), [=] {
    is_in_callback() = true;
    callback(stream, static_cast<cudaError_t>(state().sticky.load()), data);
    is_in_callback() = false;
  });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  return state().submit(stream, reinterpret_cast<const void*>(function), [=] {
    is_in_callback() = true;
    function(data);
    is_in_callback() = false;
  });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  FakeStream* const s = state().find(stream);
  if (s == nullptr) return cudaErrorInvalidResourceHandle;
  *status = s->capture == nullptr ? cudaStreamCaptureStatusNone : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}

// ---- Events -------------------------------------------------------------------------------------

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  auto made = std::make_unique<FakeEvent>();
  made->context = current();
  made->is_timed = (flags & cudaEventDisableTiming) == 0;
  *event = reinterpret_cast<cudaEvent_t>(made.get());
  const std::lock_guard lock(state().mutex);
  FakeEvent* const key = made.get();
  state().events[key] = std::move(made);
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const std::lock_guard lock(state().mutex);
  state().events.erase(reinterpret_cast<FakeEvent*>(event));
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  auto* const e = reinterpret_cast<FakeEvent*>(event);
  if (e->context != current()) {
    state().break_rule("an event was recorded on a stream of another device");
    return cudaErrorInvalidResourceHandle;
  }
  auto point = std::make_shared<Point>(true);
  const cudaError_t error = state().submit(stream, reinterpret_cast<const void*>(&context_of),
                                           [point] { point->complete({}); });
  if (error == cudaSuccess) e->latest = std::move(point);
  return error;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  const std::shared_ptr<Point> latest = reinterpret_cast<FakeEvent*>(event)->latest;
  return latest == nullptr || latest->is_complete() ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const std::shared_ptr<Point> latest = reinterpret_cast<FakeEvent*>(event)->latest;
  if (latest != nullptr) latest->wait(UINT64_MAX);
  return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  const auto *const first = reinterpret_cast<FakeEvent*>(start), *const last =
                                                                     reinterpret_cast<FakeEvent*>(
                                                                         end);
  if (!first->is_timed || !last->is_timed || first->latest == nullptr || last->latest == nullptr) {
    return cudaErrorInvalidResourceHandle;
  }
  const int64_t elapsed_ns = last->latest->time_ns() - first->latest->time_ns();
  *milliseconds = static_cast<float>(static_cast<double>(elapsed_ns) / 1e6);
  return cudaSuccess;
}

// ---- Kernels ------------------------------------------------------------------------------------

cudaError_t cudaLaunchKernel(const void* kernel, dim3, dim3, void** args, size_t,
                             cudaStream_t stream) {
  KernelBody body;
  {
    const std::lock_guard lock(state().mutex);
    const auto found = state().kernels.find(kernel);
    if (found == state().kernels.end()) return cudaErrorInvalidDeviceFunction;
    body = found->second;
  }
  return state().submit(stream, kernel, body(args));
}

cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }

// ---- Graphs -------------------------------------------------------------------------------------

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  FakeStream* const s = state().find(stream);
  if (s == nullptr || s->capture != nullptr) return cudaErrorIllegalState;
  s->capture = std::make_unique<FakeGraph>();
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  FakeStream* const s = state().find(stream);
  if (s == nullptr || s->capture == nullptr) return cudaErrorIllegalState;
  FakeGraph* const key = s->capture.get();
  *graph = reinterpret_cast<cudaGraph_t>(key);
  const std::lock_guard lock(state().mutex);
  state().graphs[key] = std::move(s->capture);
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* instance, cudaGraph_t graph, unsigned long long) {
  auto made = std::make_unique<FakeGraph>(*reinterpret_cast<FakeGraph*>(graph));
  FakeGraph* const key = made.get();
  *instance = reinterpret_cast<cudaGraphExec_t>(key);
  const std::lock_guard lock(state().mutex);
  state().instances[key] = std::move(made);
  return cudaSuccess;
}

cudaError_t cudaGraphExecUpdate(cudaGraphExec_t instance, cudaGraph_t graph,
                                cudaGraphExecUpdateResultInfo*) {
  auto& ours = reinterpret_cast<FakeGraph*>(instance)->nodes;
  const auto& theirs = reinterpret_cast<FakeGraph*>(graph)->nodes;
  const bool is_same = std::ranges::equal(ours, theirs, {}, &GraphNode::what, &GraphNode::what);
  if (!is_same) return cudaErrorGraphExecUpdateFailure;
  ours = theirs;
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t instance, cudaStream_t stream) {
  const auto nodes = reinterpret_cast<FakeGraph*>(instance)->nodes;
  return state().submit(stream, instance, [nodes] {
    for (const GraphNode& node : nodes) node.run();
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  const std::lock_guard lock(state().mutex);
  state().graphs.erase(reinterpret_cast<FakeGraph*>(graph));
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t instance) {
  const std::lock_guard lock(state().mutex);
  state().instances.erase(reinterpret_cast<FakeGraph*>(instance));
  return cudaSuccess;
}

// ---- Contexts -----------------------------------------------------------------------------------

CUresult cuInit(unsigned) { return CUDA_SUCCESS; }

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  if (context_of(ordinal) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  const std::lock_guard lock(state().mutex);
  Context* const found = context_of(device);
  ++found->uses;
  *context = reinterpret_cast<CUcontext>(found);
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  const std::lock_guard lock(state().mutex);
  --context_of(device)->uses;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* is_active) {
  const std::lock_guard lock(state().mutex);
  *flags = 0;
  *is_active = context_of(device)->uses > 0 ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext* context) {
  *context = reinterpret_cast<CUcontext>(current());
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context) {
  current() = reinterpret_cast<Context*>(context);
  return CUDA_SUCCESS;
}

// ---- NVML ---------------------------------------------------------------------------------------

int nvmlInit() {
  if (!state().setup.has_nvml) return kNvmlAbsent;
  ++state().nvml_uses;
  return kNvmlSuccess;
}

int nvmlShutdown() {
  --state().nvml_uses;
  return kNvmlSuccess;
}

int nvmlSystemGetCudaDriverVersion(int* version) {
  *version = state().setup.driver_version;
  return kNvmlSuccess;
}

int nvmlDeviceGetCount(unsigned* count) {
  *count = static_cast<unsigned>(state().setup.device_count);
  return kNvmlSuccess;
}

int nvmlDeviceGetHandleByIndex(unsigned index, NvmlDevice* device) {
  *device = reinterpret_cast<NvmlDevice>(context_of(static_cast<int>(index)));
  return kNvmlSuccess;
}

int ordinal_of(NvmlDevice device) { return reinterpret_cast<Context*>(device)->ordinal; }

int nvmlDeviceGetName(NvmlDevice device, char* text, unsigned size) {
  std::snprintf(text, size, "fake accelerator %d", ordinal_of(device));
  return kNvmlSuccess;
}

int nvmlDeviceGetPciInfo(NvmlDevice device, NvmlPciInfo* info) {
  std::memset(info, 0, sizeof(*info));
  std::snprintf(info->bus_id, sizeof(info->bus_id), "00000000:%02X:00.0", ordinal_of(device));
  return kNvmlSuccess;
}

int nvmlDeviceGetCudaComputeCapability(NvmlDevice, int* major, int* minor) {
  *major = state().setup.major;
  *minor = 0;
  return kNvmlSuccess;
}

int nvmlDeviceGetMigMode(NvmlDevice device, unsigned* current, unsigned* pending) {
  *current = *pending = state().setup.is_in_parts && ordinal_of(device) == 0 ? 1 : 0;
  return kNvmlSuccess;
}

}  // namespace entries
// NOLINTEND(readability-identifier-naming)

// The name of an entry as an argument of a template.
template <size_t kSize>
struct Name {
  // NOLINTNEXTLINE(google-explicit-constructor): string literals convert.
  constexpr Name(const char (&text)[kSize]) { std::copy_n(text, kSize, value); }
  char value[kSize];
};

// An entry of the table: counts, fails on order, and does what its definition above says.
template <typename Function>
struct Entry;
template <typename Result, typename... Args>
struct Entry<Result (*)(Args...)> {
  template <Result (*kFunction)(Args...), Name kName>
  static Result call(Args... args) {
    const std::string_view name = kName.value;
    // What may be called on any thread, before there is a context.
    const bool needs_context = name.starts_with("cuda") && !is_free(name);
    const int error = state().enter(kName.value, needs_context);
    return error == 0 ? kFunction(args...) : static_cast<Result>(error);
  }

  static bool is_free(std::string_view name) {
    return name.starts_with("cudaGet") || name.starts_with("cudaDeviceGetAttribute") ||
           name.starts_with("cudaDeviceGetPCI") || name.starts_with("cudaDeviceGetByPCI") ||
           name.starts_with("cudaDeviceCan") || name.starts_with("cudaDriverGet");
  }
};

}  // namespace

Driver driver() {
  Driver table;
#define BP_RUNTIME(function, parameters) \
  table.function = Entry<decltype(table.function)>::call<entries::function, #function>;
#define BP_DRIVER(function, symbol, parameters) \
  table.function = Entry<decltype(table.function)>::call<entries::function, #function>;
#define BP_NVML(function, symbol, parameters) \
  table.function = Entry<decltype(table.function)>::call<entries::function, #function>;
#include "backends/cuda/driver.def"
  table.cudaGetErrorName = &::cudaGetErrorName;
  table.cudaGetErrorString = &::cudaGetErrorString;
  return table;
}

}  // namespace bp::cuda::fake
