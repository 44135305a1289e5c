#include "backends/sim/frame.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
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

// The kinds of ops.def.
enum class Kind : uint8_t {
  tensor,
  tensor_opt,
  operand,
  scalar_tensor,
  out,
  out_opt,
  inout,
  tensor_list,
  out_list,
  inout_list,
  i32,
  i64,
  u64,
  f64,
  i64_list,
  dtype,
  enumeration,
};

constexpr bool is_list(Kind kind) { return kind >= Kind::tensor_list && kind <= Kind::inout_list; }
constexpr bool is_tensor(Kind kind) { return kind <= Kind::inout_list; }
constexpr bool is_written(Kind kind) {
  return (kind >= Kind::out && kind <= Kind::inout) || kind == Kind::out_list ||
         kind == Kind::inout_list;
}

struct Member {
  uint32_t op;      // The op in its first row; 0 in the rows of its members.
  uint32_t offset;  // The offset of the pointer. A list's count is 8 bytes before.
  Kind kind;
  const char* name;
};

constexpr Member kMembers[] = {
#define BP_OP(id, name, version, profile, core_or_decomposable, numerics) {id, 0, Kind::i32, #name},
#define BP_ARG(op, member, kind, dtype_rule) \
  {0, offsetof(bp_##op##_args, member), Kind::kind, #member},
#include "backplane/ops.def"
#undef BP_OP
#undef BP_ARG
};

// Returns the rows of the members of `op`.
std::span<const Member> members_of(uint32_t op) {
  const auto* const row =
      std::ranges::find_if(kMembers, [&](const Member& m) { return m.op == op; });
  if (row == std::end(kMembers)) refuse(BP_UNSUPPORTED, "launch: the op is not known");
  return {row + 1,
          std::find_if(row + 1, std::end(kMembers), [](const Member& m) { return m.op != 0; })};
}

template <typename T>
T value_at(const void* args, uint32_t offset) {
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

void add_tensor(std::vector<Use>& uses, const bp_tensor* t, const Member& member,
                const Stream& stream) {
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
  if (first_address % alignment != 0) {
    refuse(BP_INVALID_ARGUMENT, "launch: " + what + ": byte_offset is " +
                                    std::to_string(t->byte_offset) + ", no multiple of " +
                                    std::to_string(alignment) + ", which the heap asks for");
  }
  const Extent extent = extent_in_buffer(*t, b.size_bytes, ("launch: " + what).c_str());
  const auto begin = static_cast<uint64_t>(extent.begin);
  const auto size_bytes = static_cast<uint64_t>(extent.end - extent.begin);
  const Access access = is_written(member.kind) ? Access::kWrite : Access::kRead;
  b.memory->check("launch: " + what, b.first_byte + begin, size_bytes, access);
  uses.push_back(b.use(begin, size_bytes, access));
}

}  // namespace

std::vector<Use> uses_of_frame(uint32_t op, const void* args, const Stream& stream) {
  std::vector<Use> uses;
  for (const Member& member : members_of(op)) {
    if (!is_tensor(member.kind)) continue;
    if (!is_list(member.kind)) {
      add_tensor(uses, value_at<const bp_tensor*>(args, member.offset), member, stream);
      continue;
    }
    const auto count = value_at<uint64_t>(args, member.offset - uint32_t{sizeof(uint64_t)});
    const auto* const list = value_at<const bp_tensor* const*>(args, member.offset);
    for (uint64_t k = 0; k < count; ++k) add_tensor(uses, list[k], member, stream);
  }
  return uses;
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
