// The table of the allocator. It makes every check that needs no device, and writes the error
// texts.
//
//   constinit const bp_allocator_ops kAllocator = MemoryOps<Traits>::table();
//
// `Traits` describes the memory of a backend. It has these types and static members, of which Cards
// of lookup.hpp has the first ones:
//   Instance, Device, device_of(instance, handle, call, what), all(instance)
//                         the device has add(buffer), which is false if the buffer overlaps another
//                         one, remove(buffer) and find(address, info), as in handles.hpp
//   Stream, Buffer        objects of lookup.hpp; buffers.hpp says what a Buffer has
//                         `Range` stands for BufferRange<Buffer>
//
//   allocate(device, request)             a std::unique_ptr<Buffer>; allocation.hpp has its checks
//   deallocate(instance, buffer, stream)  a status; `stream` may be NULL, and of a lost device
//   address_of(buffer)                    the address of its first byte
//   why_no_address(instance)              optional: the reason for which no addresses are given, or
//                                         NULL if they are
//   heap_of(buffer)                       the index of its heap; UINT64_MAX if it is not known
//   is_wrapped(buffer)                    whether wrap_address() made it
//   is_registered(buffer)                 whether register_host() made it; deallocate() refuses it
//   is_reserved(buffer)                   optional: whether it is a range of virtual memory
//   check_map(buffer)                     throws StatusError for memory that the host cannot map
//   map(range)                            a void*, the address for the host; the buffer is locked
//   unmap(buffer)                         optional; follows each map(); the buffer is locked
//   layouts_of(instance)                  optional: a const Layouts*, or NULL
//   flush(range), invalidate(range)       optional
//
//   is_local(stream, buffer)              whether the buffer is on the device of the stream
//   copy(instance, stream, dst, src, call)                a status; dst and src are Ranges that
//                                                         fit, of two devices in "copy_peer" alone
//   copy_from_host(instance, stream, dst, src, borrow)    a status
//   copy_to_host(instance, stream, dst, src, borrow, timeout_ns)   a status; throws StatusError of
//                                                         BP_TIMEOUT. landing.hpp keeps a late
//                                                         copy from `dst`
//   fill(instance, stream, dst, pattern, pattern_size_bytes)   a status
//   can_access(instance, device, peer)    whether copy_peer() from `peer` to `device` needs no
//                                         staging
//   check_peers(instance, dst, src)       optional, for copy_peer(): throws StatusError for buffers
//                                         of which one cannot be copied to the other
//
//   wrap(device, address, size_bytes)             a std::unique_ptr<Buffer>
//   register_host(device, memory, size_bytes)     optional: a std::unique_ptr<Buffer>; the device
//                                                 then has properties(), with the alignment
//   unregister_host(std::unique_ptr<Buffer>)      optional
//   exported_file(buffer)                         optional: a const MemoryFile*, or NULL
//   import_buffer(device, external)               optional: a std::unique_ptr<Buffer>, whose memory
//                                                 is the exported memory itself
//   is_imported(buffer)                           optional: whether import_buffer() made it
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "backplane/memory.h"
#include "backplane/shell/allocation.hpp"
#include "backplane/shell/buffers.hpp"
#include "backplane/shell/bytes.hpp"
#include "backplane/shell/entry.hpp"
#include "backplane/shell/first_size.hpp"
#include "backplane/shell/handles.hpp"
#include "backplane/shell/lookup.hpp"
#include "backplane/shell/memory_file.hpp"

namespace bp {

template <typename Traits>
class MemoryOps {
 public:
  static constexpr bp_allocator_ops table() {
    bp_allocator_ops ops{.struct_size = sizeof(bp_allocator_ops),
                         .struct_type = BP_STRUCT_ALLOCATOR_OPS,
                         .allocate = allocate,
                         .deallocate = deallocate,
                         .address = address,
                         .buffer_info = buffer_info,
                         .map = map,
                         .unmap = unmap,
                         .flush = flush,
                         .invalidate = invalidate,
                         .copy = copy,
                         .copy_from_host = copy_from_host,
                         .copy_to_host = copy_to_host,
                         .peer_info = peer_info,
                         .fill = fill,
                         .wrap_address = wrap_address,
                         .address_info = address_info};
    if constexpr (requires { Traits::check_peers; }) ops.copy_peer = copy_peer;
    if constexpr (requires { Traits::register_host; }) {
      ops.register_host = register_host;
      ops.unregister_host = unregister_host;
    }
    if constexpr (requires { Traits::import_buffer; }) {
      ops.export_buffer = export_buffer;
      ops.import_buffer = import_buffer;
    }
    return ops;
  }

 private:
  using Instance = typename Traits::Instance;
  using Device = typename Traits::Device;
  using Stream = typename Traits::Stream;
  using Buffer = typename Traits::Buffer;
  using Range = BufferRange<Buffer>;

  // ---- Handles ----------------------------------------------------------------------------------

  static bp_status allocate(void* self, bp_device* handle, const bp_allocate_desc* desc,
                            bp_buffer** out_buffer) {
    return entry<Instance>(self, [&](const Instance& i) -> bp_status {
      Device& d = Traits::device_of(i, handle, "allocate");
      require(desc, "allocate: desc");
      require(out_buffer, "allocate: out_buffer");
      auto request =
          read_desc(desc, kFirstSize<bp_allocate_desc>, BP_STRUCT_ALLOCATE_DESC, "allocate");
      if (request.layout != nullptr) replace_layout(i, request);
      *out_buffer = lend(Traits::allocate(d, request), "allocate");
      return BP_OK;
    });
  }

  static void replace_layout(const Instance& i, bp_allocate_desc& request) {
    if constexpr (requires { Traits::layouts_of(i); }) {
      if (const Layouts* const layouts = Traits::layouts_of(i); layouts != nullptr) {
        return apply_layout(request, *layouts);
      }
    }
    refuse(BP_UNSUPPORTED, "allocate: layout is given, and this device has no layouts");
  }

  static bp_status deallocate(void* self, bp_buffer* handle, bp_stream* stream) {
    if (handle == nullptr) return BP_OK;
    return entry<Instance>(self, [&](const Instance& i) -> bp_status {
      Buffer& b = checked_object_of<Buffer>(handle, "deallocate", "buffer");
      if (Traits::is_registered(b)) {
        refuse(BP_INVALID_ARGUMENT,
               "deallocate: buffer is the host's memory, which unregister_host() ends");
      }
      if (is_reserved(b)) {
        refuse(BP_INVALID_ARGUMENT,
               "deallocate: buffer is a reserved range, which virtual_memory.release() ends");
      }
      Stream* s = nullptr;
      if (stream != nullptr) s = &checked_object_of<Stream>(stream, "deallocate", "stream");
      return Traits::deallocate(i, b, s);
    });
  }

  static bp_status address(void* self, bp_buffer* handle, uint64_t* out_address) {
    return entry<Instance>(self, [&](const Instance& i) -> bp_status {
      const Buffer& b = live_object_of<Buffer>(handle, "address", "buffer");
      require(out_address, "address: out_address");
      if (const char* const reason = why_no_address(i); reason != nullptr) {
        refuse(BP_UNSUPPORTED, std::string("address: ") + reason);
      }
      *out_address = Traits::address_of(b);
      return BP_OK;
    });
  }

  static const char* why_no_address(const Instance& i) {
    if constexpr (requires { Traits::why_no_address(i); }) return Traits::why_no_address(i);
    return nullptr;
  }

  static bool is_reserved(const Buffer& b) {
    if constexpr (requires { Traits::is_reserved(b); }) return Traits::is_reserved(b);
    return false;
  }

  static bp_buffer_flags flags_of(const Buffer& b) {
    if (is_reserved(b)) return BP_BUFFER_RESERVED;
    if (Traits::is_registered(b)) return BP_BUFFER_REGISTERED;
    if constexpr (requires { Traits::is_imported(b); }) {
      if (Traits::is_imported(b)) return BP_BUFFER_ALIASES;
    }
    return Traits::is_wrapped(b) ? bp_buffer_flags{BP_BUFFER_WRAPPED} : 0;
  }

  static bp_status buffer_info(void* self, bp_buffer* handle, bp_buffer_info* out_info) {
    return entry<Instance>(self, [&](const Instance& i) -> bp_status {
      const Buffer& b = live_object_of<Buffer>(handle, "buffer_info", "buffer");
      check_offer(out_info, kFirstSize<bp_buffer_info>, "buffer_info: out_info");
      bp_buffer_info info{};
      info.device = reinterpret_cast<bp_device*>(b.device);
      info.size_bytes = b.size_bytes;
      info.heap_index = is_reserved(b) ? UINT64_MAX : Traits::heap_of(b);
      info.address = why_no_address(i) == nullptr ? Traits::address_of(b) : 0;
      info.flags = flags_of(b);
      write_offer(info, out_info);
      return BP_OK;
    });
  }

  // ---- Mapping ----------------------------------------------------------------------------------

  static bp_status map(void* self, const bp_buffer_ref* ref, void** out_pointer) {
    return entry<Instance>(self, [&](const Instance&) -> bp_status {
      const Range range = checked_range<Buffer>(ref, "map", "range", BP_ACCESS_READ);
      require(out_pointer, "map: out_pointer");
      Buffer& b = range.buffer;
      Traits::check_map(b);
      const std::lock_guard lock(b.mutex);
      b.maps.reserve(b.maps.size() + 1);  // Nothing fails once the backend has mapped the range.
      b.maps.push_back(Traits::map(range));
      *out_pointer = b.maps.back();
      return BP_OK;
    });
  }

  static bp_status unmap(void* self, bp_buffer* handle, void* pointer) {
    return entry<Instance>(self, [&](const Instance&) -> bp_status {
      Buffer& b = checked_object_of<Buffer>(handle, "unmap", "buffer");
      const std::lock_guard lock(b.mutex);
      const auto mapped = std::ranges::find(b.maps, pointer);
      if (b.maps.empty() && is_dead(b)) return BP_OK;
      if (b.maps.empty()) refuse(BP_INVALID_ARGUMENT, "unmap: the buffer is not mapped");
      if (mapped == b.maps.end()) {
        refuse(BP_INVALID_ARGUMENT, "unmap: map() did not give the pointer, or it was unmapped");
      }
      b.maps.erase(mapped);
      if constexpr (requires { Traits::unmap(b); }) Traits::unmap(b);
      return BP_OK;
    });
  }

  static bp_status flush(void* self, const bp_buffer_ref* ref) {
    return entry<Instance>(self, [&](const Instance&) -> bp_status {
      const Range range = checked_range<Buffer>(ref, "flush", "range", BP_ACCESS_READ);
      if constexpr (requires { Traits::flush(range); }) Traits::flush(range);
      return BP_OK;
    });
  }

  static bp_status invalidate(void* self, const bp_buffer_ref* ref) {
    return entry<Instance>(self, [&](const Instance&) -> bp_status {
      const Range range = checked_range<Buffer>(ref, "invalidate", "range", BP_ACCESS_READ);
      if constexpr (requires { Traits::invalidate(range); }) Traits::invalidate(range);
      return BP_OK;
    });
  }

  // ---- Copies and fills -------------------------------------------------------------------------

  // Returns a range in memory of the stream's device. Throws StatusError for any other range.
  static Range local_range(const Stream& stream, const bp_buffer_ref* ref, const char* call,
                           const char* name, bp_access access) {
    const Range range = checked_range<Buffer>(ref, call, name, access);
    if (!Traits::is_local(stream, range.buffer)) refuse_two_devices(call, name);
    return range;
  }

  static ByteRange bytes_of(const Range& range) {
    return {Traits::address_of(range.buffer) + range.byte_offset, range.size_bytes};
  }

  static bp_status copy(void* self, bp_stream* handle, const bp_buffer_ref* dst,
                        const bp_buffer_ref* src) {
    return entry<Instance>(self, [&](const Instance& i) -> bp_status {
      Stream& s = live_object_of<Stream>(handle, "copy", "stream");
      const Range to = local_range(s, dst, "copy", "dst", BP_ACCESS_READ_WRITE);
      const Range from = local_range(s, src, "copy", "src", BP_ACCESS_READ);
      check_copy(bytes_of(to), bytes_of(from), "copy");
      return Traits::copy(i, s, to, from, "copy");
    });
  }

  static bp_status copy_from_host(void* self, bp_stream* handle, const bp_buffer_ref* dst,
                                  const void* src, bp_borrow borrow) {
    return entry<Instance>(self, [&](const Instance& i) -> bp_status {
      Stream& s = live_object_of<Stream>(handle, "copy_from_host", "stream");
      const Range to = local_range(s, dst, "copy_from_host", "dst", BP_ACCESS_READ_WRITE);
      check_host_pointer(src, to.size_bytes, borrow, "copy_from_host", "src");
      return Traits::copy_from_host(i, s, to, src, borrow);
    });
  }

  static bp_status copy_to_host(void* self, bp_stream* handle, void* dst, const bp_buffer_ref* src,
                                bp_borrow borrow, uint64_t timeout_ns) {
    return entry<Instance>(self, [&](const Instance& i) -> bp_status {
      Stream& s = live_object_of<Stream>(handle, "copy_to_host", "stream");
      const Range from = local_range(s, src, "copy_to_host", "src", BP_ACCESS_READ);
      check_host_pointer(dst, from.size_bytes, borrow, "copy_to_host", "dst");
      return Traits::copy_to_host(i, s, dst, from, borrow, timeout_ns);
    });
  }

  static bp_status copy_peer(void* self, bp_stream* handle, const bp_buffer_ref* dst,
                             const bp_buffer_ref* src) {
    return entry<Instance>(self, [&](const Instance& i) -> bp_status {
      Stream& s = live_object_of<Stream>(handle, "copy_peer", "stream");
      const Range to = checked_range<Buffer>(dst, "copy_peer", "dst", BP_ACCESS_READ_WRITE);
      const Range from = checked_range<Buffer>(src, "copy_peer", "src", BP_ACCESS_READ);
      Traits::check_peers(i, to.buffer, from.buffer);
      if (!Traits::is_local(s, to.buffer) && !Traits::is_local(s, from.buffer)) {
        refuse(BP_INVALID_ARGUMENT, "copy_peer: stream is of neither device");
      }
      check_copy(bytes_of(to), bytes_of(from), "copy_peer");
      return Traits::copy(i, s, to, from, "copy_peer");
    });
  }

  static bp_status peer_info(void* self, bp_device* handle, bp_device* peer_handle,
                             bp_peer_info* out_info) {
    return entry<Instance>(self, [&](const Instance& i) -> bp_status {
      Device& device = Traits::device_of(i, handle, "peer_info");
      Device& peer = Traits::device_of(i, peer_handle, "peer_info", "peer");
      check_offer(out_info, kFirstSize<bp_peer_info>, "peer_info: out_info");
      const bp_peer_info info{.is_direct = Traits::can_access(i, device, peer) ? 1u : 0u};
      write_offer(info, out_info);
      return BP_OK;
    });
  }

  static bp_status fill(void* self, bp_stream* handle, const bp_buffer_ref* dst,
                        const void* pattern, uint64_t pattern_size_bytes) {
    return entry<Instance>(self, [&](const Instance& i) -> bp_status {
      Stream& s = live_object_of<Stream>(handle, "fill", "stream");
      const Range to = local_range(s, dst, "fill", "dst", BP_ACCESS_READ_WRITE);
      check_pattern(pattern, pattern_size_bytes, to.size_bytes);
      return Traits::fill(i, s, to, static_cast<const std::byte*>(pattern), pattern_size_bytes);
    });
  }

  // ---- Memory of others -------------------------------------------------------------------------

  static bp_status wrap_address(void* self, bp_device* handle, uint64_t address,
                                uint64_t size_bytes, bp_buffer** out_buffer) {
    return entry<Instance>(self, [&](const Instance& i) -> bp_status {
      Device& d = Traits::device_of(i, handle, "wrap_address");
      require(out_buffer, "wrap_address: out_buffer");
      check_addresses({address, size_bytes}, "wrap_address");
      *out_buffer = lend(Traits::wrap(d, address, size_bytes), "wrap_address");
      return BP_OK;
    });
  }

  static bp_status address_info(void* self, uint64_t address, bp_address_info* out_info) {
    return entry<Instance>(self, [&](const Instance& i) -> bp_status {
      return find_address<Device>(Traits::all(i), address, out_info);
    });
  }

  static bp_status register_host(void* self, bp_device* handle, void* memory, uint64_t size_bytes,
                                 bp_buffer** out_buffer) {
    return entry<Instance>(self, [&](const Instance& i) -> bp_status {
      Device& d = Traits::device_of(i, handle, "register_host");
      require(out_buffer, "register_host: out_buffer");
      check_registered({reinterpret_cast<uintptr_t>(memory), size_bytes},
                       d.properties().host_register_alignment_bytes);
      *out_buffer = lend(Traits::register_host(d, memory, size_bytes), "register_host");
      return BP_OK;
    });
  }

  static bp_status unregister_host(void* self, bp_buffer* handle) {
    return entry<Instance>(self, [&](const Instance&) -> bp_status {
      Buffer* const b = object_of<Buffer>(handle);
      if (b == nullptr || !Traits::is_registered(*b)) {
        refuse(BP_INVALID_ARGUMENT, "unregister_host: buffer is not one that register_host() made");
      }
      Traits::unregister_host(take_back(*b));
      return BP_OK;
    });
  }

  static bp_status export_buffer(void* self, bp_buffer* handle, bp_external_type type,
                                 bp_external_handle* out_handle) {
    return entry<Instance>(self, [&](const Instance&) -> bp_status {
      const Buffer& b = live_object_of<Buffer>(handle, "export_buffer", "buffer");
      const MemoryFile* const file = Traits::exported_file(b);
      if (file == nullptr) {
        refuse(BP_INVALID_ARGUMENT,
               "export_buffer: buffer is not one allocated with BP_MEMORY_EXPORT");
      }
      check_export(type, out_handle, "export_buffer");
      give_descriptor(file->duplicate("export_buffer"), b.size_bytes, out_handle);
      return BP_OK;
    });
  }

  static bp_status import_buffer(void* self, bp_device* handle, const bp_external_handle* external,
                                 bp_buffer** out_buffer) {
    return entry<Instance>(self, [&](const Instance& i) -> bp_status {
      Device& d = Traits::device_of(i, handle, "import_buffer");
      require(out_buffer, "import_buffer: out_buffer");
      const bp_external_handle given = read_external(external, "import_buffer");
      *out_buffer = lend(Traits::import_buffer(d, given), "import_buffer");
      return BP_OK;
    });
  }
};

}  // namespace bp
