// Tests memory and events that are imported or exported, and buffers that do not own their memory.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "backends/sim/sim_test.hpp"
#include "backplane/ops.h"
#include "backplane/virtual_memory.h"

namespace bp::sim {
namespace {

constexpr uint64_t kUnit = 4096;

class Shared : public testing::Test {
 protected:
  bp_buffer* wrap(uint64_t address, uint64_t size_bytes, bp_status want = BP_OK) {
    bp_buffer* buffer = nullptr;
    EXPECT_EQ(m.wrap_address(m.self, s.b.device, address, size_bytes, &buffer), want) << s.b.text;
    return buffer;
  }
  bp_buffer* register_host(void* memory, uint64_t size_bytes, bp_status want = BP_OK) {
    bp_buffer* buffer = nullptr;
    EXPECT_EQ(m.register_host(m.self, s.b.device, memory, size_bytes, &buffer), want) << s.b.text;
    return buffer;
  }
  bp_buffer* reserve(uint64_t units) {
    bp_buffer* range = nullptr;
    EXPECT_EQ(v.reserve(v.self, s.b.device, units * kUnit, &range), BP_OK) << s.b.text;
    return range;
  }
  bp_physical_memory* create(uint64_t units, bp_status want = BP_OK) {
    bp_physical_memory* memory = nullptr;
    EXPECT_EQ(v.create(v.self, s.b.device, 0, units * kUnit, &memory), want) << s.b.text;
    return memory;
  }
  void map(bp_buffer* range, uint64_t at, uint64_t units, bp_physical_memory* memory) {
    const bp_buffer_ref ref{range, at * kUnit, units * kUnit};
    ASSERT_EQ(v.map(v.self, &ref, memory, 0), BP_OK) << s.b.text;
    allow(range, at, units, BP_ACCESS_READ_WRITE);
  }
  void allow(bp_buffer* range, uint64_t at, uint64_t units, bp_access access) {
    const bp_buffer_ref ref{range, at * kUnit, units * kUnit};
    ASSERT_EQ(v.set_access(v.self, &ref, 0, nullptr, access), BP_OK) << s.b.text;
  }
  void unmap(bp_buffer* range, uint64_t at, uint64_t units) {
    const bp_buffer_ref ref{range, at * kUnit, units * kUnit};
    ASSERT_EQ(v.unmap(v.self, &ref), BP_OK) << s.b.text;
  }
  bool says(const char* text) { return s.b.text.find(text) != std::string::npos; }

  Sim s{{"capacity_bytes", "1048576"}};
  const bp_allocator_ops& m = *s.b.allocator;
  const bp_virtual_memory_ops& v = *s.b.virtual_memory;
  bp_stream* stream = s.make_stream();
};
using SharedDeathTest = Shared;

TEST_F(SharedDeathTest, MappedRangeFaultsWhereTheHostTouchesIt) {
  bp_buffer* const range = reserve(4);
  bp_physical_memory* const memory = create(2);
  map(range, 1, 2, memory);
  const bp_buffer_ref part{range, kUnit + 8, kUnit};
  const uint8_t value = 7;
  ASSERT_EQ(m.fill(m.self, stream, &part, &value, 1), BP_OK) << s.b.text;
  ASSERT_EQ(s.synchronize(stream), BP_OK);
  volatile uint8_t* const bytes = s.address(range);
  EXPECT_DEATH({ [[maybe_unused]] const uint8_t byte = bytes[kUnit + 8]; }, "");
  EXPECT_DEATH({ bytes[2 * kUnit] = 1; }, "");
  EXPECT_DEATH({ [[maybe_unused]] const uint8_t byte = bytes[0]; }, "");
  unmap(range, 1, 2);
  EXPECT_EQ(v.release(v.self, range), BP_OK) << s.b.text;
  EXPECT_EQ(v.release_memory(v.self, memory), BP_OK);
}

TEST_F(Shared, MemoryWithoutAddressesTakesRoomUntilItsLastPartIsUnmapped) {
  bp_buffer* const range = reserve(1024);
  EXPECT_EQ(s.free_bytes(), 1048576u) << "addresses take none";
  bp_physical_memory* const memory = create(200);
  EXPECT_EQ(s.free_bytes(), 1048576u - 200 * kUnit);
  EXPECT_EQ(create(57, BP_OUT_OF_MEMORY), nullptr);
  EXPECT_TRUE(says("create: 233472 bytes were asked for")) << s.b.text;
  map(range, 0, 200, memory);
  EXPECT_EQ(v.release_memory(v.self, memory), BP_OK);
  unmap(range, 0, 100);
  EXPECT_EQ(s.free_bytes(), 1048576u - 200 * kUnit);
  unmap(range, 100, 100);
  EXPECT_EQ(s.free_bytes(), 1048576u);
  EXPECT_EQ(v.release(v.self, range), BP_OK);
}

TEST_F(Shared, WorkOfARangeFailsWhereItsAccessWasTakenAway) {
  bp_buffer* const range = reserve(1);
  bp_physical_memory* const memory = create(1);
  map(range, 0, 1, memory);
  bp_event* const gate = s.make_event(BP_EVENT_HOST_SIGNAL);
  ASSERT_EQ(s.wait(stream, gate), BP_OK);
  ASSERT_EQ(s.fill(stream, range, 1), BP_OK) << s.b.text;
  allow(range, 0, 1, BP_ACCESS_READ);
  EXPECT_EQ(s.fill(stream, range, 1), BP_INVALID_ARGUMENT);
  EXPECT_TRUE(says("may not be written")) << s.b.text;
  ASSERT_EQ(s.signal(gate), BP_OK);
  EXPECT_EQ(s.synchronize(stream), BP_INVALID_ARGUMENT);
  EXPECT_TRUE(says("may not be written")) << s.b.text;
  ASSERT_EQ(s.clear(stream), BP_OK);
  EXPECT_EQ(s.read(stream, range), bytes_of(0)) << "reading is still allowed";
  unmap(range, 0, 1);
  EXPECT_EQ(v.release(v.self, range), BP_OK);
  EXPECT_EQ(v.release_memory(v.self, memory), BP_OK);
}

TEST_F(Shared, KernelsWorkOnRangesWrappedAndRegisteredMemory) {
  bp_buffer* const range = reserve(3);
  bp_physical_memory* const memory = create(1);
  map(range, 1, 1, memory);
  bp_buffer* const owner = s.make_buffer(64);
  bp_buffer* const wrapped = wrap(reinterpret_cast<uintptr_t>(s.address(owner)) + 16, 16);
  std::array<float, 4> sums{};
  bp_buffer* const lent = register_host(sums.data(), sizeof(sums));
  const std::array<float, 4> x{1, 2, 3, 4};
  s.write(stream, wrapped, x.data(), sizeof(x));
  const bp_buffer_ref part{range, kUnit, sizeof(x)};
  ASSERT_EQ(m.copy_from_host(m.self, stream, &part, x.data(), BP_BORROW_DURING_CALL), BP_OK);
  const int64_t shape = 4, stride = 1;
  const auto tensor = [&](bp_buffer* buffer, uint64_t offset) {
    return bp_tensor{.buffer = buffer,
                     .byte_offset = offset,
                     .shape = &shape,
                     .strides = &stride,
                     .ndim = 1,
                     .dtype = BP_F32};
  };
  const bp_tensor a = tensor(range, kUnit), b = tensor(wrapped, 0), y = tensor(lent, 0);
  bp_add_args args{.a = &a, .b = &b, .y = &y};
  ASSERT_EQ(s.b.launch(BP_OP_ADD, args, stream), BP_OK) << s.b.text;
  ASSERT_EQ(s.synchronize(stream), BP_OK);
  EXPECT_EQ(sums, (std::array<float, 4>{2, 4, 6, 8}));
  const bp_tensor hole = tensor(range, 0);
  args.a = &hole;
  EXPECT_EQ(s.b.launch(BP_OP_ADD, args, stream), BP_INVALID_ARGUMENT);
  EXPECT_TRUE(says("argument a") && says("is not mapped")) << s.b.text;
  EXPECT_EQ(m.unregister_host(m.self, lent), BP_OK);
  unmap(range, 1, 1);
  EXPECT_EQ(v.release(v.self, range), BP_OK);
}

TEST_F(Shared, RangeIsOfOneDeviceAndNotMappedByTheHost) {
  bp_buffer* const range = reserve(1);
  bp_physical_memory* const memory = create(1);
  map(range, 0, 1, memory);
  const bp_buffer_ref whole{range, 0, kUnit};
  EXPECT_EQ(v.set_access(v.self, &whole, 1, &s.b.all_devices[1], BP_ACCESS_READ), BP_UNSUPPORTED);
  EXPECT_EQ(v.set_access(v.self, &whole, 1, &s.b.all_devices[0], BP_ACCESS_READ), BP_OK);
  void* pointer = nullptr;
  EXPECT_EQ(m.map(m.self, &whole, &pointer), BP_UNSUPPORTED);
  EXPECT_EQ(s.free(range), BP_INVALID_ARGUMENT);
  EXPECT_TRUE(says("virtual_memory.release()")) << s.b.text;
  unmap(range, 0, 1);
  EXPECT_EQ(v.release(v.self, range), BP_OK);
  EXPECT_EQ(v.release_memory(v.self, memory), BP_OK);
}

TEST_F(Shared, ResetEndsRangesAndMemory) {
  bp_buffer* const range = reserve(2);
  bp_physical_memory* const memory = create(2);
  map(range, 0, 1, memory);
  ASSERT_EQ(s.lose(), BP_OK);
  const bp_buffer_ref second{range, kUnit, kUnit};
  EXPECT_EQ(v.map(v.self, &second, memory, kUnit), BP_DEVICE_LOST);
  ASSERT_EQ(s.reset(), BP_OK) << s.b.text;
  EXPECT_EQ(s.free_bytes(), 1048576u);
  EXPECT_EQ(v.map(v.self, &second, memory, kUnit), BP_DEVICE_LOST);
  bp_buffer* const fresh = reserve(1);
  const bp_buffer_ref first{fresh, 0, kUnit};
  EXPECT_EQ(v.map(v.self, &first, memory, 0), BP_DEVICE_LOST) << "memory of before in a new range";
  EXPECT_EQ(v.release(v.self, range), BP_OK) << "a dead range has nothing mapped";
  EXPECT_EQ(v.release(v.self, fresh), BP_OK);
  EXPECT_EQ(v.release_memory(v.self, memory), BP_OK);
  EXPECT_EQ(s.free_bytes(), 1048576u) << "room is given back once";
}

TEST_F(Shared, WrapsMemoryOfTheDeviceAlone) {
  bp_buffer* const owner = s.make_buffer(100);
  bp_buffer* const far = s.make_buffer(100, 1);
  const auto address = reinterpret_cast<uintptr_t>(s.address(owner));
  wrap(address + 50, 51, BP_INVALID_ARGUMENT);
  EXPECT_TRUE(says("51 bytes at byte 50 leave the memory")) << s.b.text;
  wrap(reinterpret_cast<uintptr_t>(s.address(far)), 8, BP_INVALID_ARGUMENT);
  EXPECT_TRUE(says("lies in no memory of the device")) << s.b.text;
  wrap(reinterpret_cast<uintptr_t>(&address), 8, BP_INVALID_ARGUMENT);
  bp_buffer* const wrapped = wrap(address + 50, 50);
  EXPECT_EQ(s.fill(stream, wrapped, 4), BP_OK);
  EXPECT_EQ(s.synchronize(stream), BP_OK);
  EXPECT_EQ(s.free(owner), BP_OK);
  EXPECT_EQ(s.fill(stream, wrapped, 4), BP_OK);
  EXPECT_EQ(s.synchronize(stream), BP_INVALID_ARGUMENT);
  EXPECT_TRUE(says("was freed before the work")) << s.b.text;
  EXPECT_EQ(s.free(wrapped), BP_OK);
  EXPECT_EQ(s.free(far), BP_OK);
}

TEST_F(Shared, WrapsMemoryOfAnotherInstance) {
  Sim other{{"capacity_bytes", "1048576"}};
  bp_buffer* const owner = other.make_buffer(16);
  bp_buffer* const wrapped = wrap(reinterpret_cast<uintptr_t>(other.address(owner)), 16);
  ASSERT_EQ(s.fill(stream, wrapped, 6), BP_OK);
  ASSERT_EQ(s.synchronize(stream), BP_OK);
  EXPECT_EQ(other.read(other.make_stream(), owner), bytes_of(6));
  bp_address_info info{.struct_size = sizeof(info), .struct_type = BP_STRUCT_ADDRESS_INFO};
  EXPECT_EQ(m.address_info(m.self, reinterpret_cast<uintptr_t>(other.address(owner)), &info),
            BP_NOT_FOUND)
      << "the buffer is of another instance, whose handles mean nothing here";
  EXPECT_EQ(s.free(wrapped), BP_OK);
  EXPECT_EQ(other.free(owner), BP_OK);
}

TEST_F(Shared, RegisteredMemoryStaysTheHosts) {
  std::vector<uint8_t> memory(100, 3);
  bp_buffer* const lent = register_host(memory.data() + 1, 64);
  register_host(memory.data() + 60, 8, BP_ALREADY_EXISTS);
  memory[5] = 4;
  EXPECT_EQ(s.read(stream, lent, 8)[4], 4);
  void* pointer = nullptr;
  const bp_buffer_ref part{lent, 8, 8};
  EXPECT_EQ(m.map(m.self, &part, &pointer), BP_OK) << s.b.text;
  EXPECT_EQ(pointer, memory.data() + 9);
  EXPECT_EQ(m.unmap(m.self, lent, pointer), BP_OK);
  EXPECT_EQ(s.free(lent), BP_INVALID_ARGUMENT);
  EXPECT_TRUE(says("unregister_host()")) << s.b.text;
  EXPECT_EQ(m.unregister_host(m.self, lent), BP_OK);
  EXPECT_EQ(s.free_bytes(), 1048576u) << "it took no room of a heap";
  bp_buffer* const plain = s.make_buffer(8);
  EXPECT_EQ(m.unregister_host(m.self, plain), BP_INVALID_ARGUMENT);
  EXPECT_EQ(s.free(plain), BP_OK);
}

TEST_F(Shared, ImportIsOfTheHeapAndDeviceThatTheExportCameFrom) {
  bp_buffer* buffer = nullptr;
  ASSERT_EQ(s.allocate(
                {.size_bytes = 5000, .heap_flags = BP_HEAP_HOST_VISIBLE, .usage = BP_MEMORY_EXPORT},
                &buffer),
            BP_OK)
      << s.b.text;
  bp_external_handle handle{.struct_size = sizeof(handle),
                            .struct_type = BP_STRUCT_EXTERNAL_HANDLE};
  ASSERT_EQ(m.export_buffer(m.self, buffer, BP_EXTERNAL_OPAQUE_FD, &handle), BP_OK) << s.b.text;
  const uint64_t before = s.free_bytes(0, 1);
  bp_buffer* imported = nullptr;
  ASSERT_EQ(m.import_buffer(m.self, s.b.device, &handle, &imported), BP_OK) << s.b.text;
  EXPECT_EQ(s.free_bytes(0, 1), before - 8192) << "each handle takes room of the host's heap";
  void* pointer = nullptr;
  const bp_buffer_ref whole{imported, 0, 5000};
  EXPECT_EQ(m.map(m.self, &whole, &pointer), BP_OK) << "the heap is host_visible: " << s.b.text;
  EXPECT_EQ(m.unmap(m.self, imported, pointer), BP_OK);
  EXPECT_EQ(m.export_buffer(m.self, imported, BP_EXTERNAL_OPAQUE_FD, &handle), BP_INVALID_ARGUMENT);
  bp_buffer* wrong = nullptr;
  EXPECT_EQ(m.import_buffer(m.self, s.b.all_devices[1], &handle, &wrong), BP_INVALID_ARGUMENT);
  EXPECT_TRUE(says("backplane.sim.1.heap0.5000")) << s.b.text;
  EXPECT_EQ(s.free(buffer), BP_OK);
  EXPECT_EQ(s.free(imported), BP_OK);
  EXPECT_EQ(s.b.errors, "") << "the canary of shared memory is found whole on both sides";
  close(handle.fd);
}

TEST_F(Shared, EventsThatCannotBeSharedAreRefused) {
  const bp_event_ops& e = *s.b.events;
  const bp_event_desc desc{.struct_size = sizeof(desc),
                           .struct_type = BP_STRUCT_EVENT_DESC,
                           .flags = BP_EVENT_EXPORTABLE | BP_EVENT_HOST_SIGNAL};
  bp_event* event = nullptr;
  EXPECT_EQ(e.create(e.self, s.b.device, &desc, &event), BP_UNSUPPORTED);
  bp_event* const plain = s.make_event();
  bp_external_handle handle{.struct_size = sizeof(handle),
                            .struct_type = BP_STRUCT_EXTERNAL_HANDLE};
  EXPECT_EQ(e.export_event(e.self, plain, BP_EXTERNAL_OPAQUE_FD, &handle), BP_INVALID_ARGUMENT);
  EXPECT_TRUE(says("BP_EVENT_EXPORTABLE")) << s.b.text;
  event = s.make_event(BP_EVENT_EXPORTABLE);
  EXPECT_EQ(e.export_event(e.self, event, BP_EXTERNAL_OPAQUE_BYTES, &handle), BP_UNSUPPORTED);
  ASSERT_EQ(e.export_event(e.self, event, BP_EXTERNAL_OPAQUE_FD, &handle), BP_OK) << s.b.text;
  bp_event* imported = nullptr;
  bp_external_handle wrong = handle;
  wrong.size_bytes = 1;
  EXPECT_EQ(e.import_event(e.self, s.b.device, &wrong, &imported), BP_INVALID_ARGUMENT);
  wrong = handle;
  wrong.fd = open("/dev/null", O_RDWR | O_CLOEXEC);
  EXPECT_EQ(e.import_event(e.self, s.b.device, &wrong, &imported), BP_INVALID_ARGUMENT);
  close(wrong.fd);
  close(handle.fd);
}

TEST_F(Shared, WaitForAnEventOfAProcessThatIsGoneFails) {
  const bp_event_ops& e = *s.b.events;
  bp_event* const event = s.make_event(BP_EVENT_EXPORTABLE);
  {
    Sim other;
    bp_external_handle handle{.struct_size = sizeof(handle),
                              .struct_type = BP_STRUCT_EXTERNAL_HANDLE};
    ASSERT_EQ(e.export_event(e.self, event, BP_EXTERNAL_OPAQUE_FD, &handle), BP_OK) << s.b.text;
    bp_event* imported = nullptr;
    ASSERT_EQ(
        other.b.events->import_event(other.b.events->self, other.b.device, &handle, &imported),
        BP_OK)
        << other.b.text;
    close(handle.fd);
    bp_stream* const held = other.make_stream();
    ASSERT_EQ(other.wait(held, other.make_event(BP_EVENT_HOST_SIGNAL)), BP_OK);
    ASSERT_EQ(other.record(imported, held), BP_OK) << other.b.text;
    ASSERT_EQ(s.wait(stream, event), BP_OK) << s.b.text;
    EXPECT_EQ(s.synchronize(stream, 0), BP_TIMEOUT);
  }
  // The other instance was shut down before its stream signalled.
  EXPECT_EQ(s.synchronize(stream), BP_ABORTED);
}

TEST_F(Shared, ShutdownEndsWaitsForOtherProcesses) {
  bp_event* const event = s.make_event(BP_EVENT_EXPORTABLE);
  bp_external_handle handle{.struct_size = sizeof(handle),
                            .struct_type = BP_STRUCT_EXTERNAL_HANDLE};
  ASSERT_EQ(s.b.events->export_event(s.b.events->self, event, BP_EXTERNAL_OPAQUE_FD, &handle),
            BP_OK);
  Sim other;
  bp_event* imported = nullptr;
  ASSERT_EQ(other.b.events->import_event(other.b.events->self, other.b.device, &handle, &imported),
            BP_OK)
      << other.b.text;
  close(handle.fd);
  bp_event* const gate = s.make_event(BP_EVENT_HOST_SIGNAL);
  ASSERT_EQ(s.wait(stream, gate), BP_OK);
  ASSERT_EQ(s.record(event, stream), BP_OK) << s.b.text;
  ASSERT_EQ(other.wait(other.make_stream(), imported), BP_OK) << other.b.text;
  other.b.shutdown();  // The shutdown returns, although nobody opens the gate.
  ASSERT_EQ(s.signal(gate), BP_OK);
  EXPECT_EQ(s.synchronize(stream), BP_OK);
}

TEST_F(Shared, NativeStreamsAreThoseOfTheDevice) {
  const bp_stream_ops& t = *s.b.streams;
  void* native = nullptr;
  ASSERT_EQ(t.native_handle(t.self, stream, &native), BP_OK) << s.b.text;
  bp_stream* wrapped = nullptr;
  EXPECT_EQ(t.wrap_native(t.self, s.b.device, nullptr, &wrapped), BP_INVALID_ARGUMENT);
  EXPECT_EQ(t.wrap_native(t.self, s.b.device, &native, &wrapped), BP_INVALID_ARGUMENT);
  EXPECT_EQ(t.wrap_native(t.self, s.b.all_devices[1], native, &wrapped), BP_INVALID_ARGUMENT);
  ASSERT_EQ(t.wrap_native(t.self, s.b.device, native, &wrapped), BP_OK) << s.b.text;
  ASSERT_EQ(t.native_handle(t.self, s.b.default_stream(), &native), BP_OK);
  bp_stream* default_wrapped = nullptr;
  ASSERT_EQ(t.wrap_native(t.self, s.b.device, native, &default_wrapped), BP_OK) << s.b.text;
  EXPECT_EQ(t.destroy(t.self, default_wrapped), BP_OK) << "its wrapping is not lent";
  EXPECT_EQ(t.destroy(t.self, wrapped), BP_OK);
}

TEST(SimOptions, TakeOptionalEntriesAway) {
  Sim s{{"virtual_memory", "no"},
        {"sharing", "no"},
        {"host_registration", "no"},
        {"native_streams", "no"},
        {"addresses", "no"}};
  EXPECT_EQ(s.b.virtual_memory, nullptr);
  const bp_allocator_ops& m = *s.b.allocator;
  EXPECT_TRUE(m.wrap_address == nullptr && m.address_info == nullptr);
  EXPECT_TRUE(m.register_host == nullptr && m.unregister_host == nullptr);
  EXPECT_TRUE(m.export_buffer == nullptr && m.import_buffer == nullptr);
  EXPECT_TRUE(s.b.streams->wrap_native == nullptr && s.b.streams->native_handle == nullptr);
  EXPECT_TRUE(s.b.events->export_event == nullptr && s.b.events->import_event == nullptr);
  bp_buffer* buffer = nullptr;
  EXPECT_EQ(s.allocate({.size_bytes = 1, .usage = BP_MEMORY_EXPORT}, &buffer), BP_UNSUPPORTED);
  const bp_event_desc desc{.struct_size = sizeof(desc),
                           .struct_type = BP_STRUCT_EVENT_DESC,
                           .flags = BP_EVENT_EXPORTABLE};
  bp_event* event = nullptr;
  EXPECT_EQ(s.b.events->create(s.b.events->self, s.b.device, &desc, &event), BP_UNSUPPORTED);
}

}  // namespace
}  // namespace bp::sim
