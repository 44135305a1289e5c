// A fixture for the unit tests of this backend: an instance, and calls on its first device. A test
// is skipped, with the reason, if the machine has no device.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backends/shell/test_backend.hpp"
#include "backplane/ops.h"
#include "backplane/test_fault.h"

namespace bp::vulkan {

constexpr uint64_t kForever = UINT64_MAX;

class Vulkan {
 public:
  using Options = std::map<std::string, std::string>;

  explicit Vulkan(const Options& options = {}) : b(BACKEND_PATH, options) {}
  Vulkan(std::initializer_list<Options::value_type> options) : b(BACKEND_PATH, options) {}

  bool has_device() const { return b.device != nullptr; }

  bp_status allocate(bp_allocate_desc desc, bp_buffer** out_buffer) {
    desc.struct_size = sizeof(desc);
    desc.struct_type = BP_STRUCT_ALLOCATE_DESC;
    return b.allocator->allocate(b.allocator->self, b.device, &desc, out_buffer);
  }
  bp_status free(bp_buffer* buffer, bp_stream* stream = nullptr) {
    return b.allocator->deallocate(b.allocator->self, buffer, stream);
  }
  uint64_t free_bytes() {
    uint64_t bytes = 0, total = 0;
    EXPECT_EQ(b.devices->memory_info(b.devices->self, b.device, 0, &bytes, &total), BP_OK)
        << b.text;
    return bytes;
  }

  // Copies all of `from` to `to`.
  bp_status copy(bp_stream* stream, bp_buffer* to, bp_buffer* from, uint64_t size_bytes) {
    const bp_buffer_ref dst{to, 0, size_bytes}, src{from, 0, size_bytes};
    return b.allocator->copy(b.allocator->self, stream, &dst, &src);
  }
  bp_status fill(bp_stream* stream, bp_buffer* to, uint64_t size_bytes, uint32_t word) {
    const bp_buffer_ref dst{to, 0, size_bytes};
    return b.allocator->fill(b.allocator->self, stream, &dst, &word, sizeof(word));
  }
  std::vector<uint32_t> read(bp_stream* stream, bp_buffer* from, uint64_t size_bytes) {
    std::vector<uint32_t> words(size_bytes / sizeof(uint32_t));
    const bp_buffer_ref src{from, 0, size_bytes};
    EXPECT_EQ(b.allocator->copy_to_host(b.allocator->self, stream, words.data(), &src,
                                        BP_BORROW_DURING_CALL, UINT64_MAX),
              BP_OK)
        << b.text;
    return words;
  }

  bp_status record(bp_event* event, bp_stream* stream) {
    return b.events->record(b.events->self, event, stream);
  }
  bp_status wait(bp_stream* stream, bp_event* event) {
    return b.streams->wait_event(b.streams->self, stream, event);
  }
  bp_status synchronize(bp_stream* stream) {
    return b.streams->synchronize(b.streams->self, stream, kForever);
  }
  bp_status status(bp_stream* stream) { return b.streams->status(b.streams->self, stream); }

  const bp_test_fault_ops& faults() {
    const void* table = nullptr;
    EXPECT_EQ(b.backend->get_extension(b.backend->self, BP_TEST_FAULT_NAME, BP_TEST_FAULT_VERSION,
                                       &table),
              BP_OK);
    return *static_cast<const bp_test_fault_ops*>(table);
  }

  TestBackend b;
};

// A test that needs a device.
class WithDevice : public testing::Test {
 protected:
  void SetUp() override {
    if (!Vulkan().has_device()) GTEST_SKIP() << "no Vulkan device on this machine";
  }
};

}  // namespace bp::vulkan
