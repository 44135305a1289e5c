#include "backplane/runtime/ops.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "backplane/runtime/autograd.hpp"
#include "backplane/runtime/memory.hpp"
#include "runtime/ops/dispatch.hpp"
#include "runtime/test_device.hpp"

namespace bp {
namespace {

using Floats = std::vector<float>;

class Ops : public testing::Test {
 protected:
  Device device = test_device();
  DeviceGuard guard{device};
  Tensor x = from_host<float>({0, 1, 2, 3, 4, 5}, {2, 3}, device);
};

// ---- Promotion: the rules of the Python array API standard -------------------------------------

struct PromotionRow {
  bp_dtype a, b, common;  // 0: no dtype holds both.
};

TEST(Promotion, FollowsTheTable) {
  const PromotionRow rows[] = {
      // Within one kind, the wider dtype wins.
      {BP_I8, BP_I32, BP_I32},
      {BP_I64, BP_I16, BP_I64},
      {BP_U16, BP_U8, BP_U16},
      {BP_F32, BP_F64, BP_F64},
      {BP_F16, BP_F32, BP_F32},
      {BP_BF16, BP_F32, BP_F32},
      {BP_BF16, BP_F64, BP_F64},
      // Neither of these dtypes holds the other.
      {BP_F16, BP_BF16, BP_F32},
      {BP_F8E4M3FN, BP_F8E5M2, BP_F32},
      {BP_F8E4M3FN, BP_BF16, BP_BF16},
      // bool gives way to every other dtype.
      {BP_BOOL, BP_U8, BP_U8},
      {BP_BOOL, BP_I64, BP_I64},
      {BP_BOOL, BP_F16, BP_F16},
      // A signed integer holds every narrower unsigned integer.
      {BP_U8, BP_I8, BP_I16},
      {BP_U8, BP_I32, BP_I32},
      {BP_U16, BP_I16, BP_I32},
      {BP_U32, BP_I64, BP_I64},
      {BP_U32, BP_I32, BP_I64},
      {BP_U64, BP_I64, 0},
      {BP_U64, BP_I8, 0},
      // A float stays as it is beside an integer of any width.
      {BP_I64, BP_F16, BP_F16},
      {BP_U64, BP_F32, BP_F32},
      {BP_I32, BP_BF16, BP_BF16},
      {BP_I8, BP_F64, BP_F64},
  };
  for (const auto& [a, b, common] : rows) {
    EXPECT_EQ(detail::promote(a, b), common) << dtype_text(a) << " with " << dtype_text(b);
    EXPECT_EQ(detail::promote(b, a), common) << dtype_text(b) << " with " << dtype_text(a);
    EXPECT_EQ(detail::promote(a, a), a) << dtype_text(a);
  }
}

TEST(Promotion, IsNotRaisedByANumberWithinItsKind) {
  const struct {
    bp_dtype tensor;
    Scalar number;
    bp_dtype common;
  } rows[] = {
      {BP_F16, 1.5, BP_F16},
      {BP_BF16, 1e30, BP_BF16},
      {BP_F32, 1e300, BP_F32},
      {BP_F64, 1, BP_F64},
      {BP_F16, 100000, BP_F16},
      {BP_I8, 1, BP_I8},
      {BP_U8, 7, BP_U8},
      {BP_I32, true, BP_I32},
      {BP_F32, true, BP_F32},
      {BP_BOOL, true, BP_BOOL},
      // A number of a higher kind raises the dtype to the default dtype of that kind.
      {BP_I64, 0.5, BP_F32},
      {BP_U8, 0.5, BP_F32},
      {BP_BOOL, 0.5, BP_F32},
      {BP_BOOL, 1, BP_I64},
  };
  for (const auto& [tensor, number, common] : rows) {
    EXPECT_EQ(detail::promote_scalar(tensor, number.get()), common)
        << dtype_text(tensor) << " with a number of " << dtype_text(number.get().dtype);
  }
}

TEST_F(Ops, PromoteAsTheTableSays) {
  const auto like = [&](bp_dtype dtype) { return ones({2}, dtype); };
  EXPECT_EQ((like(BP_F32) + like(BP_I64)).dtype(), bp_dtype{BP_F32});
  EXPECT_EQ((like(BP_F16) + 0.5).dtype(), bp_dtype{BP_F16});
  EXPECT_EQ((like(BP_I32) * 3).dtype(), bp_dtype{BP_I32});
  EXPECT_EQ((like(BP_F16) + like(BP_BF16)).dtype(), bp_dtype{BP_F32});
  EXPECT_EQ((like(BP_I32) / like(BP_I32)).dtype(), bp_dtype{BP_F32});
  EXPECT_EQ((like(BP_BOOL) + 1).dtype(), bp_dtype{BP_I64});
  EXPECT_EQ(message_of([&] { add(arange(2, BP_I64), empty({2}, BP_U64)); }),
            "add: a is i64 and b is u64, and no dtype holds both; cast one with to()");
}

TEST_F(Ops, SelectWithBroadcastAndPromotion) {
  const Tensor row = from_host<float>({10, 20, 30}, {3}, device);
  const Tensor second = arange(2, BP_I64).reshape({2, 1}) == 1;
  EXPECT_EQ(where(second, x, row).to_vector<float>(), (Floats{10, 20, 30, 3, 4, 5}));
  EXPECT_EQ(where(second, row, -1).to_vector<float>(), (Floats{-1, -1, -1, 10, 20, 30}));
  EXPECT_EQ(where(second, arange(3, BP_I64), row).dtype(), bp_dtype{BP_F32});
  EXPECT_EQ(where(second, arange(3, BP_I64), 0.5).dtype(), bp_dtype{BP_F32});
  EXPECT_EQ(message_of([&] { where(x == 1, x, arange(2, BP_F32)); }),
            "where: b has the shape (2,), and condition and a (2, 3); allowed: shapes whose "
            "extents, from the last one, are equal or 1");
  EXPECT_NE(message_of([&] { where(x, x, x); }).find("where: condition"), std::string::npos);
}

TEST_F(Ops, RefuseAnEmptyListOfTensors) {
  EXPECT_EQ(message_of([] { cat({}, 0); }), "cat: xs has no tensors; allowed: at least one");
}

// ---- Elementwise -------------------------------------------------------------------------------

TEST_F(Ops, AddTensorsAndNumbers) {
  EXPECT_EQ((x + x).to_vector<float>(), (Floats{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ((x + 1).to_vector<float>(), (Floats{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ((1 - x).to_vector<float>(), (Floats{1, 0, -1, -2, -3, -4}));
  EXPECT_EQ((6 / (x + 1)).to_vector<float>(), (Floats{6, 3, 2, 1.5, 1.2F, 1}));
  EXPECT_EQ((-x).to_vector<float>(), (Floats{-0.0F, -1, -2, -3, -4, -5}));
}

TEST_F(Ops, BroadcastFromTheLastAxis) {
  const Tensor row = from_host<float>({10, 20, 30}, {3}, device);
  const Tensor column = from_host<float>({100, 200}, {2, 1}, device);
  EXPECT_EQ((x + row).to_vector<float>(), (Floats{10, 21, 32, 13, 24, 35}));
  EXPECT_EQ((column + row).to_vector<float>(), (Floats{110, 120, 130, 210, 220, 230}));
  EXPECT_EQ(message_of([&] { x + arange(2, BP_F32); }),
            "add: a has the shape (2, 3) and b (2,); allowed: shapes whose extents, from the last "
            "one, are equal or 1");
}

TEST_F(Ops, CastToACommonDtype) {
  const Tensor whole = arange(3, BP_I64);
  EXPECT_EQ((whole + whole).dtype(), bp_dtype{BP_I64});
  EXPECT_EQ((whole + 0.5).to_vector<float>(), (Floats{0.5, 1.5, 2.5}));
  EXPECT_EQ((x + whole).dtype(), bp_dtype{BP_F32});
  EXPECT_EQ((whole / 2).to_vector<float>(), (Floats{0, 0.5, 1}));
  EXPECT_EQ((x.to(BP_F64) * x).dtype(), bp_dtype{BP_F64});
}

TEST_F(Ops, CompareWithNumbersAndTensors) {
  EXPECT_EQ((x == 2).to_vector<uint8_t>(), (std::vector<uint8_t>{0, 0, 1, 0, 0, 0}));
  EXPECT_EQ((x == x).dtype(), bp_dtype{BP_BOOL});
}

TEST_F(Ops, WriteIntoAnOutputAndCountIt) {
  const Tensor y = zeros({2, 3}, BP_F32);
  const uint32_t before = y.version();
  add_out(y, x, 1);
  EXPECT_EQ(y.to_vector<float>(), (Floats{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(y.version(), before + 1);
  add_out(x, x, x);
  EXPECT_EQ(x.to_vector<float>(), (Floats{0, 2, 4, 6, 8, 10}));
}

TEST_F(Ops, RefuseAnOutputOfAnotherShape) {
  const std::string message = message_of([&] { add_out(zeros({3, 2}, BP_F32), x, x); });
  EXPECT_NE(message.find("add: y"), std::string::npos) << message;
  EXPECT_NE(message.find("(3, 2)"), std::string::npos) << message;
}

TEST_F(Ops, NameOpAndArgumentInEveryRefusal) {
  EXPECT_EQ(message_of([&] { softmax(x, 2); }), "softmax: axis is 2; allowed: -2 <= axis < 2");
  EXPECT_EQ(message_of([&] { relu(Tensor()); }), "relu: x is empty; allowed: a tensor");
  const std::string dtype = message_of([&] { exp(arange(2, BP_I64)); });
  EXPECT_NE(dtype.find("exp: x"), std::string::npos) << dtype;
  EXPECT_NE(dtype.find("i64"), std::string::npos) << dtype;
  const std::string shape = message_of([&] { matmul(x, x); });
  EXPECT_NE(shape.find("matmul: b"), std::string::npos) << shape;
  EXPECT_EQ(message_of([] { add(1, 2); }),
            "add: a and b are numbers; allowed: at least one tensor");
}

TEST_F(Ops, SayWhatIsGivenAndWhatIsAllowed) {
  const auto z = [](std::initializer_list<int64_t> shape, bp_dtype dtype = BP_F32) {
    return zeros(IntList(shape), dtype);
  };
  EXPECT_EQ(message_of([&] { full({2}, 1.5, BP_I64); }),
            "fill: value is a number of f64; allowed: a tensor, or a number of bool, i64 or u64, "
            "for i64");
  EXPECT_EQ(message_of([&] {
              cat(std::vector{x, z({2, 4})}, 0);
            }),
            "cat: y has no shape where xs has 2 tensors of shapes (2, 3), (2, 4), axis is 0; "
            "allowed: at least one tensor, and extents that differ along the axis alone, in "
            "concatenated(xs, axis)");
  EXPECT_EQ(message_of([&] { gather(x, z({4}, BP_I64), 1); }),
            "gather: indices has 1 axis; allowed: 2, which is x.ndim");
  EXPECT_EQ(message_of([&] { softmax(z({}), 1); }), "softmax: axis is 1; allowed: -1 <= axis < 1");
  EXPECT_EQ(message_of([&] { layer_norm(x, z({4}), z({4}), 1, 1e-5); }),
            "layer_norm: gamma has shape (4); allowed: (3), which is x.shape[x.ndim - "
            "normalized_ndim:]");
  EXPECT_EQ(message_of([&] { layer_norm(x, {}, {}, 1, std::nan("")); }),
            "layer_norm: eps is nan; allowed: 0 <= eps");
  EXPECT_EQ(message_of([&] { cross_entropy(x, z({2})); }),
            "cross_entropy: target is f32; allowed: i32, i64");
  EXPECT_EQ(message_of([&] {
              amax(z({0, 3}), {0});
            }),
            "amax: x is (0, 3); allowed: numel(x) >= min(numel(y), 1) (no elements have no largest "
            "one)");
  const std::string window = message_of([&] { max_pool(z({1, 1, 2, 2}), {3, 3}, {1, 1}); });
  EXPECT_NE(window.find("max_pool: y has no shape where x is (1, 1, 2, 2), kernel_size is (3, 3)"),
            std::string::npos)
      << window;
  EXPECT_NE(window.find("allowed: windows that fit into the padded extents"), std::string::npos);
}

// ---- Reductions, matrices, windows -------------------------------------------------------------

TEST_F(Ops, ReduceOverAnyAxes) {
  EXPECT_EQ(sum(x).item<float>(), 15);
  EXPECT_EQ(sum(x, {0}).to_vector<float>(), (Floats{3, 5, 7}));
  EXPECT_EQ(sum(x, {-1}, true).shape(), IntList({2, 1}));
  EXPECT_EQ(sum(x == x).item<int64_t>(), 6) << "bool is added in i64";
  EXPECT_EQ(mean(x, {1}).to_vector<float>(), (Floats{1, 4}));
  EXPECT_EQ(amax(x, {0}).to_vector<float>(), (Floats{3, 4, 5}));
  EXPECT_EQ(argmax(x, 1).to_vector<int64_t>(), (std::vector<int64_t>{2, 2}));
}

TEST_F(Ops, TakeAxis0AndMinus1OfATensorWithoutAxes) {
  const Tensor one = sum(x);
  for (const int64_t axis : {0, -1}) {
    EXPECT_EQ(sum(one, {axis}).item<float>(), 15);
    EXPECT_EQ(softmax(one, axis).item<float>(), 1);
    EXPECT_EQ(argmax(one, axis).item<int64_t>(), 0);
    EXPECT_EQ(sort(one, axis).shape(), IntList());
    EXPECT_EQ(gather(one, argmax(one, axis), axis).item<float>(), 15);
  }
}

TEST_F(Ops, MultiplyMatricesWithBroadcastBatches) {
  EXPECT_EQ(matmul(x, x.transpose()).to_vector<float>(), (Floats{5, 14, 14, 50}));
  const Tensor batch = x.reshape({2, 1, 3});
  const Tensor one = ones({1, 3, 2}, BP_F32);
  EXPECT_EQ(matmul(batch, one).to_vector<float>(), (Floats{3, 3, 12, 12}));
  EXPECT_EQ(message_of([&] {
              matmul(ones({2, 1, 3}, BP_F32), ones({3, 3, 1}, BP_F32));
            }),
            "matmul: a has the shape (2, 1, 3) and b (3, 3, 1); allowed: axes before the last two "
            "that are equal or 1");
}

TEST_F(Ops, ApplyLinearLayers) {
  const Tensor weight = from_host<float>({1, 0, 0, 0, -1, 0}, {2, 3}, device);
  const Tensor bias = from_host<float>({0.5, 1}, {2}, device);
  EXPECT_EQ(linear(x, weight, bias).to_vector<float>(), (Floats{0.5, 0, 3.5, -3}));
  EXPECT_EQ(linear(x, weight, bias, Activation::kRelu).to_vector<float>(),
            (Floats{0.5, 0, 3.5, 0}));
  EXPECT_EQ(linear(x, weight).to_vector<float>(), (Floats{0, -1, 3, -4}));
}

TEST_F(Ops, ScaleAProductAndAddToIt) {
  const Tensor weight = from_host<float>({1, 0, 0, 0, -1, 0}, {2, 3}, device);
  const Tensor bias = from_host<float>({0.5, 1}, {2}, device);
  const Tensor addend = from_host<float>({1, 2}, {2}, device).expand({2, 2});
  EXPECT_EQ(matmul(x, weight.transpose(), 0, addend).to_vector<float>(), (Floats{1, 1, 4, -2}));
  EXPECT_EQ(matmul(x, weight.transpose(), 0, addend, 2, -1).to_vector<float>(),
            (Floats{-1, -4, 5, -10}));
  EXPECT_EQ(matmul(x, weight.transpose(), 0, {}, 2).to_vector<float>(), (Floats{0, -2, 6, -8}));
  EXPECT_EQ(linear(x, weight, bias, Activation::kNone, 0, nullptr, addend, 2).to_vector<float>(),
            (Floats{1.5, 1, 7.5, -5}));
  EXPECT_EQ(linear(x, weight, bias, Activation::kRelu, 0, nullptr, {}, 2).to_vector<float>(),
            (Floats{0.5, 0, 6.5, 0}));
}

TEST_F(Ops, FillUpShortLists) {
  const Tensor image = ones({1, 1, 4, 4}, BP_F32);
  const Tensor kernel = ones({1, 1, 3, 3}, BP_F32);
  EXPECT_EQ(convolution(image, kernel).shape(), IntList({1, 1, 2, 2}));
  EXPECT_EQ(convolution(image, kernel, {}, {}, {1}).shape(), IntList({1, 1, 4, 4}));
  EXPECT_EQ(convolution(image, kernel, {}, {2}, {1, 1}).shape(), IntList({1, 1, 2, 2}));
  EXPECT_EQ(max_pool(image, {2}).shape(), IntList({1, 1, 2, 2})) << "stride is the kernel's size";
}

TEST_F(Ops, GiveOptionalOutputsWhereAPlaceIsGiven) {
  Tensor indices;
  const Tensor image = arange(4, BP_F32).reshape({1, 1, 2, 2});
  EXPECT_EQ(max_pool(image, {2}, {}, {}, {}, &indices).item<float>(), 3);
  EXPECT_EQ(indices.item<int64_t>(), 3);
}

TEST_F(Ops, ComputeLosses) {
  const Tensor target = from_host<int64_t>({2, 0}, {2}, device);
  const float expected = std::log(1 + std::exp(-1.0F) + std::exp(-2.0F));
  const Tensor losses = cross_entropy(x, target, -100, 0, Reduction::kNone);
  EXPECT_NEAR(losses.select(0, 0).item<float>(), expected, 1e-5);
  EXPECT_NEAR(losses.select(0, 1).item<float>(), expected + 2, 1e-5);
  EXPECT_NEAR(cross_entropy(x, target).item<float>(), expected + 1, 1e-5);
}

// ---- Random ------------------------------------------------------------------------------------

TEST_F(Ops, RepeatNumbersOfOneSeed) {
  manual_seed(7);
  const Floats first = uniform({5}, BP_F32).to_vector<float>();
  const Floats second = uniform({5}, BP_F32).to_vector<float>();
  EXPECT_NE(first, second);
  manual_seed(7);
  EXPECT_EQ(uniform({5}, BP_F32).to_vector<float>(), first);
  EXPECT_EQ(device.generator().state().offset, 2u) << "5 elements take 2 blocks of 4 words";
  uniform({5}, BP_F64);
  EXPECT_EQ(device.generator().state().offset, 5u) << "5 elements take 3 blocks of 2 numbers";
}

TEST_F(Ops, DropAndScaleElements) {
  Generator generator(3);
  const Tensor y = dropout(ones({1000}, BP_F32), 0.25, &generator);
  const double kept = sum(y).item<double>() * 0.75;
  EXPECT_NEAR(kept, 750, 60);
  EXPECT_NEAR(amax(y).item<double>(), 1 / 0.75, 1e-6);
  EXPECT_EQ(generator.state().offset, 250u);
}

// ---- Optimisers --------------------------------------------------------------------------------

TEST_F(Ops, UpdateParametersInPlace) {
  const std::vector<Tensor> params{ones({2}, BP_F32)};
  const std::vector<Tensor> grads{full({2}, 0.5, BP_F32)};
  const uint32_t before = params[0].version();
  sgd_step(params, grads, {}, 0.1, 1);
  EXPECT_NEAR(params[0].select(0, 0).item<float>(), 0.95, 1e-6);
  EXPECT_EQ(params[0].version(), before + 1);
}

TEST_F(Ops, RefuseToUpdateWhatIsRecorded) {
  const std::vector<Tensor> params{ones({2}, BP_F32)};
  params[0].set_requires_grad();
  EXPECT_EQ(
      message_of([&] { sgd_step(params, params, {}, 0.1, 1); }),
      "sgd_step: a tensor requires a gradient, and writes in place are not recorded; put them "
      "under a bp::NoGradGuard");
  const NoGradGuard no_grad;
  EXPECT_NO_THROW(sgd_step(params, {{ones({2}, BP_F32)}}, {}, 0.1, 1));
}

// ---- Streams, devices, memory ------------------------------------------------------------------

TEST_F(Ops, RunOnTheStreamOfTheInnermostGuard) {
  Stream side(device);
  Tensor y;
  {
    const StreamGuard on_side(side);
    EXPECT_EQ(current_stream(device.target()), side.get());
    y = x + 1;
    synchronize_stream(device);
  }
  EXPECT_EQ(current_stream(device.target()), nullptr);
  EXPECT_TRUE(side.is_idle());
  EXPECT_EQ(y.to_vector<float>(), (Floats{1, 2, 3, 4, 5, 6}));
}

TEST_F(Ops, OrderStreamsByEvents) {
  Stream first(device);
  Stream second(device);
  Event event(device);
  Tensor y;
  {
    const StreamGuard guard_first(first);
    y = x + 1;
    event.record(first);
  }
  second.wait_for(event);
  const StreamGuard guard_second(second);
  y.record_stream(second);
  EXPECT_EQ((y + 1).to_vector<float>(), (Floats{2, 3, 4, 5, 6, 7}));
  EXPECT_TRUE(event.is_done());
}

TEST(Devices, ExplainANameThatIsNotFound) {
  const std::string message = message_of([] { Device("no_such_backend:3"); });
  EXPECT_NE(message.find("device 'no_such_backend:3': "), std::string::npos) << message;
}

TEST_F(Ops, GiveTheirMemoryBack) {
  const uint64_t before = memory_statistics(device).allocated_bytes;
  {
    const Tensor big = zeros({1024}, BP_F32);
    EXPECT_GE(memory_statistics(device).allocated_bytes, before + 4096);
  }
  EXPECT_EQ(memory_statistics(device).allocated_bytes, before);
  EXPECT_NE(memory_summary(device).find("allocated bytes"), std::string::npos);
}

}  // namespace
}  // namespace bp
