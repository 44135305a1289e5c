// Which calls of recorded ranks belong together.
#pragma once

#include <cstddef>
#include <vector>

#include "runtime/simulate/recorded.hpp"

namespace bp::simulate {

// Throws bp::Error if, from step `first` on, a send has no receive, a receive no send, or a
// collective call not the same call of each other rank of its group. It names the ranks, the files
// and the lines.
void check_matches(const std::vector<RecordedRank>& ranks, size_t first);

}  // namespace bp::simulate
