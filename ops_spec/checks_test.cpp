// Tests bp_op_infer() and bp_op_check() on frames of every kind of argument.
#include "ops_spec/checks.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <deque>
#include <numeric>
#include <string>
#include <vector>

namespace {

// Owns the tensors of a test and the arrays that they point to. Each tensor has a buffer of its
// own.
class Tensors {
 public:
  bp_tensor* make(std::vector<int64_t> shape, bp_dtype dtype = BP_F32) {
    Item& item = items_.emplace_back();
    item.shape = std::move(shape);
    item.strides.resize(item.shape.size());
    int64_t step = 1;
    for (size_t i = item.shape.size(); i-- > 0; step *= item.shape[i]) item.strides[i] = step;
    // NOLINTNEXTLINE(performance-no-int-to-ptr): nobody follows the handle.
    item.tensor = {.buffer = reinterpret_cast<bp_buffer*>(0x1000 * items_.size()),
                   .byte_offset = 0,
                   .shape = item.shape.data(),
                   .strides = item.strides.data(),
                   .ndim = static_cast<uint32_t>(item.shape.size()),
                   .dtype = dtype,
                   .layout = nullptr,
                   .flags = 0,
                   .reserved = 0};
    return &item.tensor;
  }
  // Makes another tensor over the same memory.
  bp_tensor* view(const bp_tensor* base) {
    Item& item = items_.emplace_back();
    item.tensor = *base;
    return &item.tensor;
  }
  int64_t* strides_of(const bp_tensor* tensor) {
    for (Item& item : items_) {
      if (&item.tensor == tensor) return item.strides.data();
    }
    return nullptr;
  }

 private:
  struct Item {
    std::vector<int64_t> shape;
    std::vector<int64_t> strides;
    bp_tensor tensor;
  };
  std::deque<Item> items_;
};

bp_scalar scalar(double value) {
  bp_scalar result{BP_F64, 0, 0};
  std::memcpy(&result.bits, &value, sizeof(value));
  return result;
}

bp_scalar scalar(int64_t value) { return {BP_I64, 0, static_cast<uint64_t>(value)}; }

template <typename Frame>
Frame frame() {
  Frame result = {};
  result.struct_size = sizeof(Frame);
  return result;
}

std::string text(const bp_op_output& output) {
  std::string result = bp_dtype_name(output.dtype);
  for (uint32_t i = 0; i < output.ndim; ++i) result += " " + std::to_string(output.shape[i]);
  return result;
}

// Returns what is inferred, such as "f32 2 3; i64 2", or the error.
template <typename Frame>
std::string infer(uint32_t op, const Frame& args) {
  bp_op_output outputs[4];
  uint32_t count = 0;
  const bp_status status = bp_op_infer(op, &args, 4, outputs, &count);
  if (status != BP_OK) return std::string(bp_status_name(status)) + ": " + bp_error_text();
  std::string result;
  for (uint32_t i = 0; i < count; ++i) result += (i == 0 ? "" : "; ") + text(outputs[i]);
  return result;
}

template <typename Frame>
std::string check(uint32_t op, const Frame& args) {
  const bp_status status = bp_op_check(op, &args);
  EXPECT_EQ(bp_op_is_valid(op, &args), status == BP_OK ? 1u : 0u);
  return status == BP_OK ? "" : std::string(bp_status_name(status)) + ": " + bp_error_text();
}

class Infer : public testing::Test {
 protected:
  Tensors tensors;
};

TEST_F(Infer, AddTakesATensorOrAScalar) {
  auto args = frame<bp_add_args>();
  args.a = tensors.make({2, 3});
  args.b = tensors.make({2, 3});
  EXPECT_EQ(infer(BP_OP_ADD, args), "f32 2 3");
  args.b = nullptr;
  args.b_scalar = scalar(1.5);
  EXPECT_EQ(infer(BP_OP_ADD, args), "f32 2 3");
  args.a = tensors.make({4}, BP_I64);
  EXPECT_EQ(infer(BP_OP_ADD, args),
            "invalid argument: add: b is a number of f64; allowed: a tensor, or a number of bool, "
            "i64 or u64, for i64");
  args.b_scalar = scalar(int64_t{-1});
  EXPECT_EQ(infer(BP_OP_ADD, args), "i64 4");
  args.b_scalar.imaginary_bits = 7;
  EXPECT_EQ(infer(BP_OP_ADD, args),
            "invalid argument: add: b is a number with imaginary_bits of 7; allowed: 0, unless it "
            "is a c128");
  args.b_scalar.dtype = BP_C128;
  EXPECT_EQ(infer(BP_OP_ADD, args),
            "invalid argument: add: b is a number of c128; allowed: a tensor, or a number of bool, "
            "i64 or u64, for i64");
}

TEST_F(Infer, AddRefusesOtherShapesAndDtypes) {
  auto args = frame<bp_add_args>();
  args.a = tensors.make({2, 4});
  args.b = tensors.make({3, 4});
  EXPECT_EQ(infer(BP_OP_ADD, args),
            "invalid argument: add: b has shape (3, 4); allowed: (2, 4), which is a.shape");
  args.b = tensors.make({2, 4}, BP_F64);
  EXPECT_EQ(infer(BP_OP_ADD, args), "invalid argument: add: b is f64; allowed: f32");
  args.a = tensors.make({2, 4}, BP_BOOL);
  EXPECT_EQ(
      infer(BP_OP_ADD, args),
      "invalid argument: add: a is bool; allowed: i8, i16, i32, i64, u8, f16, bf16, f32, f64");
  args.a = nullptr;
  EXPECT_EQ(infer(BP_OP_ADD, args), "invalid argument: add: a is NULL; allowed: a tensor");
}

TEST_F(Infer, RefusesTensorsThatAreNone) {
  auto args = frame<bp_neg_args>();
  bp_tensor* x = tensors.make({2, 3});
  args.x = x;
  x->ndim = 9;
  EXPECT_EQ(infer(BP_OP_NEG, args), "invalid argument: neg: x has 9 axes; allowed: at most 8");
  x->ndim = 2;
  x->strides = nullptr;
  EXPECT_EQ(infer(BP_OP_NEG, args),
            "invalid argument: neg: x has no strides; allowed: one entry per axis");
  args.x = tensors.make({2, -1});
  EXPECT_EQ(infer(BP_OP_NEG, args),
            "invalid argument: neg: x has shape (2, -1); allowed: extents of at least 0");
  args.x = tensors.make({INT64_MAX, 0, INT64_MAX});
  EXPECT_NE(infer(BP_OP_NEG, args).find("allowed: at most 2^58 elements"), std::string::npos);
}

TEST_F(Infer, SoftmaxBoundsItsAxis) {
  auto args = frame<bp_softmax_args>();
  args.x = tensors.make({4, 5}, BP_F64);
  args.axis = 1;
  EXPECT_EQ(infer(BP_OP_SOFTMAX, args), "f64 4 5");
  args.axis = 5;
  EXPECT_EQ(infer(BP_OP_SOFTMAX, args),
            "invalid argument: softmax: axis is 5; allowed: 0 <= axis < 2");
  args.axis = -1;
  EXPECT_EQ(infer(BP_OP_SOFTMAX, args),
            "invalid argument: softmax: axis is -1; allowed: 0 <= axis < 2");
}

TEST_F(Infer, ATensorWithoutAxesTakesAxis0) {
  auto softmax = frame<bp_softmax_args>();
  softmax.x = tensors.make({});
  EXPECT_EQ(infer(BP_OP_SOFTMAX, softmax), "f32");
  softmax.axis = 1;
  EXPECT_EQ(infer(BP_OP_SOFTMAX, softmax),
            "invalid argument: softmax: axis is 1; allowed: 0 <= axis < 1");
  const int64_t axes[] = {0};
  auto sum = frame<bp_sum_args>();
  sum.x = tensors.make({});
  sum.axes = axes;
  sum.axes_count = 1;
  sum.keepdims = 1;
  EXPECT_EQ(infer(BP_OP_SUM, sum), "f32");
  auto topk = frame<bp_topk_args>();
  topk.x = tensors.make({});
  topk.k = 1;
  EXPECT_EQ(infer(BP_OP_TOPK, topk), "f32; i64");
  topk.k = 0;
  EXPECT_EQ(infer(BP_OP_TOPK, topk),
            "invalid argument: topk: x is (), k is 0; allowed: k >= 1 - x.ndim (an x without axes "
            "gives its one element)");
}

TEST_F(Infer, AReductionOfNoElementsIsDefinedOrRefused) {
  const int64_t axes[] = {0};
  auto sum = frame<bp_sum_args>();
  sum.x = tensors.make({0, 3});
  sum.axes = axes;
  sum.axes_count = 1;
  EXPECT_EQ(infer(BP_OP_SUM, sum), "f32 3");
  auto argmax = frame<bp_argmax_args>();
  argmax.x = tensors.make({0, 3});
  EXPECT_EQ(infer(BP_OP_ARGMAX, argmax),
            "invalid argument: argmax: x is (0, 3); allowed: numel(x) >= min(numel(y), 1) "
            "(no elements have no largest one)");
  argmax.axis = 1;
  EXPECT_EQ(infer(BP_OP_ARGMAX, argmax), "i64 0");
}

TEST_F(Infer, SumChoosesItsDtypeAndReducesAnyAxes) {
  auto args = frame<bp_sum_args>();
  const int64_t axes[] = {2, 0};
  args.x = tensors.make({2, 3, 4}, BP_BOOL);
  args.axes = axes;
  args.axes_count = 2;
  EXPECT_EQ(infer(BP_OP_SUM, args), "i64 3");
  args.keepdims = 1;
  EXPECT_EQ(infer(BP_OP_SUM, args), "i64 1 3 1");
  args.y = tensors.make({9}, BP_F64);  // Only its dtype is read, which the caller chooses.
  EXPECT_EQ(infer(BP_OP_SUM, args), "f64 1 3 1");
  args.axes_count = 0;
  args.axes = nullptr;
  EXPECT_EQ(infer(BP_OP_SUM, args), "f64 2 3 4");
  const int64_t twice[] = {1, 1};
  args.axes = twice;
  args.axes_count = 2;
  EXPECT_EQ(infer(BP_OP_SUM, args),
            "invalid argument: sum: axes is (1, 1); allowed: no value twice");
  const int64_t out_of_range[] = {0, 3};
  args.axes = out_of_range;
  EXPECT_EQ(infer(BP_OP_SUM, args),
            "invalid argument: sum: axes[1] is 3; allowed: 0 <= axes[1] < 3");
  args.axes = nullptr;
  EXPECT_EQ(infer(BP_OP_SUM, args),
            "invalid argument: sum: axes is NULL; allowed: 2 entries, as its count says");
}

TEST_F(Infer, AmaxOfNothingIsRefusedUnlessTheResultIsEmptyToo) {
  auto args = frame<bp_amax_args>();
  const int64_t last[] = {1};
  args.x = tensors.make({3, 0});
  args.axes = last;
  args.axes_count = 1;
  EXPECT_EQ(
      infer(BP_OP_AMAX, args),
      "invalid argument: amax: x is (3, 0); allowed: numel(x) >= min(numel(y), 1) (no elements "
      "have no largest one)");
  args.x = tensors.make({0, 3});
  EXPECT_EQ(infer(BP_OP_AMAX, args), "f32 0");
}

TEST_F(Infer, CreationReadsWhatTheCallerChose) {
  auto args = frame<bp_fill_args>();
  args.value_scalar = scalar(1.0);
  EXPECT_EQ(infer(BP_OP_FILL, args), "invalid argument: fill: y is NULL; allowed: a tensor");
  args.y = tensors.make({2, 2});
  EXPECT_EQ(infer(BP_OP_FILL, args), "f32 2 2");
  args.value = tensors.make({1, 1});
  EXPECT_EQ(infer(BP_OP_FILL, args), "f32 2 2");
  args.value = tensors.make({2});
  EXPECT_EQ(infer(BP_OP_FILL, args),
            "invalid argument: fill: value has shape (2); allowed: one element");
  auto range = frame<bp_arange_args>();
  range.y = tensors.make({2, 2});
  range.start_scalar = range.step_scalar = scalar(int64_t{1});
  EXPECT_EQ(infer(BP_OP_ARANGE, range), "invalid argument: arange: y has 2 axes; allowed: 1");
}

TEST_F(Infer, MatmulTakesBatchesAndIndependentDtypes) {
  auto args = frame<bp_matmul_args>();
  args.a = tensors.make({5, 2, 3});
  args.b = tensors.make({5, 3, 4}, BP_BF16);
  EXPECT_EQ(infer(BP_OP_MATMUL, args), "f32 5 2 4");
  args.b = tensors.make({5, 2, 4});
  EXPECT_EQ(infer(BP_OP_MATMUL, args),
            "invalid argument: matmul: b has shape (5, 2, 4); allowed: (5, 3, 4), which is "
            "a.shape[:-2] + [a.shape[-1], b.shape[-1]]");
  args.b = tensors.make({3, 4});
  EXPECT_EQ(infer(BP_OP_MATMUL, args),
            "invalid argument: matmul: b has 2 axes; allowed: 3, which is a.ndim");
  args.a = tensors.make({3});
  EXPECT_EQ(infer(BP_OP_MATMUL, args), "invalid argument: matmul: a has 1 axis; allowed: 2 to 8");
}

TEST_F(Infer, LinearChecksBiasAndActivation) {
  auto args = frame<bp_linear_args>();
  args.x = tensors.make({7, 2, 3});
  args.weight = tensors.make({4, 3});
  args.activation = BP_LINEAR_ACTIVATION_RELU;
  EXPECT_EQ(infer(BP_OP_LINEAR, args), "f32 7 2 4; f32 7 2 4");
  args.bias = tensors.make({3});
  EXPECT_EQ(
      infer(BP_OP_LINEAR, args),
      "invalid argument: linear: bias has shape (3); allowed: (4), which is [weight.shape[0]]");
  args.bias = nullptr;
  args.activation = 5;
  EXPECT_EQ(infer(BP_OP_LINEAR, args),
            "invalid argument: linear: activation is 5; allowed: 1 (none), 2 (relu), 3 "
            "(gelu), 4 (silu)");
}

TEST_F(Infer, CatAddsExtentsAlongItsAxis) {
  auto args = frame<bp_cat_args>();
  const bp_tensor* xs[] = {tensors.make({2, 3}), tensors.make({2, 0}), tensors.make({2, 4})};
  args.xs = xs;
  args.xs_count = 3;
  args.axis = 1;
  EXPECT_EQ(infer(BP_OP_CAT, args), "f32 2 7");
  args.axis = 0;
  EXPECT_EQ(
      infer(BP_OP_CAT, args),
      "invalid argument: cat: y has no shape where xs has 3 tensors of shapes (2, 3), (2, 0), "
      "(2, 4), axis is 0; allowed: at least one tensor, and extents that differ along the axis "
      "alone, in "
      "concatenated(xs, axis)");
  args.axis = 2;
  EXPECT_NE(infer(BP_OP_CAT, args).find("axis is 2"), std::string::npos);
  args.xs_count = 0;
  args.axis = 0;
  EXPECT_NE(infer(BP_OP_CAT, args).find("axis is 0"), std::string::npos);
}

TEST_F(Infer, SdpaGroupsHeads) {
  auto args = frame<bp_sdpa_args>();
  args.q = tensors.make({2, 6, 5, 8});
  args.k = tensors.make({2, 3, 7, 8});
  args.v = tensors.make({2, 3, 7, 4});
  args.mask = tensors.make({2, 6, 5, 7}, BP_BOOL);
  EXPECT_EQ(infer(BP_OP_SDPA, args), "f32 2 6 5 4; f32 2 6 5");
  args.k = tensors.make({2, 4, 7, 8});
  args.v = tensors.make({2, 4, 7, 4});
  EXPECT_NE(infer(BP_OP_SDPA, args).find("each head of keys serves as many heads of q"),
            std::string::npos);
}

class InferConvolution : public Infer {
 protected:
  InferConvolution() {
    args.x = tensors.make({2, 6, 8, 9});
    args.weight = tensors.make({4, 3, 3, 3});
    args.stride = stride;
    args.stride_count = 2;
    args.padding = padding;
    args.padding_count = 4;
    args.dilation = dilation;
    args.dilation_count = 2;
    args.groups = 2;
  }
  const int64_t stride[2] = {2, 1};
  const int64_t padding[4] = {1, 0, 1, 0};
  int64_t dilation[2] = {1, 2};
  bp_convolution_args args = frame<bp_convolution_args>();
};

TEST_F(InferConvolution, GivesTheExtentsOfItsWindows) {
  EXPECT_EQ(infer(BP_OP_CONVOLUTION, args), "f32 2 4 4 5");
}

TEST_F(InferConvolution, RefusesGroupsAndCountsThatDoNotFit) {
  args.groups = 3;
  EXPECT_EQ(
      infer(BP_OP_CONVOLUTION, args),
      "invalid argument: convolution: x is (2, 6, 8, 9), weight is (4, 3, 3, 3), groups is 3; "
      "allowed: x.shape[1] == weight.shape[1] * groups");
  args.groups = INT64_MAX;
  EXPECT_NE(infer(BP_OP_CONVOLUTION, args).find("allowed: x.shape[1]"), std::string::npos);
  args.padding_count = 2;
  EXPECT_EQ(
      infer(BP_OP_CONVOLUTION, args),
      "invalid argument: convolution: padding has 2 entries; allowed: 4, which is 2*(x.ndim - "
      "2)");
}

TEST_F(InferConvolution, RefusesAWindowThatDoesNotFit) {
  dilation[1] = 9;
  const std::string dilated = infer(BP_OP_CONVOLUTION, args);
  EXPECT_NE(dilated.find("convolution: y has no shape where x is (2, 6, 8, 9), "),
            std::string::npos);
  EXPECT_NE(dilated.find("; allowed: windows that fit into the padded extents, in "),
            std::string::npos);
  dilation[1] = INT64_MAX;
  EXPECT_NE(infer(BP_OP_CONVOLUTION, args).find("y has no shape where"), std::string::npos);
}

TEST_F(InferConvolution, GradientsHaveTheShapesOfWhatTheyAreFor) {
  auto input = frame<bp_convolution_backward_input_args>();
  const int64_t input_size[] = {8, 9};
  input.grad_y = tensors.make({2, 4, 4, 5});
  input.weight = args.weight;
  input.input_size = input_size;
  input.input_size_count = input.stride_count = input.dilation_count = 2;
  input.padding_count = 4;
  input.stride = stride;
  input.padding = padding;
  input.dilation = dilation;
  input.groups = 2;
  EXPECT_EQ(infer(BP_OP_CONVOLUTION_BACKWARD_INPUT, input), "f32 2 6 8 9");
  input.grad_y = tensors.make({2, 4, 4, 6});
  EXPECT_EQ(
      infer(BP_OP_CONVOLUTION_BACKWARD_INPUT, input)
          .rfind("invalid argument: convolution_backward_input: grad_y has shape (2, 4, 4, 6); "
                 "allowed: (2, 4, 4, 5), which is ",
                 0),
      0u);
  auto weight = frame<bp_convolution_backward_weight_args>();
  const int64_t kernel_size[] = {3, 3};
  weight.grad_y = tensors.make({2, 4, 4, 5});
  weight.x = args.x;
  weight.kernel_size = kernel_size;
  weight.kernel_size_count = weight.stride_count = weight.dilation_count = 2;
  weight.padding_count = 4;
  weight.stride = stride;
  weight.padding = padding;
  weight.dilation = dilation;
  weight.groups = 2;
  EXPECT_EQ(infer(BP_OP_CONVOLUTION_BACKWARD_WEIGHT, weight), "f32 4 3 3 3");
}

TEST_F(InferConvolution, MaxPoolHasIndicesToo) {
  auto pool = frame<bp_max_pool_args>();
  const int64_t kernel_size[] = {3, 3};
  pool.x = args.x;
  pool.kernel_size = kernel_size;
  pool.kernel_size_count = pool.stride_count = pool.dilation_count = 2;
  pool.padding_count = 4;
  pool.stride = stride;
  pool.padding = padding;
  pool.dilation = dilation;
  EXPECT_EQ(infer(BP_OP_MAX_POOL, pool), "f32 2 6 4 5; i64 2 6 4 5");
}

TEST_F(Infer, EmbeddingAppendsTheWidthOfARow) {
  auto args = frame<bp_embedding_args>();
  args.weight = tensors.make({10, 3});
  args.indices = tensors.make({2, 5}, BP_I32);
  EXPECT_EQ(infer(BP_OP_EMBEDDING, args), "f32 2 5 3");
  args.indices = tensors.make({2}, BP_F32);
  EXPECT_EQ(infer(BP_OP_EMBEDDING, args),
            "invalid argument: embedding: indices is f32; allowed: i32, i64");
  args.indices = tensors.make({1, 1, 1, 1, 1, 1, 1, 1}, BP_I64);
  EXPECT_EQ(infer(BP_OP_EMBEDDING, args),
            "invalid argument: embedding: indices has 8 axes; allowed: 0 to 7");
}

TEST_F(Infer, DropoutTakesItsSeedFromTheDeviceToo) {
  auto args = frame<bp_dropout_args>();
  args.x = tensors.make({2});
  args.p = 0.5;
  args.seed = tensors.make({1}, BP_U64);
  args.offset_scalar = scalar(int64_t{3});
  EXPECT_EQ(infer(BP_OP_DROPOUT, args), "f32 2");
  args.seed = tensors.make({1}, BP_I64);
  EXPECT_EQ(infer(BP_OP_DROPOUT, args), "invalid argument: dropout: seed is i64; allowed: u64");
  args.seed = nullptr;
  EXPECT_EQ(infer(BP_OP_DROPOUT, args),
            "invalid argument: dropout: seed is NULL, without a number; allowed: a tensor, or a "
            "number of bool, i64 or u64, for u64");
  args.p = 1.5;
  args.seed_scalar = scalar(int64_t{3});
  EXPECT_EQ(infer(BP_OP_DROPOUT, args),
            "invalid argument: dropout: p is 1.5; allowed: 0 <= p <= 1");
}

TEST_F(Infer, CrossEntropyHasTwoOutputsAndAShapeByReduction) {
  auto args = frame<bp_cross_entropy_args>();
  args.x = tensors.make({6, 10}, BP_F16);
  args.target = tensors.make({6}, BP_I64);
  args.reduction = BP_CROSS_ENTROPY_REDUCTION_MEAN;
  EXPECT_EQ(infer(BP_OP_CROSS_ENTROPY, args), "f16; f32 6");
  args.reduction = BP_CROSS_ENTROPY_REDUCTION_NONE;
  EXPECT_EQ(infer(BP_OP_CROSS_ENTROPY, args), "f16 6; f32 6");
  args.label_smoothing = std::nan("");
  EXPECT_EQ(
      infer(BP_OP_CROSS_ENTROPY, args),
      "invalid argument: cross_entropy: label_smoothing is nan; allowed: 0 <= label_smoothing "
      "<= 1");
}

class InferSgd : public Infer {
 protected:
  InferSgd() {
    params = {tensors.make({2, 3}), tensors.make({4})};
    grads = {tensors.make({2, 3}), tensors.make({4})};
    args.params = params.data();
    args.params_count = 2;
    args.grads = grads.data();
    args.grads_count = 2;
    args.lr_scalar = scalar(0.1);
    args.step_scalar = scalar(int64_t{1});
  }
  std::vector<const bp_tensor*> params, grads;
  bp_sgd_step_args args = frame<bp_sgd_step_args>();
};

TEST_F(InferSgd, HasNoOutputsAndTakesNoBuffersWithoutMomentum) {
  EXPECT_EQ(infer(BP_OP_SGD_STEP, args), "");
  args.momentum = 0.9;
  EXPECT_EQ(
      infer(BP_OP_SGD_STEP, args),
      "invalid argument: sgd_step: params has 2 tensors of shapes (2, 3), (4), momentum_buffers "
      "has 0 tensors, "
      "momentum is 0.9; allowed: len(momentum_buffers) == len(params) where momentum != 0 "
      "(momentum needs a buffer for each parameter)");
}

TEST_F(InferSgd, RefusesListsThatDiffer) {
  grads[1] = tensors.make({5});
  EXPECT_EQ(infer(BP_OP_SGD_STEP, args),
            "invalid argument: sgd_step: grads[1] has shape (5); allowed: (4), which is "
            "params.shape");
  grads[1] = tensors.make({4}, BP_F64);
  EXPECT_EQ(infer(BP_OP_SGD_STEP, args),
            "invalid argument: sgd_step: grads[1] is f64; allowed: f32");
  args.grads_count = 1;
  EXPECT_EQ(infer(BP_OP_SGD_STEP, args),
            "invalid argument: sgd_step: grads has 1 entries; allowed: 2, which is len(params)");
}

TEST_F(InferSgd, RefusesAParameterThatStandsTwice) {
  EXPECT_EQ(check(BP_OP_SGD_STEP, args), "");
  params[1] = params[0];
  grads[1] = tensors.make({2, 3});
  EXPECT_EQ(check(BP_OP_SGD_STEP, args),
            "invalid argument: sgd_step: params overlaps the memory of params; allowed: memory of "
            "its own");
}

TEST_F(Infer, RefusesUnknownOpsFlagsAndSmallCapacities) {
  auto args = frame<bp_neg_args>();
  args.x = tensors.make({2});
  EXPECT_EQ(infer(99999, args), "not found: op 99999 is not known to this host");
  bp_op_output output;
  uint32_t count = 7;
  EXPECT_EQ(bp_op_infer(BP_OP_NEG, &args, 0, &output, &count), BP_INVALID_ARGUMENT);
  EXPECT_STREQ(bp_error_text(), "neg: capacity is 0; allowed: at least 1");
  EXPECT_EQ(bp_op_infer(BP_OP_NEG, nullptr, 1, &output, &count), BP_INVALID_ARGUMENT);
  EXPECT_EQ(count, 7u);
  args.flags = 2;
  EXPECT_EQ(infer(BP_OP_NEG, args), "invalid argument: neg: flags is 2; allowed: 0");
}

TEST_F(Infer, ReadsFramesOfNewerBuildsWhoseTailIsZero) {
  struct Newer {
    bp_neg_args args;
    uint64_t tail;
  } newer = {};
  newer.args.struct_size = sizeof(Newer);
  newer.args.x = tensors.make({2});
  EXPECT_EQ(infer(BP_OP_NEG, newer), "f32 2");
  newer.tail = 1;
  EXPECT_EQ(infer(BP_OP_NEG, newer).rfind("incompatible: neg: the frame has 32 bytes", 0), 0u);
  newer.args.struct_size = 8;
  EXPECT_EQ(infer(BP_OP_NEG, newer).rfind("incompatible: neg: the frame has 8 bytes", 0), 0u);
}

class Check : public Infer {
 protected:
  Check() {
    args.a = tensors.make({4, 4});
    args.b = tensors.make({4, 4});
    y = tensors.make({4, 4});
    args.y = y;
  }
  bp_tensor* y;
  bp_add_args args = frame<bp_add_args>();
};

TEST_F(Check, ComparesOutputsWithWhatFollows) {
  EXPECT_EQ(check(BP_OP_ADD, args), "");
  args.y = tensors.make({4, 5});
  EXPECT_EQ(
      check(BP_OP_ADD, args),
      "invalid argument: add: y has shape (4, 5); allowed: (4, 4), which is what follows from "
      "the arguments");
  args.y = tensors.make({4, 4}, BP_F64);
  EXPECT_EQ(check(BP_OP_ADD, args), "invalid argument: add: y is f64; allowed: f32");
  args.y = nullptr;
  EXPECT_EQ(check(BP_OP_ADD, args), "invalid argument: add: y is NULL; allowed: a tensor");
}

TEST_F(Check, LetsAnOutputBeAnInputAsAWholeOnly) {
  args.y = args.a;
  EXPECT_EQ(check(BP_OP_ADD, args), "");
  bp_tensor* shifted = tensors.view(args.a);
  shifted->byte_offset = 16;
  args.y = shifted;
  EXPECT_EQ(check(BP_OP_ADD, args),
            "invalid argument: add: y overlaps the memory of a; allowed: all of it or none");
  auto copy = frame<bp_copy_args>();
  copy.x = args.a;
  copy.y = args.a;
  EXPECT_EQ(check(BP_OP_COPY, copy),
            "invalid argument: copy: y overlaps the memory of x; allowed: memory of its own");
}

TEST_F(Check, BuildsNoTextWhereNoneIsWanted) {
  args = frame<bp_add_args>();
  bp_error_clear();
  EXPECT_EQ(bp_op_is_valid(BP_OP_ADD, &args), 0u);
  EXPECT_EQ(bp_op_is_valid(999, &args), 0u);
  args.struct_size = 1;
  EXPECT_EQ(bp_op_is_valid(BP_OP_ADD, &args), 0u);
  EXPECT_STREQ(bp_error_text(), "");
  EXPECT_EQ(bp_op_check(999, &args), BP_INVALID_ARGUMENT);
  EXPECT_STREQ(bp_error_text(), "there is no op 999") << "later refusals have texts again";
}

TEST(CanAlias, SaysWhichInputAnOutputMayBe) {
  EXPECT_EQ(bp_op_can_alias(BP_OP_ADD, 2, 0), 1u);
  EXPECT_EQ(bp_op_can_alias(BP_OP_ADD, 2, 1), 1u);
  EXPECT_EQ(bp_op_can_alias(BP_OP_ADD, 0, 1), 0u) << "a is no output";
  EXPECT_EQ(bp_op_can_alias(BP_OP_ADD, 2, 2), 0u);
  EXPECT_EQ(bp_op_can_alias(BP_OP_ADD, 3, 0), 0u);
  EXPECT_EQ(bp_op_can_alias(BP_OP_ADD, 2, UINT32_MAX), 0u);
  EXPECT_EQ(bp_op_can_alias(BP_OP_SOFTMAX, 1, 0), 1u) << "the axis is not counted";
  EXPECT_EQ(bp_op_can_alias(BP_OP_GATHER, 2, 0), 0u);
  EXPECT_EQ(bp_op_can_alias(0, 0, 0), 0u);
}

TEST_F(Check, LetsInputsBroadcastAndOutputsNot) {
  bp_tensor* row = tensors.make({4, 4});
  tensors.strides_of(row)[0] = 0;
  args.b = row;
  EXPECT_EQ(check(BP_OP_ADD, args), "");
  args.y = row;
  EXPECT_EQ(check(BP_OP_ADD, args),
            "invalid argument: add: y overlaps itself; allowed: strides that give each element a "
            "place of its own");
}

TEST_F(Check, WantsElementsInsideABuffer) {
  bp_tensor* b = tensors.make({4, 4});
  args.b = b;
  b->buffer = nullptr;
  EXPECT_EQ(check(BP_OP_ADD, args),
            "invalid argument: add: b has elements and no buffer; allowed: NULL for a tensor "
            "without elements");
  b = tensors.make({4, 4});
  args.b = b;
  b->byte_offset = 6;
  EXPECT_EQ(check(BP_OP_ADD, args),
            "invalid argument: add: b begins at byte 6 of its buffer; allowed: multiples of 4, the "
            "size of f32");
  b->byte_offset = 8;
  tensors.strides_of(b)[1] = -1;
  EXPECT_EQ(check(BP_OP_ADD, args),
            "invalid argument: add: b reaches down to byte -4 of its buffer; allowed: bytes from 0 "
            "to the end of the buffer");
  b->byte_offset = 12;
  EXPECT_EQ(check(BP_OP_ADD, args), "");
  tensors.strides_of(b)[1] = int64_t{1} << 61;
  EXPECT_EQ(check(BP_OP_ADD, args),
            "invalid argument: add: b reaches beyond every buffer; allowed: bytes from 0 to the "
            "end of the buffer");
}

TEST_F(Check, TakesEmptyTensorsWithoutABuffer) {
  bp_tensor* const empty[] = {tensors.make({0, 4}), tensors.make({0, 4}), tensors.make({0, 4})};
  for (bp_tensor* tensor : empty) tensor->buffer = nullptr;
  args.a = empty[0];
  args.b = empty[1];
  args.y = empty[2];
  EXPECT_EQ(check(BP_OP_ADD, args), "");
}

// To compare each tensor with each other tensor would take a quarter of an hour.
TEST_F(Check, ComparesManyTensorsThatShareMemoryOnce) {
  std::vector<const bp_tensor*> xs(500'000, tensors.make({1, 1}));
  auto cat = frame<bp_cat_args>();
  cat.xs_count = xs.size();
  cat.xs = xs.data();
  cat.axis = 0;
  bp_tensor* whole = tensors.make({static_cast<int64_t>(xs.size()), 1});
  cat.y = whole;
  EXPECT_EQ(check(BP_OP_CAT, cat), "");
  whole->buffer = xs[0]->buffer;
  EXPECT_EQ(check(BP_OP_CAT, cat),
            "invalid argument: cat: y overlaps the memory of xs; allowed: memory of its own");
  whole->byte_offset = 4;
  EXPECT_EQ(check(BP_OP_CAT, cat), "") << "behind them";
}

}  // namespace
