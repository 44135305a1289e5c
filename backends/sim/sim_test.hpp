// A fixture for the unit tests of this backend: an instance, and calls on any of its devices.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <vector>

#include "backends/shell/test_backend.hpp"
#include "backplane/test_fault.h"

namespace bp::sim {

constexpr uint64_t kForever = UINT64_MAX;

class Sim {
 public:
  using Options = std::map<std::string, std::string>;

  explicit Sim(const Options& options = {}) : b(BACKEND_PATH, options) {}
  Sim(std::initializer_list<Options::value_type> options) : b(BACKEND_PATH, options) {}

  bp_status allocate(bp_allocate_desc desc, bp_buffer** out_buffer, size_t device = 0) {
    desc.struct_size = sizeof(desc);
    desc.struct_type = BP_STRUCT_ALLOCATE_DESC;
    return b.allocator->allocate(b.allocator->self, b.all_devices[device], &desc, out_buffer);
  }
  bp_buffer* make_buffer(uint64_t size_bytes, size_t device = 0, bp_heap_flags heap_flags = 0) {
    bp_buffer* buffer = nullptr;
    EXPECT_EQ(allocate({.size_bytes = size_bytes, .heap_flags = heap_flags}, &buffer, device),
              BP_OK)
        << b.text;
    return buffer;
  }
  bp_status free(bp_buffer* buffer, bp_stream* stream = nullptr) {
    return b.allocator->deallocate(b.allocator->self, buffer, stream);
  }
  uint8_t* address(bp_buffer* buffer) {
    uint64_t address = 0;
    EXPECT_EQ(b.allocator->address(b.allocator->self, buffer, &address), BP_OK) << b.text;
    // NOLINTNEXTLINE(performance-no-int-to-ptr): the ABI has addresses as numbers.
    return reinterpret_cast<uint8_t*>(address);
  }
  uint64_t free_bytes(size_t device = 0, uint64_t heap = 0) {
    uint64_t bytes = 0, total = 0;
    EXPECT_EQ(b.devices->memory_info(b.devices->self, b.all_devices[device], heap, &bytes, &total),
              BP_OK)
        << b.text;
    return bytes;
  }

  bp_stream* make_stream(size_t device = 0) {
    bp_stream* stream = nullptr;
    EXPECT_EQ(b.streams->create(b.streams->self, b.all_devices[device], nullptr, &stream), BP_OK)
        << b.text;
    return stream;
  }
  bp_event* make_event(bp_event_flags flags = 0, size_t device = 0) {
    const bp_event_desc desc{
        .struct_size = sizeof(desc), .struct_type = BP_STRUCT_EVENT_DESC, .flags = flags};
    bp_event* event = nullptr;
    EXPECT_EQ(b.events->create(b.events->self, b.all_devices[device], &desc, &event), BP_OK)
        << b.text;
    return event;
  }
  bp_status synchronize(bp_stream* stream, uint64_t timeout_ns = kForever) {
    return b.streams->synchronize(b.streams->self, stream, timeout_ns);
  }
  bp_status status(bp_stream* stream) { return b.streams->status(b.streams->self, stream); }
  bp_status clear(bp_stream* stream) { return b.streams->clear_failure(b.streams->self, stream); }
  bp_status wait(bp_stream* stream, bp_event* event) {
    return b.streams->wait_event(b.streams->self, stream, event);
  }
  bp_status record(bp_event* event, bp_stream* stream) {
    return b.events->record(b.events->self, event, stream);
  }
  bp_status signal(bp_event* event, bp_status status = BP_OK) {
    return b.events->signal(b.events->self, event, status);
  }

  bp_status fill(bp_stream* stream, bp_buffer* buffer, uint8_t value, uint64_t size_bytes = 16) {
    const bp_buffer_ref range{buffer, 0, size_bytes};
    return b.allocator->fill(b.allocator->self, stream, &range, &value, 1);
  }
  bp_status copy(bp_stream* stream, bp_buffer* dst, bp_buffer* src, uint64_t size_bytes = 16) {
    const bp_buffer_ref to{dst, 0, size_bytes}, from{src, 0, size_bytes};
    return b.allocator->copy(b.allocator->self, stream, &to, &from);
  }
  bp_status copy_peer(bp_stream* stream, bp_buffer* dst, bp_buffer* src, uint64_t size_bytes = 16) {
    const bp_buffer_ref to{dst, 0, size_bytes}, from{src, 0, size_bytes};
    return b.allocator->copy_peer(b.allocator->self, stream, &to, &from);
  }
  // Returns the first bytes of `buffer`, read after the work of `stream`.
  std::vector<uint8_t> read(bp_stream* stream, bp_buffer* buffer, uint64_t size_bytes = 16) {
    std::vector<uint8_t> bytes(size_bytes);
    const bp_buffer_ref range{buffer, 0, size_bytes};
    EXPECT_EQ(b.allocator->copy_to_host(b.allocator->self, stream, bytes.data(), &range,
                                        BP_BORROW_DURING_CALL, UINT64_MAX),
              BP_OK)
        << b.text;
    return bytes;
  }
  void write(bp_stream* stream, bp_buffer* buffer, const void* bytes, uint64_t size_bytes) {
    const bp_buffer_ref range{buffer, 0, size_bytes};
    EXPECT_EQ(b.allocator->copy_from_host(b.allocator->self, stream, &range, bytes,
                                          BP_BORROW_DURING_CALL),
              BP_OK)
        << b.text;
  }

  const bp_test_fault_ops& faults() {
    const void* table = nullptr;
    EXPECT_EQ(b.backend->get_extension(b.backend->self, BP_TEST_FAULT_NAME, BP_TEST_FAULT_VERSION,
                                       &table),
              BP_OK)
        << b.text;
    return *static_cast<const bp_test_fault_ops*>(table);
  }
  bp_status fail_next(bp_stream* stream, bp_test_fault_kind kind, bp_status status = BP_OK) {
    const bp_test_fault_ops& f = faults();
    return f.fail_next(f.self, stream, kind, status);
  }
  bp_status lose(size_t device = 0) {
    const bp_test_fault_ops& f = faults();
    return f.lose_device(f.self, b.all_devices[device]);
  }
  bp_status reset(size_t device = 0) {
    return b.devices->reset(b.devices->self, b.all_devices[device]);
  }

  TestBackend b;
};

inline std::vector<uint8_t> bytes_of(uint8_t value, uint64_t size_bytes = 16) {
  return std::vector<uint8_t>(size_bytes, value);
}

}  // namespace bp::sim
