// Boxes: parts of a tensor that have an offset and an extent along each axis.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace bp::distributed {

struct Box {
  std::vector<int64_t> offsets, extents;

  int64_t count() const;  // Elements.
  auto operator<=>(const Box&) const = default;
};

// Returns the boxes of the elements [begin, end) of a tensor, counted row by row, in their order.
std::vector<Box> boxes_of_range(const std::vector<int64_t>& shape, int64_t begin, int64_t end);

// Returns text like "[0:4, 2:6]".
std::string text_of(const Box& box);

// Returns whether the box lies within the shape, with an offset and an extent for each axis.
bool is_within(const Box& box, const std::vector<int64_t>& shape);

// Returns what both boxes have, if they share an element.
std::optional<Box> overlap_of(const Box& a, const Box& b);

// Returns "" if the boxes, which lie within the shape, have each element exactly once. Otherwise it
// returns what is wrong.
std::string tiling_problem(const std::vector<int64_t>& shape, std::vector<Box> boxes);

// Calls `copy` for each run of elements of `part` that lie behind each other in both boxes, which
// contain it. Places count elements of the boxes, row by row. Places in `from` rise.
using CopyRun = std::function<void(int64_t from, int64_t to, int64_t count)>;
void for_each_run(const Box& from, const Box& to, const Box& part, const CopyRun& copy);

}  // namespace bp::distributed
