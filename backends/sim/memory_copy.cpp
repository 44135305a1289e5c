// Copies and fills, between buffers and to and from the host.
#include <array>
#include <cstring>
#include <string>

#include "backends/sim/backend.hpp"
#include "backends/sim/memory.hpp"
#include "backplane/shell/bytes.hpp"

namespace bp::sim {
namespace {

// Returns a range in memory of the stream's device. Throws StatusError for any other range.
Range local_range(const Stream& stream, const bp_buffer_ref* range, const char* call,
                  const char* name, Access access) {
  const Range checked = checked_range(range, call, name, access);
  if (&checked.buffer.device->card() != &stream.device->card()) {
    refuse(BP_INVALID_ARGUMENT, std::string(call) + ": " + name + " and stream are of two devices");
  }
  return checked;
}

// Submits the copy of one range to another.
bp_status submit_copy(Stream& s, const Range& dst, const Range& src, const char* call) {
  if (dst.size_bytes != src.size_bytes) {
    refuse(BP_INVALID_ARGUMENT, std::string(call) + ": dst has " + std::to_string(dst.size_bytes) +
                                    " bytes, and src has " + std::to_string(src.size_bytes));
  }
  const Use writes = dst.use(Access::kWrite), reads = src.use(Access::kRead);
  std::byte *const to = writes.address(), *const from = reads.address();
  const uint64_t size_bytes = dst.size_bytes;
  // The addresses are compared, because one buffer may be wrapped around a part of the other.
  if (to != from && to < from + size_bytes && from < to + size_bytes) {
    refuse(BP_INVALID_ARGUMENT, std::string(call) + ": dst and src overlap and are not the same");
  }
  return submit_work(s, {BP_ACTIVITY_COPY, call, 2 * size_bytes}, {reads, writes},
                     [to, from, size_bytes] {
                       if (to != from) copy_bytes(to, from, size_bytes);
                     });
}

}  // namespace

bp_status memory_copy(void* self, bp_stream* stream_handle, const bp_buffer_ref* dst,
                      const bp_buffer_ref* src) {
  return entry(self, [&](const Instance&) {
    Stream& s = stream_of(stream_handle, "copy");
    const Range to = local_range(s, dst, "copy", "dst", Access::kWrite);
    return submit_copy(s, to, local_range(s, src, "copy", "src", Access::kRead), "copy");
  });
}

bp_status memory_copy_from_host(void* self, bp_stream* stream_handle, const bp_buffer_ref* dst,
                                const void* src, bp_borrow borrow) {
  return entry(self, [&](const Instance&) {
    Stream& s = stream_of(stream_handle, "copy_from_host");
    const Range to = local_range(s, dst, "copy_from_host", "dst", Access::kWrite);
    check_host_pointer(src, to.size_bytes, borrow, "copy_from_host", "src");
    const Use use = to.use(Access::kWrite);
    const WorkName name{BP_ACTIVITY_COPY, "copy_from_host", 2 * to.size_bytes};
    if (borrow == BP_BORROW_UNTIL_COMPLETE) {
      return submit_work(s, name, {use},
                         [address = use.address(), src, size_bytes = to.size_bytes] {
                           copy_bytes(address, src, size_bytes);
                         });
    }
    // The caller may overwrite its bytes as soon as this function returns.
    const std::shared_ptr<std::byte[]> staged(new std::byte[to.size_bytes]);
    copy_bytes(staged.get(), src, to.size_bytes);
    return submit_work(s, name, {use},
                       [address = use.address(), staged, size_bytes = to.size_bytes] {
                         copy_bytes(address, staged.get(), size_bytes);
                       });
  });
}

bp_status memory_copy_to_host(void* self, bp_stream* stream_handle, void* dst,
                              const bp_buffer_ref* src, bp_borrow borrow) {
  return entry(self, [&](const Instance&) {
    Stream& s = stream_of(stream_handle, "copy_to_host");
    const Range from = local_range(s, src, "copy_to_host", "src", Access::kRead);
    check_host_pointer(dst, from.size_bytes, borrow, "copy_to_host", "dst");
    const Use use = from.use(Access::kRead);
    const std::shared_ptr<Queue> queue = s.queue;
    const bp_status status =
        submit_work(s, {BP_ACTIVITY_COPY, "copy_to_host", 2 * from.size_bytes}, {use},
                    [dst, address = use.address(), size_bytes = from.size_bytes] {
                      copy_bytes(dst, address, size_bytes);
                    });
    if (status != BP_OK || borrow == BP_BORROW_UNTIL_COMPLETE) return status;
    queue->wait(UINT64_MAX);
    return queue->surface();
  });
}

bp_status memory_copy_peer(void* self, bp_stream* stream_handle, const bp_buffer_ref* dst,
                           const bp_buffer_ref* src) {
  return entry(self, [&](const Instance& i) {
    if (!i.options.has_peers) {
      refuse(BP_UNSUPPORTED, "copy_peer: option peer is no: devices reach their own memory alone");
    }
    Stream& s = stream_of(stream_handle, "copy_peer");
    const Range to = checked_range(dst, "copy_peer", "dst", Access::kWrite);
    const Range from = checked_range(src, "copy_peer", "src", Access::kRead);
    const Card& card = s.device->card();
    if (&card != &to.buffer.device->card() && &card != &from.buffer.device->card()) {
      refuse(BP_INVALID_ARGUMENT, "copy_peer: stream is of neither device");
    }
    return submit_copy(s, to, from, "copy_peer");
  });
}

bp_status memory_can_access_peer(void* self, bp_device* device_handle, bp_device* peer_handle,
                                 uint32_t* out_can) {
  return entry(self, [&](const Instance& i) {
    device_of(i, device_handle, "can_access_peer");
    device_of(i, peer_handle, "can_access_peer", "peer");
    require(out_can, "can_access_peer: out_can");
    *out_can = i.options.has_peers ? 1 : 0;
    return BP_OK;
  });
}

bp_status memory_fill(void* self, bp_stream* stream_handle, const bp_buffer_ref* dst,
                      const void* pattern, uint64_t pattern_size_bytes) {
  return entry(self, [&](const Instance&) {
    Stream& s = stream_of(stream_handle, "fill");
    const Range to = local_range(s, dst, "fill", "dst", Access::kWrite);
    check_pattern(pattern, pattern_size_bytes, to.size_bytes);
    std::array<std::byte, kMaxPatternBytes> kept{};
    std::memcpy(kept.data(), pattern, pattern_size_bytes);
    const Use use = to.use(Access::kWrite);
    return submit_work(
        s, {BP_ACTIVITY_FILL, "fill", to.size_bytes}, {use},
        [address = use.address(), kept, pattern_size_bytes, size_bytes = to.size_bytes] {
          fill_bytes(address, size_bytes, kept.data(), pattern_size_bytes);
        });
  });
}

}  // namespace bp::sim
