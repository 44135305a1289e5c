#include "backends/cuda/cublaslt.hpp"

#include <array>
#include <string>

namespace bp::cuda {
namespace {

// The size that the library's documentation recommends for Hopper. Smaller chips have a smaller
// choice.
constexpr uint64_t kMostWorkspaceBytes = uint64_t{32} << 20;
constexpr size_t kPlanCapacity = 1024;
constexpr uint32_t kAlignmentBytes = 16;

struct Type {
  cudaDataType_t data;
  uint32_t size_bytes;
};

Type type_of(bp_dtype dtype) {
  switch (dtype) {
    case BP_F16:
      return {CUDA_R_16F, 2};
    case BP_BF16:
      return {CUDA_R_16BF, 2};
    case BP_F32:
      return {CUDA_R_32F, 4};
    case BP_F64:
      return {CUDA_R_64F, 8};
    default:
      throw StatusError(BP_UNSUPPORTED, "cuBLASLt is not asked for dtype " + std::to_string(dtype));
  }
}

cublasComputeType_t compute_type(const LtProblem& p) {
  if (p.input == BP_F64) return CUBLAS_COMPUTE_64F;
  return p.allows_tf32 && p.input == BP_F32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

cudaDataType_t scale_type(const LtProblem& p) {
  return p.input == BP_F64 ? CUDA_R_64F : CUDA_R_32F;
}

// Owns one description of the library.
template <typename Handle>
class Owned {
 public:
  using Destroy = cublasStatus_t (*)(Handle);

  explicit Owned(Destroy destroy) : destroy_(destroy) {}
  ~Owned() {
    if (handle_ != nullptr) destroy_(handle_);
  }
  Owned(const Owned&) = delete;

  Handle* out() { return &handle_; }
  Handle get() const { return handle_; }

 private:
  Handle handle_ = nullptr;
  const Destroy destroy_;
};

class Layout {
 public:
  Layout(const CublasLt& lt, const LtMatrix& m, bp_dtype dtype, int64_t batch)
      : layout_(lt.layout_destroy) {
    check(lt,
          lt.layout_create(layout_.out(), type_of(dtype).data, static_cast<uint64_t>(m.rows),
                           static_cast<uint64_t>(m.cols), m.column_stride),
          "cublasLtMatrixLayoutCreate");
    if (batch == 1) return;
    set(lt, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<int32_t>(batch));
    set(lt, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, m.batch_stride);
  }
  cublasLtMatrixLayout_t get() const { return layout_.get(); }

 private:
  template <typename T>
  void set(const CublasLt& lt, cublasLtMatrixLayoutAttribute_t attribute, const T& value) {
    check(lt, lt.layout_set(layout_.get(), attribute, &value, sizeof(value)),
          "cublasLtMatrixLayoutSetAttribute");
  }
  Owned<cublasLtMatrixLayout_t> layout_;
};

// The description of a product and its matrices. It contains the address of the bias, so each call
// makes its own, which takes a fraction of a microsecond.
class Description {
 public:
  Description(const CublasLt& lt, const LtProblem& p, const void* bias)
      : a(lt, p.a, p.input, p.batch),
        b(lt, p.b, p.input, p.batch),
        d(lt, p.d, p.output, p.batch),
        lt_(lt),
        desc_(lt.desc_destroy) {
    check(lt, lt.desc_create(desc_.out(), compute_type(p), scale_type(p)),
          "cublasLtMatmulDescCreate");
    if (p.transposes_a) set(CUBLASLT_MATMUL_DESC_TRANSA, int32_t{CUBLAS_OP_T});
    if (p.transposes_b) set(CUBLASLT_MATMUL_DESC_TRANSB, int32_t{CUBLAS_OP_T});
    if (!p.has_bias) return;
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, uint32_t{CUBLASLT_EPILOGUE_BIAS});
    set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, static_cast<int32_t>(type_of(p.output).data));
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  }
  cublasLtMatmulDesc_t get() const { return desc_.get(); }

  const Layout a, b, d;

 private:
  template <typename T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    check(lt_, lt_.desc_set(desc_.get(), attribute, &value, sizeof(value)),
          "cublasLtMatmulDescSetAttribute");
  }
  const CublasLt& lt_;
  Owned<cublasLtMatmulDesc_t> desc_;
};

class Preference {
 public:
  Preference(const CublasLt& lt, const LtProblem& p) : lt_(lt), preference_(lt.preference_destroy) {
    check(lt, lt.preference_create(preference_.out()), "cublasLtMatmulPreferenceCreate");
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kMostWorkspaceBytes);
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
        uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
    const uint32_t input = p.is_aligned ? kAlignmentBytes : type_of(p.input).size_bytes;
    const uint32_t output = p.is_aligned ? kAlignmentBytes : type_of(p.output).size_bytes;
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, input);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, input);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, output);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, output);
  }
  cublasLtMatmulPreference_t get() const { return preference_.get(); }

 private:
  template <typename T>
  void set(cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
    check(lt_, lt_.preference_set(preference_.get(), attribute, &value, sizeof(value)),
          "cublasLtMatmulPreferenceSetAttribute");
  }
  const CublasLt& lt_;
  Owned<cublasLtMatmulPreference_t> preference_;
};

void add(PlanKey& key, const LtMatrix& m) {
  key.add(m.rows);
  key.add(m.cols);
  key.add(m.column_stride);
  key.add(m.batch_stride);
}

PlanKey key_of(const LtProblem& p) {
  PlanKey key;
  const int64_t bits = int64_t{p.allows_tf32} | int64_t{p.has_bias} << 1 |
                       int64_t{p.transposes_a} << 2 | int64_t{p.transposes_b} << 3 |
                       int64_t{p.is_aligned} << 4;
  key.add(bits | static_cast<int64_t>(p.input) << 8 | static_cast<int64_t>(p.output) << 16);
  key.add(p.batch);
  add(key, p.a);
  add(key, p.b);
  add(key, p.d);
  return key;
}

}  // namespace

bool is_lt_type(bp_dtype input, bp_dtype output) {
  const bool is_narrow = input == BP_F16 || input == BP_BF16;
  return (input == output && (is_narrow || input == BP_F32 || input == BP_F64)) ||
         (is_narrow && output == BP_F32);
}

LtEngine::LtEngine(const CublasLt& library) : library_(library), plans_(kPlanCapacity) {
  check(library_, library_.create(&handle_), "cublasLtCreate");
}

LtEngine::~LtEngine() { library_.destroy(handle_); }

std::shared_ptr<const LtPlan> LtEngine::find(const LtProblem& problem) {
  return plans_.find(key_of(problem), [&] { return choose(problem); });
}

std::shared_ptr<const LtPlan> LtEngine::choose(const LtProblem& problem) const {
  // The choice depends on whether there is a bias, but not on its address.
  alignas(kAlignmentBytes) static const std::array<std::byte, kAlignmentBytes> somewhere{};
  const Description description(library_, problem, somewhere.data());
  const Preference preference(library_, problem);
  cublasLtMatmulHeuristicResult_t result{};
  int count = 0;
  const cublasStatus_t status = library_.get_heuristic(
      handle_, description.get(), description.a.get(), description.b.get(), description.d.get(),
      description.d.get(), preference.get(), 1, &result, &count);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) {
    return nullptr;  // The library has its own rules for strides.
  }
  check(library_, status, "cublasLtMatmulAlgoGetHeuristic");
  if (count == 0 || result.state != CUBLAS_STATUS_SUCCESS) return nullptr;
  return std::make_shared<const LtPlan>(LtPlan{problem, result.algo, result.workspaceSize});
}

void LtEngine::run(const LtPlan& plan, const LtAddresses& at, cudaStream_t stream) const {
  const LtProblem& p = plan.problem;
  const Description description(library_, p, at.bias);
  const double one = 1.0, zero = 0.0;
  const float narrow_one = 1.0f, narrow_zero = 0.0f;
  const bool is_double = p.input == BP_F64;
  check(library_,
        library_.matmul(handle_, description.get(),
                        is_double ? static_cast<const void*>(&one) : &narrow_one, at.a,
                        description.a.get(), at.b, description.b.get(),
                        is_double ? static_cast<const void*>(&zero) : &narrow_zero, at.d,
                        description.d.get(), at.d, description.d.get(), &plan.algorithm,
                        at.workspace, plan.workspace_size_bytes, stream),
        "cublasLtMatmul");
}

}  // namespace bp::cuda
