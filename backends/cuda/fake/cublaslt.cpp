#include "backends/cuda/fake/cublaslt.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <vector>

#include "backends/cuda/fake/floats.hpp"
#include "backends/cuda/fake/state.hpp"

namespace bp::cuda::fake {
namespace {

// The size of a workspace. It is not a multiple of an alignment, so that a caller who rounds it is
// found.
constexpr uint64_t kWorkspaceBytes = 1000;
constexpr uint64_t kWorkspaceAlignment = 256;

struct Layout {
  cudaDataType_t type;
  uint64_t rows, cols;
  int64_t leading;
  int32_t batch = 1;
  int64_t batch_stride = 0;
};

struct Desc {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  int32_t transposes_a = CUBLAS_OP_N, transposes_b = CUBLAS_OP_N;
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  int32_t bias_type = -1;
  const void* bias = nullptr;
};

struct Preference {
  uint64_t workspace_bytes = 0;
  uint32_t reduction_schemes = CUBLASLT_REDUCTION_SCHEME_MASK;
  // By default the library expects the alignment of cudaMalloc().
  uint32_t alignment_a = 256, alignment_b = 256, alignment_c = 256, alignment_d = 256;
};

template <typename T, typename Handle>
T& known(Handle handle) {
  return *reinterpret_cast<T*>(handle);
}

template <typename T, typename Handle>
cublasStatus_t make(Handle* out, const T& value) {
  *out = reinterpret_cast<Handle>(new T(value));
  return CUBLAS_STATUS_SUCCESS;
}

template <typename T, typename Handle>
cublasStatus_t end(Handle handle) {
  delete &known<T>(handle);
  return CUBLAS_STATUS_SUCCESS;
}

// Reads an attribute. If its size is wrong, the caller passed a value of another type.
template <typename T>
cublasStatus_t read(T& out, const void* value, size_t size_bytes) {
  if (value == nullptr || size_bytes != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&out, value, sizeof(T));
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t set_layout(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t name,
                          const void* value, size_t size_bytes) {
  Layout& l = known<Layout>(layout);
  switch (name) {
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      return read(l.batch, value, size_bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return read(l.batch_stride, value, size_bytes);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}

cublasStatus_t set_desc(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t name,
                        const void* value, size_t size_bytes) {
  Desc& d = known<Desc>(desc);
  switch (name) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return read(d.transposes_a, value, size_bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return read(d.transposes_b, value, size_bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return read(d.epilogue, value, size_bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return read(d.bias, value, size_bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      return read(d.bias_type, value, size_bytes);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}

cublasStatus_t set_preference(cublasLtMatmulPreference_t preference,
                              cublasLtMatmulPreferenceAttributes_t name, const void* value,
                              size_t size_bytes) {
  Preference& p = known<Preference>(preference);
  switch (name) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return read(p.workspace_bytes, value, size_bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return read(p.reduction_schemes, value, size_bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      return read(p.alignment_a, value, size_bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      return read(p.alignment_b, value, size_bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      return read(p.alignment_c, value, size_bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return read(p.alignment_d, value, size_bytes);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}

// ---- Heuristics ---------------------------------------------------------------------------------

// Returns whether the manual lists this combination of types, among those that this backend uses.
bool has_types(const Desc& d, const Layout& a, const Layout& b, const Layout& c, const Layout& y) {
  if (a.type != b.type || c.type != y.type) return false;
  const bool has_bias = d.epilogue != CUBLASLT_EPILOGUE_DEFAULT;
  if (d.compute == CUBLAS_COMPUTE_64F) {
    return a.type == CUDA_R_64F && y.type == CUDA_R_64F && d.scale == CUDA_R_64F && !has_bias;
  }
  const bool is_f32 = a.type == CUDA_R_32F;
  if (d.scale != CUDA_R_32F || (has_bias && d.bias_type != y.type)) return false;
  if (d.compute == CUBLAS_COMPUTE_32F_FAST_TF32) return is_f32 && y.type == CUDA_R_32F;
  if (d.compute != CUBLAS_COMPUTE_32F) return false;
  if (is_f32) return y.type == CUDA_R_32F;
  return (a.type == CUDA_R_16F || a.type == CUDA_R_16BF) &&
         (y.type == a.type || y.type == CUDA_R_32F);
}

bool fits(const Layout& l, int32_t batch) {
  return l.leading >= static_cast<int64_t>(l.rows) && l.batch == batch && l.rows > 0 && l.cols > 0;
}

bool has_extents(const Desc& d, const Layout& a, const Layout& b, const Layout& y) {
  const bool is_a_turned = d.transposes_a == CUBLAS_OP_T,
             is_b_turned = d.transposes_b == CUBLAS_OP_T;
  const uint64_t depth = is_a_turned ? a.rows : a.cols;
  return (is_a_turned ? a.cols : a.rows) == y.rows && (is_b_turned ? b.rows : b.cols) == y.cols &&
         (is_b_turned ? b.cols : b.rows) == depth && depth > 0;
}

// What the caller promised to the heuristics. matmul() checks that the caller keeps it.
struct Promise {
  uint64_t alignment_a, alignment_b, alignment_c, alignment_d, workspace_bytes;
};

// NOLINTNEXTLINE(readability-function-size): the signature is the library's.
cublasStatus_t get_heuristic(cublasLtHandle_t, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                             cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                             cublasLtMatrixLayout_t y, cublasLtMatmulPreference_t preference,
                             int requested, cublasLtMatmulHeuristicResult_t results[], int* count) {
  const Desc& d = known<Desc>(desc);
  const Layout &la = known<Layout>(a), &lb = known<Layout>(b), &lc = known<Layout>(c),
               &ly = known<Layout>(y);
  const Preference& p = known<Preference>(preference);
  *count = 0;
  if (requested < 1) return CUBLAS_STATUS_INVALID_VALUE;
  for (const Layout* l : {&la, &lb, &lc, &ly}) {
    if (!fits(*l, ly.batch)) return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (!has_extents(d, la, lb, ly)) return CUBLAS_STATUS_INVALID_VALUE;
  if (!has_types(d, la, lb, lc, ly)) return CUBLAS_STATUS_NOT_SUPPORTED;
  results[0] = {};
  const Promise promise{p.alignment_a, p.alignment_b, p.alignment_c, p.alignment_d,
                        std::min(p.workspace_bytes, kWorkspaceBytes)};
  static_assert(sizeof(promise) <= sizeof(results[0].algo.data));
  std::memcpy(results[0].algo.data, &promise, sizeof(promise));
  results[0].workspaceSize = promise.workspace_bytes;
  results[0].state = CUBLAS_STATUS_SUCCESS;
  *count = 1;
  return CUBLAS_STATUS_SUCCESS;
}

// ---- Products -----------------------------------------------------------------------------------

// A product. It keeps copies of the descriptions, because the work runs later.
struct Product {
  Desc desc;
  Layout a, b, c, y;
  double alpha, beta;
  const std::byte *at_a, *at_b, *at_c;
  std::byte* at_y;
};

// Returns a factor of product number `batch` as a dense matrix in row-major order.
std::vector<double> gathered(const std::byte* begin, const Layout& l, int64_t batch, bool is_turned,
                             bool is_rounded) {
  const auto rows = static_cast<int64_t>(is_turned ? l.cols : l.rows),
             cols = static_cast<int64_t>(is_turned ? l.rows : l.cols);
  std::vector<double> values(static_cast<size_t>(rows * cols));
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t k = 0; k < cols; ++k) {
      const int64_t at = is_turned ? k + i * l.leading : i + k * l.leading;
      const double value = load(begin, l.type, at + batch * l.batch_stride);
      values[static_cast<size_t>(i * cols + k)] = is_rounded ? as_tf32(value) : value;
    }
  }
  return values;
}

void compute(const Product& p, int64_t batch) {
  const bool is_rounded = p.desc.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  const std::vector<double> a = gathered(p.at_a, p.a, batch, p.desc.transposes_a == CUBLAS_OP_T,
                                         is_rounded),
                            b = gathered(p.at_b, p.b, batch, p.desc.transposes_b != CUBLAS_OP_T,
                                         is_rounded);
  const auto rows = static_cast<int64_t>(p.y.rows), cols = static_cast<int64_t>(p.y.cols);
  const auto depth = static_cast<int64_t>(a.size()) / rows;
  for (int64_t j = 0; j < cols; ++j) {
    for (int64_t i = 0; i < rows; ++i) {
      double sum = 0;
      for (int64_t k = 0; k < depth; ++k) {
        // `b` was gathered with its columns as rows.
        sum += a[static_cast<size_t>(i * depth + k)] * b[static_cast<size_t>(j * depth + k)];
      }
      sum *= p.alpha;
      if (p.beta != 0) {
        sum += p.beta * load(p.at_c, p.c.type, i + j * p.c.leading + batch * p.c.batch_stride);
      }
      if (p.desc.epilogue == CUBLASLT_EPILOGUE_BIAS) {
        sum += load(static_cast<const std::byte*>(p.desc.bias),
                    static_cast<cudaDataType_t>(p.desc.bias_type), i);
      }
      store(p.at_y, p.y.type, i + j * p.y.leading + batch * p.y.batch_stride, sum);
    }
  }
}

bool is_at_multiple(const void* address, const Layout& l, uint64_t alignment) {
  const auto item = item_bytes(l.type);
  const bool is_batched = l.batch > 1;
  return reinterpret_cast<uintptr_t>(address) % alignment == 0 &&
         (!is_batched || static_cast<uint64_t>(l.batch_stride) * item % alignment == 0);
}

double factor(const void* value, cudaDataType_t type) {
  return load(static_cast<const std::byte*>(value), type, 0);
}

template <bool kIsBroken>
// NOLINTNEXTLINE(readability-function-size): the signature is the library's.
cublasStatus_t matmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void* alpha,
                      const void* at_a, cublasLtMatrixLayout_t a, const void* at_b,
                      cublasLtMatrixLayout_t b, const void* beta, const void* at_c,
                      cublasLtMatrixLayout_t c, void* at_y, cublasLtMatrixLayout_t y,
                      const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                      size_t workspace_bytes, cudaStream_t stream) {
  Product p{known<Desc>(desc),
            known<Layout>(a),
            known<Layout>(b),
            known<Layout>(c),
            known<Layout>(y),
            0,
            0,
            static_cast<const std::byte*>(at_a),
            static_cast<const std::byte*>(at_b),
            static_cast<const std::byte*>(at_c),
            static_cast<std::byte*>(at_y)};
  if constexpr (kIsBroken) p.a.leading = static_cast<int64_t>(std::min(p.a.rows, p.a.cols));
  p.alpha = factor(alpha, p.desc.scale);
  p.beta = factor(beta, p.desc.scale);
  Promise promise{};
  std::memcpy(&promise, algorithm->data, sizeof(promise));
  const bool is_aligned = is_at_multiple(at_a, p.a, promise.alignment_a) &&
                          is_at_multiple(at_b, p.b, promise.alignment_b) &&
                          is_at_multiple(at_c, p.c, promise.alignment_c) &&
                          is_at_multiple(at_y, p.y, promise.alignment_d);
  const bool has_workspace = workspace != nullptr && workspace_bytes >= promise.workspace_bytes &&
                             reinterpret_cast<uintptr_t>(workspace) % kWorkspaceAlignment == 0;
  if (!is_aligned || !has_workspace) {
    state().break_rule("cublasLtMatmul was not given what its heuristics were promised");
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const cudaError_t error =
      state().submit(stream, reinterpret_cast<const void*>(&compute), [p, workspace, promise] {
        // The library may overwrite the whole workspace.
        std::memset(workspace, 0xFF, promise.workspace_bytes);
        for (int64_t i = 0; i < p.y.batch; ++i) compute(p, i);
      });
  return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // namespace

CublasLt cublaslt() {
  CublasLt t{};
  t.create = [](cublasLtHandle_t* out) { return make(out, int{}); };
  t.destroy = end<int, cublasLtHandle_t>;
  t.matmul = matmul<false>;
  t.get_heuristic = get_heuristic;
  t.desc_create = [](cublasLtMatmulDesc_t* out, cublasComputeType_t compute, cudaDataType_t scale) {
    return make(out, Desc{.compute = compute, .scale = scale});
  };
  t.desc_destroy = end<Desc, cublasLtMatmulDesc_t>;
  t.desc_set = set_desc;
  t.layout_create = [](cublasLtMatrixLayout_t* out, cudaDataType type, uint64_t rows, uint64_t cols,
                       int64_t leading) {
    return make(out, Layout{type, rows, cols, leading});
  };
  t.layout_destroy = end<Layout, cublasLtMatrixLayout_t>;
  t.layout_set = set_layout;
  t.preference_create = [](cublasLtMatmulPreference_t* out) { return make(out, Preference{}); };
  t.preference_destroy = end<Preference, cublasLtMatmulPreference_t>;
  t.preference_set = set_preference;
  t.status_name = [](cublasStatus_t) -> const char* { return "CUBLAS_STATUS_OF_THE_TEST"; };
  return t;
}

CublasLt broken_cublaslt() {
  CublasLt t = cublaslt();
  t.matmul = matmul<true>;
  return t;
}

}  // namespace bp::cuda::fake
