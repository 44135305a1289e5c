// Copies and fills. The host's bytes go through staging memory. A copy from the host is staged in
// the call. A copy to the host is read from the staging memory when the device has reached it.
//
// A fill with a pattern whose period divides 4 bytes is the device's own fill of words, with up to
// 3 bytes copied at each end. Other patterns are staged as a block, which is copied repeatedly.
#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "backends/vulkan/backend.hpp"
#include "backends/vulkan/memory.hpp"
#include "backplane/shell/bytes.hpp"

namespace bp::vulkan {
namespace {

constexpr uint64_t kWordBytes = 4;
constexpr uint64_t kBlockBytes = uint64_t{1} << 16;

// The place of a fill in a VkBuffer.
struct Target {
  VkBuffer buffer;
  uint64_t offset, size_bytes;

  // These functions give the range of whole words.
  uint64_t words_begin() const { return (offset + kWordBytes - 1) / kWordBytes * kWordBytes; }
  uint64_t words_end() const { return (offset + size_bytes) / kWordBytes * kWordBytes; }
};

// Returns whether the pattern repeats after 4 bytes.
bool is_word(const std::byte* pattern, uint64_t pattern_size_bytes) {
  if (kWordBytes % pattern_size_bytes == 0) return true;
  if (pattern_size_bytes % kWordBytes != 0) return false;
  return std::equal(pattern + kWordBytes, pattern + pattern_size_bytes, pattern);
}

// Fills whole words on the device, and copies the ends from `ends`, which has 16 bytes of the
// pattern from the beginning of the range on.
void fill_words(Recording& recording, const DeviceFunctions& vk, const Target& target,
                const Slice& ends) {
  const uint64_t begin = target.words_begin(), end = target.words_end();
  uint32_t word = 0;
  std::memcpy(&word, ends.pointer + (begin - target.offset), sizeof(word));
  vk.CmdFillBuffer(recording.commands(), target.buffer, begin, end - begin, word);
  const uint64_t head = begin - target.offset, tail = target.offset + target.size_bytes - end;
  const VkBuffer from = ends.memory->buffer();
  if (head > 0) recording.copy(target.buffer, target.offset, from, ends.offset_in_buffer(), head);
  // The tail begins at a word, and so does the word behind the head in `ends`.
  if (tail > 0) recording.copy(target.buffer, end, from, ends.offset_in_buffer() + head, tail);
}

void fill_blocks(Recording& recording, const DeviceFunctions& vk, const Target& target,
                 const Slice& block) {
  std::vector<VkBufferCopy> regions;
  for (uint64_t done = 0; done < target.size_bytes; done += block.size_bytes) {
    regions.push_back({block.offset_in_buffer(), target.offset + done,
                       std::min(block.size_bytes, target.size_bytes - done)});
  }
  vk.CmdCopyBuffer(recording.commands(), block.memory->buffer(), target.buffer,
                   static_cast<uint32_t>(regions.size()), regions.data());
}

bp_status submit_fill(Stream& s, const CheckedRange& to, const std::byte* pattern,
                      uint64_t pattern_size_bytes) {
  Engine& engine = s.lane->engine();
  const Target target{to.vulkan_buffer(), to.offset_in_buffer(), to.size_bytes};
  const bool has_words =
      is_word(pattern, pattern_size_bytes) && target.words_begin() < target.words_end();
  const uint64_t most = kBlockBytes / pattern_size_bytes * pattern_size_bytes;
  const Slice slice =
      engine.uploads.take(has_words ? kMaxPatternBytes : std::min(to.size_bytes, most), "fill");
  if (has_words) {
    for (uint64_t k = 0; k < kMaxPatternBytes; ++k) {
      slice.pointer[k] = pattern[k % pattern_size_bytes];
    }
  } else {
    fill_bytes(slice.pointer, slice.size_bytes, pattern, pattern_size_bytes);
  }
  return submit_work(s, std::array{to.use(true)},
                     [target, slice, has_words, &vk = engine.context->vk](Recording& recording) {
                       recording.retain(slice.memory);
                       (has_words ? fill_words : fill_blocks)(recording, vk, target, slice);
                     });
}

}  // namespace

bp_status submit_copy(Stream& s, const CheckedRange& dst, const CheckedRange& src,
                      const char* call) {
  if (dst.size_bytes != src.size_bytes) {
    refuse(BP_INVALID_ARGUMENT, std::string(call) + ": dst has " + std::to_string(dst.size_bytes) +
                                    " bytes, and src has " + std::to_string(src.size_bytes));
  }
  const AddressRange to = dst.use(true), from = src.use(false);
  // The addresses are compared, because one buffer may be wrapped around a part of the other.
  if (to.begin != from.begin && to.begin < from.end && from.begin < to.end) {
    refuse(BP_INVALID_ARGUMENT, std::string(call) + ": dst and src overlap and are not the same");
  }
  const bool is_nothing = dst.size_bytes == 0 || to.begin == from.begin;
  return submit_work(s, std::array{from, to},
                     [=, to_buffer = dst.vulkan_buffer(), to_offset = dst.offset_in_buffer(),
                      from_buffer = src.vulkan_buffer(), from_offset = src.offset_in_buffer(),
                      size_bytes = dst.size_bytes](Recording& recording) {
                       if (is_nothing) return;
                       recording.copy(to_buffer, to_offset, from_buffer, from_offset, size_bytes);
                     });
}

bp_status memory_copy(void* self, bp_stream* stream_handle, const bp_buffer_ref* dst,
                      const bp_buffer_ref* src) {
  return entry(self, [&](const Instance&) {
    Stream& s = stream_of(stream_handle, "copy");
    const CheckedRange to = local_range(s, dst, "copy", "dst");
    return submit_copy(s, to, local_range(s, src, "copy", "src"), "copy");
  });
}

bp_status memory_copy_from_host(void* self, bp_stream* stream_handle, const bp_buffer_ref* dst,
                                const void* src, bp_borrow borrow) {
  return entry(self, [&](const Instance&) {
    Stream& s = stream_of(stream_handle, "copy_from_host");
    const CheckedRange to = local_range(s, dst, "copy_from_host", "dst");
    check_host_pointer(src, to.size_bytes, borrow, "copy_from_host", "src");
    if (to.size_bytes == 0) return s.queue->surface();
    const Slice slice = s.lane->engine().uploads.take(to.size_bytes, "copy_from_host");
    copy_bytes(slice.pointer, src, to.size_bytes);
    return submit_work(
        s, std::array{to.use(true)},
        [slice, buffer = to.vulkan_buffer(), offset = to.offset_in_buffer()](Recording& recording) {
          recording.retain(slice.memory);
          recording.copy(buffer, offset, slice.memory->buffer(), slice.offset_in_buffer(),
                         slice.size_bytes);
        });
  });
}

bp_status memory_copy_to_host(void* self, bp_stream* stream_handle, void* dst,
                              const bp_buffer_ref* src, bp_borrow borrow) {
  return entry(self, [&](const Instance&) {
    Stream& s = stream_of(stream_handle, "copy_to_host");
    const CheckedRange from = local_range(s, src, "copy_to_host", "src");
    check_host_pointer(dst, from.size_bytes, borrow, "copy_to_host", "dst");
    const bool waits = borrow == BP_BORROW_DURING_CALL;
    if (from.size_bytes == 0 && !waits) return s.queue->surface();
    const std::shared_ptr<Queue> queue = s.queue;
    const Slice slice = s.lane->engine().readbacks.take(from.size_bytes, "copy_to_host");
    const bp_status status = submit_work(
        s, std::array{from.use(false)},
        [slice, dst, waits, buffer = from.vulkan_buffer(),
         offset = from.offset_in_buffer()](Recording& recording) {
          recording.retain(slice.memory);
          if (slice.size_bytes == 0) return;
          recording.copy(slice.memory->buffer(), slice.offset_in_buffer(), buffer, offset,
                         slice.size_bytes);
          if (waits) return;
          recording.on_end([slice, dst] { copy_bytes(dst, slice.pointer, slice.size_bytes); });
        });
    if (status != BP_OK || !waits) return status;
    wait_for_stream(s, UINT64_MAX);
    if (queue->has_failed()) return queue->surface();
    copy_bytes(dst, slice.pointer, slice.size_bytes);
    return status;
  });
}

bp_status memory_copy_peer(void* self, bp_stream* stream_handle, const bp_buffer_ref* dst,
                           const bp_buffer_ref* src) {
  return entry(self, [&](const Instance&) {
    Stream& s = stream_of(stream_handle, "copy_peer");
    const CheckedRange to = checked_range(dst, "copy_peer", "dst");
    const CheckedRange from = checked_range(src, "copy_peer", "src");
    if (&to.buffer.device->card() != &from.buffer.device->card()) {
      refuse(BP_UNSUPPORTED,
             "copy_peer: dst and src are of two devices, which do not reach each "
             "other's memory; copy through the host");
    }
    if (&s.device->card() != &to.buffer.device->card()) {
      refuse(BP_INVALID_ARGUMENT, "copy_peer: stream is of neither device");
    }
    return submit_copy(s, to, from, "copy_peer");
  });
}

bp_status memory_can_access_peer(void* self, bp_device* device_handle, bp_device* peer_handle,
                                 uint32_t* out_can) {
  return entry(self, [&](const Instance& i) {
    const Device& device = device_of(i, device_handle, "can_access_peer");
    const Device& peer = device_of(i, peer_handle, "can_access_peer", "peer");
    require(out_can, "can_access_peer: out_can");
    *out_can = &device.card() == &peer.card() ? 1 : 0;
    return BP_OK;
  });
}

bp_status memory_fill(void* self, bp_stream* stream_handle, const bp_buffer_ref* dst,
                      const void* pattern, uint64_t pattern_size_bytes) {
  return entry(self, [&](const Instance&) {
    Stream& s = stream_of(stream_handle, "fill");
    const CheckedRange to = local_range(s, dst, "fill", "dst");
    check_pattern(pattern, pattern_size_bytes, to.size_bytes);
    if (to.size_bytes == 0) return s.queue->surface();
    return submit_fill(s, to, static_cast<const std::byte*>(pattern), pattern_size_bytes);
  });
}

}  // namespace bp::vulkan
