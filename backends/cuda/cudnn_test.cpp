// Tests the choice of convolution engines on a fake cuDNN: which engines are chosen, which plans
// are kept, and that no descriptor is left over.
#include "backends/cuda/cudnn.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

namespace bp::cuda {
namespace {

// An engine that the heuristics of the fake list.
struct FakeEngine {
  std::vector<cudnnBackendNumericalNote_t> numerical;
  std::vector<cudnnBackendBehaviorNote_t> behavior;
  int64_t workspace_size_bytes = 0;
  cudnnStatus_t plan_status = CUDNN_STATUS_SUCCESS;
};

struct FakeDescriptor {
  cudnnBackendDescriptorType_t type;
  int engine = -1;
  std::map<int, std::vector<int64_t>> numbers;
  std::map<int, float> factors;
};

struct Fake {
  std::mutex mutex;  // It guards `live`.
  std::set<FakeDescriptor*> live;
  std::atomic<int> running = 0, most_running = 0;  // How many threads are in execute().
  int handles = 0, heuristics = 0, executions = 0;
  std::vector<FakeEngine> engines, fallbacks;
  cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
  cudnnStatus_t operation_status = CUDNN_STATUS_SUCCESS;
  cudnnStatus_t execute_status = CUDNN_STATUS_SUCCESS;
  int executed = -1;
  std::map<int64_t, std::vector<int64_t>> tensors;  // The dimensions of each tensor, by its id.
  double beta = -1;

  std::vector<FakeEngine>& listed() {
    return mode == CUDNN_HEUR_MODE_FALLBACK ? fallbacks : engines;
  }
  int first_of(int index) const { return mode == CUDNN_HEUR_MODE_FALLBACK ? 100 + index : index; }
  const FakeEngine& engine(int number) const {
    return number >= 100 ? fallbacks[static_cast<size_t>(number - 100)]
                         : engines[static_cast<size_t>(number)];
  }
};
Fake* fake = nullptr;

FakeDescriptor& known(cudnnBackendDescriptor_t handle) {
  return *static_cast<FakeDescriptor*>(handle);
}

cudnnStatus_t set_attribute(cudnnBackendDescriptor_t handle, cudnnBackendAttributeName_t name,
                            cudnnBackendAttributeType_t type, int64_t count, const void* values) {
  FakeDescriptor& d = known(handle);
  if (type == CUDNN_TYPE_INT64) {
    const auto* const numbers = static_cast<const int64_t*>(values);
    d.numbers[name].assign(numbers, numbers + count);
  } else if (type == CUDNN_TYPE_FLOAT) {
    d.factors[name] = *static_cast<const float*>(values);
  } else if (type == CUDNN_TYPE_HEUR_MODE) {
    fake->mode = *static_cast<const cudnnBackendHeurMode_t*>(values);
  } else if (name == CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG) {
    d.engine = known(*static_cast<const cudnnBackendDescriptor_t*>(values)).engine;
  }
  return CUDNN_STATUS_SUCCESS;
}

template <typename Note>
cudnnStatus_t give_notes(const std::vector<Note>& notes, int64_t* count, void* values) {
  *count = std::ssize(notes);
  if (!notes.empty()) std::memcpy(values, notes.data(), notes.size() * sizeof(Note));
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t get_attribute(cudnnBackendDescriptor_t handle, cudnnBackendAttributeName_t name,
                            cudnnBackendAttributeType_t, int64_t requested, int64_t* count,
                            void* values) {
  const FakeDescriptor& d = known(handle);
  switch (name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS:
      *count = std::ssize(fake->listed());
      for (int i = 0; i < std::min(requested, *count); ++i) {
        known(static_cast<cudnnBackendDescriptor_t*>(values)[i]).engine = fake->first_of(i);
      }
      return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_ENGINECFG_ENGINE:
      known(*static_cast<cudnnBackendDescriptor_t*>(values)).engine = d.engine;
      return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
      return give_notes(fake->engine(d.engine).numerical, count, values);
    case CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE:
      return give_notes(fake->engine(d.engine).behavior, count, values);
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
      *count = 1;
      *static_cast<int64_t*>(values) = fake->engine(d.engine).workspace_size_bytes;
      return CUDNN_STATUS_SUCCESS;
    default:
      return CUDNN_STATUS_BAD_PARAM;
  }
}

cudnnStatus_t finalize(cudnnBackendDescriptor_t handle) {
  const FakeDescriptor& d = known(handle);
  switch (d.type) {
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
      ++fake->heuristics;
      return CUDNN_STATUS_SUCCESS;
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
      fake->tensors[d.numbers.at(CUDNN_ATTR_TENSOR_UNIQUE_ID)[0]] =
          d.numbers.at(CUDNN_ATTR_TENSOR_DIMENSIONS);
      return CUDNN_STATUS_SUCCESS;
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
      fake->beta = d.factors.at(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA);
      return fake->operation_status;
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
      return fake->engine(d.engine).plan_status;
    default:
      return CUDNN_STATUS_SUCCESS;
  }
}

Cudnn make_table() {
  Cudnn t{};
  t.create = [](cudnnHandle_t* out) {
    ++fake->handles;
    static int handle = 0;
    *out = reinterpret_cast<cudnnHandle_t>(&handle);
    return CUDNN_STATUS_SUCCESS;
  };
  t.destroy = [](cudnnHandle_t) {
    EXPECT_EQ(fake->live.size(), 0u) << "a handle ends before what was made with it";
    --fake->handles;
    return CUDNN_STATUS_SUCCESS;
  };
  t.set_stream = [](cudnnHandle_t, cudaStream_t) { return CUDNN_STATUS_SUCCESS; };
  t.error_string = [](cudnnStatus_t) -> const char* { return "CUDNN_STATUS_OF_THE_TEST"; };
  t.create_descriptor = [](cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* out) {
    const std::lock_guard lock(fake->mutex);
    *out = *fake->live.insert(new FakeDescriptor{type, -1, {}, {}}).first;
    return CUDNN_STATUS_SUCCESS;
  };
  t.destroy_descriptor = [](cudnnBackendDescriptor_t handle) {
    const std::lock_guard lock(fake->mutex);
    EXPECT_EQ(fake->live.erase(&known(handle)), 1u);
    delete &known(handle);
    return CUDNN_STATUS_SUCCESS;
  };
  t.set_attribute = set_attribute;
  t.get_attribute = get_attribute;
  t.finalize = finalize;
  t.execute = [](cudnnHandle_t, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t) {
    fake->most_running = std::max(fake->most_running.load(), ++fake->running);
    ++fake->executions;
    fake->executed = known(plan).engine;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    --fake->running;
    return fake->execute_status;
  };
  return t;
}

class CudnnTest : public testing::Test {
 protected:
  CudnnTest() { fake = &state_; }
  ~CudnnTest() override {
    EXPECT_EQ(state_.live.size(), 0u) << "descriptors are left";
    EXPECT_EQ(state_.handles, 0);
    fake = nullptr;
  }

  static DnnProblem problem(int64_t batch = 2) {
    DnnProblem p;
    p.dtype = BP_F32;
    p.ndim = 4;
    p.x = {{batch, 3, 8, 8, 0}, {192, 64, 8, 1, 0}};
    p.weight = {{5, 3, 3, 3, 0}, {27, 9, 3, 1, 0}};
    p.y = {{batch, 5, 6, 6, 0}, {180, 36, 6, 1, 0}};
    p.stride = p.dilation = {1, 1, 1};
    return p;
  }

  // Runs the plan that is found, and returns the number of its engine, or -1 if there is no plan.
  int taken(DnnEngine& engine, const DnnProblem& p) {
    const auto plan = engine.find(p);
    if (plan == nullptr) return -1;
    engine.run(*plan, {}, nullptr, nullptr);
    return state_.executed;
  }

  Fake state_;
  const Cudnn table_ = make_table();
};

TEST_F(CudnnTest, TakesTheFirstEngineThatKeepsThePromises) {
  state_.engines = {{{CUDNN_NUMERICAL_NOTE_TENSOR_CORE}, {}},
                    {{CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6}, {}},
                    {{CUDNN_NUMERICAL_NOTE_FFT}, {}},
                    {{CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC}, {}},
                    {{CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION}, {}},
                    {{}, {CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION}},
                    {{}, {}, 4096}};
  DnnEngine engine(table_);
  DnnProblem p = problem();
  EXPECT_EQ(taken(engine, p), 6);
  EXPECT_EQ(engine.find(p)->workspace_size_bytes(), 4096u);
  p.allows_tf32 = true;
  EXPECT_EQ(taken(engine, p), 0);
  p.allows_tf32 = false;
  p.may_compile = true;
  EXPECT_EQ(taken(engine, p), 5);
  p.may_compile = false;
  p.dtype = BP_F16;  // Tensor cores take f16 inputs without rounding them.
  EXPECT_EQ(taken(engine, p), 0);
}

TEST_F(CudnnTest, GoesOnWhereAPlanIsNotSupported) {
  state_.engines = {{{}, {}, 0, CUDNN_STATUS_NOT_SUPPORTED_SHAPE}, {{}, {}}};
  DnnEngine engine(table_);
  EXPECT_EQ(taken(engine, problem()), 1);
}

TEST_F(CudnnTest, AsksForFallbacksLast) {
  state_.engines = {{{CUDNN_NUMERICAL_NOTE_FFT}, {}}};
  state_.fallbacks = {{{}, {}}};
  DnnEngine engine(table_);
  EXPECT_EQ(taken(engine, problem()), 100);
  EXPECT_EQ(state_.heuristics, 2);
}

TEST_F(CudnnTest, AsksOnceForEachProblemAlsoWhereThereIsNothing) {
  state_.engines = {{{}, {}}};
  DnnEngine engine(table_);
  EXPECT_EQ(engine.find(problem()), engine.find(problem()));
  EXPECT_EQ(state_.heuristics, 1);
  state_.operation_status = CUDNN_STATUS_NOT_SUPPORTED_LAYOUT;
  EXPECT_EQ(engine.find(problem(3)), nullptr);
  state_.operation_status = CUDNN_STATUS_SUCCESS;
  EXPECT_EQ(engine.find(problem(3)), nullptr);
  EXPECT_EQ(state_.heuristics, 1);
}

TEST_F(CudnnTest, RunsAPlanOnOneThreadAtATime) {
  state_.engines = {{{}, {}}};
  DnnEngine engine(table_);
  const auto plan = engine.find(problem());
  const auto run = [&] {
    for (int i = 0; i < 10; ++i) engine.run(*plan, {}, nullptr, nullptr);
  };
  std::thread other(run);
  run();
  other.join();
  EXPECT_EQ(state_.executions, 20);
  EXPECT_EQ(state_.most_running, 1);
}

TEST_F(CudnnTest, ForgetsThePlanThatWasNotUsedForLongest) {
  state_.engines = {{{}, {}}};
  DnnEngine engine(table_);
  for (int64_t batch = 1; batch <= 513; ++batch) engine.find(problem(batch));
  EXPECT_EQ(engine.plans().size(), 512u);
  engine.find(problem(1));
  EXPECT_EQ(state_.heuristics, 514);
}

TEST_F(CudnnTest, DescribesTheConvolution) {
  state_.engines = {{{}, {}}};
  DnnEngine engine(table_);
  DnnProblem p = problem();
  engine.find(p);
  EXPECT_EQ(state_.tensors[2], (std::vector<int64_t>{5, 3, 3, 3}));
  EXPECT_EQ(state_.beta, 0.0);
  p.adds = true;
  engine.find(p);
  EXPECT_EQ(state_.beta, 1.0);
}

TEST_F(CudnnTest, FailsInWords) {
  state_.engines = {{{}, {}}};
  DnnEngine engine(table_);
  const auto plan = engine.find(problem());
  state_.execute_status = CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER;
  try {
    engine.run(*plan, {}, nullptr, nullptr);
    FAIL() << "nothing was thrown";
  } catch (const ExecutionFailed& e) {
    EXPECT_EQ(e.status(), BP_INTERNAL);
    EXPECT_STREQ(e.what(), "cudnnBackendExecute failed: CUDNN_STATUS_OF_THE_TEST");
  }
  state_.operation_status = CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
  EXPECT_THROW(engine.find(problem(9)), StatusError);
  state_.operation_status = CUDNN_STATUS_SUCCESS;
  EXPECT_NE(engine.find(problem(9)), nullptr);  // The engine does not remember the failure.
}

}  // namespace
}  // namespace bp::cuda
