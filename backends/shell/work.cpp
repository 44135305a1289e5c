#include "backplane/shell/work.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "backplane/layout.h"
#include "backplane/shell/boundary.hpp"
#include "backplane/shell/shape.hpp"
#include "backplane/shell/workspace.hpp"

namespace bp {
namespace {

std::string text_of(const bp_tensor& tensor) {
  return "dtype " + std::to_string(tensor.dtype) + " " + shape_text(tensor.ndim, tensor.shape);
}

Place place_of(bp_buffer_ref& range) {
  const auto end = static_cast<int64_t>(std::min<uint64_t>(range.size_bytes, INT64_MAX));
  return {&range.buffer, &range.byte_offset, 0, end, 1};
}

// Returns the place of a byte in its buffer. Throws StatusError of BP_INVALID_ARGUMENT if 64 bits
// do not hold it.
int64_t byte_of(const Place& place, int64_t relative) {
  int64_t byte = 0;
  if (!__builtin_add_overflow(*place.byte_offset, relative, &byte)) return byte;
  throw StatusError(BP_INVALID_ARGUMENT, "capture: an argument has byte_offset " +
                                             std::to_string(*place.byte_offset) +
                                             " and reaches byte " + std::to_string(relative) +
                                             " from there, which lies in no buffer");
}

}  // namespace

Work Work::launch(const bp_host& host, const bp_kernel& kernel, const bp_launch& launch,
                  const void* args) {
  Work work;
  work.kind = Kind::kLaunch;
  work.kernel = &kernel;
  work.launch_data = launch;
  work.launch_data.next = nullptr;
  work.frame = kernel.op == 0 && kernel.op_name != nullptr
                   ? OwnedFrame(described_op(host, kernel.op_name), args, kernel.args_size_bytes)
                   : OwnedFrame(kernel.op, args, kernel.args_size_bytes);
  return work;
}

Work Work::copy(Kind kind, const bp_buffer_ref& dst, const bp_buffer_ref& src) {
  Work work;
  work.kind = kind;
  work.dst = dst;
  work.src = src;
  return work;
}

Work Work::fill(const bp_buffer_ref& dst, const void* pattern, uint64_t pattern_size_bytes) {
  Work work;
  work.kind = Kind::kFill;
  work.dst = dst;
  work.pattern_size_bytes = pattern_size_bytes;
  std::memcpy(work.pattern.data(), pattern, pattern_size_bytes);
  return work;
}

Work Work::clone() const {
  Work work;
  work.kind = kind;
  work.kernel = kernel;
  work.launch_data = launch_data;
  if (kind == Kind::kLaunch) work.frame = frame.clone();
  work.dst = dst;
  work.src = src;
  work.pin = pin;
  work.pattern = pattern;
  work.pattern_size_bytes = pattern_size_bytes;
  return work;
}

bp_status Work::submit(const bp_allocator_ops& memory, bp_stream* stream) const {
  switch (kind) {
    case Kind::kCopy:
      return memory.copy(memory.self, stream, &dst, &src);
    case Kind::kCopyPeer:
      return memory.copy_peer(memory.self, stream, &dst, &src);
    case Kind::kFill:
      return memory.fill(memory.self, stream, &dst, pattern.data(), pattern_size_bytes);
    case Kind::kLaunch:
      break;
  }
  bp_launch launch = launch_data;
  launch.stream = stream;
  return kernel->launch(kernel, &launch, frame.data());
}

const char* Work::name() const {
  if (kind == Kind::kLaunch) return kernel->name;
  if (kind == Kind::kFill) return "fill";
  return kind == Kind::kCopy ? "copy" : "copy_peer";
}

std::string Work::text() const {
  std::string text = name();
  if (kind != Kind::kLaunch) return text + " " + std::to_string(dst.size_bytes) + " bytes";
  text += " (" + std::string(frame.name()) + ")";
  for (const bp_tensor* tensor : frame.tensors()) {
    text += " " + (tensor == nullptr ? "none" : text_of(*tensor));
  }
  return text;
}

std::vector<Place> places_of(Work& work) {
  std::vector<Place> places;
  if (work.kind != Work::Kind::kLaunch) {
    places.push_back(place_of(work.dst));
    if (work.kind != Work::Kind::kFill) places.push_back(place_of(work.src));
    return places;
  }
  places.push_back(place_of(work.launch_data.workspace));
  places.back().alignment_bytes = kWorkspaceAlignmentBytes;
  for (bp_tensor* tensor : work.frame.tensors()) {
    if (tensor == nullptr) continue;
    const Extent extent = extent_of(*tensor);
    auto alignment = static_cast<uint64_t>(std::max<int64_t>(1, dtype_size_bytes(tensor->dtype)));
    alignment = std::max(alignment, work.kernel->min_byte_alignment_bytes);
    if (tensor->layout != nullptr) alignment = tensor->layout->alignment_bytes;
    places.push_back({&tensor->buffer, &tensor->byte_offset, extent.begin, extent.end, alignment});
  }
  return places;
}

int slot_of(const Place& place, const std::vector<bp_buffer_ref>& slots) {
  if (*place.buffer == nullptr || place.begin == place.end) return -1;
  const int64_t begin = byte_of(place, place.begin), end = byte_of(place, place.end);
  for (size_t i = 0; i < slots.size(); ++i) {
    const int64_t slot_begin = static_cast<int64_t>(slots[i].byte_offset),
                  slot_end = slot_begin + static_cast<int64_t>(slots[i].size_bytes);
    if (*place.buffer != slots[i].buffer || end <= slot_begin || begin >= slot_end) continue;
    if (begin >= slot_begin && end <= slot_end) return static_cast<int>(i);
    throw StatusError(BP_INVALID_ARGUMENT, "capture: bytes " + std::to_string(begin) + " to " +
                                               std::to_string(end) + " leave slot " +
                                               std::to_string(i) + ", which has bytes " +
                                               std::to_string(slot_begin) + " to " +
                                               std::to_string(slot_end) + " of the buffer");
  }
  return -1;
}

}  // namespace bp
