// Checks of states before they are loaded.
#pragma once

#include <string>
#include <vector>

#include "backplane/runtime/safetensors.hpp"

namespace bp::nn {

struct Expected {
  std::string name;
  std::vector<int64_t> shape;
  bp_dtype dtype;
};

// Throws Error that names everything in which `state` and the parameters of a model differ.
void check_state(const std::vector<Expected>& parameters, const TensorMap& state);

}  // namespace bp::nn
