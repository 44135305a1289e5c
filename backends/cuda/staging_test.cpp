// Tests copies from host memory that CUDA does not know, on the fake CUDA.
#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <memory>
#include <vector>

#include "backends/cuda/backend.hpp"
#include "backends/cuda/fake/cuda.hpp"
#include "backends/shell/test_backend.hpp"

namespace bp::cuda::fake {
namespace {

bp_status enter_fake(const bp_entry_request* request, bp_entry_reply* out_reply) {
  return enter(request, out_reply, driver);
}

class Staging : public testing::Test {
 protected:
  explicit Staging(const fake::Setup& setup = {}) { reset(setup); }

  void copy_in(bp_buffer* to, const std::vector<char>& bytes) {
    const bp_buffer_ref all{to, 0, bytes.size()};
    EXPECT_EQ(b().allocator->copy_from_host(b().allocator->self, b().default_stream(), &all,
                                            bytes.data(), BP_BORROW_DURING_CALL),
              BP_OK)
        << b().text;
  }
  std::vector<char> copy_out(bp_buffer* from, size_t size_bytes) {
    std::vector<char> bytes(size_bytes);
    const bp_buffer_ref all{from, 0, size_bytes};
    EXPECT_EQ(b().allocator->copy_to_host(b().allocator->self, b().default_stream(), bytes.data(),
                                          &all, BP_BORROW_DURING_CALL, UINT64_MAX),
              BP_OK)
        << b().text;
    return bytes;
  }

  // The backend is loaded when the fake has its devices.
  TestBackend& b() {
    if (!backend_) backend_ = std::make_unique<TestBackend>(enter_fake);
    return *backend_;
  }

 private:
  std::unique_ptr<TestBackend> backend_;
};

// With HMM or ATS the device reads pageable memory by itself, and may do so after the call.
struct StagingWithHmm : Staging {
  StagingWithHmm() : Staging({.reads_pageable_late = true}) {}
};

TEST_F(StagingWithHmm, ReadsMemoryBeforeACopyReturns) {
  for (const size_t size_bytes : {size_t{64}, size_t{4} << 20}) {
    bp_buffer* const buffer = b().make_buffer(size_bytes);
    std::vector<char> bytes(size_bytes, 'a');
    copy_in(buffer, bytes);
    std::fill(bytes.begin(), bytes.end(), 'b');
    EXPECT_EQ(copy_out(buffer, size_bytes), std::vector<char>(size_bytes, 'a')) << size_bytes;
  }
}

// A loader that uploads while the device is busy: the cost of an upload must not grow with the
// number of those before it.
TEST_F(Staging, AsksForFewOfTheBlocksThatAreBusy) {
  constexpr int kUploads = 200;
  bp_device* before_this = nullptr;
  ASSERT_EQ(b().guard->exchange(b().guard->self, b().device, &before_this), BP_OK);
  void* native = nullptr;
  ASSERT_EQ(b().streams->native_handle(b().streams->self, b().default_stream(), &native), BP_OK);
  std::promise<void> end;
  std::future<void> ended = end.get_future();
  ASSERT_EQ(driver().cudaLaunchHostFunc(
                static_cast<cudaStream_t>(native),
                [](void* data) { static_cast<std::future<void>*>(data)->wait(); }, &ended),
            cudaSuccess);
  bp_buffer* const buffer = b().make_buffer(64);
  const uint64_t before = call_counts()["cudaEventQuery"];
  for (int i = 0; i < kUploads; ++i) copy_in(buffer, std::vector<char>(64, 'a'));
  const uint64_t asked = call_counts()["cudaEventQuery"] - before;
  end.set_value();
  EXPECT_LE(asked, 8u * kUploads);
  EXPECT_EQ(copy_out(buffer, 64), std::vector<char>(64, 'a'));
  EXPECT_EQ(b().guard->exchange(b().guard->self, before_this, &before_this), BP_OK);
}

}  // namespace
}  // namespace bp::cuda::fake
