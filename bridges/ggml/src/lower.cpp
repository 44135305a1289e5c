#include "lower.h"

#include <cstring>

namespace bpg {
namespace {

// Writing the result in parts may overwrite an input that a later part reads, if ggml gave the
// result the memory of an input. Such an op is none of those for which ggml does that, or it writes
// its result in one launch.
LowerFn* function_of(ggml_op op) {
  switch (op) {
    case GGML_OP_ADD:
    case GGML_OP_SUB:
    case GGML_OP_MUL:
    case GGML_OP_DIV:
    case GGML_OP_ADD1: return lower_binary;
    case GGML_OP_MUL_MAT: return lower_mul_mat;
    case GGML_OP_CPY:
    case GGML_OP_CONT:
    case GGML_OP_DUP: return lower_copy;
    default: return nullptr;
  }
}

bool is_view_alone(ggml_op op) {
  return op == GGML_OP_NONE || op == GGML_OP_RESHAPE || op == GGML_OP_VIEW ||
         op == GGML_OP_PERMUTE || op == GGML_OP_TRANSPOSE;
}

}  // namespace

void lower(Emitter& e, const ggml_tensor* node) {
  if (is_view_alone(node->op) || ggml_is_empty(node)) return;
  LowerFn* const function = function_of(node->op);
  if (function == nullptr) {
    throw Refusal(std::string(ggml_op_name(node->op)) + " is not mapped");
  }
  function(e, node);
}

float float_param(const ggml_tensor* node, int index) {
  float value;
  std::memcpy(&value, &node->op_params[index], sizeof(value));
  return value;
}

int32_t int_param(const ggml_tensor* node, int index) { return node->op_params[index]; }

}  // namespace bpg
