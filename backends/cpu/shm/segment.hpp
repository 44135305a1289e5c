// Memory that all ranks of a group share, if their processes run on one machine.
//
// Rank 0 makes an anonymous file, and says in the store of the group which descriptor of which
// process it is. The others open it through /proc, which works for processes of one user on one
// machine. A name with random digits shows that it is the right file. Then all ranks say whether
// they have it. Nothing stays behind when processes end in any way.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "backplane/shell/memory_file.hpp"

namespace bp::shm {

// What a rank of a new group says, and how it reaches the others. All ranks give the same size.
struct SegmentPlan {
  uint32_t rank = 0, world_size = 1;
  uint64_t size_bytes = 0;
  bool is_wanted = true;  // If a rank does not want such memory, no rank gets it.
  // The store of the group. get() waits for what `rank` puts. Both throw StatusError.
  std::function<void(const std::string& key, const std::string& value)> put;
  std::function<std::string(const std::string& key, uint32_t rank)> get;
};

// Returns memory of zeros that all ranks have, or nothing on all ranks if one of them cannot open
// it. Throws what put() and get() throw.
std::unique_ptr<Mapping> share(const SegmentPlan& plan);

}  // namespace bp::shm
