// Copies and fills. The host's bytes go through staging memory. A copy from the host is staged in
// the call. A copy to the host is read from the staging memory when the device has reached it.
//
// A fill with a pattern whose period divides 4 bytes is the device's own fill of words, with up to
// 3 bytes copied at each end. Other patterns are staged as a block, which is copied repeatedly.
#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "backends/vulkan/backend.hpp"
#include "backends/vulkan/memory.hpp"
#include "backplane/shell/bytes.hpp"

namespace bp::vulkan {
namespace {

constexpr uint64_t kWordBytes = 4;
constexpr uint64_t kBlockBytes = uint64_t{1} << 16;

// The place of a range in a VkBuffer.
struct Place {
  VkBuffer buffer;
  uint64_t offset;
};

Place place_of(const CheckedRange& range) {
  return {range.buffer.memory->buffer(), range.buffer.offset_in_buffer(range.byte_offset)};
}

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
  const Place place = place_of(to);
  const Target target{place.buffer, place.offset, to.size_bytes};
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
  return submit_work(s, std::array{use_of(to, true)},
                     [target, slice, has_words, &vk = engine.context->vk](Recording& recording) {
                       recording.retain(slice.memory);
                       (has_words ? fill_words : fill_blocks)(recording, vk, target, slice);
                     });
}

}  // namespace

bp_status MemoryTraits::copy(const Instance&, Stream& s, const Range& dst, const Range& src,
                             const char*) {
  const AddressRange to = use_of(dst, true), from = use_of(src, false);
  const bool is_nothing = dst.size_bytes == 0 || to.begin == from.begin;
  return submit_work(s, std::array{from, to},
                     [=, to_place = place_of(dst), from_place = place_of(src),
                      size_bytes = dst.size_bytes](Recording& recording) {
                       if (is_nothing) return;
                       recording.copy(to_place.buffer, to_place.offset, from_place.buffer,
                                      from_place.offset, size_bytes);
                     });
}

bp_status MemoryTraits::copy_from_host(const Instance&, Stream& s, const Range& dst,
                                       const void* src, bp_borrow) {
  if (dst.size_bytes == 0) return s.queue->admit();
  const Slice slice = s.lane->engine().uploads.take(dst.size_bytes, "copy_from_host");
  copy_bytes(slice.pointer, src, dst.size_bytes);
  return submit_work(s, std::array{use_of(dst, true)},
                     [slice, to = place_of(dst)](Recording& recording) {
                       recording.retain(slice.memory);
                       recording.copy(to.buffer, to.offset, slice.memory->buffer(),
                                      slice.offset_in_buffer(), slice.size_bytes);
                     });
}

bp_status MemoryTraits::copy_to_host(const Instance&, Stream& s, void* dst, const Range& src,
                                     bp_borrow borrow, uint64_t timeout_ns) {
  const bool waits = borrow == BP_BORROW_DURING_CALL;
  if (src.size_bytes == 0 && !waits) return s.queue->admit();
  const std::shared_ptr<Queue> queue = s.queue;
  const Slice slice = s.lane->engine().readbacks.take(src.size_bytes, "copy_to_host");
  const bp_status status = submit_work(
      s, std::array{use_of(src, false)},
      [slice, dst, waits, from = place_of(src)](Recording& recording) {
        recording.retain(slice.memory);
        if (slice.size_bytes == 0) return;
        recording.copy(slice.memory->buffer(), slice.offset_in_buffer(), from.buffer, from.offset,
                       slice.size_bytes);
        if (waits) return;
        recording.on_end([slice, dst] { copy_bytes(dst, slice.pointer, slice.size_bytes); });
      });
  if (status != BP_OK || !waits) return status;
  if (!wait_for_stream(s, timeout_ns)) refuse_timeout("copy_to_host", timeout_ns);
  const bp_status outcome = queue->admit();
  if (outcome == BP_OK) copy_bytes(dst, slice.pointer, slice.size_bytes);
  return outcome;
}

void MemoryTraits::check_peers(const Instance&, const Buffer& dst, const Buffer& src) {
  if (&dst.device->card() == &src.device->card()) return;
  refuse(BP_UNSUPPORTED,
         "copy_peer: dst and src are of two devices, which do not reach each other's memory; copy "
         "through the host");
}

bool MemoryTraits::can_access(const Instance&, const Device& device, const Device& peer) {
  return &device.card() == &peer.card();
}

bp_status MemoryTraits::fill(const Instance&, Stream& s, const Range& dst, const std::byte* pattern,
                             uint64_t pattern_size_bytes) {
  if (dst.size_bytes == 0) return s.queue->admit();
  return submit_fill(s, dst, pattern, pattern_size_bytes);
}

}  // namespace bp::vulkan
