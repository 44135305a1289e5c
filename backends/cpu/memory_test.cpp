#include <array>

#include "backends/shell/test_backend.hpp"

namespace bp {
namespace {

class Memory : public testing::Test {
 protected:
  bp_status allocate(bp_allocate_desc desc, bp_buffer** out) {
    desc.struct_size = sizeof(desc);
    desc.struct_type = BP_STRUCT_ALLOCATE_DESC;
    return b.allocator->allocate(b.allocator->self, b.device, &desc, out);
  }
  void free(bp_buffer* buffer, bp_stream* stream = nullptr) {
    EXPECT_EQ(b.allocator->deallocate(b.allocator->self, buffer, stream), BP_OK) << b.text;
  }
  bp_status write(bp_stream* stream, const bp_buffer_ref& dst, const void* src, bp_borrow borrow) {
    return b.allocator->copy_from_host(b.allocator->self, stream, &dst, src, borrow);
  }
  bp_status read(bp_stream* stream, void* dst, const bp_buffer_ref& src) {
    return b.allocator->copy_to_host(b.allocator->self, stream, dst, &src, BP_BORROW_DURING_CALL,
                                     UINT64_MAX);
  }
  bp_status copy(const bp_buffer_ref& dst, const bp_buffer_ref& src) {
    return b.allocator->copy(b.allocator->self, b.default_stream(), &dst, &src);
  }
  bp_status fill(const bp_buffer_ref& dst, const void* pattern, uint64_t size_bytes) {
    return b.allocator->fill(b.allocator->self, b.default_stream(), &dst, pattern, size_bytes);
  }

  TestBackend b{BACKEND_PATH};
};

TEST_F(Memory, AllocatesWhatIsAskedForAndSaysWhyNot) {
  bp_buffer* buffer = nullptr;
  for (const uint64_t alignment : {0u, 1u, 64u, 4096u}) {
    ASSERT_EQ(allocate({.size_bytes = 100, .alignment_bytes = alignment}, &buffer), BP_OK);
    uint64_t address = 0;
    ASSERT_EQ(b.allocator->address(b.allocator->self, buffer, &address), BP_OK);
    EXPECT_EQ(address % std::max<uint64_t>(alignment, 64), 0u);
    free(buffer);
  }
  ASSERT_EQ(allocate({.size_bytes = 0}, &buffer), BP_OK);
  free(buffer);
  buffer = nullptr;
  EXPECT_EQ(allocate({.size_bytes = 1, .alignment_bytes = 3}, &buffer), BP_INVALID_ARGUMENT);
  EXPECT_EQ(allocate({.size_bytes = 1, .alignment_bytes = 8192}, &buffer), BP_INVALID_ARGUMENT);
  EXPECT_EQ(allocate({.size_bytes = 1, .usage = 1u << 30}, &buffer), BP_INVALID_ARGUMENT);
  EXPECT_EQ(allocate({.size_bytes = 1, .usage = BP_MEMORY_PEER}, &buffer), BP_UNSUPPORTED);
  EXPECT_EQ(allocate({.size_bytes = 1, .heap_flags = BP_HEAP_MIGRATES}, &buffer), BP_NOT_FOUND);
  EXPECT_EQ(allocate({.size_bytes = uint64_t{1} << 60}, &buffer), BP_OUT_OF_MEMORY);
  EXPECT_NE(b.text.find(std::to_string(uint64_t{1} << 60)), std::string::npos) << b.text;
  EXPECT_EQ(buffer, nullptr);
  free(nullptr);
}

TEST_F(Memory, RefusesRangesThatLeaveTheirBuffer) {
  bp_buffer* buffer = b.make_buffer(64);
  std::array<uint8_t, 64> host{};
  const auto write_at = [&](uint64_t offset, uint64_t size_bytes) {
    return write(b.default_stream(), {buffer, offset, size_bytes}, host.data(),
                 BP_BORROW_DURING_CALL);
  };
  EXPECT_EQ(write_at(0, 64), BP_OK);
  EXPECT_EQ(write_at(64, 0), BP_OK);
  EXPECT_EQ(write_at(1, 64), BP_INVALID_ARGUMENT);
  EXPECT_EQ(write_at(65, 0), BP_INVALID_ARGUMENT);
  EXPECT_EQ(write_at(32, UINT64_MAX - 16), BP_INVALID_ARGUMENT);
  EXPECT_EQ(write_at(UINT64_MAX, 2), BP_INVALID_ARGUMENT);
  EXPECT_EQ(write(b.default_stream(), {buffer, 0, 8}, nullptr, BP_BORROW_DURING_CALL),
            BP_INVALID_ARGUMENT);
  EXPECT_EQ(write(b.default_stream(), {buffer, 0, 8}, host.data(), 9), BP_INVALID_ARGUMENT);
  EXPECT_EQ(write(nullptr, {buffer, 0, 8}, host.data(), BP_BORROW_DURING_CALL),
            BP_INVALID_ARGUMENT);
  free(buffer);
}

TEST_F(Memory, StagesWhatTheCallerMayOverwriteAtOnce) {
  bp_event* gate = b.make_event(BP_EVENT_HOST_SIGNAL);
  for (bp_stream* stream : {b.default_stream(), b.make_stream()}) {
    bp_buffer* buffer = b.make_buffer(4);
    ASSERT_EQ(b.streams->wait_event(b.streams->self, stream, gate), BP_OK);
    uint32_t value = 0x01020304;
    ASSERT_EQ(write(stream, {buffer, 0, 4}, &value, BP_BORROW_DURING_CALL), BP_OK);
    value = 0;
    b.events->signal(b.events->self, gate, BP_OK);
    ASSERT_EQ(read(stream, &value, {buffer, 0, 4}), BP_OK);
    EXPECT_EQ(value, 0x01020304u);
    free(buffer, stream);
  }
}

TEST_F(Memory, CopiesAndRefusesOverlap) {
  bp_buffer* buffer = b.make_buffer(16);
  std::array<uint8_t, 16> host{};
  for (uint8_t i = 0; i < 16; ++i) host[i] = i;
  ASSERT_EQ(write(b.default_stream(), {buffer, 0, 16}, host.data(), BP_BORROW_UNTIL_COMPLETE),
            BP_OK);
  EXPECT_EQ(copy({buffer, 8, 8}, {buffer, 0, 8}), BP_OK);
  EXPECT_EQ(copy({buffer, 4, 8}, {buffer, 0, 8}), BP_INVALID_ARGUMENT);
  EXPECT_EQ(copy({buffer, 3, 8}, {buffer, 3, 8}), BP_OK);
  EXPECT_EQ(copy({buffer, 0, 8}, {buffer, 8, 7}), BP_INVALID_ARGUMENT);
  ASSERT_EQ(read(b.default_stream(), host.data(), {buffer, 0, 16}), BP_OK);
  for (size_t i = 0; i < 16; ++i) EXPECT_EQ(host[i], i % 8);
  free(buffer);
}

TEST_F(Memory, FillsWithEveryPatternAtEveryOffset) {
  constexpr uint64_t kSize = uint64_t{3} * 16 * 65536;
  bp_buffer* buffer = b.make_buffer(kSize);
  const std::string pattern = "0123456789abcdef";
  std::string host(kSize, '?');
  for (uint64_t length = 1; length <= 16; ++length) {
    const uint64_t size_bytes = (kSize - 5) / length * length;
    ASSERT_EQ(fill({buffer, 0, kSize}, "-", 1), BP_OK);
    ASSERT_EQ(fill({buffer, 3, size_bytes}, pattern.data(), length), BP_OK);
    ASSERT_EQ(read(b.default_stream(), host.data(), {buffer, 0, kSize}), BP_OK);
    EXPECT_EQ(host.substr(0, 3), "---");
    EXPECT_EQ(host[3 + size_bytes], '-');
    for (uint64_t i = 0; i < size_bytes; ++i) ASSERT_EQ(host[3 + i], pattern[i % length]) << i;
  }
  EXPECT_EQ(fill({buffer, 0, 16}, pattern.data(), 17), BP_INVALID_ARGUMENT);
  EXPECT_EQ(fill({buffer, 0, 16}, pattern.data(), 0), BP_INVALID_ARGUMENT);
  EXPECT_EQ(fill({buffer, 0, 16}, pattern.data(), 3), BP_INVALID_ARGUMENT);
  free(buffer);
}

TEST_F(Memory, CountsTheMapsOfABuffer) {
  bp_buffer* buffer = b.make_buffer(16);
  const bp_buffer_ref range{buffer, 4, 8};
  void* pointer = nullptr;
  ASSERT_EQ(b.allocator->map(b.allocator->self, &range, &pointer), BP_OK);
  uint64_t address = 0;
  b.allocator->address(b.allocator->self, buffer, &address);
  EXPECT_EQ(reinterpret_cast<uint64_t>(pointer), address + 4);
  void* second = nullptr;
  ASSERT_EQ(b.allocator->map(b.allocator->self, &range, &second), BP_OK);
  EXPECT_EQ(second, pointer);
  EXPECT_EQ(b.allocator->unmap(b.allocator->self, buffer, pointer), BP_OK);
  EXPECT_EQ(b.allocator->unmap(b.allocator->self, buffer, pointer), BP_OK);
  EXPECT_EQ(b.allocator->unmap(b.allocator->self, buffer, pointer), BP_INVALID_ARGUMENT);
  free(buffer);
}

TEST_F(Memory, AnswersForTheDevice) {
  uint64_t free_bytes = 0, total_bytes = 0;
  ASSERT_EQ(b.devices->memory_info(b.devices->self, b.device, 0, &free_bytes, &total_bytes), BP_OK);
  EXPECT_GT(free_bytes, 0u);
  EXPECT_LE(free_bytes, total_bytes);
  EXPECT_EQ(b.devices->memory_info(b.devices->self, b.device, 1, &free_bytes, &total_bytes),
            BP_INVALID_ARGUMENT);
  const auto set = [&](const char* key, const char* value) {
    return b.devices->set_option(b.devices->self, b.device, key, value);
  };
  EXPECT_EQ(set("threads", "2"), BP_OK);
  EXPECT_EQ(set("threads", "0"), BP_INVALID_ARGUMENT);
  EXPECT_EQ(set("threads", "2x"), BP_INVALID_ARGUMENT);
  EXPECT_EQ(set("thread", "2"), BP_NOT_FOUND);
  EXPECT_THROW(TestBackend(BACKEND_PATH, {{"threads", "many"}}), std::runtime_error);
}

}  // namespace
}  // namespace bp
