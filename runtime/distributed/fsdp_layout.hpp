// Where a FullyShardedDataParallel has its parameters.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "backplane/runtime/distributed/fsdp.hpp"

namespace bp::distributed {

struct FullyShardedDataParallel::Layout {
  struct Place {
    size_t unit, index;  // The index is that within the unit.
  };
  std::vector<Place> places;                          // In the order of module().parameters().
  std::vector<std::pair<std::string, size_t>> names;  // All names, with places.

  // Returns the number of each parameter of a unit.
  std::vector<size_t> members_of(size_t unit, size_t count) const {
    std::vector<size_t> members(count);
    for (size_t i = 0; i < places.size(); ++i) {
      if (places[i].unit == unit) members[places[i].index] = i;
    }
    return members;
  }
};

}  // namespace bp::distributed
