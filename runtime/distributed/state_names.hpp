// The names in the states of optimizers.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

namespace bp::distributed {

// Splits "exp_avg.3" into "exp_avg" and 3. Returns SIZE_MAX for a name that does not end in a
// number.
std::pair<std::string, size_t> split_state_name(const std::string& name);

}  // namespace bp::distributed
