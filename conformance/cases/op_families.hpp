// The lists of op cases, a function per family of the op specification.
#pragma once

#include <span>

#include "conformance/cases/op_case.hpp"

namespace bp::conformance {

using OpCases = std::vector<OpCase>;

struct OpFamily {
  const char* group;  // Of its cases in reports.
  void (*add)(OpCases&);
};
std::span<const OpFamily> op_families();

void add_unary(OpCases& cases);
void add_binary(OpCases& cases);
void add_activation(OpCases& cases);
void add_movement(OpCases& cases);
void add_embedding(OpCases& cases);
void add_selection(OpCases& cases);
void add_sort(OpCases& cases);
void add_reduction(OpCases& cases);
void add_matrix(OpCases& cases);
void add_convolution(OpCases& cases);
void add_pooling(OpCases& cases);
void add_normalization(OpCases& cases);
void add_layer_norm(OpCases& cases);
void add_attention(OpCases& cases);
void add_rope(OpCases& cases);
void add_loss(OpCases& cases);
void add_random(OpCases& cases);
void add_optimizer(OpCases& cases);

}  // namespace bp::conformance
