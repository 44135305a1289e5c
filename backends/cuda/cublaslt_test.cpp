// Tests which algorithms the backend chooses from cuBLASLt, on a fake library that records what it
// is asked and how often.
#include "backends/cuda/cublaslt.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <set>

namespace bp::cuda {
namespace {

// What the fake has seen. Each test has a new one.
struct Fake {
  int live = 0;  // The number of descriptors that were not destroyed.
  int heuristics = 0, products = 0;
  cublasStatus_t heuristic_status = CUBLAS_STATUS_SUCCESS;
  cublasStatus_t product_status = CUBLAS_STATUS_SUCCESS;
  int found = 1;
  uint64_t workspace = 1024;
  std::map<int, uint64_t> preferences, descriptions;
  std::set<std::pair<uint64_t, int64_t>> layouts;  // Each is (rows, column stride).
  const void* alpha = nullptr;
  double alpha_value = 0;
  bool is_double = false;
};
Fake* fake = nullptr;

template <typename Handle>
cublasStatus_t make(Handle* out) {
  ++fake->live;
  *out = reinterpret_cast<Handle>(new int);
  return CUBLAS_STATUS_SUCCESS;
}
template <typename Handle>
cublasStatus_t end(Handle handle) {
  --fake->live;
  delete reinterpret_cast<int*>(handle);
  return CUBLAS_STATUS_SUCCESS;
}

uint64_t word(const void* value, size_t size_bytes) {
  uint64_t result = 0;
  std::memcpy(&result, value, std::min(size_bytes, sizeof(result)));
  return result;
}

CublasLt make_table() {
  CublasLt t{};
  t.create = make<cublasLtHandle_t>;
  t.destroy = end<cublasLtHandle_t>;
  t.desc_create = [](cublasLtMatmulDesc_t* out, cublasComputeType_t, cudaDataType_t scale) {
    fake->is_double = scale == CUDA_R_64F;
    fake->descriptions.clear();
    return make(out);
  };
  t.desc_destroy = end<cublasLtMatmulDesc_t>;
  t.desc_set = [](cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t name, const void* value,
                  size_t size_bytes) {
    fake->descriptions[name] = word(value, size_bytes);
    return CUBLAS_STATUS_SUCCESS;
  };
  t.layout_create = [](cublasLtMatrixLayout_t* out, cudaDataType_t, uint64_t rows, uint64_t,
                       int64_t stride) {
    fake->layouts.emplace(rows, stride);
    return make(out);
  };
  t.layout_destroy = end<cublasLtMatrixLayout_t>;
  t.layout_set = [](cublasLtMatrixLayout_t, cublasLtMatrixLayoutAttribute_t, const void*, size_t) {
    return CUBLAS_STATUS_SUCCESS;
  };
  t.preference_create = make<cublasLtMatmulPreference_t>;
  t.preference_destroy = end<cublasLtMatmulPreference_t>;
  t.preference_set = [](cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t name,
                        const void* value, size_t size_bytes) {
    fake->preferences[name] = word(value, size_bytes);
    return CUBLAS_STATUS_SUCCESS;
  };
  t.get_heuristic = [](cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                       cublasLtMatmulPreference_t, int, cublasLtMatmulHeuristicResult_t results[],
                       int* count) {
    ++fake->heuristics;
    *count = fake->found;
    results[0].state = CUBLAS_STATUS_SUCCESS;
    results[0].workspaceSize = fake->workspace;
    return fake->heuristic_status;
  };
  t.matmul = [](cublasLtHandle_t, cublasLtMatmulDesc_t, const void* alpha, const void*,
                cublasLtMatrixLayout_t, const void*, cublasLtMatrixLayout_t, const void*,
                const void*, cublasLtMatrixLayout_t, void*, cublasLtMatrixLayout_t,
                const cublasLtMatmulAlgo_t*, void*, size_t, cudaStream_t) {
    ++fake->products;
    fake->alpha_value = fake->is_double ? *static_cast<const double*>(alpha)
                                        : static_cast<double>(*static_cast<const float*>(alpha));
    return fake->product_status;
  };
  t.status_name = [](cublasStatus_t) -> const char* { return "CUBLAS_STATUS_OF_THE_TEST"; };
  return t;
}

class CublasLtTest : public testing::Test {
 protected:
  CublasLtTest() { fake = &state_; }
  ~CublasLtTest() override { fake = nullptr; }

  static LtProblem problem(int64_t rows) {
    LtProblem p;
    p.input = p.output = BP_F32;
    p.a = {rows, 8, rows, 0};
    p.b = {8, 4, 8, 0};
    p.d = {rows, 4, rows, 0};
    return p;
  }

  Fake state_;
  const CublasLt table_ = make_table();
};

TEST_F(CublasLtTest, AsksOnceForEachProblem) {
  LtEngine engine(table_);
  const auto first = engine.find(problem(16));
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(first->workspace_size_bytes, 1024u);
  EXPECT_EQ(engine.find(problem(16)), first);
  EXPECT_EQ(state_.heuristics, 1);
  LtProblem other = problem(16);
  other.is_aligned = false;
  EXPECT_NE(engine.find(other), first);
  other.has_bias = true;
  EXPECT_NE(engine.find(other), first);
  EXPECT_EQ(state_.heuristics, 3);
}

TEST_F(CublasLtTest, ForgetsTheChoiceThatWasNotUsedForLongest) {
  LtEngine engine(table_);
  const auto kept = engine.find(problem(1));
  for (int64_t rows = 2; rows <= 1024; ++rows) engine.find(problem(rows));
  EXPECT_EQ(engine.plans().size(), 1024u);
  EXPECT_EQ(engine.find(problem(1)), kept);  // Now the choice for 2 rows is the oldest.
  engine.find(problem(1025));
  EXPECT_EQ(engine.plans().size(), 1024u);
  EXPECT_EQ(state_.heuristics, 1025);
  engine.find(problem(1));
  EXPECT_EQ(state_.heuristics, 1025);
  engine.find(problem(2));
  EXPECT_EQ(state_.heuristics, 1026);
  EXPECT_EQ(kept->workspace_size_bytes, 1024u);
}

TEST_F(CublasLtTest, RemembersThatThereIsNothing) {
  LtEngine engine(table_);
  state_.heuristic_status = CUBLAS_STATUS_NOT_SUPPORTED;
  EXPECT_EQ(engine.find(problem(16)), nullptr);
  EXPECT_EQ(engine.find(problem(16)), nullptr);
  EXPECT_EQ(state_.heuristics, 1);
  state_.heuristic_status = CUBLAS_STATUS_SUCCESS;
  state_.found = 0;
  EXPECT_EQ(engine.find(problem(17)), nullptr);
}

TEST_F(CublasLtTest, FailsInWordsAndAsksAgain) {
  LtEngine engine(table_);
  state_.heuristic_status = CUBLAS_STATUS_ALLOC_FAILED;
  try {
    engine.find(problem(16));
    FAIL() << "nothing was thrown";
  } catch (const StatusError& e) {
    EXPECT_EQ(e.status(), BP_OUT_OF_MEMORY);
    EXPECT_STREQ(e.what(), "cublasLtMatmulAlgoGetHeuristic failed: CUBLAS_STATUS_OF_THE_TEST");
  }
  state_.heuristic_status = CUBLAS_STATUS_SUCCESS;
  EXPECT_NE(engine.find(problem(16)), nullptr);
}

TEST_F(CublasLtTest, LetsSumsBeSplitInTheirOwnTypeAlone) {
  LtEngine engine(table_);
  engine.find(problem(16));
  EXPECT_EQ(state_.preferences[CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK],
            uint64_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  EXPECT_EQ(state_.preferences[CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], 16u);
  LtProblem unaligned = problem(16);
  unaligned.is_aligned = false;
  engine.find(unaligned);
  EXPECT_EQ(state_.preferences[CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES], 4u);
}

TEST_F(CublasLtTest, GivesTheFactorsInTheTypeOfTheSums) {
  LtEngine engine(table_);
  LtProblem p = problem(16);
  engine.run(*engine.find(p), {}, nullptr);
  EXPECT_EQ(state_.alpha_value, 1.0);
  p.input = p.output = BP_F64;
  engine.run(*engine.find(p), {}, nullptr);
  EXPECT_EQ(state_.alpha_value, 1.0);
  EXPECT_EQ(state_.products, 2);
}

TEST_F(CublasLtTest, AddsTheBiasOfTheCall) {
  LtEngine engine(table_);
  LtProblem p = problem(16);
  p.has_bias = true;
  const float bias[16] = {};
  LtAddresses at;
  at.bias = bias;
  engine.run(*engine.find(p), at, nullptr);
  EXPECT_EQ(state_.descriptions[CUBLASLT_MATMUL_DESC_EPILOGUE], uint64_t{CUBLASLT_EPILOGUE_BIAS});
  EXPECT_EQ(state_.descriptions[CUBLASLT_MATMUL_DESC_BIAS_POINTER],
            reinterpret_cast<uint64_t>(bias));
}

TEST_F(CublasLtTest, LeavesNothingBehind) {
  {
    LtEngine engine(table_);
    const auto plan = engine.find(problem(16));
    state_.product_status = CUBLAS_STATUS_EXECUTION_FAILED;
    EXPECT_THROW(engine.run(*plan, {}, nullptr), StatusError);
  }
  EXPECT_EQ(state_.live, 0);
}

TEST(LtTypes, AreThoseOfOneDtypeAndNarrowOnesIntoF32) {
  EXPECT_TRUE(is_lt_type(BP_F32, BP_F32));
  EXPECT_TRUE(is_lt_type(BP_BF16, BP_F32));
  EXPECT_TRUE(is_lt_type(BP_F16, BP_F16));
  EXPECT_FALSE(is_lt_type(BP_F32, BP_F16));
  EXPECT_FALSE(is_lt_type(BP_F16, BP_BF16));
  EXPECT_FALSE(is_lt_type(BP_I32, BP_I32));
}

}  // namespace
}  // namespace bp::cuda
