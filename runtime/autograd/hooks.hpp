// Functions that the engine calls when the gradient of a leaf is complete.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/autograd/node.hpp"

namespace bp::detail {

struct GradHooks {
  std::vector<std::pair<uint64_t, std::function<void(const Tensor&)>>> calls;  // By id.
};

void delete_hooks(GradHooks* hooks) noexcept;

// Returns whether any leaf of the process has a hook. Only then a run walks its graph first.
bool has_hooks() noexcept;

// Calls the hooks of `leaf`, if it has any.
void call_hooks(TensorImpl& leaf);

// The leaves that some results depend on, each with the number of the earliest node that uses it.
// This node is the last one that can send a gradient to the leaf.
using LeafUses = std::unordered_map<const TensorImpl*, uint64_t>;

// Walks the graph of `outputs`. An output that is a leaf itself has the number of the leaf.
LeafUses find_leaf_uses(std::span<const Tensor> outputs);

}  // namespace bp::detail
