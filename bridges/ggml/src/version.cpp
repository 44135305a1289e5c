#include "version.h"

#include <cstring>

#include "ggml-backend-impl.h"
#include "ggml-impl.h"
#include "log.h"

#if GGML_BACKEND_API_VERSION != 3
#error "bridges/ggml is written for version 3 of ggml's backend API."
#endif

namespace bpg {
namespace {

struct OpName {
  ggml_op op;
  const char* name;
};

// The first op, the last one, and some between, whose numbers move if ops are put in or taken out.
constexpr OpName kOps[] = {
    {GGML_OP_NONE, "NONE"},       {GGML_OP_ADD, "ADD"},
    {GGML_OP_MUL_MAT, "MUL_MAT"}, {GGML_OP_SET_ROWS, "SET_ROWS"},
    {GGML_OP_ROPE, "ROPE"},       {GGML_OP_FLASH_ATTN_EXT, "FLASH_ATTN_EXT"},
    {GGML_OP_UNARY, "UNARY"},     {GGML_OP_GLU, "GLU"},
};

// ggml puts a header of this size before each tensor, and does not declare it in public.
constexpr size_t kHeaderSize = 32;

std::string told(const std::string& what) {
  return "this library was built for ggml " BACKPLANE_GGML_VERSION ", and " + what +
         ". Build bridges/ggml against the llama.cpp that loads it";
}

}  // namespace

std::string version_problem() {
  const std::string version = ggml_version();
  const std::string expected = BACKPLANE_GGML_VERSION;
  if (version.compare(0, expected.size() + 1, expected + ".") != 0) {
    return told("this program has ggml " + version);
  }
  if (ggml_tensor_overhead() != kHeaderSize + GGML_TENSOR_SIZE) {
    return told("the tensors of this program's ggml " + version + " have another size");
  }
  for (const OpName& row : kOps) {
    if (std::strcmp(ggml_op_name(row.op), row.name) == 0) continue;
    return told("op " + std::to_string(row.op) + " is " + row.name + " there and " +
                ggml_op_name(row.op) + " in this program's ggml " + version);
  }
  return "";
}

int score() {
  const std::string problem = version_problem();
  if (!problem.empty()) log_error(problem);
  return problem.empty() ? 1 : 0;
}

}  // namespace bpg
