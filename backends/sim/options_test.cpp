#include <set>

#include "backends/sim/sim_test.hpp"
#include "backplane/ops.h"

namespace bp::sim {
namespace {

const bp_device_properties& properties_of(Sim& s, size_t device = 0) {
  const bp_device_properties* properties = nullptr;
  EXPECT_EQ(s.b.devices->properties(s.b.devices->self, s.b.all_devices[device], &properties),
            BP_OK);
  return *properties;
}

TEST(SimOptions, GiveAsManyDevicesAsAskedFor) {
  Sim s{{"device_count", "5"}};
  ASSERT_EQ(s.b.all_devices.size(), 5u);
  std::set<std::string> uuids;
  for (size_t k = 0; k < 5; ++k) {
    const bp_device_properties& p = properties_of(s, k);
    EXPECT_EQ(p.device_class, uint32_t{BP_DEVICE_SIMULATED});
    uuids.emplace(reinterpret_cast<const char*>(p.uuid), sizeof(p.uuid));
  }
  EXPECT_EQ(uuids.size(), 5u);
  uint64_t count = 7;
  Sim none{{"device_count", "0"}};
  ASSERT_EQ(none.b.devices->probe(none.b.devices->self, &count), BP_OK);
  EXPECT_EQ(count, 0u);
}

TEST(SimOptions, AreRefusedWithWhatIsAllowed) {
  const std::pair<const char*, const char*> bad[] = {{"device_count", "17"},
                                                     {"device_count", "two"},
                                                     {"capacity_bytes", "0"},
                                                     {"offset_alignment_bytes", "3"},
                                                     {"offset_alignment_bytes", "8192"},
                                                     {"heaps", "shared"},
                                                     {"protect", "maybe"},
                                                     {"delay_probability", "2"},
                                                     {"delay_us", "-1"},
                                                     {"queues", "one"},
                                                     {"layouts", "yes"},
                                                     {"ops", "own"},
                                                     {"shapes", "free"},
                                                     {"chip_memory_bytes", "much"},
                                                     {"seed", "0xZZ"}};
  for (const auto& [key, value] : bad) {
    try {
      Sim s{{key, value}};
      FAIL() << key << "=" << value;
    } catch (const std::runtime_error& e) {
      EXPECT_NE(std::string(e.what()).find(std::string("option ") + key), std::string::npos)
          << e.what();
    }
  }
}

TEST(SimOptions, OfDelaysChangeAtRunTime) {
  Sim s;
  const auto set = [&](const char* key, const char* value) {
    return s.b.devices->set_option(s.b.devices->self, s.b.device, key, value);
  };
  EXPECT_EQ(set("delay_us", "0"), BP_OK);
  EXPECT_EQ(set("delay_us", "many"), BP_INVALID_ARGUMENT);
  EXPECT_EQ(set("device_count", "3"), BP_NOT_FOUND);
}

TEST(SimOptions, HideAddresses) {
  Sim s{{"addresses", "no"}};
  bp_buffer* buffer = s.make_buffer(16);
  uint64_t address = 7;
  EXPECT_EQ(s.b.allocator->address(s.b.allocator->self, buffer, &address), BP_UNSUPPORTED);
  EXPECT_EQ(address, 7u);
  EXPECT_EQ(properties_of(s).dlpack_device_type, 0);
  ASSERT_EQ(s.fill(s.b.default_stream(), buffer, 1), BP_OK);
  EXPECT_EQ(s.read(s.b.default_stream(), buffer), bytes_of(1));
  EXPECT_EQ(s.free(buffer), BP_OK);
}

TEST(SimOptions, MakeLimitsCoarse) {
  Sim s{{"whole_buffers", "yes"}, {"offset_alignment_bytes", "256"}};
  const bp_heap& heap = properties_of(s).heaps[0];
  EXPECT_EQ(heap.suballocation_granularity_bytes, 0u);
  EXPECT_EQ(heap.tensor_offset_alignment_bytes, 256u);
  bp_buffer* buffer = s.make_buffer(1024);
  const int64_t shape = 4, stride = 1;
  bp_tensor y{.buffer = buffer,
              .byte_offset = 256,
              .shape = &shape,
              .strides = &stride,
              .ndim = 1,
              .dtype = BP_F32};
  bp_fill_args args{.y = &y, .value_scalar = {.dtype = BP_F64}};
  EXPECT_EQ(s.b.launch(BP_OP_FILL, args), BP_OK) << s.b.text;
  y.byte_offset = 64;
  EXPECT_EQ(s.b.launch(BP_OP_FILL, args), BP_UNSUPPORTED);
  EXPECT_NE(s.b.text.find("no multiple of 256"), std::string::npos) << s.b.text;
  bp_tensor x = y;
  x.byte_offset = 260;
  bp_copy_args copy{.x = &x, .y = &y};
  EXPECT_EQ(s.b.launch(BP_OP_COPY, copy), BP_OK) << s.b.text;
  EXPECT_EQ(s.free(buffer), BP_OK);
}

TEST(SimOptions, TakePeersAway) {
  Sim s{{"peer", "no"}};
  bp_buffer* near = s.make_buffer(16, 0);
  bp_buffer* far = s.make_buffer(16, 1);
  bp_peer_info info{.struct_size = sizeof(info), .is_direct = 7};
  ASSERT_EQ(
      s.b.allocator->peer_info(s.b.allocator->self, s.b.all_devices[0], s.b.all_devices[1], &info),
      BP_OK);
  EXPECT_EQ(info.is_direct, 0u);
  EXPECT_EQ(s.copy_peer(s.make_stream(), near, far), BP_UNSUPPORTED);
  bp_buffer* shared = nullptr;
  EXPECT_EQ(s.allocate({.size_bytes = 1, .usage = BP_MEMORY_PEER}, &shared), BP_UNSUPPORTED);
  for (bp_buffer* buffer : {near, far}) EXPECT_EQ(s.free(buffer), BP_OK);
}

class MappedBuffer {
 public:
  explicit MappedBuffer(Sim& s) : s_(s), buffer_(s.make_buffer(16)), whole_{buffer_, 0, 16} {
    void* pointer = nullptr;
    EXPECT_EQ(s.b.allocator->map(s.b.allocator->self, &whole_, &pointer), BP_OK) << s.b.text;
    bytes = static_cast<uint8_t*>(pointer);
  }
  ~MappedBuffer() {
    EXPECT_EQ(s_.b.allocator->unmap(s_.b.allocator->self, buffer_, bytes), BP_OK);
    EXPECT_EQ(s_.free(buffer_), BP_OK);
  }
  void flush() { EXPECT_EQ(s_.b.allocator->flush(s_.b.allocator->self, &whole_), BP_OK); }
  void invalidate() { EXPECT_EQ(s_.b.allocator->invalidate(s_.b.allocator->self, &whole_), BP_OK); }
  bp_buffer* handle() const { return buffer_; }

  uint8_t* bytes = nullptr;

 private:
  Sim& s_;
  bp_buffer* buffer_;
  bp_buffer_ref whole_;
};

TEST(SimOptions, ShowAMissingFlushAndAMissingInvalidate) {
  Sim s{{"heaps", "noncoherent"}};
  EXPECT_EQ(properties_of(s).heaps[0].flags,
            uint32_t{BP_HEAP_DEVICE_LOCAL | BP_HEAP_HOST_VISIBLE | BP_HEAP_HOST_CACHED});
  bp_stream* stream = s.make_stream();
  MappedBuffer mapped(s);
  ASSERT_EQ(s.fill(stream, mapped.handle(), 1), BP_OK);
  ASSERT_EQ(s.synchronize(stream), BP_OK);
  EXPECT_NE(mapped.bytes[0], 1) << "without invalidate() the host sees what it saw before";
  mapped.invalidate();
  EXPECT_EQ(mapped.bytes[0], 1);
  mapped.bytes[0] = 2;
  EXPECT_EQ(s.read(stream, mapped.handle())[0], 1) << "without flush() the device does not see it";
  mapped.flush();
  EXPECT_EQ(s.read(stream, mapped.handle())[0], 2);
}

TEST(SimOptions, MoveWholeLinesOfMemoryThatIsNotCoherent) {
  Sim s{{"heaps", "noncoherent"}};
  EXPECT_EQ(properties_of(s).heaps[0].map_granularity_bytes, 64u);
  bp_stream* stream = s.make_stream();
  bp_buffer* const buffer = s.make_buffer(200);
  const bp_allocator_ops& m = *s.b.allocator;
  ASSERT_EQ(s.fill(stream, buffer, 1, 200), BP_OK);
  ASSERT_EQ(s.synchronize(stream), BP_OK);
  const bp_buffer_ref whole{buffer, 0, 200}, byte{buffer, 70, 1};
  void* pointer = nullptr;
  ASSERT_EQ(m.map(m.self, &whole, &pointer), BP_OK) << s.b.text;
  ASSERT_EQ(m.invalidate(m.self, &byte), BP_OK) << s.b.text;
  auto* const bytes = static_cast<uint8_t*>(pointer);
  EXPECT_TRUE(bytes[63] != 1 && bytes[64] == 1 && bytes[127] == 1 && bytes[128] != 1);
  bytes[100] = 2;
  ASSERT_EQ(m.flush(m.self, &byte), BP_OK) << s.b.text;
  const std::vector<uint8_t> seen = s.read(stream, buffer, 200);
  EXPECT_EQ(seen[100], 2) << "it shares a line with byte 70";
  EXPECT_TRUE(seen[63] == 1 && seen[128] == 1) << "other lines keep what the device wrote";
  EXPECT_EQ(m.unmap(m.self, buffer, pointer), BP_OK);
  EXPECT_EQ(s.free(buffer), BP_OK);
}

TEST(SimOptions, IntegrateMemory) {
  Sim s{{"heaps", "integrated"}};
  bp_stream* stream = s.make_stream();
  MappedBuffer mapped(s);
  mapped.bytes[3] = 9;
  EXPECT_EQ(s.read(stream, mapped.handle())[3], 9);
  ASSERT_EQ(s.fill(stream, mapped.handle(), 4), BP_OK);
  ASSERT_EQ(s.synchronize(stream), BP_OK);
  EXPECT_EQ(mapped.bytes[3], 4);
}

}  // namespace
}  // namespace bp::sim
