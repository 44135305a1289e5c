// Records the calls of buffers and copies.
#include <cstring>
#include <vector>

#include "registry/boundary/fail.hpp"
#include "registry/files/sha256.hpp"
#include "registry/layers/footprint.hpp"
#include "registry/layers/record.hpp"

namespace bp::layers {
namespace {

std::string hex_bytes(const void* bytes, uint64_t size) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (uint64_t i = 0; i < size; ++i) {
    const unsigned char byte = static_cast<const unsigned char*>(bytes)[i];
    text += {kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return text;
}

}  // namespace

bp_status RecordLayer::allocate(const bp_allocator_ops& next, bp_device* device,
                                const bp_allocate_desc* desc, bp_buffer** out_buffer) {
  const bp_status status = next.allocate(next.self, device, desc, out_buffer);
  write("memory.allocate", status, [&](Json& line) {
    line["device"] = number_of(device);
    RecordedBuffer& buffer = buffers_.add(*out_buffer);
    buffer.size_bytes = requested_bytes(*desc);
    line["buffer"] = buffer.number;
    line["size_bytes"] = buffer.size_bytes;
    line["alignment_bytes"] = desc->alignment_bytes;
    line["heap_mask"] = desc->heap_mask;
    line["heap_flags"] = desc->heap_flags;
    line["usage"] = desc->usage;
    note_stream(line, desc->stream);
  });
  return status;
}

bp_status RecordLayer::deallocate(const bp_allocator_ops& next, bp_buffer* buffer,
                                  bp_stream* stream) {
  uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    number = buffers_.take(buffer);
  }
  const bp_status status = next.deallocate(next.self, buffer, stream);
  if (number == 0) return status;  // NULL, or a buffer from a call that is not recorded.
  write("memory.deallocate", status, [&](Json& line) {
    line["buffer"] = number;
    note_stream(line, stream);
  });
  return status;
}

bp_status RecordLayer::copy(const bp_allocator_ops& next, bp_stream* stream,
                            const bp_buffer_ref* dst, const bp_buffer_ref* src) {
  if (src != nullptr) write_host_bytes(src->buffer);
  const bool is_capturing = is_captured(stream);
  const bp_status status = next.copy(next.self, stream, dst, src);
  if (status == BP_OK && is_capturing) return write_unrecorded("memory.copy", kCaptured), status;
  write("memory.copy", status, [&](Json& line) {
    line["stream"] = number_of(stream);
    line["dst"] = range(*dst);
    line["src"] = range(*src);
    note_written(dst->buffer);
  });
  return status;
}

bp_status RecordLayer::copy_peer(const bp_allocator_ops& next, bp_stream* stream,
                                 const bp_buffer_ref* dst, const bp_buffer_ref* src) {
  if (src != nullptr) write_host_bytes(src->buffer);
  const bool is_capturing = is_captured(stream);
  const bp_status status = next.copy_peer(next.self, stream, dst, src);
  if (status == BP_OK && is_capturing) {
    return write_unrecorded("memory.copy_peer", kCaptured), status;
  }
  write("memory.copy_peer", status, [&](Json& line) {
    line["stream"] = number_of(stream);
    line["dst"] = range(*dst);
    line["src"] = range(*src);
    note_written(dst->buffer);
  });
  return status;
}

bp_status RecordLayer::copy_from_host(const bp_allocator_ops& next, bp_stream* stream,
                                      const bp_buffer_ref* dst, const void* src, bp_borrow borrow) {
  // It is made before the call, because memory that is borrowed for longer may change afterwards.
  std::string payload;
  if (dst != nullptr && src != nullptr) payload = recording_.store(src, dst->size_bytes);
  const bool is_capturing = is_captured(stream);
  const bp_status status = next.copy_from_host(next.self, stream, dst, src, borrow);
  if (status == BP_OK && is_capturing) {
    return write_unrecorded("memory.copy_from_host", kCaptured), status;
  }
  write("memory.copy_from_host", status, [&](Json& line) {
    line["stream"] = number_of(stream);
    line["dst"] = range(*dst);
    line["payload"] = payload;
    note_written(dst->buffer);
  });
  return status;
}

bp_status RecordLayer::copy_to_host(const bp_allocator_ops& next, bp_stream* stream, void* dst,
                                    const bp_buffer_ref* src, bp_borrow borrow,
                                    uint64_t timeout_ns) {
  if (src != nullptr) write_host_bytes(src->buffer);
  const bool is_capturing = is_captured(stream);
  const bp_status status = next.copy_to_host(next.self, stream, dst, src, borrow, timeout_ns);
  if (status == BP_TIMEOUT) return status;  // The program has got no bytes.
  if (status == BP_OK && is_capturing) {
    return write_unrecorded("memory.copy_to_host", kCaptured), status;
  }
  const bool is_there = status == BP_OK && borrow == BP_BORROW_DURING_CALL;
  const std::string payload = is_there ? recording_.store(dst, src->size_bytes) : "";
  uint64_t read = 0;
  write("memory.copy_to_host", status, [&](Json& line) {
    line["stream"] = number_of(stream);
    line["src"] = range(*src);
    line["read"] = read = ++read_count_;
    if (is_there) line["payload"] = payload;
  });
  if (status == BP_OK && !is_there && read != 0) {
    const bp_status later = read_later(next, stream, *src, read);
    if (later != BP_OK) {
      write_unrecorded("host.read", "the bytes of read " + std::to_string(read) +
                                        " could not be copied a second time");
    }
  }
  return status;
}

// The program may end or change its memory as soon as the copy has ended. So the bytes come from
// the layer's own copy, which runs behind the program's.
struct RecordLayer::PendingRead {
  RecordLayer* layer;
  uint64_t read;
  std::vector<unsigned char> bytes;
};

bp_status RecordLayer::read_later(const bp_allocator_ops& next, bp_stream* stream,
                                  const bp_buffer_ref& src, uint64_t read) {
  const bp_stream_ops* streams = nullptr;
  {
    const std::lock_guard lock(mutex_);
    const RecordedStream* facts = streams_.find(stream);
    if (facts != nullptr) streams = directory_.streams(facts->device);
  }
  if (streams == nullptr || streams->add_callback == nullptr) return BP_NOT_FOUND;
  auto pending = std::make_unique<PendingRead>(PendingRead{this, read, {}});
  pending->bytes.resize(src.size_bytes);
  pending_count_.fetch_add(1);
  const bp_status status = next.copy_to_host(next.self, stream, pending->bytes.data(), &src,
                                             BP_BORROW_UNTIL_COMPLETE, UINT64_MAX);
  if (status != BP_OK) {
    pending_count_.fetch_sub(1);
    return status;
  }
  // From here on the copy may be running, so its memory stays until the callback.
  return streams->add_callback(streams->self, stream, take_read, pending.release());
}

void RecordLayer::take_read(void* self, bp_status status) {
  const std::unique_ptr<PendingRead> pending(static_cast<PendingRead*>(self));
  RecordLayer& layer = *pending->layer;
  static_cast<void>(core::guarded([&] {
    const std::string payload =
        status == BP_OK ? layer.recording_.store(pending->bytes.data(), pending->bytes.size()) : "";
    layer.write("host.read", status, [&](Json& line) {
      line["read"] = pending->read;
      line["payload"] = payload;
    });
    return bp_status{BP_OK};
  }));
  layer.pending_count_.fetch_sub(1);
}

bp_status RecordLayer::fill(const bp_allocator_ops& next, bp_stream* stream,
                            const bp_buffer_ref* dst, const void* pattern,
                            uint64_t pattern_size_bytes) {
  const bool is_capturing = is_captured(stream);
  const bp_status status = next.fill(next.self, stream, dst, pattern, pattern_size_bytes);
  if (status == BP_OK && is_capturing) return write_unrecorded("memory.fill", kCaptured), status;
  write("memory.fill", status, [&](Json& line) {
    line["stream"] = number_of(stream);
    line["dst"] = range(*dst);
    line["pattern"] = hex_bytes(pattern, pattern_size_bytes);
    note_written(dst->buffer);
  });
  return status;
}

// ---- Memory that the host touches without calls -------------------------------------------------

void RecordLayer::add_view(bp_buffer* buffer, const void* bytes, uint64_t byte_offset,
                           uint64_t size_bytes) {
  const std::lock_guard lock(mutex_);
  RecordedBuffer* facts = buffers_.find(buffer);
  if (facts == nullptr || bytes == nullptr) return;
  facts->views.push_back({static_cast<const unsigned char*>(bytes), byte_offset, size_bytes,
                          sha256(bytes, size_bytes)});
}

// Writes what the host has put into the buffer since the last look.
void RecordLayer::write_host_bytes(bp_buffer* buffer) {
  const std::lock_guard lock(mutex_);
  RecordedBuffer* facts = buffers_.find(buffer);
  if (facts == nullptr) return;
  for (HostView& view : facts->views) {
    if (sha256(view.bytes, view.size_bytes) == view.seen) continue;
    view.seen = recording_.store(view.bytes, view.size_bytes);
    append({{"call", "host.write"},
            {"dst", {facts->number, view.byte_offset, view.size_bytes}},
            {"payload", view.seen}});
  }
}

// Writes what the host can read from now on, if the device has written anything.
void RecordLayer::write_device_bytes(bp_buffer* buffer) {
  const std::lock_guard lock(mutex_);
  RecordedBuffer* facts = buffers_.find(buffer);
  if (facts == nullptr || !facts->is_written) return;
  for (HostView& view : facts->views) {
    view.seen = recording_.store(view.bytes, view.size_bytes);
    append({{"call", "host.read"},
            {"read", ++read_count_},
            {"src", {facts->number, view.byte_offset, view.size_bytes}},
            {"payload", view.seen}});
  }
}

bp_status RecordLayer::map(const bp_allocator_ops& next, const bp_buffer_ref* range,
                           void** out_pointer) {
  const bp_status status = next.map(next.self, range, out_pointer);
  if (status != BP_OK) return status;
  // The host sees the bytes as they are only after invalidate().
  if (next.invalidate != nullptr) static_cast<void>(next.invalidate(next.self, range));
  add_view(range->buffer, *out_pointer, range->byte_offset, range->size_bytes);
  write_device_bytes(range->buffer);
  return status;
}

bp_status RecordLayer::unmap(const bp_allocator_ops& next, bp_buffer* buffer, void* pointer) {
  write_host_bytes(buffer);
  {
    const std::lock_guard lock(mutex_);
    if (RecordedBuffer* facts = buffers_.find(buffer)) facts->end_map(pointer);
  }
  return next.unmap(next.self, buffer, pointer);
}

bp_status RecordLayer::flush(const bp_allocator_ops& next, const bp_buffer_ref* range) {
  if (range != nullptr) write_host_bytes(range->buffer);
  return next.flush(next.self, range);
}

bp_status RecordLayer::invalidate(const bp_allocator_ops& next, const bp_buffer_ref* range) {
  const bp_status status = next.invalidate(next.self, range);
  if (status == BP_OK) write_device_bytes(range->buffer);
  return status;
}

bp_status RecordLayer::register_host(const bp_allocator_ops& next, bp_device* device, void* memory,
                                     uint64_t size_bytes, bp_buffer** out_buffer) {
  const bp_status status = next.register_host(next.self, device, memory, size_bytes, out_buffer);
  write("memory.register_host", status, [&](Json& line) {
    line["device"] = number_of(device);
    RecordedBuffer& buffer = buffers_.add(*out_buffer);
    buffer.size_bytes = size_bytes;
    // The present content of the memory is written with its first use.
    if (memory != nullptr) {
      buffer.views = {{static_cast<const unsigned char*>(memory), 0, size_bytes, ""}};
    }
    line["buffer"] = buffer.number;
    line["size_bytes"] = size_bytes;
  });
  return status;
}

bp_status RecordLayer::unregister_host(const bp_allocator_ops& next, bp_buffer* buffer) {
  write_device_bytes(buffer);
  uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    number = buffers_.take(buffer);
  }
  const bp_status status = next.unregister_host(next.self, buffer);
  if (number == 0) return status;
  write("memory.unregister_host", status, [&](Json& line) { line["buffer"] = number; });
  return status;
}

}  // namespace bp::layers
