// What the buffers of all backends share: their handles, ranges of them, and checks of what a call
// does there.
//
//   struct Buffer : MortalHandle<Device> {
//     static constexpr uint32_t kMagic = 0x42756666;
//     ...
//     const uint64_t size_bytes;
//
//     std::mutex mutex;  // It guards `maps`. The tables of memory_ops.hpp use both.
//     std::vector<void*> maps;  // What map() gave and unmap() has not taken back.
//   };
//
// Rules:
//   Threads    Every function may be called from any thread.
//   Errors     A function that takes the name of an entry, `call`, throws StatusError, whose text
//              begins with that name. `name` is the name of an argument.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "backplane/memory.h"
#include "backplane/shell/entry.hpp"
#include "backplane/shell/lookup.hpp"
#include "backplane/virtual_memory.h"

namespace bp {

// A range of a buffer, checked.
template <typename Buffer>
struct BufferRange {
  Buffer& buffer;
  uint64_t byte_offset, size_bytes;
};

// Returns whether a range lies in its buffer, which has buffer_bytes.
inline bool is_inside(const bp_buffer_ref& range, uint64_t buffer_bytes) {
  return range.byte_offset <= buffer_bytes && range.size_bytes <= buffer_bytes - range.byte_offset;
}

// Refuses a range that does not lie in its buffer. `what` names the entry and the argument.
[[noreturn]] inline void refuse_range(const bp_buffer_ref& range, uint64_t buffer_bytes,
                                      const std::string& what) {
  refuse(BP_INVALID_ARGUMENT, what + ": " + std::to_string(range.size_bytes) + " bytes at " +
                                  std::to_string(range.byte_offset) + " leave the buffer of " +
                                  std::to_string(buffer_bytes));
}

// Refuses an argument that names no buffer of this backend. `what` names the entry and the
// argument.
[[noreturn]] inline void refuse_buffer(const std::string& what) {
  refuse(BP_INVALID_ARGUMENT, what + ": buffer is NULL or not one of this backend");
}

// Returns the buffer that an argument names, such as a range or a tensor. Throws StatusError as
// require_alive() does.
template <typename Buffer>
Buffer& live_buffer_of(bp_buffer* handle, const char* call, const char* name) {
  Buffer* const b = object_of<Buffer>(handle);
  if (b == nullptr) refuse_buffer(std::string(call) + ": " + name);
  require_alive(*b, call, name);
  return *b;
}

// Returns the range of an argument, where the call does what `access` says. If a Buffer has
// check_access(call, name, range, access), that checks the range, which lies in the buffer, too.
template <typename Buffer>
BufferRange<Buffer> checked_range(const bp_buffer_ref* range, const char* call, const char* name,
                                  bp_access access) {
  const auto what = [&] { return std::string(call) + ": " + name; };
  if (range == nullptr) refuse(BP_INVALID_ARGUMENT, what() + " is NULL");
  Buffer& b = live_buffer_of<Buffer>(range->buffer, call, name);
  if (!is_inside(*range, b.size_bytes)) refuse_range(*range, b.size_bytes, what());
  if constexpr (requires { b.check_access(call, name, *range, access); }) {
    b.check_access(call, name, *range, access);
  }
  return {b, range->byte_offset, range->size_bytes};
}

// Bytes at an address of the device.
struct ByteRange {
  uint64_t address, size_bytes;
};

// Returns whether two ranges share bytes and are not the same. The addresses are compared, because
// one buffer may be wrapped around a part of the other.
inline bool is_partly_shared(const ByteRange& a, const ByteRange& b) {
  return a.address != b.address && a.address < b.address + b.size_bytes &&
         b.address < a.address + a.size_bytes;
}

// Checks that src can be copied to dst.
inline void check_copy(const ByteRange& dst, const ByteRange& src, const char* call) {
  if (dst.size_bytes != src.size_bytes) {
    refuse(BP_INVALID_ARGUMENT, std::string(call) + ": dst has " + std::to_string(dst.size_bytes) +
                                    " bytes, and src has " + std::to_string(src.size_bytes));
  }
  if (is_partly_shared(dst, src)) {
    refuse(BP_INVALID_ARGUMENT, std::string(call) + ": dst and src overlap and are not the same");
  }
}

// Checks bytes that the host knows by their address.
inline void check_addresses(const ByteRange& range, const char* call) {
  if (range.address == 0 && range.size_bytes > 0) {
    refuse(BP_INVALID_ARGUMENT, std::string(call) + ": the address is 0");
  }
  if (range.size_bytes > std::numeric_limits<uint64_t>::max() - range.address) {
    refuse(BP_INVALID_ARGUMENT, std::string(call) + ": " + std::to_string(range.size_bytes) +
                                    " bytes at address " + std::to_string(range.address) +
                                    " leave the address space");
  }
}

// Refuses an argument of another device than the stream of the call.
[[noreturn]] inline void refuse_two_devices(const char* call, const std::string& name) {
  refuse(BP_INVALID_ARGUMENT, std::string(call) + ": " + name + " and stream are of two devices");
}

// Checks that the host may map a buffer, which it must see, and which is in no stream's order.
inline void check_mappable(bool is_visible, bool is_stream_ordered) {
  if (!is_visible) refuse(BP_UNSUPPORTED, "map: the heap of the buffer is not host_visible");
  if (is_stream_ordered) refuse(BP_UNSUPPORTED, "map: the buffer is stream-ordered");
}

// Checks that memory of the host can be registered. alignment_bytes is that of the device.
inline void check_registered(const ByteRange& memory, uint64_t alignment_bytes) {
  check_addresses(memory, "register_host");
  if (memory.address % alignment_bytes == 0 && memory.size_bytes % alignment_bytes == 0) return;
  refuse(BP_INVALID_ARGUMENT, "register_host: " + std::to_string(memory.size_bytes) +
                                  " bytes at address " + std::to_string(memory.address) +
                                  " do not begin and end at multiples of " +
                                  std::to_string(alignment_bytes));
}

// Checks that size_bytes at first_byte of memory_bytes can be wrapped.
inline void check_wrapped(uint64_t first_byte, uint64_t size_bytes, uint64_t memory_bytes) {
  if (size_bytes <= memory_bytes - first_byte) return;
  refuse(BP_INVALID_ARGUMENT, "wrap_address: " + std::to_string(size_bytes) + " bytes at byte " +
                                  std::to_string(first_byte) +
                                  " leave the memory at that address, which has " +
                                  std::to_string(memory_bytes));
}

// Refuses to wrap an address of which the device knows nothing.
[[noreturn]] inline void refuse_unknown_address(uint64_t address) {
  refuse(BP_INVALID_ARGUMENT,
         "wrap_address: address " + std::to_string(address) + " lies in no memory of the device");
}

// Gives `buffer` to its device, and returns its handle. Throws StatusError of BP_ALREADY_EXISTS if
// the device refuses it, because it would overlap another buffer that owns its memory. If a Buffer
// has end_memory(), which frees what the Buffer alone does not free, lend() calls it before it
// throws.
template <typename Buffer>
bp_buffer* lend(std::unique_ptr<Buffer> buffer, const char* call) {
  const auto end_memory = [](Buffer* b) {
    if constexpr (requires { b->end_memory(); }) b->end_memory();
  };
  std::unique_ptr<Buffer, decltype(end_memory)> memory(buffer.get(), end_memory);
  if (!buffer->device->add(buffer.get())) {
    refuse(BP_ALREADY_EXISTS, std::string(call) + ": " + std::to_string(buffer->size_bytes) +
                                  " bytes overlap another buffer of the device");
  }
  static_cast<void>(memory.release());
  return reinterpret_cast<bp_buffer*>(buffer.release());
}

// Ends the handle of a buffer, which belongs to the caller from then on.
template <typename Buffer>
std::unique_ptr<Buffer> take_back(Buffer& buffer) {
  buffer.device->remove(&buffer);
  buffer.magic = 0;
  return std::unique_ptr<Buffer>(&buffer);
}

}  // namespace bp
