// A program of one node, which is one call of an op.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "backplane/compiler.h"
#include "registry/calls/op_rows.hpp"

namespace bp::core {

// Returns the tensors of a frame in its order, with the tensors of a list one after the other. An
// absent tensor is NULL.
std::vector<const bp_tensor*> tensors_of(const OpRow& row, const void* args);

// Returns the names of these tensors, such as "x" or "xs[1]".
std::vector<std::string> names_of_tensors(const OpRow& row, const void* args);

// Returns, for each tensor, the index of the first tensor that is the same. This is its own index
// if no earlier tensor is the same.
std::vector<uint32_t> originals_of(const std::vector<const bp_tensor*>& tensors);

// A program of one node, and the data that it points to.
class OneNode {
 public:
  OneNode(const OpRow& row, const void* args, const std::vector<const bp_tensor*>& tensors);
  OneNode(const OneNode&) = delete;

  bp_compile_desc desc(bp_launch_flags flags) const;

  // Returns, for each tensor of the program's frame, the inputs first, its place among the tensors
  // of the op.
  std::vector<uint32_t> order() const;

 private:
  void add_values(const OpRow& row, const void* args, const std::vector<const bp_tensor*>& tensors);

  uint32_t add_value(const std::vector<const bp_tensor*>& tensors,
                     const std::vector<uint32_t>& originals, uint32_t k, bool written);

  // Replaces the tensors of the frame by tensors without buffers, in the layouts of their values.
  void put_views(const OpRow& row, const void* args, const std::vector<const bp_tensor*>& tensors);

  std::vector<uint64_t> frame_;
  std::vector<bp_program_value> values_;
  std::vector<uint32_t> tensor_of_;  // The index of a tensor for each value.
  std::vector<uint32_t> value_of_;   // The index of a value for each tensor.
  std::deque<bp_tensor> views_;
  std::vector<const bp_tensor*> pointers_;
  bp_program_node node_{};
  bp_program program_{};
};

}  // namespace bp::core
