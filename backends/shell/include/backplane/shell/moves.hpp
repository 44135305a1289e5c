// flip, roll, pad and tile as copies of boxes of elements. A backend that copies strided tensors
// can run all four ops with this header.
//
//   flip   x x x x            one box, whose elements x has in the opposite order
//   roll   b b | a a a        two boxes
//   pad    v v | x x x | v    the pad in front, x, and the pad behind it
//   tile   x x x              one box, with an axis for the repetitions on which x does not move
#pragma once

#include <cstdint>
#include <vector>

#include "backplane/ops.h"

namespace bp {

// A box of elements. Element (i, j, ...) of the box lies to_offset + i * to_strides[0] + ...
// elements behind the first element of y. It gets the element of x at the same indices of the other
// strides.
struct Move {
  uint32_t ndim = 0;
  int64_t shape[BP_MAX_RANK] = {};
  int64_t to_strides[BP_MAX_RANK] = {}, from_strides[BP_MAX_RANK] = {};
  int64_t to_offset = 0, from_offset = 0;
  bool is_value = false;  // The elements are the value of the call, and not elements of x.
};

// Returns the boxes, which together have each element of y once. All of them have elements. The
// frames must be valid.
std::vector<Move> moves_of(const bp_flip_args& args);
std::vector<Move> moves_of(const bp_roll_args& args);
std::vector<Move> moves_of(const bp_pad_args& args);
std::vector<Move> moves_of(const bp_tile_args& args);

}  // namespace bp
