// Turns a frame into numbers of 64 bits: everything on which a plan depends, member by member in
// the order of ops.def.
#pragma once

#include <span>
#include <vector>

#include "registry/calls/call.hpp"

namespace bp::core {

// A row of ops.def: an op, or a member of its frame. The count of a list is 8 bytes before
// `offset`, and a scalar is 8 bytes after it.
struct FrameMember {
  uint32_t op;  // It is 0 for a member.
  uint32_t offset;
  Kind kind;
  bool is_tensor;
  const char* name;  // It is NULL for the row of an op, which stands before its members.
};

// Returns the offset at which a member begins, the count of a list included.
uint32_t first_byte(const FrameMember& member);

// Returns all members of the frame of an op, in the order of ops.def.
std::span<const FrameMember> frame_members(const OpRow& op);

// Numbers of tensors of a frame, in the order of the frame. The tensors of a list follow each
// other, and an absent tensor counts too.
using TensorNumbers = std::span<const uint32_t>;

// Returns the dtypes, shapes and strides of the tensors, and the attributes, and also the buffers
// and offsets of the tensors whose numbers are in `constant_args`. `args` is a frame of this build.
std::vector<uint64_t> frame_words(const OpRow& row, const void* args, TensorNumbers constant_args);

struct FrameDifference {
  const char* name = nullptr;  // The member, or NULL if there is none.
  bool is_tensor = false;
  bool is_constant = false;
};

// Returns the first member of `args` that differs from the frame from which `words` were taken.
FrameDifference differing_member(const OpRow& row, const void* args, TensorNumbers constant_args,
                                 const std::vector<uint64_t>& words);

}  // namespace bp::core
