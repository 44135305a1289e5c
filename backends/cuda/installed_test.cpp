// Passes the descriptions that the backend makes to the cuDNN and the cuBLASLt that are installed
// here. Neither library needs a GPU to judge a description, and cuDNN makes plans for a device that
// is only described to it. So a wrong description is found on a machine without a GPU. No work
// runs. If a library is not installed, its tests are skipped with the reason.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <array>
#include <set>
#include <string>
#include <vector>

#include "backends/cuda/cublaslt.hpp"
#include "backends/cuda/cudnn.hpp"
#include "backends/cuda/libraries.hpp"

namespace bp::cuda {
namespace {

Libraries& installed() {
  static Libraries libraries({.folders = {BACKPLANE_TEST_LIBRARIES}}, system_loader(),
                             [](bool, const std::string&) {});
  return libraries;
}

// ---- cuDNN --------------------------------------------------------------------------------------

#if CUDNN_VERSION >= 90800  // Older versions take no description of a device.

// The description of an H100 in the words of cuDNN.
constexpr char kDevice[] =
    R"({"schemaVersion":1,"cudaDeviceId":0,"deviceVer":900,"driverVer":13000,"cudnnVersion":90800,)"
    R"("totalGlobalMem":84929347584,"maxGridSize":[2147483647,65535,65535],)"
    R"("maxBlockSize":[1024,1024,64],"regsPerBlock":65536,"multiProcessorCount":132,)"
    R"("warpSize":32,"maxSharedMemoryPerBlock":49152,"maxSharedMemoryPerBlockOptin":232448,)"
    R"("reservedSharedMemoryPerBlock":1024,"maxRegistersPerSM":65536,"maxCtasPerSM":32,)"
    R"("maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,"pciDeviceId":0,"isTccDriver":0,)"
    R"("supportCoopLaunch":1,"smClockRateKHz":1980000,"memClockRateKHz":2619000,)"
    R"("l2CacheSize":52428800,"deviceName":"NVIDIA H100 80GB HBM3"})";

struct Planning {
  Cudnn library{};
  cudnnBackendDescriptor_t device = nullptr;
  std::vector<std::string> refused;  // The attributes that cuDNN refused, by their numbers.
};
Planning* planning = nullptr;

cudnnStatus_t noted(cudnnStatus_t status, const char* what, int name) {
  if (status != CUDNN_STATUS_SUCCESS) {
    planning->refused.push_back(std::string(what) + " " + std::to_string(name) + ": " +
                                planning->library.error_string(status));
  }
  return status;
}

// Passes attributes on to cuDNN. A handle would need a device, so the description of a device takes
// its place.
cudnnStatus_t set_attribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                            cudnnBackendAttributeType_t type, int64_t count, const void* values) {
  const auto set = planning->library.set_attribute;
  const auto set_device = [&](cudnnBackendAttributeName_t place) {
    return noted(set(descriptor, place, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &planning->device), "set",
                 place);
  };
  if (name == CUDNN_ATTR_OPERATIONGRAPH_HANDLE) return CUDNN_STATUS_SUCCESS;
  if (name == CUDNN_ATTR_EXECUTION_PLAN_HANDLE) {
    return set_device(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP);
  }
  if (name == CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH) {
    set_device(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP);
  }
  return noted(set(descriptor, name, type, count, values), "set", name);
}

cudnnStatus_t get_attribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                            cudnnBackendAttributeType_t type, int64_t requested, int64_t* count,
                            void* values) {
  return noted(planning->library.get_attribute(descriptor, name, type, requested, count, values),
               "get", name);
}

class InstalledCudnn : public testing::Test {
 protected:
  InstalledCudnn() { planning = &state_; }
  ~InstalledCudnn() override {
    if (state_.device != nullptr) state_.library.destroy_descriptor(state_.device);
    planning = nullptr;
  }

  void SetUp() override {
    const Cudnn* const library = installed().cudnn();
    if (library == nullptr) GTEST_SKIP() << installed().cudnn_reason();
    state_.library = *library;
    cudnnBackendDescriptor_t device = nullptr;
    ASSERT_EQ(library->create_descriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &device),
              CUDNN_STATUS_SUCCESS)
        << "cuDNN 9.8 or newer is needed";
    state_.device = device;
    ASSERT_EQ(library->set_attribute(device, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                     CUDNN_TYPE_CHAR, sizeof(kDevice), kDevice),
              CUDNN_STATUS_SUCCESS);
    ASSERT_EQ(library->finalize(device), CUDNN_STATUS_SUCCESS);
    table_ = *library;
    table_.create = [](cudnnHandle_t* out) {
      static int handle = 0;
      *out = reinterpret_cast<cudnnHandle_t>(&handle);
      return CUDNN_STATUS_SUCCESS;
    };
    table_.destroy = [](cudnnHandle_t) { return CUDNN_STATUS_SUCCESS; };
    table_.set_attribute = set_attribute;
    table_.get_attribute = get_attribute;
  }

  Planning state_;
  Cudnn table_{};
};

// Returns a dense tensor. In memory, the channels follow the batch or follow all other axes.
DnnTensor dense(const std::vector<int64_t>& shape, bool has_channels_last) {
  std::vector<size_t> order{0};  // The axes, the outermost first.
  if (!has_channels_last) order.push_back(1);
  for (size_t axis = 2; axis < shape.size(); ++axis) order.push_back(axis);
  if (has_channels_last) order.push_back(1);
  DnnTensor tensor;
  int64_t stride = 1;
  for (size_t place = order.size(); place-- > 0;) {
    tensor.shape[order[place]] = shape[order[place]];
    tensor.strides[order[place]] = stride;
    stride *= shape[order[place]];
  }
  return tensor;
}

// Returns a convolution of 16 channels into 32.
DnnProblem problem(DnnDirection direction, bp_dtype dtype, bool has_channels_last, int axes) {
  const std::vector<int64_t> spatial(static_cast<size_t>(axes), 12);
  const auto with = [&](int64_t first, int64_t second, int64_t extent) {
    std::vector<int64_t> shape{first, second};
    shape.insert(shape.end(), spatial.size(), extent);
    return dense(shape, has_channels_last);
  };
  DnnProblem p;
  p.direction = direction;
  p.dtype = dtype;
  p.ndim = axes + 2;
  p.x = with(4, 16, 12);
  p.weight = with(32, 16, 3);
  p.y = with(4, 32, 12);
  p.stride = p.dilation = p.low = p.high = {1, 1, 1};
  return p;
}

std::string text_of(const DnnProblem& p, const char* kind) {
  return std::string(kind) + ", dtype " + std::to_string(p.dtype) + ", direction " +
         std::to_string(static_cast<int>(p.direction)) + ", " + std::to_string(p.ndim) +
         " axes, channel stride " + std::to_string(p.x.strides[1]);
}

TEST_F(InstalledCudnn, PlansEveryKindOfConvolutionForAnH100) {
  DnnEngine engine(table_);
  const auto expect_plan = [&](const DnnProblem& p, const char* kind) {
    EXPECT_NE(engine.find(p), nullptr) << text_of(p, kind);
  };
  for (const DnnDirection direction :
       {DnnDirection::kForward, DnnDirection::kBackwardInput, DnnDirection::kBackwardWeight}) {
    for (const bp_dtype dtype : {BP_F32, BP_F16, BP_BF16, BP_F64}) {
      const DnnProblem plain = problem(direction, dtype, false, 2);
      expect_plan(plain, "plain");
      expect_plan(problem(direction, dtype, true, 2), "channels last");
      if (dtype != BP_F64) expect_plan(problem(direction, dtype, false, 3), "three axes");
      DnnProblem other = plain;
      other.is_aligned = false;
      expect_plan(other, "unaligned");
      other = plain;
      other.weight = dense({32, 4, 3, 3}, false);
      if (dtype != BP_F64) expect_plan(other, "four groups");
      other = plain;
      other.stride = {2, 2, 1};
      other.y = dense({4, 32, 6, 6}, false);
      expect_plan(other, "strided");
      other = plain;
      other.allows_tf32 = true;
      if (dtype == BP_F32) expect_plan(other, "TF32");
      other = plain;
      other.adds = true;
      if (direction == DnnDirection::kForward) expect_plan(other, "added to y");
    }
  }
  EXPECT_EQ(state_.refused, std::vector<std::string>{});
}

// The library finds an extent that does not fit the others. So the test above would fail if the
// backend described a convolution wrongly.
TEST_F(InstalledCudnn, RefusesAnExtentThatDoesNotFit) {
  DnnEngine engine(table_);
  DnnProblem p = problem(DnnDirection::kForward, BP_F32, false, 2);
  p.y = dense({4, 32, 11, 12}, false);
  EXPECT_EQ(engine.find(p), nullptr);
}

// If TF32 is not allowed, the chosen engine does not use tensor cores.
// NOLINTNEXTLINE(readability-function-cognitive-complexity): a list of expectations.
TEST_F(InstalledCudnn, TakesAnotherEngineWhereTf32IsAllowed) {
  DnnEngine engine(table_);
  DnnProblem p = problem(DnnDirection::kForward, BP_F32, false, 2);
  p.x = p.y = dense({8, 64, 32, 32}, false);  // At this size tensor cores are worth their cost.
  p.weight = dense({64, 64, 3, 3}, false);
  const auto notes_of_plan = [&](const DnnPlan& plan) {
    const auto get = state_.library.get_attribute;
    cudnnBackendDescriptor_t config = nullptr, engine_handle = nullptr;
    state_.library.create_descriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &config);
    state_.library.create_descriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine_handle);
    int64_t count = 0;
    EXPECT_EQ(get(plan.get(), CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                  CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &config),
              CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(get(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count,
                  &engine_handle),
              CUDNN_STATUS_SUCCESS);
    std::vector<cudnnBackendNumericalNote_t> notes(CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
    EXPECT_EQ(get(engine_handle, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                  std::ssize(notes), &count, notes.data()),
              CUDNN_STATUS_SUCCESS);
    notes.resize(static_cast<size_t>(count));
    state_.library.destroy_descriptor(engine_handle);
    state_.library.destroy_descriptor(config);
    return std::set<cudnnBackendNumericalNote_t>(notes.begin(), notes.end());
  };
  const auto exact = engine.find(p);
  p.allows_tf32 = true;
  const auto rounded = engine.find(p);
  ASSERT_NE(exact, nullptr);
  ASSERT_NE(rounded, nullptr);
  EXPECT_FALSE(notes_of_plan(*exact).contains(CUDNN_NUMERICAL_NOTE_TENSOR_CORE));
  EXPECT_TRUE(notes_of_plan(*rounded).contains(CUDNN_NUMERICAL_NOTE_TENSOR_CORE));
}

// Returns attention of 8 heads in bf16 over 1024 queries and keys of 128 elements, as tensors
// (batch, heads, rows, width) or, if `heads_inside`, (batch, rows, heads, width) have them.
DnnAttention attention(int64_t key_heads, int64_t queries, int64_t keys, bool heads_inside) {
  DnnAttention p;
  p.dtype = BP_BF16;
  p.batches = 2;
  p.heads = 8;
  p.key_heads = key_heads;
  p.queries = queries;
  p.keys = keys;
  p.width = 128;
  const auto strides = [&](int64_t heads, int64_t rows) -> std::array<int64_t, 4> {
    const int64_t all = heads * rows * p.width;
    if (heads_inside) return {all, p.width, heads * p.width, 1};
    return {all, rows * p.width, p.width, 1};
  };
  p.q = p.y = strides(p.heads, queries);
  p.k = p.v = strides(key_heads, keys);
  return p;
}

class InstalledAttention : public InstalledCudnn {
 protected:
  void SetUp() override {
    InstalledCudnn::SetUp();
    if (IsSkipped()) return;
    // cuDNN opens both libraries by their names, and takes those that the process already has.
    ASSERT_NE(dlopen(BACKPLANE_TEST_DRIVER, RTLD_NOW | RTLD_GLOBAL), nullptr) << dlerror();
    for (const char* file : {"/libnvrtc.so.13", "/libnvrtc.so.12"}) {
      const std::string path = std::string(BACKPLANE_TEST_LIBRARIES) + file;
      if (dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL) != nullptr) return;
    }
    GTEST_SKIP() << "NVRTC is not installed, by which cuDNN compiles attention";
  }
};

// cuDNN knows attention in the graph, and compiles a kernel for it. What is left out would need the
// device.
TEST_F(InstalledAttention, IsPlannedForAnH100) {
  DnnEngine engine(table_);
  ASSERT_TRUE(engine.has_attention());
  const auto expect_plan = [&](const DnnAttention& p, const char* kind) {
    const auto plan = engine.find(p);
    ASSERT_NE(plan, nullptr) << kind;
    EXPECT_LT(plan->workspace_size_bytes(), uint64_t{1} << 20) << kind;  // It stores no scores.
  };
  DnnAttention p = attention(8, 1024, 1024, false);
  expect_plan(p, "plain");
  p.dtype = BP_F16;
  p.has_lse = true;
  expect_plan(p, "f16, with lse");
  expect_plan(attention(2, 1000, 1100, true), "shared heads of keys, odd extents");
  p.is_bound_right = true;
  expect_plan(p, "causal from the top left");
  p = attention(1, 512, 2048, false);
  p.is_bound_right = p.is_bottom_right = true;
  expect_plan(p, "causal to the bottom right");
  p.is_bound_left = true;
  expect_plan(p, "causal with a window");
  p.has_right_shift = true;
  expect_plan(p, "a window to both sides");
  p.is_bound_right = p.is_bottom_right = p.has_right_shift = false;
  expect_plan(p, "a window to the left");
  EXPECT_EQ(state_.refused, std::vector<std::string>{});
}

// So the test above would fail if the backend described attention wrongly.
TEST_F(InstalledAttention, IsNotPlannedWithHeadsThatDoNotFit) {
  DnnEngine engine(table_);
  EXPECT_EQ(engine.find(attention(3, 1024, 1024, false)), nullptr);
}

#endif

// ---- cuBLASLt -----------------------------------------------------------------------------------

// What the library has understood. The test reads it back from the library's own descriptions.
struct Understood {
  int32_t transposes_a = -1, transposes_b = -1, batch = -1, bias_type = -1;
  int64_t batch_stride_a = -1, column_stride_d = -1;
  uint32_t epilogue = 0, reduction_schemes = 0, alignment_d = 0;
  uint64_t workspace = 0, rows_a = 0, cols_a = 0;
  const void* bias = nullptr;
};
Understood* understood = nullptr;

template <typename Function>
Function symbol(const char* name) {
  const LibraryLoader loader = system_loader();
  for (const char* file : {"libcublasLt.so.13", "libcublasLt.so.12"}) {
    if (void* const handle = loader.open_loaded(file); handle != nullptr) {
      return reinterpret_cast<Function>(loader.find_symbol(handle, name));
    }
  }
  return nullptr;
}

template <typename Handle, typename Name, typename T>
void read(cublasStatus_t (*get)(Handle, Name, void*, size_t, size_t*), Handle handle, Name name,
          T& out) {
  size_t written = 0;
  EXPECT_EQ(get(handle, name, &out, sizeof(out), &written), CUBLAS_STATUS_SUCCESS) << name;
  EXPECT_EQ(written, sizeof(out)) << name;
}

// NOLINTNEXTLINE(readability-function-size): the signature is the library's.
cublasStatus_t read_back(cublasLtHandle_t, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                         cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t d,
                         cublasLtMatmulPreference_t preference, int,
                         cublasLtMatmulHeuristicResult_t results[], int* count) {
  Understood& u = *understood;
  const auto of_desc = [&](cublasLtMatmulDescAttributes_t name, auto& out) {
    read(symbol<decltype(&::cublasLtMatmulDescGetAttribute)>("cublasLtMatmulDescGetAttribute"),
         desc, name, out);
  };
  const auto of_layout = [&](cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t name,
                             auto& out) {
    read(symbol<decltype(&::cublasLtMatrixLayoutGetAttribute)>("cublasLtMatrixLayoutGetAttribute"),
         layout, name, out);
  };
  const auto of_preference = [&](cublasLtMatmulPreferenceAttributes_t name, auto& out) {
    read(symbol<decltype(&::cublasLtMatmulPreferenceGetAttribute)>(
             "cublasLtMatmulPreferenceGetAttribute"),
         preference, name, out);
  };
  of_desc(CUBLASLT_MATMUL_DESC_TRANSA, u.transposes_a);
  of_desc(CUBLASLT_MATMUL_DESC_TRANSB, u.transposes_b);
  of_desc(CUBLASLT_MATMUL_DESC_EPILOGUE, u.epilogue);
  of_desc(CUBLASLT_MATMUL_DESC_BIAS_POINTER, u.bias);
  of_desc(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, u.bias_type);
  of_layout(a, CUBLASLT_MATRIX_LAYOUT_ROWS, u.rows_a);
  of_layout(a, CUBLASLT_MATRIX_LAYOUT_COLS, u.cols_a);
  of_layout(a, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, u.batch);
  of_layout(a, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, u.batch_stride_a);
  of_layout(d, CUBLASLT_MATRIX_LAYOUT_LD, u.column_stride_d);
  of_preference(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, u.workspace);
  of_preference(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, u.reduction_schemes);
  of_preference(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, u.alignment_d);
  results[0] = {};
  *count = 1;
  return CUBLAS_STATUS_SUCCESS;
}

// The test replaces the functions of the library that need a device.
// NOLINTNEXTLINE(readability-function-cognitive-complexity): a list of expectations.
TEST(InstalledCublasLt, UnderstandsEveryAttribute) {
  const CublasLt* const library = installed().cublaslt();
  if (library == nullptr) GTEST_SKIP() << installed().cublaslt_reason();
  Understood seen;
  understood = &seen;
  CublasLt table = *library;
  table.create = [](cublasLtHandle_t* out) {
    static int handle = 0;
    *out = reinterpret_cast<cublasLtHandle_t>(&handle);
    return CUBLAS_STATUS_SUCCESS;
  };
  table.destroy = [](cublasLtHandle_t) { return CUBLAS_STATUS_SUCCESS; };
  table.get_heuristic = read_back;
  LtEngine engine(table);
  LtProblem p;
  p.input = BP_F16;
  p.output = BP_F32;
  p.has_bias = p.transposes_a = true;
  p.is_aligned = false;
  p.batch = 5;
  p.a = {24, 40, 32, 2000};
  p.b = {24, 16, 24, 0};
  p.d = {40, 16, 48, 1000};
  ASSERT_NE(engine.find(p), nullptr);
  EXPECT_EQ(seen.transposes_a, CUBLAS_OP_T);
  EXPECT_EQ(seen.transposes_b, CUBLAS_OP_N);
  EXPECT_EQ(seen.epilogue, uint32_t{CUBLASLT_EPILOGUE_BIAS});
  EXPECT_EQ(seen.bias_type, CUDA_R_32F);
  EXPECT_NE(seen.bias, nullptr);
  EXPECT_EQ(seen.rows_a, 24u);
  EXPECT_EQ(seen.cols_a, 40u);
  EXPECT_EQ(seen.batch, 5);
  EXPECT_EQ(seen.batch_stride_a, 2000);
  EXPECT_EQ(seen.column_stride_d, 48);
  EXPECT_EQ(seen.workspace, uint64_t{32} << 20);
  EXPECT_EQ(seen.reduction_schemes, uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  EXPECT_EQ(seen.alignment_d, 4u);
  understood = nullptr;
}

}  // namespace
}  // namespace bp::cuda
