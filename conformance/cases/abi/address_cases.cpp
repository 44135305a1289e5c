// Cases for api/include/backplane/memory.h: memory that a host knows by its address.
#include <algorithm>

#include "conformance/cases/families.hpp"
#include "conformance/cases/fixtures/api_cases.hpp"
#include "conformance/cases/fixtures/fixtures.hpp"
#include "conformance/cases/fixtures/leftovers.hpp"

namespace bp::conformance {
namespace {

constexpr uint64_t kSize = 4096;

uint64_t address_of(Context& t, bp_buffer* buffer) {
  const bp_allocator_ops& m = *t.target().allocator;
  uint64_t address = 0;
  const bp_status status = m.address(m.self, buffer, &address);
  if (status == BP_UNSUPPORTED) t.not_supported(bp_error_text());
  t.require_ok(status, "memory.address");
  return address;
}

OwnedBuffer wrap(Context& t, uint64_t address, uint64_t size_bytes) {
  const bp_allocator_ops& m = *t.target().allocator;
  bp_buffer* buffer = nullptr;
  const bp_status status = m.wrap_address(m.self, t.target().device, address, size_bytes, &buffer);
  if (status == BP_UNSUPPORTED) t.not_supported(bp_error_text());
  t.require_ok(status, "memory.wrap_address");
  return OwnedBuffer(buffer, {&m});
}

// Returns false if the address lies in no buffer.
bool find(Context& t, uint64_t address, bp_address_info& info) {
  const bp_allocator_ops& m = *t.target().allocator;
  info = {.struct_size = sizeof(bp_address_info),
          .struct_type = BP_STRUCT_ADDRESS_INFO,
          .device = t.sentinel<bp_device>(),
          .buffer = t.sentinel<bp_buffer>()};
  const bp_status status = m.address_info(m.self, address, &info);
  if (status == BP_UNSUPPORTED) t.not_supported(bp_error_text());
  if (status == BP_NOT_FOUND) {
    t.expect_refused(status, BP_NOT_FOUND, "address_info");
    t.expect_eq(info.buffer, t.sentinel<bp_buffer>(), "out_info after BP_NOT_FOUND");
    return false;
  }
  t.require_ok(status, "memory.address_info");
  return true;
}

void fill(Context& t, bp_stream* stream, const bp_buffer_ref& dst, uint8_t value) {
  const bp_allocator_ops& m = *t.target().allocator;
  t.require_ok(m.fill(m.self, stream, &dst, &value, 1), "memory.fill");
}

void wrapped_address_is_the_same_memory(Context& t) {
  const bp_allocator_ops& m = *t.target().allocator;
  const OwnedStream stream = make_stream(t);
  const OwnedBuffer owner = make_buffer(t, kSize), other = make_buffer(t, kSize);
  const uint64_t address = address_of(t, owner.get());
  const OwnedBuffer part = wrap(t, address + 1024, 2048);
  std::vector<uint8_t> expected = random_bytes(t, kSize);
  write(t, stream.get(), range(owner, 0, kSize), expected);
  t.expect(read(t, stream.get(), range(part, 0, 2048)) ==
               std::vector<uint8_t>(expected.begin() + 1024, expected.begin() + 3072),
           "the owner's bytes, read through the wrapped range");
  fill(t, stream.get(), range(part, 100, 50), 0xA5);
  std::fill_n(expected.begin() + 1124, 50, uint8_t{0xA5});
  const bp_buffer_ref to = range(other, 0, 2048), from = range(part, 0, 2048);
  t.require_ok(m.copy(m.self, stream.get(), &to, &from), "copy out of the wrapped range");
  t.expect(read(t, stream.get(), range(owner, 0, kSize)) == expected,
           "the owner's bytes after a fill of the wrapped range");
  t.expect(read(t, stream.get(), to) ==
               std::vector<uint8_t>(expected.begin() + 1024, expected.begin() + 3072),
           "the bytes copied from the wrapped range");
  const bp_buffer_ref outside = range(part, 1, 2048);
  const uint8_t zero = 0;
  t.expect_refused(m.fill(m.self, stream.get(), &outside, &zero, 1), BP_INVALID_ARGUMENT,
                   "a range that leaves the wrapped range");
}

void deallocate_ends_the_wrapping_alone(Context& t) {
  const bp_allocator_ops& m = *t.target().allocator;
  const OwnedStream stream = make_stream(t);
  const OwnedBuffer owner = make_buffer(t, kSize);
  const uint64_t address = address_of(t, owner.get());
  const std::vector<uint8_t> bytes = random_bytes(t, kSize);
  write(t, stream.get(), range(owner, 0, kSize), bytes);
  for (bp_stream* behind : {static_cast<bp_stream*>(nullptr), stream.get()}) {
    OwnedBuffer wrapped = wrap(t, address, kSize);
    t.require_ok(m.deallocate(m.self, wrapped.release(), behind),
                 "deallocate of the wrapped range");
    finish(t, stream.get());
  }
  // Memory that was freed by mistake would be given out now.
  std::vector<OwnedBuffer> others;
  for (int i = 0; i < 8; ++i) {
    others.push_back(make_buffer(t, kSize));
    fill(t, stream.get(), range(others.back(), 0, kSize), 0xDD);
  }
  t.expect(read(t, stream.get(), range(owner, 0, kSize)) == bytes, "the owner's bytes");
  t.expect_eq(address_of(t, owner.get()), address, "the owner's address");
}

void address_info_finds_the_buffer(Context& t) {
  std::vector<OwnedBuffer> buffers;
  for (const uint64_t size : {1u, 100u, 4096u, 65536u}) {
    buffers.push_back(make_buffer(t, size));
    bp_address_info info;
    const uint64_t begin = address_of(t, buffers.back().get());
    for (const uint64_t offset : {uint64_t{0}, size / 2, size - 1}) {
      t.require(find(t, begin + offset, info), "an address inside a buffer");
      t.expect_eq(info.buffer, buffers.back().get(), "buffer");
      t.expect_eq(info.device, t.target().device, "device");
      t.expect_eq(info.byte_offset, offset, "byte_offset");
      t.expect_eq(info.size_bytes, size, "size_bytes");
    }
  }
  // The search does not find a wrapped range, because its memory is that of the buffer it was made
  // from.
  const uint64_t begin = address_of(t, buffers.back().get());
  bp_buffer* wrapped = nullptr;
  const bp_allocator_ops& m = *t.target().allocator;
  if (m.wrap_address(m.self, t.target().device, begin + 64, 64, &wrapped) != BP_OK) return;
  const OwnedBuffer owner(wrapped, {&m});
  bp_address_info info;
  t.require(find(t, begin + 70, info), "an address inside a buffer that is wrapped too");
  t.expect_eq(info.buffer, buffers.back().get(),
              "the buffer of an address whose range is wrapped too");
  t.expect_eq(info.byte_offset, uint64_t{70},
              "the byte_offset of an address whose range is wrapped too");
}

// An address behind a buffer, or in a freed buffer, may lie in another buffer. It must never be
// found in the first one.
void address_info_ends_with_the_buffer(Context& t) {
  std::vector<uint64_t> addresses;
  std::vector<bp_buffer*> freed;
  bp_address_info info;
  {
    std::vector<OwnedBuffer> buffers;
    for (int i = 0; i < 8; ++i) {
      buffers.push_back(make_buffer(t, 1000));
      bp_buffer* const buffer = buffers.back().get();
      addresses.push_back(address_of(t, buffer));
      freed.push_back(buffer);
      if (find(t, addresses.back() + 1000, info)) {
        t.expect(info.buffer != buffer && info.byte_offset < info.size_bytes,
                 "the address behind a buffer is not in it");
      }
    }
  }
  for (const uint64_t address : addresses) {
    if (!find(t, address, info)) continue;
    t.expect(std::ranges::find(freed, info.buffer) == freed.end(), "a buffer that was freed");
  }
}

// Registered memory begins and ends at multiples of it.
uint64_t register_unit(Context& t) {
  return std::max<uint64_t>(1, t.target().properties->host_register_alignment_bytes);
}

// Returns the number of bytes in front of the first one that is aligned.
uint64_t aligned_offset(const uint8_t* memory, uint64_t alignment_bytes) {
  return -reinterpret_cast<uintptr_t>(memory) % alignment_bytes;
}

// The memory belongs to the host, its address has no more alignment than the device asks for, and
// the bytes around it are checked.
void device_works_on_registered_memory(Context& t) {
  const bp_allocator_ops& m = *t.target().allocator;
  const OwnedStream stream = make_stream(t);
  const uint64_t unit = register_unit(t);
  const uint64_t size = std::max(unit, 3000 / unit * unit);
  const OwnedBuffer other = make_buffer(t, size);
  for (const uint64_t shift : {0u, 33u}) {
    std::vector<uint8_t> memory = random_bytes(t, size + 256 + 34 * unit, shift);
    const uint64_t offset = aligned_offset(memory.data(), unit) + shift * unit;
    std::vector<uint8_t> expected = memory;
    bp_buffer* lent = nullptr;
    const bp_status status =
        m.register_host(m.self, t.target().device, memory.data() + offset, size, &lent);
    if (status == BP_UNSUPPORTED) t.not_supported(bp_error_text());
    t.require_ok(status, "memory.register_host");
    const bp_buffer_ref whole{lent, 0, size}, part{lent, 10, 100}, back = range(other, 0, size);
    t.require_ok(m.flush(m.self, &whole), "flush");
    t.require_ok(m.copy(m.self, stream.get(), &back, &whole), "copy out of host memory");
    t.expect(read(t, stream.get(), back) ==
                 std::vector<uint8_t>(memory.begin() + static_cast<std::ptrdiff_t>(offset),
                                      memory.begin() + static_cast<std::ptrdiff_t>(offset + size)),
             "the bytes that the device read from host memory");
    fill(t, stream.get(), part, 0x3C);
    finish(t, stream.get());
    std::fill_n(expected.begin() + static_cast<std::ptrdiff_t>(offset + 10), 100, uint8_t{0x3C});
    t.expect(memory == expected, "host memory once the device has written to it");
    t.require_ok(m.unregister_host(m.self, lent), "memory.unregister_host");
    t.expect(memory == expected, "host memory after unregister_host");
  }
}

void unregistered_memory_is_the_hosts_again(Context& t) {
  const bp_allocator_ops& m = *t.target().allocator;
  const uint64_t unit = register_unit(t);
  std::vector<uint8_t> memory = random_bytes(t, kSize + 2 * unit);
  uint8_t* const begin = memory.data() + aligned_offset(memory.data(), unit);
  const std::vector<uint8_t> before = memory;
  for (int i = 0; i < 3; ++i) {
    bp_buffer* lent = nullptr;
    const bp_status status = m.register_host(m.self, t.target().device, begin,
                                             std::max(unit, kSize / unit * unit), &lent);
    if (status == BP_UNSUPPORTED) t.not_supported(bp_error_text());
    t.require_ok(status, "register_host of memory that was unregistered before");
    t.require_ok(m.unregister_host(m.self, lent), "memory.unregister_host");
    t.expect(memory == before, "the bytes that no work wrote");
  }
  std::ranges::fill(memory, uint8_t{0});  // The write faults if the memory is not the host's any
                                          // more.
  bp_buffer* lent = t.sentinel<bp_buffer>();
  t.expect_refused(m.register_host(m.self, t.target().device, nullptr, 64, &lent),
                   BP_INVALID_ARGUMENT, "register_host of NULL");
  t.expect_refused(m.register_host(m.self, t.target().device, memory.data(), 64, nullptr),
                   BP_INVALID_ARGUMENT, "register_host without out_buffer");
  t.expect_eq(lent, t.sentinel<bp_buffer>(), "out_buffer after a failure");
}

void freed_wrappings_leave_nothing(Context& t) {
  const OwnedBuffer owner = make_buffer(t, kSize);
  const uint64_t address = address_of(t, owner.get());
  expect_nothing_left(t, "wrapped addresses", [&] { wrap(t, address, kSize); });
}

void unregistered_memory_leaves_nothing(Context& t) {
  const bp_allocator_ops& m = *t.target().allocator;
  const uint64_t unit = register_unit(t);
  std::vector<uint8_t> memory(kSize + 2 * unit);
  uint8_t* const begin = memory.data() + aligned_offset(memory.data(), unit);
  expect_nothing_left(t, "registrations of host memory", [&] {
    bp_buffer* lent = nullptr;
    const bp_status status = m.register_host(m.self, t.target().device, begin,
                                             std::max(unit, kSize / unit * unit), &lent);
    if (status == BP_UNSUPPORTED) t.not_supported(bp_error_text());
    t.require_ok(status, "memory.register_host");
    t.require_ok(m.unregister_host(m.self, lent), "memory.unregister_host");
  });
}

}  // namespace

void add_address_cases(std::vector<Case>& cases) {
  add_api_cases(
      cases, "memory",
      {
          {"wrapped_address_is_the_same_memory",
           {"MEMORY-12", "MEMORY-1"},
           wrapped_address_is_the_same_memory},
          {"deallocate_ends_the_wrapping_alone", {"MEMORY-13"}, deallocate_ends_the_wrapping_alone},
          {"address_info_finds_the_buffer", {"MEMORY-14"}, address_info_finds_the_buffer},
          {"address_info_ends_with_the_buffer",
           {"MEMORY-14", "ERROR-2"},
           address_info_ends_with_the_buffer},
          {"device_works_on_registered_memory", {"MEMORY-15"}, device_works_on_registered_memory},
          {"unregistered_memory_is_the_hosts_again",
           {"MEMORY-16", "ERROR-3"},
           unregistered_memory_is_the_hosts_again},
          {"freed_wrappings_leave_nothing", {"ENTRY-10"}, freed_wrappings_leave_nothing},
          {"unregistered_memory_leaves_nothing", {"ENTRY-10"}, unregistered_memory_leaves_nothing},
      });
}

}  // namespace bp::conformance
