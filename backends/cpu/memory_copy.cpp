// Copies and fills.
#include <array>
#include <cstring>
#include <memory>
#include <string>

#include "backends/cpu/device.hpp"
#include "backends/cpu/memory.hpp"
#include "backends/cpu/profiler.hpp"
#include "backends/cpu/stream.hpp"
#include "backplane/shell/bytes.hpp"
#include "backplane/shell/entry.hpp"

namespace bp::cpu {

bp_status memory_copy(void* self, bp_stream* stream_handle, const bp_buffer_ref* dst,
                      const bp_buffer_ref* src) {
  return entry(self, [&](const Instance& i) -> bp_status {
    stream_of(stream_handle, "copy");
    std::byte* const to = checked_range(dst, "copy", "dst", BP_ACCESS_READ_WRITE);
    const std::byte* const from = checked_range(src, "copy", "src", BP_ACCESS_READ);
    const uint64_t size_bytes = dst->size_bytes;
    if (size_bytes != src->size_bytes) {
      refuse(BP_INVALID_ARGUMENT, "copy: dst has " + std::to_string(size_bytes) +
                                      " bytes, and src has " + std::to_string(src->size_bytes));
    }
    if (to != from && to < from + size_bytes && from < to + size_bytes) {
      refuse(BP_INVALID_ARGUMENT, "copy: dst and src overlap and are not the same");
    }
    return submit_work(i, stream_handle, {BP_ACTIVITY_COPY, "copy", 2 * size_bytes}, [=] {
      if (to != from) copy_bytes(to, from, size_bytes);
    });
  });
}

bp_status memory_copy_from_host(void* self, bp_stream* stream_handle, const bp_buffer_ref* dst,
                                const void* src, bp_borrow borrow) {
  return entry(self, [&](const Instance& i) -> bp_status {
    Queue& q = *stream_of(stream_handle, "copy_from_host").queue;
    std::byte* const to = checked_range(dst, "copy_from_host", "dst", BP_ACCESS_READ_WRITE);
    const uint64_t size_bytes = dst->size_bytes;
    check_host_pointer(src, size_bytes, borrow, "copy_from_host", "src");
    const WorkName work{BP_ACTIVITY_COPY, "copy_from_host", 2 * size_bytes};
    auto copy = [=] { copy_bytes(to, src, size_bytes); };
    if (borrow == BP_BORROW_UNTIL_COMPLETE) return submit_work(i, stream_handle, work, copy);
    if (!i.hooks.is_recording() && q.try_run_here(copy)) return bp_status{BP_OK};
    // The work runs later, on another thread: stage, so that the caller may go on.
    const std::shared_ptr<std::byte[]> staged(new std::byte[size_bytes]);
    copy_bytes(staged.get(), src, size_bytes);
    return submit_work(i, stream_handle, work, [=] { copy_bytes(to, staged.get(), size_bytes); });
  });
}

bp_status memory_copy_to_host(void* self, bp_stream* stream_handle, void* dst,
                              const bp_buffer_ref* src, bp_borrow borrow) {
  return entry(self, [&](const Instance& i) -> bp_status {
    Queue& q = *stream_of(stream_handle, "copy_to_host").queue;
    const std::byte* const from = checked_range(src, "copy_to_host", "src", BP_ACCESS_READ);
    const uint64_t size_bytes = src->size_bytes;
    check_host_pointer(dst, size_bytes, borrow, "copy_to_host", "dst");
    const bp_status status =
        submit_work(i, stream_handle, {BP_ACTIVITY_COPY, "copy_to_host", 2 * size_bytes},
                    [=] { copy_bytes(static_cast<std::byte*>(dst), from, size_bytes); });
    if (status != BP_OK || borrow == BP_BORROW_UNTIL_COMPLETE) return status;
    q.wait(UINT64_MAX);
    return q.surface();
  });
}

bp_status memory_can_access_peer(void* self, bp_device* device_handle, bp_device* peer_handle,
                                 uint32_t* out_can) {
  const Instance& i = instance(self);
  if (device_or_null(i, device_handle) == nullptr || device_or_null(i, peer_handle) == nullptr) {
    return i.fail(BP_INVALID_ARGUMENT,
                  "can_access_peer: device or peer is NULL or not one of this backend");
  }
  if (out_can == nullptr) return i.fail(BP_INVALID_ARGUMENT, "can_access_peer: out_can is NULL");
  *out_can = 0;  // There is one device, and no copy_peer().
  return BP_OK;
}

bp_status memory_fill(void* self, bp_stream* stream_handle, const bp_buffer_ref* dst,
                      const void* pattern, uint64_t pattern_size_bytes) {
  return entry(self, [&](const Instance& i) -> bp_status {
    stream_of(stream_handle, "fill");
    std::byte* const to = checked_range(dst, "fill", "dst", BP_ACCESS_READ_WRITE);
    const uint64_t size_bytes = dst->size_bytes;
    check_pattern(pattern, pattern_size_bytes, size_bytes);
    std::array<std::byte, kMaxPatternBytes> kept{};
    std::memcpy(kept.data(), pattern, pattern_size_bytes);
    return submit_work(i, stream_handle, {BP_ACTIVITY_FILL, "fill", size_bytes},
                       [=] { fill_bytes(to, size_bytes, kept.data(), pattern_size_bytes); });
  });
}

}  // namespace bp::cpu
