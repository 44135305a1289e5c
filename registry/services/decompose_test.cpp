// Tests decompositions on a real host. Results are compared with the host's own kernels. Each op
// has a twin that is described at run time with the text of the same decomposition; its results
// must have the same bits.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backplane/ops.h"
#include "registry/tests/runtime_op_desc.hpp"
#include "registry/tests/service_tensors.hpp"

namespace bp {
namespace {

template <typename T>
class Decompositions : public testing::Test {
 protected:
  // Runs `op` with one kind of kernel only. The frame is checked first.
  template <typename Args>
  void launch(bp_kernel_sources source, uint32_t op, Args args) {
    args.struct_size = sizeof(Args);
    ASSERT_EQ(bp_op_check(op, &args), BP_OK) << bp_error_text();
    bp_kernel_choice choice{};
    ASSERT_EQ(bp_kernel_find(host, 0, source, op, &args, &choice), BP_OK) << bp_error_text();
    ASSERT_EQ(choice.source, source);
    ASSERT_EQ(bp_kernel_launch(host, nullptr, 0, choice.kernel, &args), BP_OK) << bp_error_text();
  }

  // Runs `op` with its decomposition and with the host's kernel. Each result goes to `output`.
  template <typename Args>
  void compare(uint32_t op, Args args, const bp_tensor* Args::*output, std::vector<int64_t> shape) {
    Tensor<T> native(*host, shape), decomposed(*host, shape);
    args.*output = native.get();
    launch(BP_KERNEL_NATIVE, op, args);
    args.*output = decomposed.get();
    launch(BP_KERNEL_DECOMPOSED, op, args);
    expect_close(decomposed.elements(), native.elements());
    Tensor<T> twin(*host, std::move(shape));
    args.*output = twin.get();
    launch(BP_KERNEL_DECOMPOSED, twin_of(op), args);
    const std::vector<T> ours = decomposed.elements(), theirs = twin.elements();
    ASSERT_EQ(ours.size(), theirs.size());
    EXPECT_TRUE(ours.empty() ||
                std::memcmp(ours.data(), theirs.data(), ours.size() * sizeof(T)) == 0);
  }

  // Describes the twin of an op of backplane/ops.h, and returns its number.
  uint32_t twin_of(uint32_t op) {
    const bp_op_desc* ours = nullptr;
    EXPECT_EQ(bp_op_describe(op, &ours), BP_OK) << bp_error_text();
    const core::TwinOp twin(*ours);
    uint32_t number = 0;
    bp_add_result result{};
    EXPECT_EQ(
        bp_registry_add_ops(registry.get(), 1, &twin.desc, sizeof(twin.desc), &number, &result),
        BP_OK)
        << bp_error_text();
    EXPECT_NE(number, 0u) << twin.name << ": " << (result.reason == nullptr ? "" : result.reason);
    return number;
  }

  Registry registry;
  const bp_target* host = load(registry, BACKPLANE_TEST_PLUGIN);
};

using Floats = testing::Types<float, double>;
TYPED_TEST_SUITE(Decompositions, Floats);

TYPED_TEST(Decompositions, OfMeanEqualsTheKernel) {
  Tensor<TypeParam> x(*this->host, {3, 5, 7});
  x.set(random_values<TypeParam>(x.size()));
  const int64_t both[] = {2, 0}, middle[] = {1};
  const auto run = [&](uint64_t count, const int64_t* axes, int32_t keeps,
                       std::vector<int64_t> shape) {
    const bp_mean_args args{.x = x.get(), .axes_count = count, .axes = axes, .keepdims = keeps};
    this->compare(BP_OP_MEAN, args, &bp_mean_args::y, std::move(shape));
  };
  run(2, both, 0, {5});
  run(1, middle, 1, {3, 1, 7});
  run(0, nullptr, 0, {3, 5, 7});
}

TYPED_TEST(Decompositions, OfMeanOverNoElementsIsNan) {
  Tensor<TypeParam> x(*this->host, {4, 0});
  const int64_t axes[] = {1};
  const bp_mean_args args{.x = x.get(), .axes_count = 1, .axes = axes};
  this->compare(BP_OP_MEAN, args, &bp_mean_args::y, {4});
}

TYPED_TEST(Decompositions, OfMatmulServeScaledSumsAlone) {
  Tensor<TypeParam> a(*this->host, {2, 3}), b(*this->host, {3, 4}), addend(*this->host, {2, 4}),
      product(*this->host, {2, 4}), y(*this->host, {2, 4});
  a.set(random_values<TypeParam>(6));
  b.set(random_values<TypeParam>(12));
  addend.set(random_values<TypeParam>(8));
  bp_matmul_args args{.struct_size = sizeof(args), .a = a.get(), .b = b.get(), .y = product.get()};
  bp_kernel_choice choice{};
  EXPECT_EQ(bp_kernel_find(this->host, 0, BP_KERNEL_DECOMPOSED, BP_OP_MATMUL, &args, &choice),
            BP_UNSUPPORTED);
  this->launch(BP_KERNEL_NATIVE, BP_OP_MATMUL, args);
  args.y = y.get();
  args.addend = addend.get();
  args.alpha = 0.5;
  args.beta = -2;
  EXPECT_EQ(bp_kernel_find(this->host, 0, BP_KERNEL_NATIVE, BP_OP_MATMUL, &args, &choice),
            BP_UNSUPPORTED);
  this->launch(BP_KERNEL_DECOMPOSED, BP_OP_MATMUL, args);
  std::vector<TypeParam> expected = product.elements();
  for (size_t i = 0; i < expected.size(); ++i) {
    expected[i] = TypeParam(0.5) * expected[i] - 2 * addend.elements()[i];
  }
  expect_close(y.elements(), expected);
}

TYPED_TEST(Decompositions, OfLinearEqualsTheKernel) {
  // The rows of x are columns of its block, so the decomposition must copy x before it reshapes.
  Tensor<TypeParam> x(*this->host, {2, 3, 5}, {1, 2, 6}, 0, 30), weight(*this->host, {4, 5}),
      bias(*this->host, {4});
  x.set(random_values<TypeParam>(30));
  weight.set(random_values<TypeParam>(20));
  bias.set({-1, 2, TypeParam(0.5), -3});
  for (const bp_tensor* b : {static_cast<const bp_tensor*>(nullptr), bias.get()}) {
    for (const uint32_t activation : {BP_LINEAR_ACTIVATION_NONE, BP_LINEAR_ACTIVATION_RELU}) {
      const bp_linear_args args{
          .x = x.get(), .weight = weight.get(), .bias = b, .activation = activation};
      this->compare(BP_OP_LINEAR, args, &bp_linear_args::y, {2, 3, 4});
    }
  }
}

TYPED_TEST(Decompositions, OfLogSoftmaxEqualsTheKernelOnEveryAxis) {
  Tensor<TypeParam> x(*this->host, {4, 3, 6});
  std::vector<TypeParam> values = random_values<TypeParam>(x.size());
  values[3] = 200;  // Its exponential overflows f32.
  x.set(values);
  for (const int32_t axis : {0, 1, 2}) {
    const bp_log_softmax_args args{.x = x.get(), .axis = axis};
    this->compare(BP_OP_LOG_SOFTMAX, args, &bp_log_softmax_args::y, {4, 3, 6});
  }
}

TYPED_TEST(Decompositions, OfMeanOverNoAxesKeepsTheSignOfZero) {
  Tensor<TypeParam> x(*this->host, {2}), y(*this->host, {2});
  x.set({TypeParam(-0.0), TypeParam(0.0)});
  for (const bp_kernel_sources source : {BP_KERNEL_NATIVE, BP_KERNEL_DECOMPOSED}) {
    this->launch(source, BP_OP_MEAN, bp_mean_args{.x = x.get(), .y = y.get()});
    EXPECT_TRUE(std::signbit(y.elements()[0]));
    EXPECT_FALSE(std::signbit(y.elements()[1]));
  }
}

// Each axis in turn has extent 0.
const std::vector<int64_t> kShapesWithoutElements[] = {{3, 0}, {0, 3}, {0, 0}};

TYPED_TEST(Decompositions, TakeAxesWithoutElements) {
  for (const std::vector<int64_t>& shape : kShapesWithoutElements) {
    SCOPED_TRACE(testing::Message() << "shape " << shape[0] << "x" << shape[1]);
    Tensor<TypeParam> x(*this->host, shape), matrix(*this->host, {2, shape[1]});
    for (const int32_t axis : {0, 1}) {
      this->compare(BP_OP_LOG_SOFTMAX, bp_log_softmax_args{.x = x.get(), .axis = axis},
                    &bp_log_softmax_args::y, shape);
      this->compare(BP_OP_LOG_SOFTMAX_BACKWARD,
                    bp_log_softmax_backward_args{.grad_y = x.get(), .y = x.get(), .axis = axis},
                    &bp_log_softmax_backward_args::grad_x, shape);
      const int64_t axes[] = {axis};
      this->compare(BP_OP_MEAN, bp_mean_args{.x = x.get(), .axes_count = 1, .axes = axes},
                    &bp_mean_args::y, {shape[static_cast<size_t>(1 - axis)]});
    }
    this->compare(BP_OP_SILU, bp_silu_args{.x = x.get()}, &bp_silu_args::y, shape);
    this->compare(
        BP_OP_LINEAR,
        bp_linear_args{
            .x = x.get(), .weight = matrix.get(), .activation = BP_LINEAR_ACTIVATION_NONE},
        &bp_linear_args::y, {shape[0], 2});
  }
}

TYPED_TEST(Decompositions, OfNormsTakeAxesWithoutElements) {
  for (const std::vector<int64_t>& shape : kShapesWithoutElements) {
    SCOPED_TRACE(testing::Message() << "shape " << shape[0] << "x" << shape[1]);
    Tensor<TypeParam> x(*this->host, shape), weight(*this->host, {shape[1]}),
        statistics(*this->host, {shape[0]});
    statistics.set(std::vector<TypeParam>(static_cast<size_t>(shape[0]), TypeParam(1)));
    this->compare(BP_OP_LAYER_NORM,
                  bp_layer_norm_args{.x = x.get(), .gamma = weight.get(), .normalized_ndim = 1},
                  &bp_layer_norm_args::y, shape);
    this->compare(BP_OP_RMS_NORM,
                  bp_rms_norm_args{.x = x.get(), .gamma = weight.get(), .normalized_ndim = 1},
                  &bp_rms_norm_args::y, shape);
    this->compare(BP_OP_LAYER_NORM_BACKWARD,
                  bp_layer_norm_backward_args{.grad_y = x.get(),
                                              .x = x.get(),
                                              .mean = statistics.get(),
                                              .rstd = statistics.get(),
                                              .normalized_ndim = 1},
                  &bp_layer_norm_backward_args::grad_x, shape);
    this->compare(
        BP_OP_RMS_NORM_BACKWARD,
        bp_rms_norm_backward_args{
            .grad_y = x.get(), .x = x.get(), .rstd = statistics.get(), .normalized_ndim = 1},
        &bp_rms_norm_backward_args::grad_x, shape);
  }
}

TYPED_TEST(Decompositions, OfCrossEntropyTakeNoRows) {
  Tensor<TypeParam> x(*this->host, {0, 4});
  Tensor<int64_t> target(*this->host, {0});
  for (const uint32_t reduction :
       {BP_CROSS_ENTROPY_REDUCTION_MEAN, BP_CROSS_ENTROPY_REDUCTION_SUM}) {
    const bp_cross_entropy_args args{
        .x = x.get(), .target = target.get(), .ignore_index = -100, .reduction = reduction};
    this->compare(BP_OP_CROSS_ENTROPY, args, &bp_cross_entropy_args::y, {});
  }
}

TYPED_TEST(Decompositions, OfElementwiseOpsTakeRankZero) {
  Tensor<TypeParam> x(*this->host, {});
  x.set({TypeParam(-2.5)});
  this->compare(BP_OP_SILU, bp_silu_args{.x = x.get()}, &bp_silu_args::y, {});
  this->compare(BP_OP_SILU_BACKWARD, bp_silu_backward_args{.grad_y = x.get(), .x = x.get()},
                &bp_silu_backward_args::grad_x, {});
  this->compare(BP_OP_MEAN, bp_mean_args{.x = x.get()}, &bp_mean_args::y, {});
}

TYPED_TEST(Decompositions, OfCrossEntropyEqualsTheKernelForEveryChoice) {
  Tensor<TypeParam> x(*this->host, {6, 5});
  Tensor<int64_t> target(*this->host, {6});
  x.set(random_values<TypeParam>(x.size()));
  target.set({0, 4, -100, 2, -100, 3});
  for (const uint32_t reduction : {BP_CROSS_ENTROPY_REDUCTION_NONE, BP_CROSS_ENTROPY_REDUCTION_MEAN,
                                   BP_CROSS_ENTROPY_REDUCTION_SUM}) {
    const bool is_none = reduction == BP_CROSS_ENTROPY_REDUCTION_NONE;
    for (const double smoothing : {0.0, 0.1, 1.0}) {
      SCOPED_TRACE(testing::Message() << "reduction " << reduction << ", smoothing " << smoothing);
      bp_cross_entropy_args args{.x = x.get(),
                                 .target = target.get(),
                                 .ignore_index = -100,
                                 .label_smoothing = smoothing,
                                 .reduction = reduction};
      const std::vector<int64_t> shape = is_none ? std::vector<int64_t>{6} : std::vector<int64_t>{};
      this->compare(BP_OP_CROSS_ENTROPY, args, &bp_cross_entropy_args::y, shape);
      Tensor<TypeParam> y(*this->host, shape);
      args.y = y.get();
      this->compare(BP_OP_CROSS_ENTROPY, args, &bp_cross_entropy_args::lse, {6});
    }
  }
}

TYPED_TEST(Decompositions, OfCrossEntropyIgnoresClassesAndAllRows) {
  Tensor<TypeParam> x(*this->host, {3, 4});
  Tensor<int64_t> target(*this->host, {3});
  x.set(random_values<TypeParam>(x.size()));
  const auto run = [&](uint32_t reduction) {
    const bp_cross_entropy_args args{
        .x = x.get(), .target = target.get(), .ignore_index = 2, .reduction = reduction};
    this->compare(BP_OP_CROSS_ENTROPY, args, &bp_cross_entropy_args::y, {});
  };
  target.set({2, 1, 2});
  run(BP_CROSS_ENTROPY_REDUCTION_MEAN);
  target.set({2, 2, 2});
  run(BP_CROSS_ENTROPY_REDUCTION_MEAN);  // The mean of nothing is NaN.
  run(BP_CROSS_ENTROPY_REDUCTION_SUM);
}

TYPED_TEST(Decompositions, GiveTheirMemoryBackAndRunForManyThreads) {
  constexpr int kThreads = 4;
  Tensor<TypeParam> x(*this->host, {16, 8});
  x.set(random_values<TypeParam>(x.size()));
  Tensor<TypeParam> expected(*this->host, {16, 8});
  const auto run = [&](const Tensor<TypeParam>& y) {
    this->launch(BP_KERNEL_DECOMPOSED, BP_OP_LOG_SOFTMAX,
                 bp_log_softmax_args{.x = x.get(), .y = y.get(), .axis = 1});
  };
  run(expected);
  bp_cache_statistics before{.struct_size = sizeof(before),
                             .struct_type = BP_STRUCT_CACHE_STATISTICS};
  ASSERT_EQ(bp_cache_get_statistics(this->host, &before), BP_OK);
  const std::vector<TypeParam> elements = expected.elements();
  std::vector<int> equal(kThreads);
  std::vector<std::thread> threads;
  threads.reserve(equal.size());
  for (int& count : equal) {
    threads.emplace_back([&] {
      Tensor<TypeParam> own(*this->host, {16, 8});
      for (int n = 0; n < 20; ++n) {
        run(own);
        count += own.elements() == elements ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(equal, std::vector<int>(kThreads, 20));
  bp_cache_statistics after = before;
  ASSERT_EQ(bp_cache_get_statistics(this->host, &after), BP_OK);
  EXPECT_EQ(after.allocated_bytes, before.allocated_bytes);
  EXPECT_GT(after.allocation_count, before.allocation_count);
}

TYPED_TEST(Decompositions, WriteThroughTheStridesOfTheirOutput) {
  Tensor<TypeParam> x(*this->host, {3, 4}), native(*this->host, {3, 4}, {1, 5}, 2, 30),
      decomposed(*this->host, {3, 4}, {1, 5}, 2, 30);
  x.set(random_values<TypeParam>(x.size()));
  for (auto [source, y] :
       {std::pair{BP_KERNEL_NATIVE, &native}, std::pair{BP_KERNEL_DECOMPOSED, &decomposed}}) {
    this->launch(source, BP_OP_LOG_SOFTMAX,
                 bp_log_softmax_args{.x = x.get(), .y = y->get(), .axis = 1});
  }
  expect_close(decomposed.read(), native.read());
}

// ---- Ops that are described at run time ---------------------------------------------------------

// The frame of TestOp, and what its second revision appends.
struct TestArgs {
  uint32_t struct_size = 40;
  uint32_t flags = 0;
  const bp_tensor* x = nullptr;
  const bp_tensor* weight = nullptr;
  const bp_tensor* y = nullptr;
  uint32_t mode = 1;
  int32_t axis = 0;
  const bp_tensor* bias = nullptr;
};

struct RuntimeDecompositions : testing::Test {
  RuntimeDecompositions() {
    x.set({1, 2, 3, 4});
    weight.set({1, 0, 0, 1});
    args.x = x.get();
    args.weight = weight.get();
    args.y = y.get();
  }

  uint32_t describe(core::TestOp& op) {
    const bp_op_desc desc = op.desc();
    uint32_t number = 0;
    bp_add_result result{};
    EXPECT_EQ(bp_registry_add_ops(registry.get(), 1, &desc, sizeof(desc), &number, &result), BP_OK)
        << bp_error_text();
    EXPECT_NE(number, 0u) << result.reason;
    return number;
  }

  // Returns the status and the text of a launch of an op with this decomposition.
  std::string failure(const char* name, const char* decomposition) {
    core::TestOp op(name);
    op.decomposition = decomposition;
    const bp_status status = bp_op_launch(host, nullptr, 0, describe(op), &args);
    if (status == BP_OK) return "";
    return std::string(bp_status_name(status)) + ": " + bp_error_text();
  }

  Registry registry;
  const bp_target* host = load(registry, BACKPLANE_TEST_PLUGIN);
  Tensor<float> x{*host, {2, 2}}, weight{*host, {2, 2}}, y{*host, {2, 2}};
  TestArgs args;
};

// [OP-7]
TEST_F(RuntimeDecompositions, RunWhereNoKernelTakesTheCall) {
  core::TestOp op("acme.decomposed");
  op.decomposition = "p = matmul(x, weight, alpha=0, beta=0)\ny = neg(p) if mode == fast else p";
  const uint32_t number = describe(op);
  ASSERT_EQ(bp_op_launch(host, nullptr, 0, number, &args), BP_OK) << bp_error_text();
  EXPECT_EQ(y.elements(), x.elements());
  args.mode = 2;
  ASSERT_EQ(bp_op_launch(host, nullptr, 0, number, &args), BP_OK) << bp_error_text();
  EXPECT_EQ(y.elements(), (std::vector<float>{-1, -2, -3, -4}));
  EXPECT_EQ(statistics(*host, number).decomposed_count, 2u);
}

TEST_F(RuntimeDecompositions, SayWhichLineFails) {
  const std::string head = "internal: ";
  EXPECT_EQ(failure("acme.reshapes", "a = neg(x)\ny = reshape(a, [3])"),
            head +
                "acme.reshapes: line 2 of its decomposition: reshape: [2, 2] and [3] have "
                "different numbers of elements");
  EXPECT_EQ(failure("acme.expands", "y = neg(expand(x, [2, 3]))"),
            head +
                "acme.expands: line 1 of its decomposition: expand: [2, 2] does not broadcast "
                "to [2, 3]");
  EXPECT_EQ(failure("acme.permutes", "y = permute(x, [0, 0])"),
            head +
                "acme.permutes: line 1 of its decomposition: permute: [0, 0] is no order of 2 "
                "axes");
  EXPECT_EQ(failure("acme.slices", "y = slice(x, axis=1, start=1, stop=4)"),
            head +
                "acme.slices: line 1 of its decomposition: slice: axis 1 of [2, 2] has no range "
                "1 to 4");
  EXPECT_EQ(failure("acme.divides", "n = 4 // axis\ny = mul(x, n)"),
            head +
                "acme.divides: line 1 of its decomposition: '4 // axis' does not exist for this "
                "call");
  EXPECT_EQ(failure("acme.sums", "y = sum(x, axes=[1], keepdims=1)"),
            head +
                "acme.sums: line 1 of its decomposition: sum gives f32 [2, 1], and the output is "
                "f32 [2, 2]");
  EXPECT_EQ(failure("acme.casts", "a = copy(x, dtype=f64)\ny = a"),
            head +
                "acme.casts: line 2 of its decomposition: y gives f64 [2, 2], and the output is "
                "f32 [2, 2]");
  EXPECT_NE(failure("acme.adds", "y = add(x, reshape(weight, [4]))")
                .find(head + "acme.adds: line 1 of its decomposition: add: b "),
            std::string::npos);
}

TEST_F(RuntimeDecompositions, ReadAnInputWhoseMemoryIsThatOfAnOutput) {
  core::TestOp op("acme.in_place");
  op.arguments[2].may_alias = 1;
  op.arguments.erase(op.arguments.begin() + 3, op.arguments.end());
  op.arguments.push_back(core::test_argument("z", BP_ARGUMENT_OUT, 32, "like(x)", "x.shape"));
  op.decomposition = "y = neg(x)\nz = mul(x, weight)";
  const uint32_t number = describe(op);
  struct Args {
    uint32_t struct_size, flags;
    const bp_tensor *x, *weight, *y, *z;
  } frame = {sizeof(Args), 0, x.get(), weight.get(), x.get(), y.get()};
  weight.set({2, 2, 2, 2});
  ASSERT_EQ(bp_op_launch(host, nullptr, 0, number, &frame), BP_OK) << bp_error_text();
  EXPECT_EQ(x.elements(), (std::vector<float>{-1, -2, -3, -4}));
  EXPECT_EQ(y.elements(), (std::vector<float>{2, 4, 6, 8}));
}

// [OP-10]
TEST_F(RuntimeDecompositions, ServeOnlyCallsForWhichTheirConditionHolds) {
  core::TestOp op("acme.conditional");
  op.decomposition = "y = add(x, weight)";
  op.condition = "mode == fast and x.dtype == f32";
  const uint32_t number = describe(op);
  args.mode = 2;
  ASSERT_EQ(bp_op_launch(host, nullptr, 0, number, &args), BP_OK) << bp_error_text();
  EXPECT_EQ(y.elements(), (std::vector<float>{2, 2, 3, 5}));
  args.mode = 1;
  EXPECT_EQ(bp_op_launch(host, nullptr, 0, number, &args), BP_UNSUPPORTED);
  EXPECT_NE(std::string(bp_error_text())
                .find("decomposition: it serves only calls with: mode == fast and x.dtype == f32"),
            std::string::npos)
      << bp_error_text();
}

// The frame of an op with lists and with tensors that are read and written.
struct ListArgs {
  uint32_t struct_size, flags;
  uint64_t xs_count;
  const bp_tensor* const* xs;
  uint64_t ys_count;
  const bp_tensor* const* ys;
  const bp_tensor* state;
  const bp_tensor* other;
};

TEST_F(RuntimeDecompositions, HaveListsAndTensorsThatAreReadAndWritten) {
  core::TestOp op("acme.lists");
  op.frame_size_bytes = sizeof(ListArgs);
  op.arguments = {
      core::test_argument("xs", BP_ARGUMENT_TENSOR_LIST, offsetof(ListArgs, xs), "float", nullptr),
      core::test_argument("ys", BP_ARGUMENT_OUT_LIST, offsetof(ListArgs, ys), "like(xs)",
                          "xs.shape"),
      core::test_argument("state", BP_ARGUMENT_INOUT, offsetof(ListArgs, state), "f32", nullptr),
      core::test_argument("other", BP_ARGUMENT_INOUT, offsetof(ListArgs, other), "f32",
                          "state.shape")};
  op.decomposition =
      "old = state\n"
      "ys = mul(add(xs, expand(old, xs.shape)), xs.shape[0])\n"
      "joined = cat(xs, axis=0)\n"
      "pair = cat([ys[1], xs[len(xs) - 1]], axis=0)\n"
      "state = other\n"
      "other = add(old, sum(mul(joined, pair), axes=[0], keepdims=0))";
  const uint32_t number = describe(op);
  Tensor<float> a(*host, {1, 2}), b(*host, {1, 2}), c(*host, {1, 2}), d(*host, {1, 2}),
      state(*host, {2}), other(*host, {2});
  a.set({1, 2});
  b.set({3, 4});
  state.set({10, 20});
  other.set({5, 6});
  const bp_tensor* xs[] = {a.get(), b.get()};
  const bp_tensor* ys[] = {c.get(), d.get()};
  ListArgs frame{sizeof(ListArgs), 0, 2, xs, 2, ys, state.get(), other.get()};
  ASSERT_EQ(bp_op_launch(host, nullptr, 0, number, &frame), BP_OK) << bp_error_text();
  EXPECT_EQ(c.elements(), (std::vector<float>{11, 22}));
  EXPECT_EQ(d.elements(), (std::vector<float>{13, 24}));
  EXPECT_EQ(state.elements(), (std::vector<float>{5, 6})) << "the two change places";
  // (1, 2) * (13, 24) + (3, 4) * (3, 4), and what state was.
  EXPECT_EQ(other.elements(), (std::vector<float>{10 + 13 + 9, 20 + 48 + 16}));
  frame.xs_count = 1;
  EXPECT_EQ(bp_op_launch(host, nullptr, 0, number, &frame), BP_INTERNAL);
  EXPECT_NE(std::string(bp_error_text())
                .find("line 2 of its decomposition: it reads tensor 1 of a list that has 1"),
            std::string::npos)
      << bp_error_text();
}

// [OP-9]
TEST_F(RuntimeDecompositions, ServeNoCallThatGivesWhatCameLater) {
  core::TestOp op("acme.aged");
  op.append_bias();
  op.decomposition = "y = matmul(x, weight, alpha=0, beta=0)";
  const uint32_t number = describe(op);
  ASSERT_EQ(bp_op_launch(host, nullptr, 0, number, &args), BP_OK) << bp_error_text();
  Tensor<float> bias(*host, {2});
  args.struct_size = sizeof(args);
  ASSERT_EQ(bp_op_launch(host, nullptr, 0, number, &args), BP_OK) << bp_error_text();
  args.bias = bias.get();
  EXPECT_EQ(bp_op_launch(host, nullptr, 0, number, &args), BP_UNSUPPORTED);
  EXPECT_NE(std::string(bp_error_text()).find("decomposition: bias is given"), std::string::npos)
      << bp_error_text();
}

}  // namespace
}  // namespace bp
