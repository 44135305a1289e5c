// Tests the transfers of backplane/transfers.h between real backends: a host, and a device that
// works asynchronously.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "backplane/transfers.h"
#include "registry/tests/service_tensors.hpp"

namespace bp {
namespace {

struct Transfers : testing::Test {
  void finish(const bp_target& target) const {
    EXPECT_EQ(target.streams->synchronize(target.streams->self, target.default_stream, UINT64_MAX),
              BP_OK)
        << bp_error_text();
  }

  // A callback may run a little later than the work before it ends.
  void expect_releases(int count) const {
    const auto latest = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (releases < count && std::chrono::steady_clock::now() < latest) std::this_thread::yield();
    EXPECT_EQ(releases, count);
  }

  bp_tensor_copy_desc copy_of(const bp_target* dst_target, const bp_tensor* dst,
                              const bp_target* src_target, const bp_tensor* src) {
    bp_tensor_copy_desc desc{};
    desc.struct_size = sizeof(desc);
    desc.struct_type = BP_STRUCT_TENSOR_COPY_DESC;
    desc.dst_target = dst_target;
    desc.dst = dst;
    desc.src_target = src_target;
    desc.src = src;
    desc.release = count_release;
    desc.user_data = &releases;
    return desc;
  }

  static void count_release(void* user_data, bp_status status) {
    EXPECT_EQ(status, BP_OK);
    ++*static_cast<std::atomic<int>*>(user_data);
  }

  Registry registry;
  const bp_target* host = load(registry, BACKPLANE_TEST_PLUGIN);
  const bp_target* device = load(registry, BACKPLANE_TEST_ASYNC_PLUGIN);
  std::atomic<int> releases = 0;
};

TEST_F(Transfers, MoveBytesIntoABlockAndOutOfIt) {
  for (const bp_target* const target : {host, device}) {
    const std::vector<float> values = random_values<float>(1000);
    std::vector<float> sent = values, lent = values, received(2000, 7);
    constexpr uint64_t kBytes = 4000;
    bp_block* block = nullptr;
    ASSERT_EQ(bp_block_allocate(target, nullptr, 2 * kBytes, &block), BP_OK) << bp_error_text();
    releases = 0;
    ASSERT_EQ(
        bp_block_upload(block, kBytes, lent.data(), kBytes, nullptr, count_release, &releases),
        BP_OK)
        << bp_error_text();
    ASSERT_EQ(bp_block_upload(block, 0, sent.data(), kBytes, nullptr, nullptr, nullptr), BP_OK);
    sent.assign(sent.size(), 0);  // The call has taken the bytes.
    EXPECT_EQ(bp_block_upload(block, kBytes + 4, sent.data(), kBytes, nullptr, nullptr, nullptr),
              BP_INVALID_ARGUMENT);
    ASSERT_EQ(
        bp_block_download(block, 0, received.data(), 2 * kBytes, nullptr, count_release, &releases),
        BP_OK);
    ASSERT_EQ(bp_block_free(block), BP_OK);
    finish(*target);
    expect_releases(2);
    EXPECT_TRUE(std::equal(values.begin(), values.end(), received.begin())) << target->name;
    EXPECT_TRUE(std::equal(values.begin(), values.end(), received.begin() + 1000)) << target->name;
  }
}

TEST_F(Transfers, CopyTensorsFromBackendToBackendWithOtherStridesAndDtypes) {
  Tensor<float> there(*host, {3, 4}, {1, 3}, 2, 20);
  Tensor<double> here(*device, {3, 4}, {8, 2}, 1, 30);
  const std::vector<float> values = random_values<float>(12);
  there.set(values);
  const bp_tensor_copy_desc to = copy_of(device, here.get(), host, there.get());
  ASSERT_EQ(bp_copy_tensor(&to), BP_OK) << bp_error_text();
  const std::vector<double> copied = here.elements();
  EXPECT_EQ(copied, std::vector<double>(values.begin(), values.end()));
  EXPECT_EQ(here.read()[0], 77) << "bytes between the elements stay as they are";
  there.set(std::vector<float>(12, 0));
  const bp_tensor_copy_desc back = copy_of(host, there.get(), device, here.get());
  ASSERT_EQ(bp_copy_tensor(&back), BP_OK) << bp_error_text();
  EXPECT_EQ(there.elements(), values);
  expect_releases(2);
}

TEST_F(Transfers, CopyTensorsOfADeviceToHostMemoryAndFromIt) {
  Tensor<float> here(*device, {2, 3});
  std::vector<double> memory = {1, 2, 3, 4, 5, 6};
  const int64_t shape[] = {2, 3}, strides[] = {1, 2};
  bp_tensor view{};
  view.buffer = reinterpret_cast<bp_buffer*>(memory.data());
  view.shape = shape;
  view.strides = strides;
  view.ndim = 2;
  view.dtype = BP_F64;
  const bp_tensor_copy_desc to = copy_of(device, here.get(), nullptr, &view);
  ASSERT_EQ(bp_copy_tensor(&to), BP_OK) << bp_error_text();
  EXPECT_EQ(here.elements(), (std::vector<float>{1, 3, 5, 2, 4, 6}));
  here.set({10, 20, 30, 40, 50, 60});
  const bp_tensor_copy_desc back = copy_of(nullptr, &view, device, here.get());
  ASSERT_EQ(bp_copy_tensor(&back), BP_OK) << bp_error_text();
  finish(*device);
  EXPECT_EQ(memory, (std::vector<double>{10, 40, 20, 50, 30, 60}));
  expect_releases(2);
  const bp_tensor_copy_desc neither = copy_of(nullptr, &view, nullptr, &view);
  EXPECT_EQ(bp_copy_tensor(&neither), BP_INVALID_ARGUMENT);
  view.shape = strides;
  EXPECT_EQ(bp_copy_tensor(&back), BP_INVALID_ARGUMENT) << "the shapes differ";
  EXPECT_EQ(releases, 2) << "a call that fails releases nothing";
}

}  // namespace
}  // namespace bp
