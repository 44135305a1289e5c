// A fixture for tests of numerics on the kernels of one plugin, which BACKEND_PATH names. The tests
// write and read tensors by copies, because device memory need not be visible to the host.
#pragma once

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "backends/shell/test_backend.hpp"

namespace bp {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Skips a test if the machine has no device of the backend.
class Numerics : public testing::Test {
 protected:
  void SetUp() override {
    if (b.device == nullptr) GTEST_SKIP() << "no device on this machine";
  }

  template <typename T>
  void put(const TestTensor& tensor, const std::vector<T>& values) {
    const bp_buffer_ref to{(&tensor)->buffer, 0, values.size() * sizeof(T)};
    if (values.empty()) return;
    ASSERT_EQ(b.allocator->copy_from_host(b.allocator->self, b.default_stream(), &to, values.data(),
                                          BP_BORROW_DURING_CALL),
              BP_OK)
        << b.text;
  }

  template <typename T>
  std::vector<T> get(const TestTensor& tensor) {
    std::vector<T> values(static_cast<size_t>(tensor.size()));
    const bp_buffer_ref from{(&tensor)->buffer, 0, values.size() * sizeof(T)};
    if (values.empty()) return values;
    EXPECT_EQ(b.allocator->copy_to_host(b.allocator->self, b.default_stream(), values.data(), &from,
                                        BP_BORROW_DURING_CALL, UINT64_MAX),
              BP_OK)
        << b.text;
    return values;
  }

  // Returns the first kernel of `op` that takes a call, in the order in which the host tries them,
  // or NULL if none takes it.
  template <typename Args>
  const bp_kernel* kernel_for(uint32_t op, Args args) {
    args.struct_size = sizeof(args);
    for (const bp_kernel* k : b.kernels) {
      if (k->op != op) continue;
      if (k->supports == nullptr || k->supports(k, b.device, 0, &args) == nullptr) return k;
    }
    return nullptr;
  }

  template <typename Args>
  void run(uint32_t op, const Args& args) {
    const bp_kernel* const k = kernel_for(op, args);
    ASSERT_NE(k, nullptr) << "no kernel of op " << op << " takes the call";
    ASSERT_EQ(b.launch(k, args, b.default_stream()), BP_OK) << b.text;
  }

  bool claims(uint32_t op, bp_dtype dtype) {
    const bp_kernel* const k = b.kernel(op);
    for (uint32_t i = 0; i < k->dtype_row_count; ++i) {
      if (k->dtype_rows[size_t{i} * k->dtype_count] == dtype) return true;
    }
    return false;
  }

  TestBackend b{BACKEND_PATH};
};

}  // namespace bp
