#include "backends/cuda/cudnn.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "backends/cuda/signal_handlers.hpp"

namespace bp::cuda {
namespace {

constexpr size_t kPlanCapacity = 512;
constexpr int64_t kMostConfigs = 64;
constexpr int64_t kAlignmentBytes = 16;
// The names of the tensors of a problem.
constexpr int64_t kX = 1, kWeight = 2, kY = 3;

int64_t size_bytes_of(bp_dtype dtype) { return dtype == BP_F64 ? 8 : dtype == BP_F32 ? 4 : 2; }

cudnnDataType_t type_of(bp_dtype dtype) {
  switch (dtype) {
    case BP_F16:
      return CUDNN_DATA_HALF;
    case BP_BF16:
      return CUDNN_DATA_BFLOAT16;
    case BP_F32:
      return CUDNN_DATA_FLOAT;
    case BP_F64:
      return CUDNN_DATA_DOUBLE;
    default:
      throw StatusError(BP_UNSUPPORTED, "cuDNN is not asked for dtype " + std::to_string(dtype));
  }
}

}  // namespace

// Owns one descriptor of the library.
class DnnDescriptor {
 public:
  DnnDescriptor(const Cudnn& library, cudnnBackendDescriptorType_t type) : library_(&library) {
    check(library, library.create_descriptor(type, &handle_), "cudnnBackendCreateDescriptor");
  }
  DnnDescriptor(DnnDescriptor&& other) noexcept
      : library_(other.library_), handle_(std::exchange(other.handle_, nullptr)) {}
  DnnDescriptor& operator=(DnnDescriptor&& other) noexcept {
    std::swap(handle_, other.handle_);
    std::swap(library_, other.library_);
    return *this;
  }
  ~DnnDescriptor() {
    if (handle_ != nullptr) library_->destroy_descriptor(handle_);
  }

  cudnnBackendDescriptor_t get() const { return handle_; }

  DnnDescriptor& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                     int64_t count, const void* values) {
    check(*library_, library_->set_attribute(handle_, name, type, count, values),
          "cudnnBackendSetAttribute");
    return *this;
  }
  DnnDescriptor& set(cudnnBackendAttributeName_t name, int64_t value) {
    return set(name, CUDNN_TYPE_INT64, 1, &value);
  }
  // Sets a factor of an operation. The library reads a float, or a double if the operation computes
  // in f64, from the bytes that it is given, whatever type they are said to have.
  DnnDescriptor& set_factor(cudnnBackendAttributeName_t name, double value, bp_dtype dtype) {
    const auto narrow = static_cast<float>(value);
    return dtype == BP_F64 ? set(name, CUDNN_TYPE_DOUBLE, 1, &value)
                           : set(name, CUDNN_TYPE_FLOAT, 1, &narrow);
  }
  DnnDescriptor& set(cudnnBackendAttributeName_t name, cudnnDataType_t value) {
    return set(name, CUDNN_TYPE_DATA_TYPE, 1, &value);
  }
  DnnDescriptor& set(cudnnBackendAttributeName_t name, const DnnDescriptor& other) {
    const cudnnBackendDescriptor_t handle = other.get();
    return set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &handle);
  }
  DnnDescriptor& set(cudnnBackendAttributeName_t name, const int64_t* values, int count) {
    return set(name, CUDNN_TYPE_INT64, count, values);
  }

  void finalize() { check(*library_, library_->finalize(handle_), "cudnnBackendFinalize"); }
  // Finalizes the descriptor, and returns whether the library takes it.
  bool is_taken() {
    const cudnnStatus_t status = library_->finalize(handle_);
    if (status_of(status) == BP_UNSUPPORTED ||
        CUDNN_STATUS_CATEGORY(static_cast<int>(status)) == CUDNN_STATUS_BAD_PARAM) {
      return false;
    }
    check(*library_, status, "cudnnBackendFinalize");
    return true;
  }

 private:
  const Cudnn* library_;
  cudnnBackendDescriptor_t handle_ = nullptr;
};

namespace {

DnnDescriptor make_tensor(const Cudnn& library, const DnnProblem& p, const DnnTensor& tensor,
                          int64_t name) {
  DnnDescriptor d(library, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  d.set(CUDNN_ATTR_TENSOR_DATA_TYPE, type_of(p.dtype))
      .set(CUDNN_ATTR_TENSOR_DIMENSIONS, tensor.shape.data(), p.ndim)
      .set(CUDNN_ATTR_TENSOR_STRIDES, tensor.strides.data(), p.ndim)
      .set(CUDNN_ATTR_TENSOR_UNIQUE_ID, name)
      .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT,
           p.is_aligned ? kAlignmentBytes : size_bytes_of(p.dtype))
      .finalize();
  return d;
}

DnnDescriptor make_convolution(const Cudnn& library, const DnnProblem& p) {
  DnnDescriptor d(library, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  const int axes = p.ndim - 2;
  const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  d.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, p.dtype == BP_F64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT)
      .set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode)
      .set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, int64_t{axes})
      .set(CUDNN_ATTR_CONVOLUTION_DILATIONS, p.dilation.data(), axes)
      .set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, p.stride.data(), axes)
      .set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, p.low.data(), axes)
      .set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, p.high.data(), axes)
      .finalize();
  return d;
}

// The attributes of one direction's operation.
struct OperationNames {
  cudnnBackendDescriptorType_t type;
  cudnnBackendAttributeName_t convolution, x, weight, y, alpha, beta;
};

OperationNames names_of(DnnDirection direction) {
  switch (direction) {
    case DnnDirection::kForward:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
    case DnnDirection::kBackwardInput:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
    default:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
  }
}

// Returns the graph of one operation, as the last element behind its parts; empty if the library
// refuses it.
std::vector<DnnDescriptor> make_graph(const Cudnn& library, cudnnHandle_t handle,
                                      const DnnProblem& p) {
  const OperationNames names = names_of(p.direction);
  std::vector<DnnDescriptor> made;
  made.push_back(make_tensor(library, p, p.x, kX));
  made.push_back(make_tensor(library, p, p.weight, kWeight));
  made.push_back(make_tensor(library, p, p.y, kY));
  made.push_back(make_convolution(library, p));
  DnnDescriptor operation(library, names.type);
  operation.set(names.x, made[0])
      .set(names.weight, made[1])
      .set(names.y, made[2])
      .set(names.convolution, made[3])
      .set_factor(names.alpha, 1, p.dtype)
      .set_factor(names.beta, p.adds ? 1 : 0, p.dtype);
  if (!operation.is_taken()) return {};
  made.push_back(std::move(operation));
  DnnDescriptor graph(library, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, made.back())
      .set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
  if (!graph.is_taken()) return {};
  made.push_back(std::move(graph));
  return made;
}

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
bool is_usable(const Cudnn& library, const DnnDescriptor& config, const DnnProblem& p) {
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
    const bool rounds_inputs = note == CUDNN_NUMERICAL_NOTE_TENSOR_CORE ||
                               note == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS;
    if (rounds_inputs && p.dtype == BP_F32 && !p.allows_tf32) return false;
    if (note == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS && p.dtype != BP_F32) return false;
    if (note == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC ||
        note == CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION ||
        (note >= CUDNN_NUMERICAL_NOTE_WINOGRAD &&
         note <= CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13) ||
        note == CUDNN_NUMERICAL_NOTE_FFT) {
      return false;
    }
  }
  if (p.may_compile) return true;
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

std::shared_ptr<const DnnPlan> DnnEngine::find(const DnnProblem& problem) {
  return plans_.find(key_of(problem), [&] { return choose(problem); });
}

std::shared_ptr<const DnnPlan> DnnEngine::choose(const DnnProblem& problem) {
  const KeptSignalHandlers kept;
  const Handle handle(*this);
  std::vector<DnnDescriptor> graph = make_graph(library_, handle.get(), problem);
  if (graph.empty()) return nullptr;
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    for (DnnDescriptor& config : ask_heuristics(library_, graph.back(), mode)) {
      if (!is_usable(library_, config, problem)) continue;
      auto plan = make_plan(library_, handle.get(), graph, std::move(config));
      if (plan != nullptr) return plan;
    }
  }
  return nullptr;
}

void DnnEngine::run(const DnnPlan& plan, const DnnAddresses& at, cudaStream_t stream) {
  const int64_t names[] = {kX, kWeight, kY};
  const void* const addresses[] = {at.x, at.weight, at.y};
  DnnDescriptor pack(library_, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, names, 3)
      .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 3, addresses)
      .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &at.workspace)
      .finalize();
  const Handle handle(*this);
  check(library_, library_.set_stream(handle.get(), stream), "cudnnSetStream");
  const std::lock_guard lock(plan.mutex());
  check(library_, library_.execute(handle.get(), plan.get(), pack.get()), "cudnnBackendExecute");
}

}  // namespace bp::cuda
