// Turns a frame into words: what a plan depends on, member by member in the order of ops.def.
#pragma once

#include <span>
#include <vector>

#include "registry/calls/call.hpp"

namespace bp::core {

// A member of a frame, as a row of ops.def. The count of a list stands 8 bytes before `offset`, and
// a scalar stands one pointer behind it.
struct FrameMember {
  uint32_t op;  // 0 for a member.
  uint32_t offset;
  Kind kind;
  bool is_tensor;
  const char* name;  // NULL for the row of an op, which opens its members.
};

// Returns all members of the frame of an op, in the order of ops.def.
std::span<const FrameMember> frame_members(const OpRow& op);

// Returns dtype, shape and strides of tensors, and attributes. For the arguments in `constant_args`
// it also has buffer and offset; bit i stands for tensor argument i. `args` is a frame of this
// build.
std::vector<uint64_t> frame_words(const OpRow& row, const void* args, uint64_t constant_args);

struct FrameDifference {
  const char* name = nullptr;  // The member, or NULL if there is none.
  bool is_tensor = false;
  bool is_constant = false;
};

// Returns the first member of `args` that differs from the frame from which `words` were taken.
FrameDifference differing_member(const OpRow& row, const void* args, uint64_t constant_args,
                                 const std::vector<uint64_t>& words);

}  // namespace bp::core
