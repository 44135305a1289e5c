// Tests the host fallback behind real backends: the host, and a device that has hardly any kernels.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "backplane/ops.h"
#include "registry/tests/service_tensors.hpp"

namespace bp {
namespace {

class HostFallback : public testing::Test {
 protected:
  using Floats = Tensor<float>;

  bp_status sub(const Floats& a, const Floats& b, const Floats& y) {
    const bp_sub_args args{.struct_size = sizeof(args), .a = a.get(), .b = b.get(), .y = y.get()};
    EXPECT_EQ(bp_op_check(BP_OP_SUB, &args), BP_OK) << bp_error_text();
    return bp_op_launch(device, nullptr, 0, BP_OP_SUB, &args);
  }

  // Sets a to 1, 2, 3, ... and b to 10, 20, 30, ..., and runs sub. Expects the differences in y,
  // and expects that the rest of y's block has not changed.
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

TEST_F(HostFallback, GivesTheReasonOfCallsThatAreAlike) {
  Floats a(*device, {3, 4}), b(*device, {3, 4}), y(*device, {3, 4});
  Floats small(*device, {1, 2}), tens(*device, {1, 2}), line(*device, {7}), ten(*device, {7});
  expect_difference(a, b, y);
  expect_difference(small, tens, small);
  expect_difference(line, ten, line);
  ASSERT_EQ(bp_target_reason_count(device), 2u);
  const auto reason = [&](uint64_t index) {
    bp_dispatch_reason found{.struct_size = sizeof(found),
                             .struct_type = BP_STRUCT_DISPATCH_REASON};
    EXPECT_EQ(bp_target_reason(device, index, &found), BP_OK) << bp_error_text();
    return found;
  };
  EXPECT_EQ(reason(0).call_count, 2u);
  EXPECT_EQ(reason(1).call_count, 1u);
  EXPECT_EQ(reason(0).op, BP_OP_SUB);
  EXPECT_EQ(reason(0).source, BP_KERNEL_HOST_FALLBACK);
  const std::string text = reason(0).text;
  EXPECT_NE(text.find("has no kernel for this op"), std::string::npos) << text;
  EXPECT_NE(text.find("host fallback: taken"), std::string::npos) << text;
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
  Floats a(*device, {3, 4}, {1, 3}, 0, 12);     // The tensor is transposed.
  Floats b(*device, {3, 4}, {-4, -1}, 11, 12);  // The tensor runs backwards.
  Floats y(*device, {3, 4}, {4, 1}, 5, 20);     // The tensor lies in the middle of its block.
  expect_difference(a, b, y);
  Floats backwards(*device, {3, 4}, {-5, 1}, 13, 20);  // It also has a gap after each row.
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
  const bp_tensor* lists[4][2];  // The parameters, the gradients and the two averages.
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

// The device of these tests has no events that could give its stream a failure, so the call returns
// it. fallback_failure_test.cpp tests devices that have such events.
TEST_F(HostFallback, ReturnsAFailureOfTheWorkOnceAndNamesIt) {
  Floats weight(*device, {3, 2}), rows(*device, {2, 2});
  Tensor<int64_t> indices(*device, {2});
  indices.set({0, 7});
  const bp_embedding_args args{.struct_size = sizeof(args),
                               .weight = weight.get(),
                               .indices = indices.get(),
                               .y = rows.get()};
  EXPECT_EQ(bp_op_launch(device, nullptr, 0, BP_OP_EMBEDDING, &args), BP_DATA_FAILURE);
  const std::string text = bp_error_text();
  EXPECT_NE(text.find(std::string("embedding on ") + host->name), text.npos) << text;
  EXPECT_NE(text.find('7'), text.npos) << text;
  const bp_stream_ops& streams = *host->streams;
  EXPECT_EQ(streams.status(streams.self, host->default_stream), BP_OK) << bp_error_text();
  Floats a(*device, {4}), b(*device, {4}), y(*device, {4});
  expect_difference(a, b, y);
}

TEST_F(HostFallback, IsNotStoppedByAFailureOfTheHostsOwnStream) {
  Floats weight(*host, {3, 2}), rows(*host, {1, 2});
  Tensor<int64_t> indices(*host, {1});
  indices.set({7});
  const bp_embedding_args args{.struct_size = sizeof(args),
                               .weight = weight.get(),
                               .indices = indices.get(),
                               .y = rows.get()};
  ASSERT_EQ(bp_op_launch(host, nullptr, 0, BP_OP_EMBEDDING, &args), BP_OK) << bp_error_text();
  const bp_stream_ops& streams = *host->streams;
  ASSERT_EQ(streams.synchronize(streams.self, host->default_stream, UINT64_MAX), BP_DATA_FAILURE);
  Floats a(*device, {3, 4}), b(*device, {3, 4}), y(*device, {3, 4});
  expect_difference(a, b, y);
  EXPECT_EQ(streams.status(streams.self, host->default_stream), BP_DATA_FAILURE)
      << "only the program may clear it";
  ASSERT_EQ(streams.clear_failure(streams.self, host->default_stream), BP_OK);
}

// Returns the text with which a device refuses an op for which it has no kernel.
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
  EXPECT_NE(text.find("host fallback: the flags of the registry forbid it"), text.npos) << text;
}

TEST(HostFallbackRefusal, SaysWhatToLoadWhereThereIsNoHost) {
  Registry registry;
  const bp_target* device = load(registry, BACKPLANE_TEST_DEVICE_PLUGIN);
  const std::string text = refusal(*device);
  EXPECT_NE(text.find("no device of class host is loaded; load a backend that has one"), text.npos)
      << text;
  ASSERT_NE(load(registry, BACKPLANE_TEST_PLUGIN), nullptr);  // From then on it works.
  Tensor<float> x(*device, {4});
  const bp_sub_args args{.struct_size = sizeof(args), .a = x.get(), .b = x.get(), .y = x.get()};
  EXPECT_EQ(bp_op_launch(device, nullptr, 0, BP_OP_SUB, &args), BP_OK) << bp_error_text();
  EXPECT_EQ(x.elements(), std::vector<float>(4, 0));
}

TEST_F(HostFallback, ServesManyThreadsAndGivesEachItsOwnResult) {
  constexpr int kThreads = 4, kCalls = 20;
  std::vector<std::vector<float>> results(kThreads);
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      const auto own = static_cast<size_t>(i);
      Floats a(*device, {64}), b(*device, {64}), y(*device, {64});
      a.set(std::vector<float>(64, static_cast<float>(10 * i)));
      b.set(std::vector<float>(64, 1));
      for (int n = 0; n < kCalls; ++n) EXPECT_EQ(sub(a, b, y), BP_OK) << bp_error_text();
      results[own] = y.elements();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < kThreads; ++i) {
    EXPECT_EQ(results[static_cast<size_t>(i)],
              std::vector<float>(64, static_cast<float>(10 * i - 1)));
  }
  EXPECT_EQ(statistics(*device, BP_OP_SUB).host_fallback_count, uint64_t{kThreads} * kCalls);
}

TEST_F(HostFallback, ReadsOneTensorThatIsSeveralInputs) {
  Floats a(*device, {2, 3}), y(*device, {2, 3});
  a.set({1, 2, 3, 4, 5, 6});
  ASSERT_EQ(sub(a, a, y), BP_OK) << bp_error_text();
  EXPECT_EQ(y.elements(), std::vector<float>(6, 0));
  EXPECT_EQ(a.elements(), (std::vector<float>{1, 2, 3, 4, 5, 6})) << "an input stays as it is";
}

TEST_F(HostFallback, RunsInTheOrderOfTheCallersStream) {
  Floats a(*device, {4}), b(*device, {4}), y(*device, {4});
  a.set({1, 2, 3, 4});
  b.set({1, 1, 1, 1});
  const bp_stream_ops& streams = *device->streams;
  bp_stream* stream = nullptr;
  ASSERT_EQ(streams.create(streams.self, device->device, nullptr, &stream), BP_OK);
  for (int i = 0; i < 3; ++i) {  // The device computes y = a + b, then the host a = y - b.
    const bp_add_args add{.struct_size = sizeof(add), .a = a.get(), .b = b.get(), .y = y.get()};
    const bp_sub_args sub{.struct_size = sizeof(sub), .a = y.get(), .b = y.get(), .y = a.get()};
    ASSERT_EQ(bp_op_launch(device, stream, 0, BP_OP_ADD, &add), BP_OK) << bp_error_text();
    ASSERT_EQ(bp_op_launch(device, stream, 0, BP_OP_SUB, &sub), BP_OK) << bp_error_text();
  }
  ASSERT_EQ(streams.synchronize(streams.self, stream, UINT64_MAX), BP_OK);
  EXPECT_EQ(a.elements(), std::vector<float>(4, 0));
  EXPECT_EQ(y.elements(), std::vector<float>(4, 1)) << "0 + 1, in the last round";
  EXPECT_EQ(streams.destroy(streams.self, stream), BP_OK);
}

TEST_F(HostFallback, IsOnlyChosenWhereItIsAllowed) {
  Floats x(*device, {4});
  const bp_sub_args args{.struct_size = sizeof(args), .a = x.get(), .b = x.get(), .y = x.get()};
  bp_kernel_choice choice{};
  EXPECT_EQ(bp_kernel_find(device, 0, BP_KERNEL_NATIVE, BP_OP_SUB, &args, &choice), BP_UNSUPPORTED);
  ASSERT_EQ(bp_kernel_find(device, 0, BP_KERNEL_HOST_FALLBACK, BP_OP_SUB, &args, &choice), BP_OK)
      << bp_error_text();
  EXPECT_EQ(choice.source, bp_kernel_sources{BP_KERNEL_HOST_FALLBACK});
  EXPECT_STREQ(choice.kernel->name, "host_fallback");
}

}  // namespace
}  // namespace bp
