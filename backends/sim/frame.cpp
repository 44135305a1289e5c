#include "backends/sim/frame.hpp"

#include <cstddef>
#include <cstring>
#include <string>

#include "backends/sim/backend.hpp"
#include "backends/sim/memory.hpp"
#include "backplane/layout.h"
#include "backplane/ops.h"
#include "backplane/shell/frame.hpp"
#include "backplane/shell/shape.hpp"
#include "backplane/shell/workspace.hpp"

namespace bp::sim {
namespace {

template <typename T>
T value_at(const void* args, size_t offset) {
  T value;
  // NOLINTNEXTLINE(bugprone-sizeof-expression): T may be a pointer.
  std::memcpy(&value, static_cast<const std::byte*>(args) + offset, sizeof(value));
  return value;
}

// Returns the buffer of a launch's argument. Throws StatusError unless it is on the card of the
// stream.
Buffer& local_buffer(bp_buffer* handle, const Stream& stream, const std::string& what) {
  Buffer& b = buffer_of(handle, "launch", what.c_str());
  if (&b.device->card() != &stream.device->card()) {
    refuse_two_devices("launch", what);
  }
  return b;
}

// A kernel of copy takes every offset; `any_offset` says that it is one.
void add_tensor(std::vector<Use>& uses, const bp_tensor* t, const FrameMember& member,
                const Stream& stream, bool any_offset) {
  // Only plan_pack() gets tensors without a buffer, which are the arguments that are not packed.
  if (t == nullptr || t->buffer == nullptr || element_count(*t) == 0) return;
  const std::string what = std::string("argument ") + member.name;
  if (t->layout != nullptr) {
    const char* const name = t->layout->name;
    refuse(BP_UNSUPPORTED, "launch: " + what + " has layout \"" + (name == nullptr ? "" : name) +
                               "\", which the kernel does not take; allowed: strides");
  }
  const Buffer& b = local_buffer(t->buffer, stream, what);
  const uint64_t alignment = b.device->heap(b.heap).tensor_offset_alignment_bytes;
  // A wrapped or registered buffer may itself begin at any address.
  const uint64_t first_address = reinterpret_cast<uintptr_t>(b.address()) + t->byte_offset;
  if (!any_offset && first_address % alignment != 0) {
    refuse(BP_UNSUPPORTED, "launch: " + what + ": byte_offset is " +
                               std::to_string(t->byte_offset) + ", no multiple of " +
                               std::to_string(alignment) + ", which the heap asks for");
  }
  const Extent extent = extent_in_buffer(*t, b.size_bytes, ("launch: " + what).c_str());
  const auto begin = static_cast<uint64_t>(extent.begin);
  const auto size_bytes = static_cast<uint64_t>(extent.end - extent.begin);
  const Access access = member.is_written() ? Access::kWrite : Access::kRead;
  b.memory->check("launch: " + what, b.first_byte + begin, size_bytes, access);
  uses.push_back(b.use(begin, size_bytes, access));
}

std::vector<Use> uses_of_members(std::span<const FrameMember> members, const void* args,
                                 const Stream& stream, bool any_offset) {
  std::vector<Use> uses;
  for (const FrameMember& member : members) {
    if (!member.is_argument()) continue;
    if (!member.is_list()) {
      add_tensor(uses, value_at<const bp_tensor*>(args, member.offset), member, stream, any_offset);
      continue;
    }
    const auto count = value_at<uint64_t>(args, member.offset - sizeof(uint64_t));
    const auto* const list = value_at<const bp_tensor* const*>(args, member.offset);
    for (uint64_t k = 0; k < count; ++k) add_tensor(uses, list[k], member, stream, any_offset);
  }
  return uses;
}

}  // namespace

std::vector<Use> uses_of_frame(uint32_t op, const void* args, const Stream& stream) {
  return uses_of_members(frame_members(op), args, stream, op == BP_OP_COPY);
}

std::vector<Use> uses_of_frame(const bp_op_desc& op, const void* args, const Stream& stream) {
  return uses_of_members(frame_members(op), args, stream, false);
}

void add_use(std::vector<Use>& uses, const bp_buffer_ref& range, const Stream& stream,
             const char* what) {
  if (range.buffer == nullptr) return;
  const Buffer& b = local_buffer(range.buffer, stream, what);
  const std::string subject = std::string("launch: ") + what;
  if (!is_inside(range, b.size_bytes)) refuse_range(range, b.size_bytes, subject);
  if (range.byte_offset % kWorkspaceAlignmentBytes != 0) {
    refuse(BP_INVALID_ARGUMENT, subject + ": byte_offset is " + std::to_string(range.byte_offset) +
                                    ", no multiple of " + std::to_string(kWorkspaceAlignmentBytes));
  }
  b.memory->check(subject, b.first_byte + range.byte_offset, range.size_bytes, Access::kWrite);
  uses.push_back(b.use(range.byte_offset, range.size_bytes, Access::kWrite));
}

}  // namespace bp::sim
