// Copies that a compiler puts around nodes whose kernels do not take the layout of a value. A copy
// is a node of the op copy, so a backend whose copy takes a layout on one side has such copies.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "backplane/shell/program.hpp"
#include "backplane/shell/resolved.hpp"

namespace bp {

// How a node can run.
struct NodeChoice {
  std::vector<bool> copied;  // For each tensor, whether the node gets a copy by strides of it.
  std::string reason;        // Why no kernel takes the node; empty if one does.
};

// Returns how a node can run in each of `points`, which are one program at some extents. The values
// are laid out.
NodeChoice choose_for_node(const CompilerBackend& backend, bp_device* device, bp_launch_flags flags,
                           std::span<const Program> points, size_t node);

// Returns the program at its preferred extents; a program with ranges also at the smallest and at
// the largest ones.
std::vector<Program> points_of(const Program& program);

// Returns the program with the copies that its nodes need. Throws StatusError of BP_UNSUPPORTED,
// whose text begins with `call`, if no kernel takes a node of a program with layouts.
Program with_copies(const CompilerBackend& backend, bp_device* device, bp_launch_flags flags,
                    Program program, const std::string& call);

}  // namespace bp
