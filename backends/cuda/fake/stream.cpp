// The streams, events, kernels and graphs of the fake CUDA.
#include <algorithm>
#include <cstdio>
#include <exception>

#include "backends/cuda/fake/entries.hpp"

// NOLINTBEGIN(readability-identifier-naming)
namespace bp::cuda::fake::entries {

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

namespace {

// Returns whether every device takes a launch of this shape.
bool has_allowed_extents(dim3 grid, dim3 block) {
  constexpr unsigned kMostInner = 0x7FFFFFFF, kMostOuter = 65535, kMostThreads = 1024;
  const auto is_in = [](unsigned extent, unsigned most) { return extent >= 1 && extent <= most; };
  return is_in(grid.x, kMostInner) && is_in(grid.y, kMostOuter) && is_in(grid.z, kMostOuter) &&
         is_in(block.x, kMostThreads) && is_in(block.y, kMostThreads) && is_in(block.z, 64) &&
         size_t{block.x} * block.y * block.z <= kMostThreads;
}

// If the body of a kernel throws, the device is lost, and the text is written to stderr.
void run_body(const std::function<void()>& body) {
  try {
    body();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "fake CUDA: a kernel failed: %s\n", e.what());
    state().sticky = cudaErrorLaunchFailure;
  }
}

}  // namespace

// CUDA refuses a launch whose blocks have more shared memory than was allowed for the kernel.
cudaError_t cudaLaunchKernel(const void* kernel, dim3 grid, dim3 block, void** args,
                             size_t shared_bytes, cudaStream_t stream) {
  constexpr size_t kSharedBytes = size_t{48} << 10;
  if (!has_allowed_extents(grid, block)) return cudaErrorInvalidConfiguration;
  KernelBody body;
  {
    const std::lock_guard lock(state().mutex);
    const auto allowed = state().shared_bytes.find({current(), kernel});
    const bool has_more = allowed != state().shared_bytes.end();
    if (shared_bytes > (has_more ? allowed->second : kSharedBytes)) return cudaErrorInvalidValue;
    const auto found = state().kernels.find(kernel);
    if (found == state().kernels.end()) return cudaErrorInvalidDeviceFunction;
    body = found->second;
  }
  return state().submit(stream, kernel, [work = body(args)] { run_body(work); });
}

// The largest shared memory is the only attribute that the backend sets.
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute, int value) {
  const std::lock_guard lock(state().mutex);
  if (value < 0 || value > state().setup.shared_kib << 10) return cudaErrorInvalidValue;
  state().shared_bytes[{current(), kernel}] = static_cast<size_t>(value);
  return cudaSuccess;
}

// ---- Graphs -------------------------------------------------------------------------------------

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  FakeStream* const s = state().find(stream);
  if (s == nullptr || s->capture != nullptr) return cudaErrorIllegalState;
  s->capture = std::make_unique<FakeGraph>();
  s->capture->forbids_others = mode == cudaStreamCaptureModeGlobal;
  if (s->capture->forbids_others) ++state().forbidding_captures;
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  FakeStream* const s = state().find(stream);
  if (s == nullptr || s->capture == nullptr) return cudaErrorIllegalState;
  FakeGraph* const key = s->capture.get();
  *graph = reinterpret_cast<cudaGraph_t>(key);
  if (key->forbids_others) --state().forbidding_captures;
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

}  // namespace bp::cuda::fake::entries
// NOLINTEND(readability-identifier-naming)
