#include "backends/cuda/fake/cudnn.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <stdexcept>

#include "backends/cuda/fake/cudnn_convolution.hpp"
#include "backends/cuda/fake/cudnn_descriptor.hpp"
#include "backends/cuda/fake/cudnn_graph.hpp"
#include "backends/cuda/fake/floats.hpp"
#include "backends/cuda/fake/state.hpp"

namespace bp::cuda::fake {
namespace {

// The size of a workspace. It is not a multiple of an alignment, so that a caller who rounds it is
// found.
constexpr int64_t kWorkspaceBytes = 1000;

// ---- Descriptors --------------------------------------------------------------------------------

// What a handle points to. It shares its descriptor with the descriptors that were made from it, as
// the library counts references too.
struct Holder {
  std::shared_ptr<Descriptor> descriptor;
};

std::shared_ptr<Descriptor>& known(cudnnBackendDescriptor_t handle) {
  return static_cast<Holder*>(handle)->descriptor;
}

struct FakeHandle {
  cudaStream_t stream = nullptr;
};

cudnnStatus_t set_attribute(cudnnBackendDescriptor_t handle, cudnnBackendAttributeName_t name,
                            cudnnBackendAttributeType_t type, int64_t count, const void* values) {
  Descriptor& d = *known(handle);
  if (d.is_final || count < 1 || values == nullptr) return CUDNN_STATUS_BAD_PARAM;
  const auto read = [&]<typename T>(T) {
    std::vector<int64_t>& words = d.words[name];
    words.clear();
    for (int64_t i = 0; i < count; ++i) words.push_back(static_cast<const T*>(values)[i]);
  };
  switch (type) {
    case CUDNN_TYPE_INT64:
      read(int64_t{});
      return CUDNN_STATUS_SUCCESS;
    case CUDNN_TYPE_DATA_TYPE:
      read(cudnnDataType_t{});
      return CUDNN_STATUS_SUCCESS;
    case CUDNN_TYPE_CONVOLUTION_MODE:
      read(cudnnConvolutionMode_t{});
      return CUDNN_STATUS_SUCCESS;
    case CUDNN_TYPE_HEUR_MODE:
      read(cudnnBackendHeurMode_t{});
      return CUDNN_STATUS_SUCCESS;
    case CUDNN_TYPE_BOOLEAN:
      read(bool{});
      return CUDNN_STATUS_SUCCESS;
    case CUDNN_TYPE_POINTWISE_MODE:
      read(cudnnPointwiseMode_t{});
      return CUDNN_STATUS_SUCCESS;
    case CUDNN_TYPE_REDUCTION_OPERATOR_TYPE:
      read(cudnnReduceTensorOp_t{});
      return CUDNN_STATUS_SUCCESS;
    case CUDNN_TYPE_FLOAT:
      std::memcpy(d.factors[name].data(), values, sizeof(float));
      return CUDNN_STATUS_SUCCESS;
    case CUDNN_TYPE_DOUBLE:
      std::memcpy(d.factors[name].data(), values, sizeof(double));
      return CUDNN_STATUS_SUCCESS;
    case CUDNN_TYPE_HANDLE:
      return CUDNN_STATUS_SUCCESS;
    case CUDNN_TYPE_VOID_PTR:
      d.pointers[name].assign(static_cast<void* const*>(values),
                              static_cast<void* const*>(values) + count);
      return CUDNN_STATUS_SUCCESS;
    case CUDNN_TYPE_BACKEND_DESCRIPTOR: {
      auto& parts = d.parts[name];
      parts.clear();
      for (int64_t i = 0; i < count; ++i) {
        const auto& part = known(static_cast<const cudnnBackendDescriptor_t*>(values)[i]);
        // An engine config is finalized when the heuristics return it.
        if (!part->is_final) return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
        parts.push_back(part);
      }
      return CUDNN_STATUS_SUCCESS;
    }
    default:
      return CUDNN_STATUS_BAD_PARAM;
  }
}

cudnnStatus_t give_configs(const Descriptor& heuristics, int64_t requested, int64_t* count,
                           void* values) {
  constexpr Engine kEngines[] = {Engine::kTensorCores, Engine::kPlain};
  *count = std::ssize(kEngines);
  for (int64_t i = 0; i < std::min(requested, *count); ++i) {
    Descriptor& config = *known(static_cast<cudnnBackendDescriptor_t*>(values)[i]);
    config.engine = kEngines[i];
    config.parts = heuristics.parts;
    config.is_final = true;
  }
  *count = requested == 0 ? *count : std::min(requested, *count);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t get_attribute(cudnnBackendDescriptor_t handle, cudnnBackendAttributeName_t name,
                            cudnnBackendAttributeType_t, int64_t requested, int64_t* count,
                            void* values) {
  const Descriptor& d = *known(handle);
  if (!d.is_final) return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
  switch (name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS:
      return give_configs(d, requested, count, values);
    case CUDNN_ATTR_ENGINECFG_ENGINE: {
      Descriptor& engine = *known(*static_cast<cudnnBackendDescriptor_t*>(values));
      engine.engine = d.engine;
      engine.is_final = true;
      return CUDNN_STATUS_SUCCESS;
    }
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
      *count = d.engine == Engine::kTensorCores ? 1 : 0;
      if (*count == 1) {
        *static_cast<cudnnBackendNumericalNote_t*>(values) = CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
      }
      return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE:
      *count = 0;
      return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
      *count = 1;
      *static_cast<int64_t*>(values) = kWorkspaceBytes;
      return CUDNN_STATUS_SUCCESS;
    default:
      return CUDNN_STATUS_BAD_PARAM;
  }
}

// ---- Operations ---------------------------------------------------------------------------------

Extents extents(const std::vector<int64_t>& values) {
  Extents result{};
  std::copy(values.begin(), values.end(), result.begin());
  return result;
}

Tensor tensor_of(const Descriptor& d) {
  return {.name = d.word(CUDNN_ATTR_TENSOR_UNIQUE_ID),
          .alignment = d.word(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT),
          .type = type_of(d.word(CUDNN_ATTR_TENSOR_DATA_TYPE)),
          .shape = extents(d.words.at(CUDNN_ATTR_TENSOR_DIMENSIONS)),
          .strides = extents(d.words.at(CUDNN_ATTR_TENSOR_STRIDES)),
          .ndim = d.words.at(CUDNN_ATTR_TENSOR_DIMENSIONS).size()};
}

// The names of the attributes of an operation, which differ for each direction.
struct Names {
  int convolution, x, weight, y, alpha, beta;
};

Names names_of(cudnnBackendDescriptorType_t type) {
  switch (type) {
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
      return {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
      return {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
    default:
      return {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
  }
}

bool is_operation(const Descriptor& d) {
  return d.type == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR ||
         d.type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR ||
         d.type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR;
}

// The library reads a factor as a float, or as a double if the operation computes in f64, whatever
// type its bytes were said to have. Seen with cuDNN 9 on an H200.
double factor_of(const Descriptor& operation, int name, cudaDataType_t type) {
  const auto& bytes = operation.factors.at(name);
  if (type == CUDA_R_64F) return std::bit_cast<double>(bytes);
  float factor = 0;
  std::memcpy(&factor, bytes.data(), sizeof(factor));
  return factor;
}

Convolution convolution_of(const Descriptor& operation) {
  const Names names = names_of(operation.type);
  const Descriptor& how = operation.part(names.convolution);
  Convolution c{.type = operation.type,
                .x = tensor_of(operation.part(names.x)),
                .weight = tensor_of(operation.part(names.weight)),
                .y = tensor_of(operation.part(names.y))};
  c.stride = extents(how.words.at(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES));
  c.dilation = extents(how.words.at(CUDNN_ATTR_CONVOLUTION_DILATIONS));
  c.low = extents(how.words.at(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS));
  c.high = extents(how.words.at(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS));
  c.alpha = factor_of(operation, names.alpha, c.x.type);
  c.beta = factor_of(operation, names.beta, c.x.type);
  return c;
}

cudnnStatus_t finalize_operation(const Descriptor& d) {
  const Descriptor& how = d.part(names_of(d.type).convolution);
  if (how.word(CUDNN_ATTR_CONVOLUTION_CONV_MODE) != CUDNN_CROSS_CORRELATION) {
    return CUDNN_STATUS_NOT_SUPPORTED;  // The backend never asks for another mode.
  }
  const Convolution c = convolution_of(d);
  const bool is_wide = how.word(CUDNN_ATTR_CONVOLUTION_COMP_TYPE) ==
                       (c.x.type == CUDA_R_64F ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT);
  const bool has_axes =
      how.word(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS) == static_cast<int64_t>(c.axes());
  if (c.axes() < 2) return CUDNN_STATUS_NOT_SUPPORTED;
  return is_wide && has_axes && fits(c) ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
}

// If an attribute is missing, at() throws std::out_of_range.
cudnnStatus_t finalize(cudnnBackendDescriptor_t handle) try {
  Descriptor& d = *known(handle);
  cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
  if (d.type == CUDNN_BACKEND_TENSOR_DESCRIPTOR) {
    const Tensor t = tensor_of(d);
    const auto item = static_cast<int64_t>(item_bytes(t.type));
    if (t.alignment % item != 0) status = CUDNN_STATUS_BAD_PARAM;
  } else if (is_operation(d)) {
    status = finalize_operation(d);
  } else if (d.type == CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR) {
    const auto& operations = d.parts.at(CUDNN_ATTR_OPERATIONGRAPH_OPS);
    const bool is_graph = is_graph_operation(operations.at(0)->type);
    if (is_graph && !fits(graph_of(operations))) status = CUDNN_STATUS_BAD_PARAM;
  } else if (d.type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
    static_cast<void>(d.part(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG));
  }
  d.is_final = status == CUDNN_STATUS_SUCCESS;
  return status;
} catch (const std::out_of_range&) {
  return CUDNN_STATUS_BAD_PARAM;
}

// ---- Execution ----------------------------------------------------------------------------------

// Returns the pointer of a pack for a tensor. Returns NULL if it is missing or breaks the promised
// alignment.
std::byte* address(const Descriptor& pack, int64_t name, int64_t alignment) {
  const std::vector<int64_t>& names = pack.words.at(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto found = std::ranges::find(names, name);
  if (found == names.end()) return nullptr;
  void* const pointer = pack.pointers.at(
      CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS)[static_cast<size_t>(found - names.begin())];
  const bool is_aligned =
      reinterpret_cast<uintptr_t>(pointer) % static_cast<uintptr_t>(alignment) == 0;
  return is_aligned ? static_cast<std::byte*>(pointer) : nullptr;
}

std::byte* address(const Descriptor& pack, const Tensor& t) {
  return address(pack, t.name, t.alignment);
}

cudnnStatus_t refuse_run() {
  state().break_rule("cudnnBackendExecute was not given what its plan was promised");
  return CUDNN_STATUS_BAD_PARAM;
}

// Submits the work of a plan, which may overwrite the whole workspace, as the library may.
template <typename Work>
cudnnStatus_t submit(cudnnHandle_t handle, const Descriptor& pack, const Work& work) {
  void* const workspace = pack.pointers.at(CUDNN_ATTR_VARIANT_PACK_WORKSPACE)[0];
  if (workspace == nullptr) return refuse_run();
  static const int function = 0;  // Its address stands for the function of the device.
  const cudaError_t error =
      state().submit(reinterpret_cast<FakeHandle*>(handle)->stream, &function, [workspace, work] {
        std::memset(workspace, 0xFF, kWorkspaceBytes);
        work();
      });
  return error == cudaSuccess ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_EXECUTION_FAILED;
}

template <bool kIsBroken>
cudnnStatus_t execute_graph(cudnnHandle_t handle, const Graph& graph, const Descriptor& pack) {
  std::map<int64_t, std::byte*> memory;
  std::map<int64_t, double> numbers;  // They are read now, as the library does.
  for (const auto& [id, tensor] : graph.tensors) {
    if (tensor.is_virtual) continue;
    std::byte* const at = address(pack, id, tensor.is_number ? 1 : tensor.alignment);
    if (at == nullptr) return refuse_run();
    if (!tensor.is_number) {
      memory[id] = at;
    } else if (tensor.type == CUDA_R_32I) {
      int32_t number = 0;
      std::memcpy(&number, at, sizeof(number));
      numbers[id] = number;
    } else {
      numbers[id] = load(at, tensor.type, 0);
    }
  }
  return submit(handle, pack,
                [graph, memory, numbers] { compute(graph, memory, numbers, kIsBroken); });
}

template <bool kIsBroken>
cudnnStatus_t execute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan_handle,
                      cudnnBackendDescriptor_t pack_handle) {
  const Descriptor &plan = *known(plan_handle), &pack = *known(pack_handle);
  const Descriptor& config = plan.part(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
  const auto& operations =
      config.part(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH).parts.at(CUDNN_ATTR_OPERATIONGRAPH_OPS);
  if (is_graph_operation(operations[0]->type)) {
    return execute_graph<kIsBroken>(handle, graph_of(operations), pack);
  }
  Convolution c = convolution_of(*operations[0]);
  c.rounds = config.engine == Engine::kTensorCores && c.x.type == CUDA_R_32F;
  const At at{address(pack, c.x), address(pack, c.weight), address(pack, c.y)};
  if (at.x == nullptr || at.weight == nullptr || at.y == nullptr) return refuse_run();
  return submit(handle, pack, [c, at] { compute(c, at, kIsBroken); });
}

}  // namespace

Cudnn cudnn() {
  Cudnn t{};
  t.create = [](cudnnHandle_t* out) {
    *out = reinterpret_cast<cudnnHandle_t>(new FakeHandle());
    return CUDNN_STATUS_SUCCESS;
  };
  t.destroy = [](cudnnHandle_t handle) {
    delete reinterpret_cast<FakeHandle*>(handle);
    return CUDNN_STATUS_SUCCESS;
  };
  t.set_stream = [](cudnnHandle_t handle, cudaStream_t stream) {
    reinterpret_cast<FakeHandle*>(handle)->stream = stream;
    return CUDNN_STATUS_SUCCESS;
  };
  t.error_string = [](cudnnStatus_t) -> const char* { return "CUDNN_STATUS_OF_THE_TEST"; };
  t.version = []() -> size_t { return CUDNN_VERSION; };
  t.create_descriptor = [](cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* out) {
    *out = new Holder{std::make_shared<Descriptor>(Descriptor{.type = type})};
    return CUDNN_STATUS_SUCCESS;
  };
  t.destroy_descriptor = [](cudnnBackendDescriptor_t handle) {
    delete static_cast<Holder*>(handle);
    return CUDNN_STATUS_SUCCESS;
  };
  t.set_attribute = set_attribute;
  t.get_attribute = get_attribute;
  t.finalize = finalize;
  t.execute = execute<false>;
  return t;
}

Cudnn broken_cudnn() {
  Cudnn t = cudnn();
  t.execute = execute<true>;
  return t;
}

}  // namespace bp::cuda::fake
