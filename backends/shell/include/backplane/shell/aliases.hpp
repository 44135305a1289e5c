// What a launch of a program does where an input and an output are one memory.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backplane/shell/program.hpp"

namespace bp {

struct AliasUse {
  // The input is overwritten while a node still needs it: the launch copies it first.
  bool copies_input = false;
  std::vector<size_t> idle_nodes;  // They copy the input to the output; empty if it is copied.
};

// Returns what a launch does for an alias. `program` names no extents, and kernels[i] runs its node
// i; without kernels no node is taken to work in place.
AliasUse use_of_alias(const Program& program, std::span<const bp_kernel* const> kernels,
                      const bp_program_alias& alias);

}  // namespace bp
