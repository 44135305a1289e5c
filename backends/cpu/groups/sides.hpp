// What ranks give to split(), and the parts that follow from it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace bp::cpu {

// What a rank gives to split(). It has no padding, so processes can send its bytes.
struct Side {
  uint32_t color, key;
};

// Returns the ranks of a color in their order in the part.
inline std::vector<uint32_t> ranks_of_color(const std::vector<Side>& sides, uint32_t color) {
  std::vector<uint32_t> ranks;
  for (uint32_t rank = 0; rank < sides.size(); ++rank) {
    if (sides[rank].color == color) ranks.push_back(rank);
  }
  std::ranges::stable_sort(ranks, {}, [&](uint32_t rank) { return sides[rank].key; });
  return ranks;
}

}  // namespace bp::cpu
