// Decompositions and the host fallback behind real backends, loaded from files: the host, whose own
// kernels are what results are compared with, and a device that has hardly any.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "backplane/host.h"
#include "backplane/ops.h"
#include "backplane/registry.hpp"

namespace bp {
namespace {

template <typename T>
constexpr bp_dtype kDtypeOf = 0;
template <>
constexpr bp_dtype kDtypeOf<float> = BP_F32;
template <>
constexpr bp_dtype kDtypeOf<double> = BP_F64;
template <>
constexpr bp_dtype kDtypeOf<int64_t> = BP_I64;

// A tensor and the memory around it. Elements are read and written as bytes of the whole block, so
// that what lies between them is seen as well.
template <typename T>
class Tensor {
 public:
  // Row-major, at the beginning of the block.
  Tensor(const bp_target& target, std::vector<int64_t> shape)
      : Tensor(target, shape, row_major(shape), 0, count(shape)) {}

  // In a block of `size` elements, of which the first is number `origin`.
  Tensor(const bp_target& target, std::vector<int64_t> shape, std::vector<int64_t> strides,
         int64_t origin, int64_t size)
      : target_(target), shape_(std::move(shape)), strides_(std::move(strides)), origin_(origin) {
    const Status status =
        allocate(target, nullptr, static_cast<uint64_t>(size) * sizeof(T), &block_);
    EXPECT_TRUE(status.ok()) << status.message;
    tensor_ = {.buffer = block_->ref.buffer,
               .byte_offset = block_->ref.byte_offset + static_cast<uint64_t>(origin) * sizeof(T),
               .shape = shape_.data(),
               .strides = strides_.data(),
               .ndim = static_cast<uint32_t>(shape_.size()),
               .dtype = kDtypeOf<T>};
    write(std::vector<T>(static_cast<size_t>(size), T{77}));
  }
  Tensor(const Tensor&) = delete;

  const bp_tensor* get() const { return &tensor_; }
  size_t size() const { return static_cast<size_t>(count(shape_)); }

  // The whole block, elements and what lies between them.
  void write(const std::vector<T>& block) {
    size_ = block.size();
    if (block.empty()) return;
    const bp_buffer_ref ref{block_->ref.buffer, block_->ref.byte_offset, size_ * sizeof(T)};
    const bp_allocator_ops& memory = *target_.allocator;
    ASSERT_EQ(memory.copy_from_host(memory.self, target_.default_stream, &ref, block.data(),
                                    BP_BORROW_DURING_CALL),
              BP_OK)
        << bp_error_text();
  }
  std::vector<T> read() const {
    std::vector<T> block(size_);
    if (block.empty()) return block;
    const bp_buffer_ref ref{block_->ref.buffer, block_->ref.byte_offset, size_ * sizeof(T)};
    const bp_allocator_ops& memory = *target_.allocator;
    EXPECT_EQ(memory.copy_to_host(memory.self, target_.default_stream, block.data(), &ref,
                                  BP_BORROW_DURING_CALL),
              BP_OK)
        << bp_error_text();
    return block;
  }

  // The place in the block of element `index` in row-major order.
  size_t place(size_t index) const {
    int64_t rest = static_cast<int64_t>(index), at = origin_;
    for (size_t axis = shape_.size(); axis-- > 0; rest /= shape_[axis]) {
      at += rest % shape_[axis] * strides_[axis];
    }
    return static_cast<size_t>(at);
  }

  void set(const std::vector<T>& elements) {
    std::vector<T> block = read();
    for (size_t i = 0; i < elements.size(); ++i) block[place(i)] = elements[i];
    write(block);
  }
  std::vector<T> elements() const {
    const std::vector<T> block = read();
    std::vector<T> elements;
    for (size_t i = 0; i < size(); ++i) elements.push_back(block[place(i)]);
    return elements;
  }

 private:
  static int64_t count(const std::vector<int64_t>& shape) {
    return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  }
  static std::vector<int64_t> row_major(const std::vector<int64_t>& shape) {
    std::vector<int64_t> strides(shape.size());
    int64_t stride = 1;
    for (size_t axis = shape.size(); axis-- > 0; stride *= shape[axis]) strides[axis] = stride;
    return strides;
  }

  const bp_target& target_;
  std::vector<int64_t> shape_, strides_;
  int64_t origin_;
  size_t size_ = 0;
  BlockHandle block_;
  bp_tensor tensor_{};
};

template <typename T>
std::vector<T> random_values(size_t count) {
  std::mt19937 engine(5);
  std::uniform_real_distribution<T> distribution(-2, 2);
  std::vector<T> values(count);
  for (T& value : values) value = distribution(engine);
  return values;
}

const bp_target* load(Registry& registry, const char* path) {
  const bp_plugin* plugin = nullptr;
  const Status status = registry.load(path, {}, &plugin);
  EXPECT_TRUE(status.ok()) << status.message;
  for (const bp_target* target : registry.targets()) {
    if (target->plugin == plugin) return target;
  }
  return nullptr;
}

bp_dispatch_statistics statistics(const bp_target& target, uint32_t op) {
  bp_dispatch_statistics s{.struct_size = sizeof(s), .struct_type = BP_STRUCT_DISPATCH_STATISTICS};
  EXPECT_EQ(bp_target_statistics(&target, op, &s), BP_OK) << bp_error_text();
  return s;
}

// Close to `expected`, as a few roundings of values of that magnitude leave it.
template <typename T>
void expect_close(const std::vector<T>& actual, const std::vector<T>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    if (std::isnan(expected[i])) {
      EXPECT_TRUE(std::isnan(actual[i])) << "element " << i << " is " << actual[i];
      continue;
    }
    const T scale = std::max(T{1}, std::abs(expected[i]));
    EXPECT_NEAR(actual[i], expected[i], 8 * std::numeric_limits<T>::epsilon() * scale)
        << "element " << i;
  }
}

// ---- Decompositions ----------------------------------------------------------------------------

template <typename T>
class Decompositions : public testing::Test {
 protected:
  // Runs `op` by one kind of kernel only. The frame is checked first.
  template <typename Args>
  void launch(bp_kernel_sources source, uint32_t op, Args args) {
    args.struct_size = sizeof(Args);
    ASSERT_EQ(bp_op_check(op, &args), BP_OK) << bp_error_text();
    bp_kernel_choice choice{};
    ASSERT_EQ(bp_kernel_find(host, 0, source, op, &args, &choice), BP_OK) << bp_error_text();
    ASSERT_EQ(choice.source, source);
    ASSERT_EQ(bp_kernel_launch(host, nullptr, 0, choice.kernel, &args), BP_OK) << bp_error_text();
  }

  // Runs `op` both ways into the member `output`.
  template <typename Args>
  void compare(uint32_t op, Args args, const bp_tensor* Args::*output, std::vector<int64_t> shape) {
    Tensor<T> native(*host, shape), decomposed(*host, shape);
    args.*output = native.get();
    launch(BP_KERNEL_NATIVE, op, args);
    args.*output = decomposed.get();
    launch(BP_KERNEL_DECOMPOSED, op, args);
    expect_close(decomposed.elements(), native.elements());
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

TYPED_TEST(Decompositions, OfLinearEqualsTheKernel) {
  // The rows of x are columns of its block: the decomposition must copy before it reshapes.
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
  values[3] = 200;  // Whose exponential overflows f32.
  x.set(values);
  for (const int32_t axis : {0, 1, 2}) {
    const bp_log_softmax_args args{.x = x.get(), .axis = axis};
    this->compare(BP_OP_LOG_SOFTMAX, args, &bp_log_softmax_args::y, {4, 3, 6});
  }
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
  run(BP_CROSS_ENTROPY_REDUCTION_MEAN);  // NaN: the mean of nothing.
  run(BP_CROSS_ENTROPY_REDUCTION_SUM);
}

// ---- The host fallback -------------------------------------------------------------------------

class HostFallback : public testing::Test {
 protected:
  using Floats = Tensor<float>;

  bp_status sub(const Floats& a, const Floats& b, const Floats& y) {
    const bp_sub_args args{.struct_size = sizeof(args), .a = a.get(), .b = b.get(), .y = y.get()};
    EXPECT_EQ(bp_op_check(BP_OP_SUB, &args), BP_OK) << bp_error_text();
    return bp_op_launch(device, nullptr, 0, BP_OP_SUB, &args);
  }

  // Sets a to 1, 2, 3 ... and b to 10, 20, 30 ..., and holds the elements of y against their
  // difference, and the rest of its block against what it was.
  void expect_difference(Floats& a, Floats& b, Floats& y) {
    std::vector<float> ones(a.size()), tens(a.size());
    std::iota(ones.begin(), ones.end(), 1.0f);
    std::ranges::transform(ones, tens.begin(), [](float value) { return 10 * value; });
    a.set(ones);
    b.set(tens);
    std::vector<float> expected = y.read();
    for (size_t i = 0; i < ones.size(); ++i) expected[y.place(i)] = ones[i] - tens[i];
    const uint64_t before = statistics(*device, BP_OP_SUB).host_fallback_count;
    ASSERT_EQ(sub(a, b, y), BP_OK) << bp_error_text();
    EXPECT_EQ(statistics(*device, BP_OP_SUB).host_fallback_count, before + 1);
    EXPECT_EQ(y.read(), expected);
  }

  Registry registry;
  const bp_target* host = load(registry, BACKPLANE_TEST_PLUGIN);
  const bp_target* device = load(registry, BACKPLANE_TEST_DEVICE_PLUGIN);
};

TEST_F(HostFallback, RunsWhatTheDeviceHasNoKernelFor) {
  Floats a(*device, {3, 4}), b(*device, {3, 4}), y(*device, {3, 4});
  expect_difference(a, b, y);
  EXPECT_EQ(statistics(*device, BP_OP_SUB).native_count, 0);
  EXPECT_EQ(statistics(*device, 0).host_fallback_count, 1);
}

TEST_F(HostFallback, LeavesWhatTheDeviceHasToIt) {
  Floats a(*device, {3, 4}), y(*device, {3, 4});
  const bp_add_args args{.struct_size = sizeof(args), .a = a.get(), .b = a.get(), .y = y.get()};
  ASSERT_EQ(bp_op_launch(device, nullptr, 0, BP_OP_ADD, &args), BP_OK) << bp_error_text();
  EXPECT_EQ(y.elements(), std::vector<float>(12, 154));
  EXPECT_EQ(statistics(*device, BP_OP_ADD).native_count, 1);
  EXPECT_EQ(statistics(*device, 0).host_fallback_count, 0);
}

TEST_F(HostFallback, ReadsAndWritesStridesAndOffsets) {
  Floats a(*device, {3, 4}, {1, 3}, 0, 12);     // Transposed.
  Floats b(*device, {3, 4}, {-4, -1}, 11, 12);  // Backwards.
  Floats y(*device, {3, 4}, {4, 1}, 5, 20);     // In the middle of its block.
  expect_difference(a, b, y);
  Floats backwards(*device, {3, 4}, {-5, 1}, 13, 20);  // And with a gap behind each row.
  expect_difference(a, b, backwards);
}

TEST_F(HostFallback, LeavesTheGapsOfAnOutputAlone) {
  Floats a(*device, {3, 4}), b(*device, {3, 4}), y(*device, {3, 4}, {16, 3}, 2, 50);
  std::vector<float> block(50);
  std::iota(block.begin(), block.end(), 1000.0f);
  y.write(block);
  expect_difference(a, b, y);
}

TEST_F(HostFallback, RepeatsTheElementOfAnAxisWithoutStride) {
  Floats a(*device, {2, 3}), b(*device, {2, 3}, {1, 0}, 0, 2), y(*device, {2, 3});
  a.set({1, 2, 3, 4, 5, 6});
  b.write({10, 20});
  ASSERT_EQ(sub(a, b, y), BP_OK) << bp_error_text();
  EXPECT_EQ(y.elements(), (std::vector<float>{-9, -8, -7, -16, -15, -14}));
}

TEST_F(HostFallback, RunsOnTensorsWithoutElements) {
  Floats a(*device, {0, 4}), b(*device, {0, 4}), y(*device, {0, 4});
  expect_difference(a, b, y);
}

TEST_F(HostFallback, WritesInPlace) {
  Floats a(*device, {4}), b(*device, {4});
  expect_difference(a, b, a);
  expect_difference(a, b, b);
}

TEST_F(HostFallback, HandsInlineScalarsOn) {
  Floats a(*device, {3}), y(*device, {3});
  a.set({1, 2, 3});
  const bp_sub_args args{
      .struct_size = sizeof(args), .a = a.get(), .b_scalar = {BP_I64, 0, 5}, .y = y.get()};
  ASSERT_EQ(bp_op_launch(device, nullptr, 0, BP_OP_SUB, &args), BP_OK) << bp_error_text();
  EXPECT_EQ(y.elements(), (std::vector<float>{-4, -3, -2}));
}

// The state of an optimizer over two tensors, on one device.
struct AdamW {
  explicit AdamW(const bp_target& target)
      : tensors{{target, {4}}, {target, {3}}, {target, {4}}, {target, {3}},
                {target, {4}}, {target, {3}}, {target, {4}}, {target, {3}}} {
    for (size_t i = 0; i < std::size(tensors); ++i) {
      std::vector<float> values = random_values<float>(tensors[i].size());
      for (float& value : values) value = std::abs(value) + static_cast<float>(i);
      tensors[i].set(values);
      lists[i / 2][i % 2] = tensors[i].get();
    }
  }

  void step(const bp_target& target) {
    const double lr = 0.01;
    bp_adamw_step_args args{.struct_size = sizeof(args),
                            .params_count = 2,
                            .params = lists[0],
                            .grads_count = 2,
                            .grads = lists[1],
                            .exp_avg_count = 2,
                            .exp_avg = lists[2],
                            .exp_avg_sq_count = 2,
                            .exp_avg_sq = lists[3],
                            .lr_scalar = {BP_F64, 0, 0},
                            .step_scalar = {BP_I64, 0, 3},
                            .beta1 = 0.9,
                            .beta2 = 0.999,
                            .eps = 1e-8,
                            .weight_decay = 0.01};
    std::memcpy(&args.lr_scalar.bits, &lr, sizeof(lr));
    ASSERT_EQ(bp_op_check(BP_OP_ADAMW_STEP, &args), BP_OK) << bp_error_text();
    ASSERT_EQ(bp_op_launch(&target, nullptr, 0, BP_OP_ADAMW_STEP, &args), BP_OK) << bp_error_text();
  }

  Tensor<float> tensors[8];
  const bp_tensor* lists[4][2];  // Parameters, gradients, and the two averages.
};

TEST_F(HostFallback, BringsTheTensorsOfListsBackInPlace) {
  AdamW here(*host), there(*device), before(*host);
  here.step(*host);
  EXPECT_EQ(statistics(*host, BP_OP_ADAMW_STEP).native_count, 1);
  there.step(*device);
  EXPECT_EQ(statistics(*host, BP_OP_ADAMW_STEP).native_count, 2);
  EXPECT_EQ(statistics(*device, BP_OP_ADAMW_STEP).host_fallback_count, 1);
  for (size_t i = 0; i < std::size(here.tensors); ++i) {
    EXPECT_EQ(there.tensors[i].elements(), here.tensors[i].elements()) << "tensor " << i;
    const bool is_gradient = i / 2 == 1;
    EXPECT_EQ(there.tensors[i].elements() == before.tensors[i].elements(), is_gradient);
  }
}

TEST_F(HostFallback, GivesItsMemoryBack) {
  Floats a(*device, {256}), b(*device, {256}), y(*device, {256});
  bp_cache_statistics s{.struct_size = sizeof(s), .struct_type = BP_STRUCT_CACHE_STATISTICS};
  ASSERT_EQ(sub(a, b, y), BP_OK) << bp_error_text();
  ASSERT_EQ(bp_cache_get_statistics(host, &s), BP_OK) << bp_error_text();
  EXPECT_EQ(s.allocated_bytes, 0);
  EXPECT_GT(s.allocation_count, 0);
}

// What a device says to an op that it has no kernel for.
std::string refusal(const bp_target& device) {
  Tensor<float> x(device, {4});
  const bp_sub_args args{.struct_size = sizeof(args), .a = x.get(), .b = x.get(), .y = x.get()};
  EXPECT_EQ(bp_op_launch(&device, nullptr, 0, BP_OP_SUB, &args), BP_UNSUPPORTED);
  EXPECT_EQ(statistics(device, 0).host_fallback_count, 0);
  return take_error();
}

TEST(HostFallbackRefusal, SaysThatTheFlagsOfTheRegistryForbidIt) {
  const bp_registry_desc desc{.struct_size = sizeof(desc),
                              .struct_type = BP_STRUCT_REGISTRY_DESC,
                              .flags = BP_REGISTRY_FORBID_HOST_FALLBACK};
  Registry registry(&desc);
  ASSERT_NE(load(registry, BACKPLANE_TEST_PLUGIN), nullptr);
  const std::string text = refusal(*load(registry, BACKPLANE_TEST_DEVICE_PLUGIN));
  EXPECT_NE(text.find("host fallback: forbidden by the flags of the registry"), text.npos) << text;
}

TEST(HostFallbackRefusal, SaysWhatToLoadWhereThereIsNoHost) {
  Registry registry;
  const bp_target* device = load(registry, BACKPLANE_TEST_DEVICE_PLUGIN);
  const std::string text = refusal(*device);
  EXPECT_NE(text.find("no device of class host is loaded; load a backend that has one"), text.npos)
      << text;
  ASSERT_NE(load(registry, BACKPLANE_TEST_PLUGIN), nullptr);  // And then it works.
  Tensor<float> x(*device, {4});
  const bp_sub_args args{.struct_size = sizeof(args), .a = x.get(), .b = x.get(), .y = x.get()};
  EXPECT_EQ(bp_op_launch(device, nullptr, 0, BP_OP_SUB, &args), BP_OK) << bp_error_text();
  EXPECT_EQ(x.elements(), std::vector<float>(4, 0));
}

}  // namespace
}  // namespace bp
