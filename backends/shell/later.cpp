#include "backplane/shell/later.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "backplane/ops.h"
#include "backplane/shell/op_ids.hpp"

namespace bp {
namespace {

// The last value of an enumeration that this build knows.
struct LastValue {
  uint32_t op;
  size_t offset;
  const char* member;
  uint32_t value;
};

constexpr LastValue kLastValues[] = {
#define BP_OP(id, name, since, profile, core_or_decomposable, numerics)
#define BP_ARG(op, member, kind, dtype_rule)
#define BP_LAST_VALUE(op, member, value) \
  {kOp_##op, offsetof(bp_##op##_args, member), #member, value},
#include "backplane/ops.def"
#undef BP_OP
#undef BP_ARG
};

// A value that came later than its enumeration. The first row stands for none, since an array
// cannot be empty.
struct LaterValue {
  uint32_t op;
  size_t offset;
  const char *member, *name;
  uint32_t value, revision;
};

constexpr LaterValue kLaterValues[] = {
    {0, 0, "", "", 0, 0},
#define BP_OP(id, name, since, profile, core_or_decomposable, numerics)
#define BP_ARG(op, member, kind, dtype_rule)
#define BP_VALUE_SINCE(op, member, name, value, revision) \
  {kOp_##op, offsetof(bp_##op##_args, member), #member, #name, value, revision},
#include "backplane/ops.def"
#undef BP_OP
#undef BP_ARG
};

uint32_t word_at(const OwnedFrame& frame, size_t offset) {
  uint32_t word = 0;
  std::memcpy(&word, static_cast<const std::byte*>(frame.data()) + offset, sizeof(word));
  return word;
}

uint32_t size_of(const OwnedFrame& frame) { return word_at(frame, 0); }

// Returns the description that the host has of the op, or NULL.
const bp_op_desc* described(const bp_host& host, uint32_t op) {
  const bp_op_desc* desc = nullptr;
  if (host.op_describe == nullptr || host.op_describe(host.self, op, &desc) != BP_OK) {
    return nullptr;
  }
  return desc;
}

const bp_op_argument& argument_at(const bp_op_desc& desc, uint64_t i) {
  return *reinterpret_cast<const bp_op_argument*>(
      reinterpret_cast<const std::byte*>(desc.arguments) + i * desc.argument_stride_bytes);
}

bool is_list(bp_argument_kind kind) {
  return kind == BP_ARGUMENT_TENSOR_LIST || kind == BP_ARGUMENT_OUT_LIST ||
         kind == BP_ARGUMENT_INOUT_LIST || kind == BP_ARGUMENT_I64_LIST;
}

// Returns the name of the member that has the byte at `offset`, or NULL if nobody knows it. The
// count of a list stands in front of its pointer.
const char* member_name(const bp_host& host, uint32_t op, uint32_t offset) {
  const char* name = nullptr;
  if (offset < frame_size_bytes(op)) {
    for (const FrameMember& m : frame_members(op)) {
      if (m.offset - (m.is_list() ? sizeof(uint64_t) : 0) <= offset) name = m.name;
    }
    return name;
  }
  const bp_op_desc* const desc = described(host, op);
  if (desc == nullptr || offset >= desc->frame_size_bytes) return nullptr;
  for (uint64_t i = 0; i < desc->argument_count; ++i) {
    const bp_op_argument& a = argument_at(*desc, i);
    if (a.offset_bytes - (is_list(a.kind) ? sizeof(uint64_t) : 0) <= offset) name = a.name;
  }
  return name;
}

// Returns a value of an enumeration as the host names it, or as a number.
std::string value_text(const bp_host& host, const LastValue& last, uint32_t value) {
  const bp_op_desc* const desc = described(host, last.op);
  for (uint64_t i = 0; desc != nullptr && i < desc->argument_count; ++i) {
    const bp_op_argument& a = argument_at(*desc, i);
    if (a.offset_bytes != last.offset || a.kind != BP_ARGUMENT_ENUM) continue;
    if (value - a.first_value < a.value_count) return a.value_names[value - a.first_value];
  }
  return std::to_string(value);
}

std::string written_for(const bp_kernel& kernel) {
  return "the kernel was written for revision " + std::to_string(kernel.spec_revision);
}

std::string later_value(const bp_host& host, const bp_kernel& kernel, const OwnedFrame& frame) {
  for (const LastValue& last : kLastValues) {
    if (last.op != frame.op() || last.offset >= size_of(frame)) continue;
    const uint32_t value = word_at(frame, last.offset);
    if (value <= last.value) continue;
    return std::string(last.member) + " is " + value_text(host, last, value) +
           "; this build knows the values up to " + std::to_string(last.value);
  }
  for (const LaterValue& later : kLaterValues) {
    if (later.op != frame.op() || later.revision <= kernel.spec_revision) continue;
    if (later.offset >= size_of(frame) || word_at(frame, later.offset) != later.value) continue;
    return std::string(later.member) + " is " + later.name + ", which revision " +
           std::to_string(later.revision) + " brought; " + written_for(kernel);
  }
  return "";
}

}  // namespace

std::string later_refusal(const bp_host& host, const bp_kernel& kernel, const OwnedFrame& frame) {
  const auto* const bytes = static_cast<const std::byte*>(frame.data());
  const uint32_t size_bytes = size_of(frame);
  const auto* const end = bytes + size_bytes;
  const auto* const given = std::find_if(bytes + std::min(kernel.args_size_bytes, size_bytes), end,
                                         [](std::byte byte) { return byte != std::byte{0}; });
  if (given == end) return later_value(host, kernel, frame);
  const auto offset = static_cast<uint32_t>(given - bytes);
  const char* const name = member_name(host, frame.op(), offset);
  if (name != nullptr) return std::string(name) + " is given; " + written_for(kernel);
  return "byte " + std::to_string(offset) +
         " of the frame is not zero, and this build and its host are too old to know it";
}

}  // namespace bp
