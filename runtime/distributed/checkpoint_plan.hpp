// Which rank writes which piece of a checkpoint. All ranks make the same plan.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backplane/runtime/distributed/pieces.hpp"
#include "backplane/runtime/distributed/process_group.hpp"
#include "runtime/distributed/box.hpp"

namespace bp::distributed {

struct PlannedPiece {
  std::string name;
  bp_dtype dtype;
  std::vector<int64_t> shape;  // Of the whole tensor.
  Box box;
  uint32_t writer;  // A rank that has the piece.
  uint64_t bytes() const;
};

struct Plan {
  std::string id;  // Other than that of any other plan. It is a part of the names of the files.
  std::vector<PlannedPiece> pieces;  // All tensors have one, also those without elements.
  std::vector<PlannedPiece> of(uint32_t rank) const;  // What this rank writes, in their order.
};

Box box_of(const Piece& piece);

// Every rank calls it with its pieces and with the same step. A box that several ranks have goes to
// one of them, so that the ranks write about as many bytes each. Throws on all ranks, with one
// sentence, if pieces do not fit together. `problem` is one that this rank already has, or "".
Plan make_plan(const ProcessGroup& group, int64_t step, const std::vector<Piece>& pieces,
               const std::string& problem);

}  // namespace bp::distributed
