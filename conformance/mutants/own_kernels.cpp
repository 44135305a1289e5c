#include "conformance/mutants/own_kernels.hpp"

#include "backplane/ops.h"

namespace bp::mutants {
namespace {

// The combinations of dtypes of the free arguments, row by row.
constexpr bp_dtype kF32[] = {BP_F32};
constexpr bp_dtype kIndex[] = {BP_I64, BP_I32};
constexpr bp_dtype kF32AndIndex[] = {BP_F32, BP_I64, BP_F32, BP_I32};
constexpr bp_dtype kTrials[] = {BP_F32, BP_F32, BP_F32, BP_BOOL};

// Returns a kernel that takes tensors of any strides. Mutants replace its launch.
template <size_t kCount>
constexpr bp_kernel own_kernel(const char* name, uint32_t op, uint32_t args_size_bytes,
                               const bp_dtype (&dtypes)[kCount], uint32_t dtype_count) {
  return {.struct_size = sizeof(bp_kernel),
          .struct_type = BP_STRUCT_KERNEL,
          .name = name,
          .op = op,
          .spec_revision = 4,
          .args_size_bytes = args_size_bytes,
          .priority = INT32_MAX,
          .flags = BP_KERNEL_TAKES_SCALAR,
          .dtype_rows = dtypes,
          .dtype_row_count = static_cast<uint32_t>(kCount) / dtype_count,
          .dtype_count = dtype_count,
          .layouts = BP_LAYOUT_ANY};
}

constexpr bp_kernel kKernels[] = {
    own_kernel("own.index_add", BP_OP_INDEX_ADD, BP_INDEX_ADD_ARGS_SIZE_R4, kF32AndIndex, 2),
    own_kernel("own.index_put", BP_OP_INDEX_PUT, BP_INDEX_PUT_ARGS_SIZE_R4, kF32AndIndex, 2),
    own_kernel("own.norm", BP_OP_NORM, BP_NORM_ARGS_SIZE_R4, kF32, 1),
    own_kernel("own.unfold", BP_OP_UNFOLD, BP_UNFOLD_ARGS_SIZE_R4, kF32, 1),
    own_kernel("own.fold", BP_OP_FOLD, BP_FOLD_ARGS_SIZE_R4, kF32, 1),
    own_kernel("own.instance_norm", BP_OP_INSTANCE_NORM, BP_INSTANCE_NORM_ARGS_SIZE_R4, kF32, 1),
    own_kernel("own.fake_quantize", BP_OP_FAKE_QUANTIZE, BP_FAKE_QUANTIZE_ARGS_SIZE_R4, kF32, 1),
    own_kernel("own.lstm_cell", BP_OP_LSTM_CELL, BP_LSTM_CELL_ARGS_SIZE_R4, kF32, 1),
    own_kernel("own.gru_cell", BP_OP_GRU_CELL, BP_GRU_CELL_ARGS_SIZE_R4, kF32, 1),
    own_kernel("own.rnn_cell", BP_OP_RNN_CELL, BP_RNN_CELL_ARGS_SIZE_R4, kF32, 1),
    own_kernel("own.randint", BP_OP_RANDINT, BP_RANDINT_ARGS_SIZE_R4, kIndex, 1),
    own_kernel("own.bernoulli", BP_OP_BERNOULLI, BP_BERNOULLI_ARGS_SIZE_R4, kTrials, 2),
    own_kernel("own.randperm", BP_OP_RANDPERM, BP_RANDPERM_ARGS_SIZE_R4, kIndex, 1),
    own_kernel("own.multinomial", BP_OP_MULTINOMIAL, BP_MULTINOMIAL_ARGS_SIZE_R4, kF32AndIndex, 2),
};

using Tables = std::span<const Mistake> (*const[3])();
constexpr Tables kRight = {right_moves, right_cells, right_draws};
constexpr Tables kWrong = {wrong_moves, wrong_cells, wrong_draws};

// Returns what computes the op that the strength names, or NULL.
template <const auto& kTables>
const Mistake* computed_by(std::string_view strength) {
  for (const auto& table : kTables) {
    const std::span<const Mistake> rows = table();
    const auto found = std::ranges::find(rows, strength, &Mistake::strength);
    if (found != rows.end()) return &*found;
  }
  return nullptr;
}

template <const auto& kTables>
const bp_kernel* kernel_of(std::string_view strength) {
  const Mistake* const row = computed_by<kTables>(strength);
  if (row == nullptr) return nullptr;
  return std::ranges::find(kKernels, row->op, &bp_kernel::op);
}

// A kernel that the good backend has for the op is replaced too.
template <const auto& kTables>
bool replaces(uint32_t op, std::string_view strength) {
  const Mistake* const row = computed_by<kTables>(strength);
  return row != nullptr && row->op == op;
}

template <const auto& kTables>
bp_status compute(const Call& call, std::string_view strength, const void* args) {
  return computed_by<kTables>(strength)->launch(call, args);
}

template <const auto& kTables>
constexpr Mutant mutant_of(std::string_view id) {
  return {.id = id,
          .ops = {},
          .launch = compute<kTables>,
          .replaces = replaces<kTables>,
          .adds = kernel_of<kTables>};
}

constexpr Mutant kTable[] = {mutant_of<kWrong>("90"), mutant_of<kRight>("benign_own")};

}  // namespace

uint64_t Inputs::word(const bp_tensor* tensor, const bp_scalar& scalar) {
  if (tensor == nullptr) return scalar.bits;
  const Values values(call_, *tensor);
  if (status_ == BP_OK) status_ = values.status();
  return status_ == BP_OK ? values.bits(0) : 0;
}

std::span<const Mutant> own_kernels() { return kTable; }

}  // namespace bp::mutants
