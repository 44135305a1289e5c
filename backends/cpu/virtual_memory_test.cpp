#include "backplane/virtual_memory.h"

#include <unistd.h>

#include "backends/shell/test_backend.hpp"

namespace bp {
namespace {

class Virtual : public testing::Test {
 protected:
  Virtual() { v.granularity(v.self, b.device, 0, &unit); }

  bp_buffer* reserve(uint64_t units) {
    bp_buffer* range = nullptr;
    EXPECT_EQ(v.reserve(v.self, b.device, units * unit, &range), BP_OK) << b.text;
    return range;
  }
  bp_physical_memory* create(uint64_t units) {
    bp_physical_memory* memory = nullptr;
    EXPECT_EQ(v.create(v.self, b.device, 0, units * unit, &memory), BP_OK) << b.text;
    return memory;
  }
  bp_status map(bp_buffer* range, uint64_t at, uint64_t units, bp_physical_memory* memory,
                uint64_t from = 0) {
    const bp_buffer_ref ref{range, at * unit, units * unit};
    return v.map(v.self, &ref, memory, from * unit);
  }
  bp_status allow(bp_buffer* range, uint64_t at, uint64_t units, bp_access access) {
    const bp_buffer_ref ref{range, at * unit, units * unit};
    return v.set_access(v.self, &ref, 0, nullptr, access);
  }
  bp_status unmap(bp_buffer* range, uint64_t at, uint64_t units) {
    const bp_buffer_ref ref{range, at * unit, units * unit};
    return v.unmap(v.self, &ref);
  }
  bp_status fill(bp_buffer* range, uint64_t offset, uint64_t size_bytes, char value) {
    const bp_buffer_ref ref{range, offset, size_bytes};
    return b.allocator->fill(b.allocator->self, b.default_stream(), &ref, &value, 1);
  }
  bp_status read(bp_buffer* range, uint64_t offset, char& value) {
    const bp_buffer_ref ref{range, offset, 1};
    return b.allocator->copy_to_host(b.allocator->self, b.default_stream(), &value, &ref,
                                     BP_BORROW_DURING_CALL, UINT64_MAX);
  }

  TestBackend b{BACKEND_PATH};
  const bp_virtual_memory_ops& v = *b.virtual_memory;
  uint64_t unit = 0;
};

TEST_F(Virtual, ShowsTheSameBytesWhereverTheyAreMapped) {
  bp_buffer* const range = reserve(8);
  bp_physical_memory* const memory = create(4);
  ASSERT_EQ(map(range, 0, 4, memory), BP_OK) << b.text;
  ASSERT_EQ(map(range, 5, 2, memory, 2), BP_OK) << b.text;
  ASSERT_EQ(allow(range, 0, 4, BP_ACCESS_READ_WRITE), BP_OK) << b.text;
  ASSERT_EQ(allow(range, 5, 2, BP_ACCESS_READ), BP_OK) << b.text;
  ASSERT_EQ(fill(range, 2 * unit, 2 * unit, 'a'), BP_OK) << b.text;
  char value = 0;
  ASSERT_EQ(read(range, 5 * unit, value), BP_OK) << b.text;
  EXPECT_EQ(value, 'a');
  ASSERT_EQ(read(range, 7 * unit - 1, value), BP_OK) << b.text;
  EXPECT_EQ(value, 'a');
  ASSERT_EQ(read(range, 0, value), BP_OK) << b.text;
  EXPECT_EQ(value, 0);
  EXPECT_EQ(fill(range, 5 * unit, 1, 'b'), BP_INVALID_ARGUMENT);  // The access is read only.
  EXPECT_EQ(v.release_memory(v.self, memory), BP_OK);
  ASSERT_EQ(read(range, 2 * unit, value), BP_OK) << b.text;
  EXPECT_EQ(value, 'a');
  EXPECT_EQ(v.release(v.self, range), BP_INVALID_ARGUMENT);
  ASSERT_EQ(unmap(range, 0, 4), BP_OK) << b.text;
  ASSERT_EQ(unmap(range, 5, 2), BP_OK) << b.text;
  EXPECT_EQ(v.release(v.self, range), BP_OK) << b.text;
}

TEST_F(Virtual, RefusesWhatIsNotMappedOrNotAllowed) {
  bp_buffer* const range = reserve(8);
  bp_physical_memory* const memory = create(4);
  EXPECT_EQ(fill(range, 0, 1, 'a'), BP_INVALID_ARGUMENT);
  ASSERT_EQ(map(range, 2, 2, memory), BP_OK) << b.text;
  EXPECT_EQ(fill(range, 2 * unit, 1, 'a'), BP_INVALID_ARGUMENT) << "no access yet";
  EXPECT_EQ(allow(range, 1, 2, BP_ACCESS_READ), BP_INVALID_ARGUMENT) << "its first unit is free";
  EXPECT_EQ(allow(range, 3, 2, BP_ACCESS_READ), BP_INVALID_ARGUMENT) << "its last unit is free";
  ASSERT_EQ(allow(range, 2, 2, BP_ACCESS_READ_WRITE), BP_OK) << b.text;
  EXPECT_EQ(fill(range, 2 * unit, 2 * unit, 'a'), BP_OK) << b.text;
  EXPECT_EQ(fill(range, 2 * unit - 1, 2, 'a'), BP_INVALID_ARGUMENT);
  EXPECT_EQ(fill(range, 4 * unit - 1, 2, 'a'), BP_INVALID_ARGUMENT);
  EXPECT_EQ(fill(range, 0, 0, 'a'), BP_OK) << "nothing is touched";
  for (const uint64_t at : {1u, 2u, 3u}) {
    EXPECT_EQ(map(range, at, 2, memory), BP_INVALID_ARGUMENT) << at;
  }
  EXPECT_EQ(map(range, 0, 2, memory, 3), BP_INVALID_ARGUMENT) << "behind the memory";
  EXPECT_EQ(map(range, 7, 2, memory), BP_INVALID_ARGUMENT) << "behind the range";
  EXPECT_EQ(unmap(range, 1, 2), BP_INVALID_ARGUMENT);
  EXPECT_EQ(b.allocator->deallocate(b.allocator->self, range, nullptr), BP_INVALID_ARGUMENT);
  EXPECT_EQ(unmap(range, 2, 1), BP_OK) << b.text;  // This is one unit of a larger mapping.
  EXPECT_EQ(fill(range, 2 * unit, 1, 'a'), BP_INVALID_ARGUMENT);
  EXPECT_EQ(fill(range, 3 * unit, unit, 'b'), BP_OK) << b.text;
  EXPECT_EQ(map(range, 2, 1, memory), BP_OK) << b.text;
  EXPECT_EQ(allow(range, 2, 2, BP_ACCESS_READ), BP_OK) << b.text;
  char value = 0;
  EXPECT_EQ(read(range, 2 * unit, value), BP_OK) << b.text;
  EXPECT_EQ(value, 'a') << "the byte stayed in the memory";
  EXPECT_EQ(fill(range, 3 * unit, 1, 'b'), BP_INVALID_ARGUMENT);
  // The device frees what the host has not destroyed.
}

TEST_F(Virtual, ChecksItsArguments) {
  uint64_t out = 0;
  EXPECT_EQ(v.granularity(v.self, b.device, 1, &out), BP_INVALID_ARGUMENT);
  EXPECT_EQ(v.granularity(v.self, nullptr, 0, &out), BP_INVALID_ARGUMENT);
  EXPECT_EQ(v.granularity(v.self, b.device, 0, nullptr), BP_INVALID_ARGUMENT);
  bp_buffer* range = nullptr;
  EXPECT_EQ(v.reserve(v.self, b.device, unit + 1, &range), BP_INVALID_ARGUMENT);
  EXPECT_EQ(v.reserve(v.self, b.device, 0, &range), BP_INVALID_ARGUMENT);
  EXPECT_EQ(v.reserve(v.self, b.device, uint64_t{1} << 63, &range), BP_OUT_OF_MEMORY);
  bp_physical_memory* memory = nullptr;
  EXPECT_EQ(v.create(v.self, b.device, 0, unit / 2, &memory), BP_INVALID_ARGUMENT);
  EXPECT_EQ(v.create(v.self, b.device, 0, 0, &memory), BP_INVALID_ARGUMENT);
  EXPECT_EQ(v.create(v.self, b.device, 0, uint64_t{1} << 60, &memory), BP_OUT_OF_MEMORY);
  EXPECT_EQ(range, nullptr);
  EXPECT_EQ(memory, nullptr);
  range = reserve(1);
  memory = create(1);
  EXPECT_EQ(map(range, 0, 1, nullptr), BP_INVALID_ARGUMENT);
  EXPECT_EQ(v.map(v.self, nullptr, memory, 0), BP_INVALID_ARGUMENT);
  const bp_buffer_ref half{range, 0, unit / 2};
  EXPECT_EQ(v.map(v.self, &half, memory, 0), BP_INVALID_ARGUMENT);
  EXPECT_EQ(map(range, 0, 1, memory), BP_OK);
  const bp_buffer_ref whole{range, 0, unit};
  bp_device* const foreign = nullptr;
  EXPECT_EQ(v.set_access(v.self, &whole, 1, &foreign, BP_ACCESS_READ), BP_INVALID_ARGUMENT);
  EXPECT_EQ(v.set_access(v.self, &whole, 1, nullptr, BP_ACCESS_READ), BP_INVALID_ARGUMENT);
  EXPECT_EQ(v.set_access(v.self, &whole, 1, &b.device, BP_ACCESS_READ), BP_OK) << b.text;
  EXPECT_EQ(v.set_access(v.self, &whole, 0, nullptr, 3), BP_INVALID_ARGUMENT);
  bp_buffer* const plain = b.make_buffer(unit);
  EXPECT_EQ(v.release(v.self, plain), BP_INVALID_ARGUMENT);
  EXPECT_EQ(map(plain, 0, 1, memory), BP_INVALID_ARGUMENT);
  EXPECT_EQ(v.release(v.self, nullptr), BP_OK);
  EXPECT_EQ(v.release_memory(v.self, nullptr), BP_OK);
}

// A growing buffer reserves a range as large as the heap, of which only a small part has memory.
TEST_F(Virtual, ReservesWithoutMemory) {
  uint64_t free_bytes = 0, total_bytes = 0;
  b.devices->memory_info(b.devices->self, b.device, 0, &free_bytes, &total_bytes);
  const uint64_t units = 4 * total_bytes / unit;
  bp_buffer* const range = reserve(units);
  bp_physical_memory* const memory = create(1);
  ASSERT_EQ(map(range, units - 1, 1, memory), BP_OK) << b.text;
  ASSERT_EQ(allow(range, units - 1, 1, BP_ACCESS_READ_WRITE), BP_OK) << b.text;
  EXPECT_EQ(fill(range, units * unit - 1, 1, 'z'), BP_OK) << b.text;
}

}  // namespace
}  // namespace bp
