#include "backends/cuda/fake/state.hpp"

#include <cstdlib>

namespace bp::cuda::fake {
namespace {

thread_local Context* current_context = nullptr;
thread_local bool in_callback = false;
thread_local CUstreamCaptureMode mode_of_captures = CU_STREAM_CAPTURE_MODE_GLOBAL;

bool is_sticky(int error) { return failure_of(static_cast<cudaError_t>(error)) == Failure::kLoss; }

}  // namespace

Context*& current() { return current_context; }
bool& is_in_callback() { return in_callback; }
CUstreamCaptureMode& capture_mode() { return mode_of_captures; }

State& state() {
  static State only;
  return only;
}

State::State() {
  host.struct_size = sizeof(host);
  host.struct_type = BP_STRUCT_HOST;
  host.set_error = [](void*, bp_status status, const char*) { return status; };
  contexts.resize(static_cast<size_t>(setup.device_count));
  for (int i = 0; i < setup.device_count; ++i) contexts[static_cast<size_t>(i)].ordinal = i;
}

int State::enter(const char* name, bool needs_context) {
  const std::lock_guard lock(mutex);
  const uint64_t nth = ++counts[name];
  if (in_callback) violations.push_back(std::string(name) + " was called from a callback");
  if (needs_context && current_context == nullptr) {
    violations.push_back(std::string(name) + " was called without a current context");
    return cudaErrorDeviceUninitialized;
  }
  if (failing == name && failing_nth == nth) {
    if (is_sticky(error)) sticky = error;
    return error;
  }
  return needs_context ? sticky.load() : 0;
}

bool State::may_call_beside_captures(const char* name) {
  if (forbidding_captures == 0 || mode_of_captures != CU_STREAM_CAPTURE_MODE_GLOBAL) return true;
  break_rule(std::string(name) + " was called while a stream captured in global mode");
  return false;
}

void State::break_rule(const std::string& text) {
  const std::lock_guard lock(mutex);
  violations.push_back(text);
}

FakeStream* State::find(cudaStream_t stream) {
  const std::lock_guard lock(mutex);
  const auto found = streams.find(reinterpret_cast<FakeStream*>(stream));
  return found == streams.end() ? nullptr : found->second.get();
}

cudaError_t State::submit(cudaStream_t stream, const void* what, std::function<void()> work) {
  FakeStream* const s = find(stream);
  if (s == nullptr) {
    break_rule("work was submitted to a stream that does not exist");
    return cudaErrorInvalidResourceHandle;
  }
  if (s->context != current_context) {
    break_rule("work was submitted with the context of another device");
    return cudaErrorInvalidResourceHandle;
  }
  if (s->capture != nullptr) {
    s->capture->nodes.push_back({what, std::move(work)});
    return cudaSuccess;
  }
  s->queue->submit(std::move(work));
  return cudaSuccess;
}

void State::wait_for_all(Context* context) {
  std::vector<std::shared_ptr<Queue>> queues;
  {
    const std::lock_guard lock(mutex);
    for (const auto& [key, stream] : streams) {
      if (stream->context == context) queues.push_back(stream->queue);
    }
  }
  for (const std::shared_ptr<Queue>& queue : queues) queue->wait(UINT64_MAX);
}

// ---- Functions for tests ------------------------------------------------------------------------

void limit_shared_memory(int kib) {
  const std::lock_guard lock(state().mutex);
  state().setup.shared_kib = kib;
}

void reset(const Setup& setup) {
  State& s = state();
  s.executor.wait_idle();
  const std::lock_guard lock(s.mutex);
  s.setup = setup;
  s.contexts.assign(static_cast<size_t>(setup.device_count), {});
  for (int i = 0; i < setup.device_count; ++i) s.contexts[static_cast<size_t>(i)].ordinal = i;
  for (const auto& [pointer, allocation] : s.memory) {
    if (allocation.kind != MemoryKind::kRegistered) std::free(const_cast<void*>(pointer));
  }
  s.memory.clear();
  s.streams.clear();
  s.events.clear();
  s.pools.clear();
  s.graphs.clear();
  s.instances.clear();
  s.shared_bytes.clear();
  s.counts.clear();
  s.violations.clear();
  s.failing.clear();
  s.sticky = 0;
  s.forbidding_captures = 0;
  s.nvml_uses = 0;
}

void fail_call(const std::string& name, uint64_t nth, int error) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  s.failing = nth == 0 ? "" : name;
  s.failing_nth = nth;
  s.error = error;
  s.sticky = 0;
}

void finish() { state().executor.wait_idle(); }

std::map<std::string, uint64_t> call_counts() {
  const std::lock_guard lock(state().mutex);
  return state().counts;
}

std::vector<std::string> violations() {
  const std::lock_guard lock(state().mutex);
  return state().violations;
}

std::vector<std::string> leftovers() {
  State& s = state();
  s.executor.wait_idle();
  const std::lock_guard lock(s.mutex);
  std::vector<std::string> texts;
  const auto tell = [&](size_t count, const char* what) {
    if (count != 0) texts.push_back(std::to_string(count) + " " + what);
  };
  tell(s.memory.size(), "pieces of memory");
  tell(s.streams.size(), "streams");
  tell(s.events.size(), "events");
  tell(s.pools.size(), "pools");
  tell(s.graphs.size(), "graphs");
  tell(s.instances.size(), "instances of graphs");
  tell(static_cast<size_t>(s.nvml_uses), "uses of NVML");
  for (const Context& context : s.contexts) tell(static_cast<size_t>(context.uses), "contexts");
  return texts;
}

void add_kernel(const void* kernel, KernelBody body) {
  const std::lock_guard lock(state().mutex);
  state().kernels[kernel] = std::move(body);
}

}  // namespace bp::cuda::fake
