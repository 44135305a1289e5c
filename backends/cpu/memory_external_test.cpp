#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <numeric>

#include "backends/shell/test_backend.hpp"
#include "backplane/shell/address_map.hpp"

namespace bp {
namespace {

class External : public testing::Test {
 protected:
  bp_buffer* make_shared(uint64_t size_bytes) {
    const bp_allocate_desc desc{.struct_size = sizeof(desc),
                                .struct_type = BP_STRUCT_ALLOCATE_DESC,
                                .size_bytes = size_bytes,
                                .usage = BP_MEMORY_EXPORT};
    bp_buffer* buffer = nullptr;
    EXPECT_EQ(m.allocate(m.self, b.device, &desc, &buffer), BP_OK) << b.text;
    return buffer;
  }
  bp_external_handle blank() {
    return {.struct_size = sizeof(bp_external_handle), .struct_type = BP_STRUCT_EXTERNAL_HANDLE};
  }
  bp_external_handle export_of(bp_buffer* buffer) {
    bp_external_handle handle = blank();
    EXPECT_EQ(m.export_buffer(m.self, buffer, BP_EXTERNAL_OPAQUE_FD, &handle), BP_OK) << b.text;
    return handle;
  }
  bp_status import(const bp_external_handle& handle, bp_buffer** out) {
    return m.import_buffer(m.self, b.device, &handle, out);
  }
  uint8_t* bytes(bp_buffer* buffer) {
    uint64_t address = 0;
    EXPECT_EQ(m.address(m.self, buffer, &address), BP_OK) << b.text;
    return reinterpret_cast<uint8_t*>(address);
  }
  bp_status find(const void* address, bp_address_info& info) {
    info = {.struct_size = sizeof(info), .struct_type = BP_STRUCT_ADDRESS_INFO};
    return m.address_info(m.self, reinterpret_cast<uintptr_t>(address), &info);
  }
  void free(bp_buffer* buffer) {
    EXPECT_EQ(m.deallocate(m.self, buffer, nullptr), BP_OK) << b.text;
  }

  TestBackend b{BACKEND_PATH};
  const bp_allocator_ops& m = *b.allocator;
};

TEST_F(External, FindsTheBufferThatAnAddressLiesIn) {
  std::vector<bp_buffer*> buffers;
  for (const uint64_t size : {1u, 64u, 100u, 4096u, 1u << 20})
    buffers.push_back(b.make_buffer(size));
  buffers.push_back(make_shared(100));
  const std::array<uint64_t, 6> sizes{1, 64, 100, 4096, 1 << 20, 100};
  bp_address_info info;
  for (size_t i = 0; i < buffers.size(); ++i) {
    for (const uint64_t offset : {uint64_t{0}, sizes[i] / 2, sizes[i] - 1}) {
      ASSERT_EQ(find(bytes(buffers[i]) + offset, info), BP_OK) << b.text;
      EXPECT_EQ(info.buffer, buffers[i]);
      EXPECT_EQ(info.byte_offset, offset);
      EXPECT_EQ(info.size_bytes, sizes[i]);
      EXPECT_EQ(info.device, b.device);
    }
  }
  EXPECT_EQ(find(bytes(buffers[2]) + 100, info), BP_NOT_FOUND);  // The address lies in the last
                                                                 // cache line.
  const uint8_t* const gone = bytes(buffers[4]);
  for (bp_buffer* buffer : buffers) free(buffer);
  EXPECT_EQ(find(gone, info), BP_NOT_FOUND);
  EXPECT_EQ(find(&info, info), BP_NOT_FOUND);
}

TEST(AddressMap, KeepsRangesApart) {
  AddressMap<int> map;
  int a = 0, c = 0;
  EXPECT_TRUE(map.add(100, 10, &a));
  EXPECT_TRUE(map.add(110, 10, &c));
  EXPECT_FALSE(map.add(105, 1, &c));
  EXPECT_FALSE(map.add(95, 6, &c));
  EXPECT_FALSE(map.add(0, UINT64_MAX, &c));
  EXPECT_TRUE(map.add(95, 5, &c));
  EXPECT_TRUE(map.add(105, 0, &c));
  EXPECT_EQ(map.find(99), &c);
  EXPECT_EQ(map.find(100), &a);
  EXPECT_EQ(map.find(109), &a);
  EXPECT_EQ(map.find(110), &c);
  EXPECT_EQ(map.find(120), nullptr);
  EXPECT_EQ(map.find(94), nullptr);
  map.remove(100, &c);  // `c` is not the owner.
  EXPECT_EQ(map.find(100), &a);
  map.remove(100, &a);
  EXPECT_EQ(map.find(100), nullptr);
}

TEST_F(External, WrapsMemoryThatOutlivesTheHandle) {
  std::array<uint8_t, 64> ours{};
  const auto address = reinterpret_cast<uintptr_t>(ours.data());
  bp_buffer* wrapped = nullptr;
  ASSERT_EQ(m.wrap_address(m.self, b.device, address, 64, &wrapped), BP_OK) << b.text;
  const bp_buffer_ref part{wrapped, 8, 4};
  ASSERT_EQ(m.fill(m.self, b.default_stream(), &part, "x", 1), BP_OK) << b.text;
  bp_address_info info;
  EXPECT_EQ(find(ours.data(), info), BP_NOT_FOUND);
  free(wrapped);
  EXPECT_EQ(ours[7], 0);
  EXPECT_EQ(ours[8], 'x');
  wrapped = nullptr;
  EXPECT_EQ(m.wrap_address(m.self, b.device, 0, 64, &wrapped), BP_INVALID_ARGUMENT);
  EXPECT_EQ(m.wrap_address(m.self, b.device, address, UINT64_MAX, &wrapped), BP_INVALID_ARGUMENT);
  EXPECT_EQ(m.wrap_address(m.self, nullptr, address, 64, &wrapped), BP_INVALID_ARGUMENT);
  EXPECT_EQ(m.wrap_address(m.self, b.device, address, 64, nullptr), BP_INVALID_ARGUMENT);
  EXPECT_EQ(wrapped, nullptr);
}

TEST_F(External, RegistersHostMemoryOnce) {
  std::vector<uint8_t> ours(1000, 7);
  bp_buffer* lent = nullptr;
  ASSERT_EQ(m.register_host(m.self, b.device, ours.data(), ours.size(), &lent), BP_OK) << b.text;
  bp_buffer* again = nullptr;
  EXPECT_EQ(m.register_host(m.self, b.device, ours.data() + 999, 1, &again), BP_ALREADY_EXISTS);
  EXPECT_EQ(m.deallocate(m.self, lent, nullptr), BP_INVALID_ARGUMENT);
  EXPECT_NE(b.text.find("unregister_host"), std::string::npos) << b.text;
  bp_address_info info;
  ASSERT_EQ(find(ours.data() + 5, info), BP_OK);
  EXPECT_EQ(info.buffer, lent);
  EXPECT_EQ(m.unregister_host(m.self, lent), BP_OK) << b.text;
  EXPECT_EQ(find(ours.data() + 5, info), BP_NOT_FOUND);
  EXPECT_EQ(m.unregister_host(m.self, nullptr), BP_INVALID_ARGUMENT);
  bp_buffer* const allocated = b.make_buffer(8);
  EXPECT_EQ(m.unregister_host(m.self, allocated), BP_INVALID_ARGUMENT);
  free(allocated);
}

TEST_F(External, SharesMemoryThroughADescriptor) {
  for (const uint64_t size : {0u, 1u, 4096u, 5000u}) {
    bp_buffer* const first = make_shared(size);
    const bp_external_handle handle = export_of(first);
    EXPECT_EQ(handle.type, bp_external_type{BP_EXTERNAL_OPAQUE_FD});
    EXPECT_EQ(handle.size_bytes, size);
    bp_buffer* second = nullptr;
    ASSERT_EQ(import(handle, &second), BP_OK) << b.text;
    ::close(handle.fd);
    if (size > 0) {
      bytes(first)[size - 1] = 42;
      EXPECT_EQ(bytes(second)[size - 1], 42);
      free(first);
      EXPECT_EQ(bytes(second)[size - 1], 42);
    } else {
      free(first);
    }
    free(second);
  }
}

// The child has what any other process would get: the bytes of the handle, and the descriptor.
TEST_F(External, SharesMemoryWithAnotherProcess) {
  bp_buffer* const buffer = make_shared(5000);
  const bp_external_handle handle = export_of(buffer);
  bytes(buffer)[4999] = 1;
  const pid_t child = fork();
  if (child == 0) {
    const auto* const mapped = static_cast<volatile uint8_t*>(
        mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, handle.fd, 0));
    if (mapped == MAP_FAILED || mapped[4999] != 1) _exit(1);
    const_cast<volatile uint8_t*>(mapped)[4999] = 2;
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(bytes(buffer)[4999], 2);
  ::close(handle.fd);
  free(buffer);
}

TEST_F(External, RefusesHandlesThatNoBufferCameFrom) {
  bp_buffer* const plain = b.make_buffer(64);
  bp_external_handle handle = blank();
  EXPECT_EQ(m.export_buffer(m.self, plain, BP_EXTERNAL_OPAQUE_FD, &handle), BP_INVALID_ARGUMENT);
  free(plain);
  bp_buffer* const buffer = make_shared(4000);
  EXPECT_EQ(m.export_buffer(m.self, buffer, BP_EXTERNAL_OPAQUE_BYTES, &handle), BP_UNSUPPORTED);
  EXPECT_EQ(m.export_buffer(m.self, buffer, BP_EXTERNAL_OPAQUE_FD, nullptr), BP_INVALID_ARGUMENT);
  handle.struct_size = 8;
  EXPECT_EQ(m.export_buffer(m.self, buffer, BP_EXTERNAL_OPAQUE_FD, &handle), BP_INCOMPATIBLE);
  handle = export_of(buffer);
  bp_buffer* out = nullptr;
  bp_external_handle wrong = handle;
  wrong.size_bytes = 4001;  // The size ends in the same page.
  EXPECT_EQ(import(wrong, &out), BP_INVALID_ARGUMENT);
  EXPECT_NE(b.text.find("4001"), std::string::npos) << b.text;
  wrong = handle;
  wrong.type = BP_EXTERNAL_OPAQUE_BYTES;
  EXPECT_EQ(import(wrong, &out), BP_UNSUPPORTED);
  wrong = handle;
  wrong.fd = open("/dev/null", O_RDWR | O_CLOEXEC);
  EXPECT_EQ(import(wrong, &out), BP_INVALID_ARGUMENT);
  ::close(wrong.fd);
  EXPECT_EQ(import(wrong, &out), BP_INVALID_ARGUMENT);
  wrong.fd = -1;
  EXPECT_EQ(import(wrong, &out), BP_INVALID_ARGUMENT);
  // This file has the same name, but is not sealed, so that its pages can be taken away.
  wrong.fd = memfd_create("backplane.cpu.buffer.4000", MFD_CLOEXEC);
  EXPECT_EQ(import(wrong, &out), BP_INVALID_ARGUMENT);
  ::close(wrong.fd);
  ::close(handle.fd);
  EXPECT_EQ(out, nullptr);
  free(buffer);
}

TEST_F(External, KnowsTheUsagesThatItLacks) {
  bp_allocate_desc desc{.struct_size = sizeof(desc), .struct_type = BP_STRUCT_ALLOCATE_DESC};
  desc.size_bytes = 64;
  bp_buffer* buffer = nullptr;
#if !BP_CPU_HAS_GROUPS
  desc.usage = BP_MEMORY_COLLECTIVE;
  EXPECT_EQ(m.allocate(m.self, b.device, &desc, &buffer), BP_UNSUPPORTED);
#endif
  desc.usage = BP_MEMORY_EXPORT | BP_MEMORY_STREAM_ORDERED;
  desc.stream = b.default_stream();
  EXPECT_EQ(m.allocate(m.self, b.device, &desc, &buffer), BP_UNSUPPORTED);
}

}  // namespace
}  // namespace bp
