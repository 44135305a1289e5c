// A frame as words: what a plan depends on, member by member in the order of ops.def.
#pragma once

#include <span>
#include <vector>

#include "registry/calls/call.hpp"

namespace bp::core {

// A member of a frame, as a row of ops.def. A list's count stands 8 bytes before `offset`, a scalar
// one pointer behind it.
struct FrameMember {
  uint32_t op;  // 0 for members.
  uint32_t offset;
  Kind kind;
  bool is_tensor;
  const char* name;  // NULL: the row of an op, which opens its members.
};

// All members of the frame of an op, in the order of ops.def.
std::span<const FrameMember> frame_members(const OpRow& op);

// dtype, shape and strides of tensors, and attributes; of the arguments in `constant_args` (bit i:
// tensor argument i) buffer and offset too. `args` is a frame of this build.
std::vector<uint64_t> frame_words(const OpRow& row, const void* args, uint64_t constant_args);

struct FrameDifference {
  const char* name = nullptr;  // Of the member; NULL: there is none.
  bool is_tensor = false;
  bool is_constant = false;
};

// The first member of `args` that is not as in the frame from which `words` were taken.
FrameDifference differing_member(const OpRow& row, const void* args, uint64_t constant_args,
                                 const std::vector<uint64_t>& words);

}  // namespace bp::core
