// Tests the table of the allocator.
#include "backends/shell/memory_ops_test.hpp"

namespace bp::memory_ops_test {
namespace {

TEST_F(MemoryTable, HasTheOptionalEntriesOfItsTraitsAlone) {
  EXPECT_EQ(ops.copy_peer, nullptr);
  EXPECT_EQ(ops.register_host, nullptr);
  EXPECT_EQ(ops.unregister_host, nullptr);
  EXPECT_EQ(ops.export_buffer, nullptr);
  EXPECT_EQ(ops.import_buffer, nullptr);
  EXPECT_TRUE(more.copy_peer != nullptr && more.register_host != nullptr &&
              more.unregister_host != nullptr && more.export_buffer != nullptr &&
              more.import_buffer != nullptr);
}

TEST_F(MemoryTable, ChecksRanges) {
  bp_buffer* const buffer = make(16);
  EXPECT_EQ(fill({buffer, 0, 16}), BP_OK) << text;
  EXPECT_EQ(fill({buffer, 16, 0}), BP_OK) << text;
  const bp_buffer_ref outside[] = {
      {buffer, 1, 16}, {buffer, 17, 0}, {buffer, 8, UINT64_MAX}, {buffer, UINT64_MAX, 2}};
  for (const bp_buffer_ref& range : outside) {
    EXPECT_EQ(fill(range), BP_INVALID_ARGUMENT);
    EXPECT_EQ(text, "fill: dst: " + std::to_string(range.size_bytes) + " bytes at " +
                        std::to_string(range.byte_offset) + " leave the buffer of 16");
  }
  EXPECT_EQ(fill({nullptr, 0, 0}), BP_INVALID_ARGUMENT);
  EXPECT_EQ(text, "fill: dst: buffer is NULL or not one of this backend");
  EXPECT_EQ(ops.flush(&machine, nullptr), BP_INVALID_ARGUMENT);
  EXPECT_EQ(text, "flush: range is NULL");
  object(buffer).is_guarded = true;
  EXPECT_EQ(fill({buffer, 8, 8}), BP_OK) << text;
  EXPECT_EQ(fill({buffer, 0, 8}), BP_INVALID_ARGUMENT);
  EXPECT_EQ(text, "fill: dst: byte 7 is not written");
}

TEST_F(MemoryTable, SaysThatTheBufferOfAnArgumentIsMissing) {
  const auto refusal = [](bp_buffer* handle) {
    try {
      live_buffer_of<Buffer>(handle, "launch", "argument x");
    } catch (const StatusError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  const std::string text_of_none = "launch: argument x: buffer is NULL or not one of this backend";
  EXPECT_EQ(refusal(nullptr), text_of_none);
  EXPECT_EQ(refusal(reinterpret_cast<bp_buffer*>(stream().handle())), text_of_none);
  bp_buffer* const far = make(16, 1);
  EXPECT_EQ(refusal(far), "");
  machine.cards[1]->lost = true;
  EXPECT_EQ(refusal(far), "launch: argument x belongs to a device that is lost until it is reset");
}

TEST_F(MemoryTable, RefusesARangeOfALostOrOfAnotherDevice) {
  bp_buffer* const far = make(16, 1);
  EXPECT_EQ(fill({far, 0, 16}), BP_INVALID_ARGUMENT);
  EXPECT_EQ(text, "fill: dst and stream are of two devices");
  machine.cards[1]->lost = true;
  EXPECT_EQ(fill({far, 0, 16}), BP_DEVICE_LOST);
  EXPECT_EQ(text, "fill: dst belongs to a device that is lost until it is reset");
  EXPECT_EQ(ops.deallocate(&machine, far, stream(1).handle()), BP_OK)
      << "of a lost device too: " << text;
  EXPECT_EQ(machine.calls, "deallocate-behind ");
}

TEST_F(MemoryTable, CopiesOnlyWhatFitsAndDoesNotOverlap) {
  bp_buffer* const buffer = make(16);
  EXPECT_EQ(copy({buffer, 0, 8}, {buffer, 8, 8}), BP_OK) << text;
  EXPECT_EQ(copy({buffer, 3, 8}, {buffer, 3, 8}), BP_OK) << text;
  EXPECT_EQ(machine.calls, "copy copy ");
  EXPECT_EQ(copy({buffer, 0, 8}, {buffer, 8, 7}), BP_INVALID_ARGUMENT);
  EXPECT_EQ(text, "copy: dst has 8 bytes, and src has 7");
  for (const uint64_t offset : {1u, 7u}) {
    EXPECT_EQ(copy({buffer, offset, 8}, {buffer, 0, 8}), BP_INVALID_ARGUMENT) << offset;
    EXPECT_EQ(copy({buffer, 0, 8}, {buffer, offset, 8}), BP_INVALID_ARGUMENT) << offset;
    EXPECT_EQ(text, "copy: dst and src overlap and are not the same");
  }
}

TEST_F(MemoryTable, FindsAnOverlapThatOnlyTheAddressesShow) {
  bp_buffer* const buffer = make(16);
  bp_buffer* wrapped = nullptr;
  const uint64_t address = object(buffer).address;
  ASSERT_EQ(more.wrap_address(&machine, device(), address + 4, 8, &wrapped), BP_OK) << text;
  EXPECT_EQ(copy({buffer, 0, 8}, {wrapped, 0, 8}), BP_INVALID_ARGUMENT);
  EXPECT_EQ(text, "copy: dst and src overlap and are not the same");
}

TEST_F(MemoryTable, CopiesBetweenTwoDevicesOnAStreamOfOneOfThem) {
  machine.cards.push_back(std::make_unique<Card>());
  bp_buffer *const near = make(8), *const far = make(8, 1), *const third = make(8, 2);
  EXPECT_EQ(copy_peer({far, 0, 8}, {near, 0, 8}, 0), BP_OK) << text;
  EXPECT_EQ(copy_peer({far, 0, 8}, {near, 0, 8}, 1), BP_OK) << text;
  EXPECT_EQ(machine.calls, "copy_peer copy_peer ");
  EXPECT_EQ(copy_peer({third, 0, 8}, {near, 0, 8}, 1), BP_INVALID_ARGUMENT);
  EXPECT_EQ(text, "copy_peer: stream is of neither device");
  EXPECT_EQ(copy_peer({far, 0, 8}, {near, 0, 4}, 1), BP_INVALID_ARGUMENT);
  object(far).is_guarded = true;
  EXPECT_EQ(copy_peer({far, 0, 4}, {near, 0, 4}, 1), BP_UNSUPPORTED);
  bp_peer_info info{.struct_size = sizeof(info), .bytes_per_second = 9};
  EXPECT_EQ(ops.peer_info(&machine, device(0), device(1), &info), BP_OK) << text;
  EXPECT_EQ(info.is_direct, 1u);
  EXPECT_EQ(info.bytes_per_second, 0);
  EXPECT_EQ(ops.peer_info(&machine, device(0), device(0), &info), BP_OK) << text;
  EXPECT_EQ(info.is_direct, 0u);
  EXPECT_EQ(ops.peer_info(&machine, device(0), nullptr, &info), BP_INVALID_ARGUMENT);
  EXPECT_EQ(text, "peer_info: peer is NULL or not one of this backend");
  EXPECT_EQ(ops.peer_info(&machine, device(0), device(1), nullptr), BP_INVALID_ARGUMENT);
  EXPECT_EQ(text, "peer_info: out_info is NULL");
}

TEST_F(MemoryTable, MovesBytesToAndFromTheHost) {
  bp_buffer* const buffer = make(8);
  const bp_buffer_ref range{buffer, 2, 4};
  std::string read(4, '?');
  ASSERT_EQ(fill({buffer, 0, 8}), BP_OK) << text;
  ASSERT_EQ(ops.copy_from_host(&machine, stream().handle(), &range, "abcd", BP_BORROW_DURING_CALL),
            BP_OK);
  const bp_buffer_ref later{buffer, 4, 4};
  ASSERT_EQ(ops.copy_to_host(&machine, stream().handle(), read.data(), &later,
                             BP_BORROW_UNTIL_COMPLETE, UINT64_MAX),
            BP_OK);
  EXPECT_EQ(read, "cdxx");
  EXPECT_EQ(ops.copy_to_host(&machine, stream().handle(), nullptr, &later, BP_BORROW_DURING_CALL,
                             UINT64_MAX),
            BP_INVALID_ARGUMENT);
  EXPECT_EQ(text, "copy_to_host: dst is NULL");
  EXPECT_EQ(
      ops.copy_to_host(&machine, stream().handle(), read.data(), &later, BP_BORROW_DURING_CALL, 0),
      BP_TIMEOUT);
  EXPECT_EQ(ops.copy_from_host(&machine, stream().handle(), &range, read.data(), 9),
            BP_INVALID_ARGUMENT);
  EXPECT_EQ(ops.copy_from_host(&machine, nullptr, &range, "abcd", BP_BORROW_DURING_CALL),
            BP_INVALID_ARGUMENT);
  EXPECT_EQ(text, "copy_from_host: stream is NULL or not one of this backend");
}

TEST_F(MemoryTable, CountsTheMapsOfABuffer) {
  bp_buffer* const buffer = make(8);
  const bp_buffer_ref range{buffer, 2, 4}, whole{buffer, 0, 8};
  void *pointer = nullptr, *second = nullptr, *third = nullptr;
  EXPECT_EQ(ops.unmap(&machine, buffer, nullptr), BP_INVALID_ARGUMENT);
  EXPECT_EQ(text, "unmap: the buffer is not mapped");
  EXPECT_EQ(ops.map(&machine, &range, &pointer), BP_OK) << text;
  EXPECT_EQ(pointer, object(buffer).memory.data() + 2);
  EXPECT_EQ(ops.map(&machine, &range, &second), BP_OK) << text;
  EXPECT_EQ(ops.map(&machine, &whole, &third), BP_OK) << text;
  EXPECT_EQ(ops.unmap(&machine, buffer, &pointer), BP_INVALID_ARGUMENT);
  EXPECT_EQ(text, "unmap: map() did not give the pointer, or it was unmapped");
  EXPECT_EQ(ops.unmap(&machine, buffer, pointer), BP_OK) << text;
  EXPECT_EQ(ops.unmap(&machine, buffer, third), BP_OK) << text;
  EXPECT_EQ(ops.unmap(&machine, buffer, third), BP_INVALID_ARGUMENT);
  EXPECT_EQ(ops.unmap(&machine, buffer, second), BP_OK) << text;
  EXPECT_EQ(ops.unmap(&machine, buffer, second), BP_INVALID_ARGUMENT);
  bp_buffer* wrapped = nullptr;
  ASSERT_EQ(ops.wrap_address(&machine, device(), 4096, 8, &wrapped), BP_OK) << text;
  const bp_buffer_ref hidden{wrapped, 0, 4};
  EXPECT_EQ(ops.map(&machine, &hidden, &pointer), BP_UNSUPPORTED);
  EXPECT_EQ(text, "map: the heap of the buffer is not host_visible");
}

TEST_F(MemoryTable, TellsTheBackendWhatConcernsAMappedBuffer) {
  bp_buffer* const buffer = make(8);
  const bp_buffer_ref range{buffer, 0, 8};
  const uint64_t address = object(buffer).address;
  void* pointer = nullptr;
  ASSERT_EQ(more.map(&machine, &range, &pointer), BP_OK) << text;
  EXPECT_EQ(more.flush(&machine, &range), BP_OK) << text;
  EXPECT_EQ(more.invalidate(&machine, &range), BP_OK) << text;
  EXPECT_EQ(more.unmap(&machine, buffer, pointer), BP_OK) << text;
  EXPECT_EQ(object(buffer).address, address + 111);
  EXPECT_EQ(ops.flush(&machine, &range), BP_OK) << text;
  EXPECT_EQ(ops.invalidate(&machine, &range), BP_OK) << text;
  EXPECT_EQ(object(buffer).address, address + 111) << "the entries of Traits do nothing";
}

TEST_F(MemoryTable, FreesOnlyWhatFreeMayEnd) {
  bp_buffer* const buffer = make(8);
  EXPECT_EQ(ops.deallocate(&machine, nullptr, nullptr), BP_OK);
  EXPECT_EQ(ops.deallocate(&machine, reinterpret_cast<bp_buffer*>(stream().handle()), nullptr),
            BP_INVALID_ARGUMENT);
  EXPECT_EQ(text, "deallocate: buffer is NULL or not one of this backend");
  object(buffer).kind = Kind::kRegistered;
  EXPECT_EQ(ops.deallocate(&machine, buffer, nullptr), BP_INVALID_ARGUMENT);
  EXPECT_EQ(text, "deallocate: buffer is the host's memory, which unregister_host() ends");
  object(buffer).kind = Kind::kReserved;
  EXPECT_EQ(ops.deallocate(&machine, buffer, nullptr), BP_INVALID_ARGUMENT);
  EXPECT_EQ(text, "deallocate: buffer is a reserved range, which virtual_memory.release() ends");
  object(buffer).kind = Kind::kOwner;
  EXPECT_EQ(ops.deallocate(&machine, buffer, reinterpret_cast<bp_stream*>(buffer)),
            BP_INVALID_ARGUMENT);
  EXPECT_EQ(text, "deallocate: stream is NULL or not one of this backend");
  EXPECT_EQ(ops.deallocate(&machine, buffer, nullptr), BP_OK) << text;
  EXPECT_EQ(machine.calls, "deallocate ");
  EXPECT_TRUE(machine.cards[0]->buffers.is_empty());
}

TEST_F(MemoryTable, FindsTheBufferAtAnAddress) {
  bp_buffer* const buffer = make(8, 1);
  uint64_t address = 0;
  ASSERT_EQ(ops.address(&machine, buffer, &address), BP_OK) << text;
  bp_address_info info{};
  info.struct_size = sizeof(info);
  ASSERT_EQ(ops.address_info(&machine, address + 3, &info), BP_OK) << text;
  EXPECT_EQ(info.buffer, buffer);
  EXPECT_EQ(info.device, device(1));
  EXPECT_EQ(info.byte_offset, 3u);
  EXPECT_EQ(ops.address_info(&machine, address + 8, &info), BP_NOT_FOUND);
  machine.has_addresses = false;
  EXPECT_EQ(ops.address(&machine, buffer, &address), BP_UNSUPPORTED);
}

TEST_F(MemoryTable, SaysWhatABufferIs) {
  bp_buffer* const buffer = make(8, 1);
  bp_buffer_info info{.struct_size = sizeof(info)};
  ASSERT_EQ(ops.buffer_info(&machine, buffer, &info), BP_OK) << text;
  EXPECT_EQ(info.device, device(1));
  EXPECT_EQ(info.size_bytes, 8u);
  EXPECT_EQ(info.heap_index, 1u);
  EXPECT_EQ(info.address, object(buffer).address);
  EXPECT_EQ(info.flags, 0u);
  machine.has_addresses = false;
  const std::pair<Kind, bp_buffer_flags> kinds[] = {{Kind::kWrapped, BP_BUFFER_WRAPPED},
                                                    {Kind::kRegistered, BP_BUFFER_REGISTERED},
                                                    {Kind::kReserved, BP_BUFFER_RESERVED}};
  for (const auto& [kind, flags] : kinds) {
    object(buffer).kind = kind;
    ASSERT_EQ(ops.buffer_info(&machine, buffer, &info), BP_OK) << text;
    EXPECT_EQ(info.flags, flags);
    EXPECT_EQ(info.heap_index, kind == Kind::kRegistered ? 1 : UINT64_MAX);
    EXPECT_EQ(info.address, 0u);
  }
  EXPECT_EQ(ops.buffer_info(&machine, nullptr, &info), BP_INVALID_ARGUMENT);
  EXPECT_EQ(text, "buffer_info: buffer is NULL or not one of this backend");
  EXPECT_EQ(ops.buffer_info(&machine, buffer, nullptr), BP_INVALID_ARGUMENT);
  machine.cards[1]->lost = true;
  EXPECT_EQ(ops.buffer_info(&machine, buffer, &info), BP_DEVICE_LOST);
}

TEST_F(MemoryTable, RefusesALayoutWhereThereAreNone) {
  const bp_layout layout{.struct_size = sizeof(layout)};
  const bp_allocate_desc desc{
      .struct_size = sizeof(desc), .struct_type = BP_STRUCT_ALLOCATE_DESC, .layout = &layout};
  bp_buffer* buffer = nullptr;
  EXPECT_EQ(ops.allocate(&machine, device(), &desc, &buffer), BP_UNSUPPORTED);
  EXPECT_EQ(text, "allocate: layout is given, and this device has no layouts");
}

TEST_F(MemoryTable, WrapsAndRegistersOnlyAddressesThatThereAre) {
  bp_buffer* buffer = nullptr;
  EXPECT_EQ(ops.wrap_address(&machine, device(), 0, 1, &buffer), BP_INVALID_ARGUMENT);
  EXPECT_EQ(text, "wrap_address: the address is 0");
  EXPECT_EQ(ops.wrap_address(&machine, device(), UINT64_MAX, 2, &buffer), BP_INVALID_ARGUMENT);
  EXPECT_EQ(text, "wrap_address: 2 bytes at address 18446744073709551615 leave the address space");
  EXPECT_EQ(ops.wrap_address(&machine, device(), 0, 0, &buffer), BP_OK) << text;
  EXPECT_EQ(more.register_host(&machine, device(), nullptr, 1, &buffer), BP_INVALID_ARGUMENT);
  EXPECT_EQ(text, "register_host: the address is 0");
  alignas(4) std::byte memory[8];
  EXPECT_EQ(more.register_host(&machine, device(), memory + 1, 4, &buffer), BP_INVALID_ARGUMENT);
  EXPECT_EQ(more.register_host(&machine, device(), memory, 5, &buffer), BP_INVALID_ARGUMENT);
  EXPECT_EQ(text, "register_host: 5 bytes at address " +
                      std::to_string(reinterpret_cast<uintptr_t>(memory)) +
                      " do not begin and end at multiples of 4");
}

TEST_F(MemoryTable, EndsWhatItRegistered) {
  bp_buffer *const owner = make(8), *registered = nullptr;
  int word = 0;
  ASSERT_EQ(more.register_host(&machine, device(), &word, sizeof(word), &registered), BP_OK);
  object(registered).ended = &ended_count;
  EXPECT_EQ(more.unregister_host(&machine, owner), BP_INVALID_ARGUMENT);
  EXPECT_EQ(text, "unregister_host: buffer is not one that register_host() made");
  EXPECT_EQ(more.unregister_host(&machine, registered), BP_OK) << text;
  EXPECT_EQ(ended_count, 1);
}

TEST_F(MemoryTable, EndsTheMemoryOfABufferThatTheDeviceRefuses) {
  bp_buffer* const buffer = make(16);
  auto second = std::make_unique<Buffer>(*machine.cards[0], 8);
  second->address = object(buffer).address + 4;
  second->ended = &ended_count;
  try {
    lend(std::move(second), "reserve");
    FAIL() << "a buffer was lent that overlaps another one";
  } catch (const StatusError& e) {
    EXPECT_EQ(e.status(), BP_ALREADY_EXISTS);
    EXPECT_STREQ(e.what(), "reserve: 8 bytes overlap another buffer of the device");
  }
  EXPECT_EQ(ended_count, 1);
}

TEST_F(MemoryTable, EndsTheMemoryOfABufferThatTheDeviceHasNoRoomFor) {
  auto buffer = std::make_unique<Buffer>(*machine.cards[0], 8);
  buffer->ended = &ended_count;
  machine.cards[0]->is_out_of_memory = true;
  EXPECT_THROW(lend(std::move(buffer), "reserve"), std::bad_alloc);
  EXPECT_EQ(ended_count, 1);
}

TEST_F(MemoryTable, ExportsAndImportsDescriptorsAlone) {
  bp_buffer *const buffer = make(8), *imported = nullptr;
  bp_external_handle handle{};
  EXPECT_EQ(more.export_buffer(&machine, buffer, BP_EXTERNAL_OPAQUE_FD, &handle),
            BP_INVALID_ARGUMENT);
  EXPECT_EQ(text, "export_buffer: buffer is not one allocated with BP_MEMORY_EXPORT");
  handle.struct_size = sizeof(handle);
  handle.struct_type = BP_STRUCT_EXTERNAL_HANDLE;
  handle.type = BP_EXTERNAL_OPAQUE_FD + 1;
  handle.size_bytes = 32;
  EXPECT_EQ(more.import_buffer(&machine, device(), &handle, &imported), BP_UNSUPPORTED);
  EXPECT_EQ(text, "import_buffer: type is " + std::to_string(BP_EXTERNAL_OPAQUE_FD + 1) +
                      "; BP_EXTERNAL_OPAQUE_FD, a descriptor, is offered");
  handle.type = BP_EXTERNAL_OPAQUE_FD;
  ASSERT_EQ(more.import_buffer(&machine, device(), &handle, &imported), BP_OK) << text;
  EXPECT_EQ(object(imported).size_bytes, 32u);
  bp_buffer_info info{.struct_size = sizeof(info), .struct_type = BP_STRUCT_BUFFER_INFO};
  ASSERT_EQ(more.buffer_info(&machine, imported, &info), BP_OK) << text;
  EXPECT_EQ(info.flags, bp_buffer_flags{BP_BUFFER_ALIASES});
}

TEST(WrappedBytes, LieInTheMemoryAtTheirAddress) {
  EXPECT_NO_THROW(check_wrapped(4, 12, 16));
  EXPECT_THROW(check_wrapped(4, 13, 16), StatusError);
  EXPECT_THROW(refuse_unknown_address(4096), StatusError);
}

}  // namespace
}  // namespace bp::memory_ops_test
