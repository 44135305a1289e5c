#include "backends/cuda/cudnn.hpp"

#include <algorithm>
#include <utility>

#include "backends/cuda/cudnn_descriptor.hpp"
#include "backends/cuda/signal_handlers.hpp"

namespace bp::cuda {
namespace {

constexpr size_t kPlanCapacity = 512;
constexpr int64_t kMostConfigs = 64;

// Returns the configs that the heuristics name for a graph, the best first, without NULL handles.
std::vector<DnnDescriptor> ask_heuristics(const Cudnn& library, const DnnDescriptor& graph,
                                          cudnnBackendHeurMode_t mode) {
  DnnDescriptor heuristics(library, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph)
      .set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  if (!heuristics.is_taken()) return {};
  int64_t count = 0;
  check(library,
        library.get_attribute(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                              CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, nullptr),
        "cudnnBackendGetAttribute");
  std::vector<DnnDescriptor> configs;
  std::vector<cudnnBackendDescriptor_t> handles;
  for (int64_t i = 0; i < std::min(count, kMostConfigs); ++i) {
    configs.emplace_back(library, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    handles.push_back(configs.back().get());
  }
  if (handles.empty()) return {};
  check(library,
        library.get_attribute(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                              CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<int64_t>(handles.size()),
                              &count, handles.data()),
        "cudnnBackendGetAttribute");
  configs.erase(configs.begin() + std::clamp<int64_t>(count, 0, std::ssize(configs)),
                configs.end());
  return configs;
}

template <typename Note>
std::vector<Note> notes_of(const Cudnn& library, const DnnDescriptor& engine,
                           cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                           size_t most) {
  std::vector<Note> notes(most);
  int64_t count = 0;
  check(library,
        library.get_attribute(engine.get(), name, type, std::ssize(notes), &count, notes.data()),
        "cudnnBackendGetAttribute");
  notes.resize(static_cast<size_t>(std::clamp<int64_t>(count, 0, std::ssize(notes))));
  return notes;
}

// Returns whether an engine keeps the declared properties of the kernels.
bool is_usable(const Cudnn& library, const DnnDescriptor& config, const DnnPromises& promises) {
  DnnDescriptor engine(library, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t handle = engine.get();
  int64_t count = 0;
  check(library,
        library.get_attribute(config.get(), CUDNN_ATTR_ENGINECFG_ENGINE,
                              CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &handle),
        "cudnnBackendGetAttribute");
  const auto numerical = notes_of<cudnnBackendNumericalNote_t>(
      library, engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
      CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
  for (const cudnnBackendNumericalNote_t note : numerical) {
    if (note == CUDNN_NUMERICAL_NOTE_TENSOR_CORE && !promises.allows_tensor_cores) return false;
    if (note == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS && !promises.allows_narrow_inputs) {
      return false;
    }
    if (note == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC ||
        note == CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION ||
        (note >= CUDNN_NUMERICAL_NOTE_WINOGRAD &&
         note <= CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13) ||
        note == CUDNN_NUMERICAL_NOTE_FFT) {
      return false;
    }
  }
  if (promises.may_compile) return true;
  const auto behavior = notes_of<cudnnBackendBehaviorNote_t>(
      library, engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE,
      CUDNN_BEHAVIOR_NOTE_TYPE_COUNT);
  return std::ranges::find(behavior, CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION) == behavior.end();
}

// Makes the plan of a config. Returns NULL if the library cannot run it on this device.
std::shared_ptr<const DnnPlan> make_plan(const Cudnn& library, cudnnHandle_t handle,
                                         std::vector<DnnDescriptor>& graph, DnnDescriptor config) {
  DnnDescriptor plan(library, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle)
      .set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
  if (!plan.is_taken()) return nullptr;
  int64_t size_bytes = 0, count = 0;
  check(library,
        library.get_attribute(plan.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                              CUDNN_TYPE_INT64, 1, &count, &size_bytes),
        "cudnnBackendGetAttribute");
  graph.push_back(std::move(config));
  graph.push_back(std::move(plan));
  return std::make_shared<const DnnPlan>(std::move(graph), static_cast<uint64_t>(size_bytes));
}

void add(PlanKey& key, const DnnTensor& tensor, int ndim) {
  for (size_t i = 0; i < static_cast<size_t>(ndim); ++i) {
    key.add(tensor.shape[i]);
    key.add(tensor.strides[i]);
  }
}

PlanKey key_of(const DnnProblem& p) {
  PlanKey key;
  key.add(static_cast<int64_t>(p.direction) | int64_t{p.allows_tf32} << 2 | int64_t{p.adds} << 3 |
          int64_t{p.may_compile} << 4 | int64_t{p.is_aligned} << 5 |
          static_cast<int64_t>(p.ndim) << 8 | static_cast<int64_t>(p.dtype) << 16);
  for (const DnnTensor* tensor : {&p.x, &p.weight, &p.y}) add(key, *tensor, p.ndim);
  for (const auto* values : {&p.stride, &p.dilation, &p.low, &p.high}) {
    for (const int64_t value : *values) key.add(value);
  }
  return key;
}

// The first word is that of no convolution.
PlanKey key_of(const DnnAttention& p) {
  PlanKey key;
  key.add(-1);
  key.add(int64_t{p.has_lse} | int64_t{p.is_bound_right} << 1 | int64_t{p.is_bound_left} << 2 |
          int64_t{p.is_bottom_right} << 3 | int64_t{p.has_right_shift} << 4 |
          static_cast<int64_t>(p.dtype) << 16);
  for (const int64_t extent : {p.batches, p.heads, p.key_heads, p.queries, p.keys, p.width}) {
    key.add(extent);
  }
  for (const auto* strides : {&p.q, &p.k, &p.v, &p.y}) {
    for (const int64_t stride : *strides) key.add(stride);
  }
  return key;
}

}  // namespace

DnnPlan::DnnPlan(std::vector<DnnDescriptor> descriptors, uint64_t its_workspace_size_bytes)
    : descriptors_(std::move(descriptors)), workspace_size_bytes_(its_workspace_size_bytes) {}

// The plan is destroyed before its parts.
DnnPlan::~DnnPlan() {
  while (!descriptors_.empty()) descriptors_.pop_back();
}

cudnnBackendDescriptor_t DnnPlan::get() const { return descriptors_.back().get(); }

// Takes a handle of the engine, and gives it back in its destructor.
class DnnEngine::Handle {
 public:
  explicit Handle(DnnEngine& engine) : engine_(engine), handle_(engine.take_handle()) {}
  ~Handle() { engine_.give_back(handle_); }
  Handle(const Handle&) = delete;
  cudnnHandle_t get() const { return handle_; }

 private:
  DnnEngine& engine_;
  const cudnnHandle_t handle_;
};

DnnEngine::DnnEngine(const Cudnn& library) : library_(library), plans_(kPlanCapacity) {
  give_back(take_handle());  // Fails here rather than later.
}

// Plans are destroyed before the handles that made them.
DnnEngine::~DnnEngine() {
  plans_.clear();
  for (const cudnnHandle_t handle : idle_) library_.destroy(handle);
}

cudnnHandle_t DnnEngine::take_handle() {
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      const cudnnHandle_t handle = idle_.back();
      idle_.pop_back();
      return handle;
    }
  }
  cudnnHandle_t handle = nullptr;
  check(library_, library_.create(&handle), "cudnnCreate");
  return handle;
}

void DnnEngine::give_back(cudnnHandle_t handle) {
  const std::lock_guard lock(mutex_);
  idle_.push_back(handle);
}

bool DnnEngine::has_attention() const { return library_.version() >= 91500; }

std::shared_ptr<const DnnPlan> DnnEngine::find(const DnnProblem& problem) {
  const bool rounds = problem.dtype == BP_F32 && problem.allows_tf32;
  const DnnPromises promises{.allows_tensor_cores = problem.dtype != BP_F32 || rounds,
                             .allows_narrow_inputs = rounds,
                             .may_compile = problem.may_compile};
  return plans_.find(key_of(problem), [&] { return choose(problem, promises); });
}

std::shared_ptr<const DnnPlan> DnnEngine::find(const DnnAttention& problem) {
  return plans_.find(key_of(problem), [&] { return choose(problem, {.may_compile = true}); });
}

template <typename Problem>
std::shared_ptr<const DnnPlan> DnnEngine::choose(const Problem& problem,
                                                 const DnnPromises& promises) {
  const KeptSignalHandlers kept;
  const Handle handle(*this);
  std::vector<DnnDescriptor> graph = make_dnn_graph(library_, handle.get(), problem);
  if (graph.empty()) return nullptr;
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    for (DnnDescriptor& config : ask_heuristics(library_, graph.back(), mode)) {
      if (!is_usable(library_, config, promises)) continue;
      auto plan = make_plan(library_, handle.get(), graph, std::move(config));
      if (plan != nullptr) return plan;
    }
  }
  return nullptr;
}

void DnnEngine::run(const DnnPlan& plan, std::span<const DnnAddress> addresses, void* workspace,
                    cudaStream_t stream) {
  constexpr size_t kMost = 16;
  std::array<int64_t, kMost> ids{};
  std::array<const void*, kMost> places{};
  for (size_t i = 0; i < addresses.size(); ++i) {
    ids.at(i) = addresses[i].id;
    places.at(i) = addresses[i].place;
  }
  const auto count = std::ssize(addresses);
  DnnDescriptor pack(library_, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, ids.data())
      .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, places.data())
      .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace)
      .finalize();
  const Handle handle(*this);
  check(library_, library_.set_stream(handle.get(), stream), "cudnnSetStream");
  const std::lock_guard lock(plan.mutex());
  check(library_, library_.execute(handle.get(), plan.get(), pack.get()), "cudnnBackendExecute");
}

}  // namespace bp::cuda
