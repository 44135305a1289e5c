// The state of the fake CUDA.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "backends/cuda/fake/cuda.hpp"
#include "backplane/shell/queue.hpp"

namespace bp::cuda::fake {

struct Context {
  int ordinal = 0;
  int uses = 0;
};

enum class MemoryKind { kPlain, kPool, kPinned, kRegistered };
struct Allocation {
  uint64_t size_bytes;
  int ordinal;
  MemoryKind kind;
};

struct GraphNode {
  const void* what;  // The kernel, or an address that stands for another kind of work.
  std::function<void()> run;
};
struct FakeGraph {
  std::vector<GraphNode> nodes;
  bool forbids_others = false;  // The stream captures in global mode.
};

struct FakeStream {
  Context* context = nullptr;
  std::shared_ptr<Queue> queue;
  std::unique_ptr<FakeGraph> capture;  // NULL unless the stream captures.
};

struct FakeEvent {
  Context* context = nullptr;
  bool is_timed = false;
  std::shared_ptr<Point> latest;
};

struct FakePool {
  Context* context = nullptr;
  bool waits = true;  // If true, an allocation may wait for a stream that freed memory.
};

struct State {
  State();

  // Counts a call of `name`. Returns the error with which it must fail, or 0.
  int enter(const char* name, bool needs_context);
  // Returns whether a call that captures in global mode forbid may be made on this thread. If not,
  // it breaks a rule.
  bool may_call_beside_captures(const char* name);
  void break_rule(const std::string& text);

  // Submits work to a stream, or adds it to the graph that the stream captures.
  cudaError_t submit(cudaStream_t stream, const void* what, std::function<void()> work);
  FakeStream* find(cudaStream_t stream);
  void wait_for_all(Context* context);

  std::mutex mutex;  // It guards the members below, and is not held while work runs.
  Setup setup;
  std::vector<Context> contexts;
  std::map<const void*, Allocation> memory;
  std::map<FakeStream*, std::shared_ptr<FakeStream>> streams;
  std::map<FakeEvent*, std::unique_ptr<FakeEvent>> events;
  std::map<FakePool*, std::unique_ptr<FakePool>> pools;
  std::map<FakeGraph*, std::unique_ptr<FakeGraph>> graphs, instances;
  std::map<const void*, KernelBody> kernels;
  std::map<std::pair<const Context*, const void*>, size_t> shared_bytes;  // What was allowed.
  std::map<std::string, uint64_t> counts;
  std::vector<std::string> violations;
  std::string failing;
  uint64_t failing_nth = 0;
  int error = 0;
  std::atomic<int> forbidding_captures = 0;
  std::atomic<int> sticky = 0;  // The error from which CUDA does not recover, or 0.

  std::atomic<int> nvml_uses = 0;
  bp_host host{};
  Executor executor{8};
};

State& state();

// Returns the context of the calling thread.
Context*& current();

// Returns how captures limit the calls of the calling thread.
CUstreamCaptureMode& capture_mode();

// Returns the flag of the calling thread that is true while it runs a callback.
bool& is_in_callback();

}  // namespace bp::cuda::fake
