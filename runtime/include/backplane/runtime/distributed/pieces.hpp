// What of whole tensors lies on a rank, for checkpoints by shard (checkpoint.hpp).
//
// A whole tensor is the one that a single device would have. A piece of it is a box: it has a place
// in the whole tensor, and a tensor with the elements.
//
//   whole (4, 6)      offsets (1, 2), and a tensor of the shape (2, 3)
//   . . . . . .
//   . . x x x .
//   . . x x x .
//   . . . . . .
//
// pieces_of() makes the pieces of a rank that has whole tensors. FullyShardedDataParallel::pieces()
// makes those of shards, and ParallelLayout::place() those of layers that are cut over ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backplane/runtime/safetensors.hpp"

namespace bp::distributed {

struct Piece {
  std::string name;              // Of the whole tensor.
  std::vector<int64_t> shape;    // Of the whole tensor.
  std::vector<int64_t> offsets;  // Where the box begins, an offset for each axis.
  // Its shape has the extents of the box. A tensor of any shape without elements stands for a rank
  // that has nothing of the whole tensor; offsets then mean nothing.
  Tensor tensor;
};

// Returns a piece for each tensor, which is whole. The pieces share the memory of the tensors.
std::vector<Piece> pieces_of(const TensorMap& whole);

// Returns pieces for the elements [begin, end) of a tensor of the shape `shape`, counted row by
// row. `flat` has these elements, and the pieces are views of it. There are at most 2 * axes - 1 of
// them; if the range is empty, there is one without elements.
std::vector<Piece> pieces_of_range(const std::string& name, const std::vector<int64_t>& shape,
                                   int64_t begin, int64_t end, const Tensor& flat);

// Puts `prefix` before all names, and appends the pieces to `to`.
void append_pieces(std::vector<Piece>& to, const std::string& prefix, std::vector<Piece> pieces);

}  // namespace bp::distributed
