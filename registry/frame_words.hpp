// A frame as words: what a plan depends on, member by member in the order of ops.def.
#pragma once

#include <vector>

#include "registry/call.hpp"

namespace bp::core {

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
