// The names in the states of optimizers, and where states of some parameters of a model belong in
// those of the whole model.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "backplane/runtime/distributed/pieces.hpp"

namespace bp::distributed {

// Splits "exp_avg.3" into "exp_avg" and 3. Returns SIZE_MAX for a name that does not end in a
// number.
std::pair<std::string, size_t> split_state_name(const std::string& name);

// What an entry of a state is.
enum class StateKind { kParameter, kOfParameter, kOfAllParameters, kOther };

// `names` are those of the parameters of the whole model, and the state is of `parameter_count` of
// them.
StateKind state_kind(const std::string& name, IntList shape, const std::vector<std::string>& names,
                     size_t parameter_count);

// Gives pieces of states of the parameters `own`, which are numbers of `names`, the names and
// places that they have in the states of the whole model.
std::vector<Piece> place_state(const std::vector<Piece>& pieces,
                               const std::vector<std::string>& names,
                               const std::vector<size_t>& own);

}  // namespace bp::distributed
