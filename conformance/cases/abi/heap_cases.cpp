// Cases for api/include/backplane/memory.h and device.h: which heap memory is from, what buffers
// and devices say about themselves, and maps.
#include <algorithm>
#include <cstring>
#include <memory>

#include "conformance/cases/families.hpp"
#include "conformance/cases/fixtures/api_cases.hpp"
#include "conformance/cases/fixtures/fixtures.hpp"
#include "conformance/cases/layouts/layout_fixtures.hpp"

namespace bp::conformance {
namespace {

bp_allocate_desc request(uint64_t size_bytes, uint64_t heap_mask = 0,
                         bp_heap_flags heap_flags = 0) {
  return {.struct_size = sizeof(bp_allocate_desc),
          .struct_type = BP_STRUCT_ALLOCATE_DESC,
          .size_bytes = size_bytes,
          .heap_mask = heap_mask,
          .heap_flags = heap_flags};
}

const bp_heap& heap_at(Context& t, uint64_t index) {
  const bp_device_properties& p = *t.target().properties;
  const auto* const bytes = reinterpret_cast<const std::byte*>(p.heaps);
  return *reinterpret_cast<const bp_heap*>(bytes + index * p.heap_stride_bytes);
}

OwnedBuffer allocate(Context& t, const bp_allocate_desc& desc, bp_device* device) {
  const bp_allocator_ops& m = *t.target().allocator;
  bp_buffer* buffer = nullptr;
  t.require_ok(m.allocate(m.self, device, &desc, &buffer), "allocate");
  return OwnedBuffer(buffer, {&m});
}
OwnedBuffer allocate(Context& t, const bp_allocate_desc& desc) {
  return allocate(t, desc, t.target().device);
}

bp_buffer_info info_of(Context& t, bp_buffer* buffer) {
  const bp_allocator_ops& m = *t.target().allocator;
  bp_buffer_info info{.struct_size = sizeof(bp_buffer_info),
                      .struct_type = BP_STRUCT_BUFFER_INFO,
                      .device = t.sentinel<bp_device>(),
                      .heap_index = UINT64_MAX};
  t.require_ok(m.buffer_info(m.self, buffer, &info), "buffer_info");
  return info;
}

// ---- Heaps --------------------------------------------------------------------------------------

void heap_is_found_by_its_flags(Context& t) {
  expect_allocation_refused(t, request(64, 0, ~0u), BP_NOT_FOUND, "flags that no heap has");
  const uint64_t count = t.target().properties->heap_count;
  if (count < 64) {
    expect_allocation_refused(t, request(64, uint64_t{1} << count), BP_INVALID_ARGUMENT,
                              "a heap that does not exist");
  }
  for (uint64_t i = 0; i < count; ++i) {
    const bp_heap_flags flags = heap_at(t, i).flags;
    uint64_t first = 0;
    while ((flags & ~heap_at(t, first).flags) != 0) ++first;
    t.expect_eq(info_of(t, allocate(t, request(64, 0, flags)).get()).heap_index, first,
                "the first heap with the flags of heap " + std::to_string(i));
  }
}

void heap_mask_limits_the_heaps(Context& t) {
  const uint64_t count = t.target().properties->heap_count;
  const uint64_t all = ~uint64_t{0} >> (64 - count);
  for (uint64_t i = 0; i < count; ++i) {
    const bp_heap& heap = heap_at(t, i);
    const uint64_t only = uint64_t{1} << i, from_here = all & ~(only - 1);
    for (const uint64_t mask : {only, from_here}) {
      t.expect_eq(info_of(t, allocate(t, request(64, mask)).get()).heap_index, i,
                  "the lowest heap of heap_mask");
    }
    expect_allocation_refused(t, request(64, only, ~heap.flags), BP_NOT_FOUND,
                              "flags that the heap of heap_mask lacks");
    if (heap.max_allocation_bytes == UINT64_MAX) continue;
    expect_allocation_refused(t, request(heap.max_allocation_bytes + 1, from_here),
                              BP_OUT_OF_MEMORY, "more than the lowest heap of heap_mask gives");
  }
}

void layout_gives_size_and_alignment(Context& t) {
  bp_allocate_desc desc = request(0);
  if (bp_target_has_table(&t.target(), BP_STRUCT_LAYOUT_OPS) == 0) {
    const bp_layout none{.struct_size = sizeof(none),
                         .struct_type = BP_STRUCT_LAYOUT,
                         .physical_size_bytes = 64,
                         .alignment_bytes = 1};
    desc.layout = &none;
    expect_allocation_refused(t, desc, BP_UNSUPPORTED, "a layout, of which the device has none");
    return;
  }
  for (const LayoutSite& site : layout_sites(t)) {
    const bp_layout& layout = *site.layout;
    desc.layout = &layout;
    const OwnedBuffer buffer = allocate(t, desc);
    const bp_buffer_info info = info_of(t, buffer.get());
    t.expect_eq(info.size_bytes, layout.physical_size_bytes, "size_bytes for " + site_text(site));
    t.expect_eq(info.address % layout.alignment_bytes, uint64_t{0},
                "the address for " + site_text(site));
    bp_allocate_desc sized = desc;
    sized.size_bytes = 1;
    expect_allocation_refused(t, sized, BP_INVALID_ARGUMENT, "a layout and a size");
    bp_layout damaged = layout;
    damaged.blob_size_bytes = 1;
    desc.layout = &damaged;
    expect_allocation_refused(t, desc, BP_INCOMPATIBLE,
                              "a layout whose blob is not of this backend");
  }
}

// ---- What buffers and devices say ---------------------------------------------------------------

void buffer_info_says_what_a_buffer_is(Context& t) {
  const bp_allocator_ops& m = *t.target().allocator;
  for (uint64_t heap = 0; heap < t.target().properties->heap_count; ++heap) {
    for (const uint64_t size : {0u, 1u, 4097u}) {
      const OwnedBuffer buffer = allocate(t, request(size, uint64_t{1} << heap));
      const bp_buffer_info info = info_of(t, buffer.get());
      t.expect_eq(info.device, t.target().device, "device");
      t.expect_eq(info.size_bytes, size, "size_bytes");
      t.expect_eq(info.heap_index, heap, "heap_index");
      t.expect_eq(info.flags, bp_buffer_flags{0}, "flags of a buffer that owns its memory");
      uint64_t address = 0;
      const bp_status status = m.address(m.self, buffer.get(), &address);
      t.expect_eq(info.address, status == BP_OK ? address : 0, "address");
    }
  }
  const OwnedBuffer owner = make_buffer(t, 4096);
  const uint64_t address = info_of(t, owner.get()).address;
  bp_buffer* wrapped = nullptr;
  if (address == 0 ||
      m.wrap_address(m.self, t.target().device, address + 64, 128, &wrapped) != BP_OK) {
    return;
  }
  const OwnedBuffer part(wrapped, {&m});
  const bp_buffer_info info = info_of(t, wrapped);
  t.expect_eq(info.size_bytes, uint64_t{128}, "size_bytes of a wrapped range");
  t.expect_eq(info.address, address + 64, "address of a wrapped range");
  t.expect_eq(info.flags, bp_buffer_flags{BP_BUFFER_WRAPPED}, "flags of a wrapped range");
}

void infos_refuse_null(Context& t) {
  const bp_allocator_ops& m = *t.target().allocator;
  const OwnedBuffer buffer = make_buffer(t, 64);
  bp_buffer_info info{.struct_size = sizeof(info), .struct_type = BP_STRUCT_BUFFER_INFO};
  bp_peer_info peer{.struct_size = sizeof(peer), .struct_type = BP_STRUCT_PEER_INFO};
  bp_device* const device = t.target().device;
  const auto refused = [&](bp_status status, const char* what) {
    t.expect_refused(status, BP_INVALID_ARGUMENT, what);
  };
  refused(m.buffer_info(m.self, nullptr, &info), "buffer_info: buffer");
  refused(m.buffer_info(m.self, buffer.get(), nullptr), "buffer_info: out_info");
  refused(m.peer_info(m.self, nullptr, device, &peer), "peer_info: device");
  refused(m.peer_info(m.self, device, nullptr, &peer), "peer_info: peer");
  refused(m.peer_info(m.self, device, device, nullptr), "peer_info: out_info");
}

std::vector<bp_device*> all_devices(Context& t) {
  const bp_device_ops& d = *t.target().devices;
  uint64_t count = 0;
  t.require_ok(d.enumerate(d.self, 0, nullptr, &count), "enumerate");
  std::vector<bp_device*> devices(count);
  t.require_ok(d.enumerate(d.self, count, devices.data(), &count), "enumerate");
  return devices;
}

void copy_from_peer(Context& t, bp_device* peer) {
  const bp_allocator_ops& m = *t.target().allocator;
  const bp_stream_ops& s = *t.target().streams;
  bp_allocate_desc desc = request(4096);
  if (peer != t.target().device) desc.usage = BP_MEMORY_PEER;
  const OwnedBuffer from = allocate(t, desc, peer), to = allocate(t, desc);
  bp_stream* theirs = nullptr;
  t.require_ok(s.default_stream(s.self, peer, &theirs), "default_stream of the peer");
  const std::vector<uint8_t> bytes = random_bytes(t, 4096);
  write(t, theirs, range(from, 0, 4096), bytes);
  const OwnedStream stream = make_stream(t);
  const bp_buffer_ref dst = range(to, 0, 4096), src = range(from, 0, 4096);
  t.require_ok(m.copy_peer(m.self, stream.get(), &dst, &src), "copy_peer from a direct peer");
  t.expect(read(t, stream.get(), dst) == bytes, "the bytes of the peer");
}

void direct_peers_are_copied_from(Context& t) {
  const bp_allocator_ops& m = *t.target().allocator;
  for (bp_device* const peer : all_devices(t)) {
    bp_peer_info info{.struct_size = sizeof(info),
                      .struct_type = BP_STRUCT_PEER_INFO,
                      .bytes_per_second = -1,
                      .is_direct = 7};
    t.require_ok(m.peer_info(m.self, t.target().device, peer, &info), "peer_info");
    t.expect(info.bytes_per_second >= 0, "bytes_per_second is 0 or more");
    t.expect(info.is_direct <= 1, "is_direct is 0 or 1");
    if (info.is_direct == 1) copy_from_peer(t, peer);
  }
}

void registered_memory_is_aligned(Context& t) {
  const bp_allocator_ops& m = *t.target().allocator;
  const uint64_t alignment = t.target().properties->host_register_alignment_bytes;
  const uint64_t unit = std::max<uint64_t>(alignment, 1);
  std::vector<uint8_t> memory(3 * unit + 1);
  void* at = memory.data();
  size_t room = memory.size();
  t.require(std::align(unit, 2 * unit, at, room) != nullptr, "the alignment is a power of two");
  bp_buffer* lent = t.sentinel<bp_buffer>();
  const bp_status status = m.register_host(m.self, t.target().device, at, unit, &lent);
  if (status == BP_UNSUPPORTED) {
    t.expect_eq(alignment, uint64_t{0}, "host_register_alignment_bytes without register_host()");
    t.not_supported(bp_error_text());
  }
  t.require_ok(status, "register_host of aligned memory");
  t.expect(alignment != 0, "host_register_alignment_bytes where there is register_host()");
  t.expect_eq(info_of(t, lent).flags, bp_buffer_flags{BP_BUFFER_REGISTERED}, "flags");
  t.require_ok(m.unregister_host(m.self, lent), "unregister_host");
  if (alignment <= 1) return;
  lent = t.sentinel<bp_buffer>();
  auto* const bytes = static_cast<uint8_t*>(at);
  t.expect_refused(m.register_host(m.self, t.target().device, bytes + 1, unit, &lent),
                   BP_INVALID_ARGUMENT, "an address that is not aligned");
  t.expect_refused(m.register_host(m.self, t.target().device, bytes, unit + 1, &lent),
                   BP_INVALID_ARGUMENT, "a size that is not aligned");
  t.expect_eq(lent, t.sentinel<bp_buffer>(), "out_buffer after a failure");
}

// ---- Maps ---------------------------------------------------------------------------------------

// A buffer of the first heap that is host_visible, or the first heap.
OwnedBuffer visible_buffer(Context& t, uint64_t size_bytes) {
  for (uint64_t i = 0; i < t.target().properties->heap_count; ++i) {
    if ((heap_at(t, i).flags & BP_HEAP_HOST_VISIBLE) == 0) continue;
    return allocate(t, request(size_bytes, uint64_t{1} << i));
  }
  t.not_supported("no heap is host_visible");
}

uint8_t* map(Context& t, const bp_buffer_ref& part) {
  const bp_allocator_ops& m = *t.target().allocator;
  void* pointer = nullptr;
  t.require_ok(m.map(m.self, &part, &pointer), "map");
  return static_cast<uint8_t*>(pointer);
}

void hidden_memory_is_not_mapped(Context& t) {
  const bp_allocator_ops& m = *t.target().allocator;
  for (uint64_t i = 0; i < t.target().properties->heap_count; ++i) {
    if ((heap_at(t, i).flags & BP_HEAP_HOST_VISIBLE) != 0) continue;
    const OwnedBuffer buffer = allocate(t, request(64, uint64_t{1} << i));
    const bp_buffer_ref whole = range(buffer, 0, 64);
    void* pointer = t.sentinel<void>();
    t.expect_refused(m.map(m.self, &whole, &pointer), BP_UNSUPPORTED,
                     "map of a heap that is not host_visible");
    t.expect_eq(pointer, t.sentinel<void>(), "out_pointer after a failure");
  }
}

void mapped_memory_is_the_buffer(Context& t) {
  const bp_allocator_ops& m = *t.target().allocator;
  const OwnedStream stream = make_stream(t);
  const OwnedBuffer buffer = visible_buffer(t, 4096);
  const std::vector<uint8_t> bytes = random_bytes(t, 4096);
  write(t, stream.get(), range(buffer, 0, 4096), bytes);
  const bp_buffer_ref part = range(buffer, 100, 1000);
  uint8_t* const pointer = map(t, part);
  t.require_ok(m.invalidate(m.self, &part), "invalidate");
  t.expect(std::memcmp(pointer, bytes.data() + 100, 1000) == 0, "the bytes that the host reads");
  std::memset(pointer, 0x11, 1000);
  t.require_ok(m.flush(m.self, &part), "flush");
  t.require_ok(m.unmap(m.self, buffer.get(), pointer), "unmap");
  t.expect(read(t, stream.get(), part) == std::vector<uint8_t>(1000, 0x11),
           "the bytes that the host wrote");
}

void maps_are_counted(Context& t) {
  const bp_allocator_ops& m = *t.target().allocator;
  const OwnedStream stream = make_stream(t);
  const OwnedBuffer buffer = visible_buffer(t, 4096);
  const bp_buffer_ref part = range(buffer, 1024, 1024), whole = range(buffer, 0, 4096);
  uint8_t *const first = map(t, part), *const second = map(t, whole), *const third = map(t, part);
  int elsewhere = 0;
  t.expect_refused(m.unmap(m.self, buffer.get(), &elsewhere), BP_INVALID_ARGUMENT,
                   "unmap of a pointer outside of the buffer");
  t.require_ok(m.unmap(m.self, buffer.get(), first), "unmap of the first map");
  t.require_ok(m.unmap(m.self, buffer.get(), third), "unmap of the third map");
  std::memset(second, 0x33, 4096);  // The write faults if the memory is not mapped any more.
  t.require_ok(m.flush(m.self, &whole), "flush");
  t.require_ok(m.unmap(m.self, buffer.get(), second), "unmap of the second map");
  t.expect(read(t, stream.get(), whole) == std::vector<uint8_t>(4096, 0x33),
           "the bytes that the host wrote through the map that was open last");
  t.expect_refused(m.unmap(m.self, buffer.get(), second), BP_INVALID_ARGUMENT,
                   "one unmap more than maps");
}

// The host has old bytes of the first and the last unit, and flushes the unit between them. The
// device's newer bytes must stay.
void flush_leaves_other_units_alone(Context& t) {
  const bp_allocator_ops& m = *t.target().allocator;
  const OwnedStream stream = make_stream(t);
  OwnedBuffer buffer = visible_buffer(t, 64);
  const bp_heap& heap = heap_at(t, info_of(t, buffer.get()).heap_index);
  const uint64_t unit = heap.map_granularity_bytes, size = 3 * unit;
  buffer = visible_buffer(t, size);
  const bp_buffer_ref whole = range(buffer, 0, size), middle = range(buffer, unit, unit);
  write(t, stream.get(), whole, std::vector<uint8_t>(size, 0x01));
  uint8_t* const pointer = map(t, whole);
  t.require_ok(m.invalidate(m.self, &whole), "invalidate");
  std::vector<uint8_t> expected(size, 0x02);
  write(t, stream.get(), whole, expected);
  std::memset(pointer + unit, 0x03, unit);
  t.require_ok(m.flush(m.self, &middle), "flush");
  std::fill_n(expected.begin() + static_cast<std::ptrdiff_t>(unit), unit, uint8_t{0x03});
  t.expect(read(t, stream.get(), whole) == expected, "the buffer after the flush of one unit");
  t.require_ok(m.unmap(m.self, buffer.get(), pointer), "unmap");
}

}  // namespace

void add_heap_cases(std::vector<Case>& cases) {
  add_api_cases(
      cases, "memory",
      {
          {"heap_is_found_by_its_flags", {"DEVICE-3", "MEMORY-21"}, heap_is_found_by_its_flags},
          {"heap_mask_limits_the_heaps", {"MEMORY-21", "MEMORY-4"}, heap_mask_limits_the_heaps},
          {"layout_gives_size_and_alignment", {"MEMORY-20"}, layout_gives_size_and_alignment},
          {"buffer_info_says_what_a_buffer_is", {"MEMORY-19"}, buffer_info_says_what_a_buffer_is},
          {"infos_refuse_null", {"ERROR-3"}, infos_refuse_null},
          {"direct_peers_are_copied_from", {"MEMORY-24"}, direct_peers_are_copied_from},
          {"registered_memory_is_aligned",
           {"MEMORY-23", "MEMORY-19"},
           registered_memory_is_aligned},
          {"hidden_memory_is_not_mapped", {"MEMORY-6"}, hidden_memory_is_not_mapped},
          {"mapped_memory_is_the_buffer", {"MEMORY-6"}, mapped_memory_is_the_buffer},
          {"maps_are_counted", {"MEMORY-22"}, maps_are_counted},
          {"flush_leaves_other_units_alone", {"HEAP-3"}, flush_leaves_other_units_alone},
      });
}

}  // namespace bp::conformance
