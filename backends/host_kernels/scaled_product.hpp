// Products with a quantised weight, for matmul_scaled: y = a b^T, where b has codes in blocks of
// its rows.
//
// The codes of b are read as they lie in memory, once for every four rows of a. Each row of a is
// first put into the order in which the codes of a vector come out (scaled_rows.cpp): as i8 if both
// factors are integers, else as f32 or bf16. For more rows of floats, b becomes floats, some
// columns at a time (scaled_panels.cpp), and oneDNN multiplies i8 by i8 (scaled_library.cpp).
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/host_kernels/block_tensor.hpp"
#include "backplane/ops.h"

namespace bp::kernels {

struct ScaledProduct {
  View a, y;  // Their last axes are the depth and the columns.
  bp_dtype a_dtype = 0, b_dtype = 0, y_dtype = 0;
  const std::byte* b = nullptr;
  int64_t b_row_bytes = 0;          // From one row to the next.
  BlockTensor a_scale, b_scale;     // a_scale has no address if a consists of floats.
  BlockTensor a_zero, b_zero;       // Without an address if there are none.
  bool is_integer = false;          // Whether the codes are multiplied as integers.
  bool has_zero = false;            // Of b.
  bool flushes_subnormals = false;  // Whether vdpbf16ps may multiply an a of bf16.
  bool has_zero_of_a = false;       // Of integers as i8, for which those of u8 are lowered by 128.
  int64_t rows = 0, cols = 0, depth = 0;
  int64_t block = 0;  // The elements of a row of b that share a scale.

  bool is_one_block() const { return block == depth; }
};

// Returns the bits by which a signed code differs from the unsigned one that is higher by half the
// range, in every code of a byte.
constexpr uint8_t sign_flip(bp_dtype dtype) {
  return dtype == BP_I8 ? 0x80 : dtype == BP_I4 ? 0x88 : dtype == BP_I2 ? 0xaa : 0;
}

// Returns what is added to a code of b when it is stored without a sign, and to its zero point. In
// products of floats, codes keep their sign.
inline int64_t offset_of_codes(const ScaledProduct& p) {
  return p.is_integer ? -code_format(p.b_dtype).low() : 0;
}

// Reads a frame for which scaled_product_refusal() is NULL.
ScaledProduct scaled_product_of(const bp_matmul_scaled_args& args);

// Does the same without addresses. What is asked before a launch reads no buffer, which may be
// another instance's.
ScaledProduct scaled_shape_of(const bp_matmul_scaled_args& args);

// Returns whether the product of `args` is one of integers.
bool is_integer_product(const bp_matmul_scaled_args& args);

// Returns why run_scaled_rows() does not take the product of `args`, or NULL.
bp_reason scaled_product_refusal(const bp_matmul_scaled_args& args);

// The most terms whose sum of products of i8 is an i32.
constexpr int64_t kMostExactTerms = (1 << 17) - 1;

// Returns whether this processor has vectors that run_scaled_rows() is compiled for.
bool has_scaled_rows();

// Returns whether it has those of scaled_pairs-inl.hpp.
bool has_byte_tables();

// Returns why no loop multiplies the product of `args` by vdpbf16ps, or NULL.
bp_reason scaled_dot_bf16_refusal(const bp_matmul_scaled_args& args);

// Computes y on up to `thread_count` threads. The terms of a block of integers are added up
// exactly.
uint64_t scaled_rows_workspace_size_bytes(const ScaledProduct& p, int thread_count);
void run_scaled_rows(const ScaledProduct& p, std::byte* workspace, int thread_count);

// Computes y from the sums (rows, cols) of the products of i8 or u8 by i8, if there is one block.
// The sums may be in the memory of y. The scales and zero points of the columns are gathered at
// `columns`.
uint64_t scaled_columns_size_bytes(const ScaledProduct& p);
void finish_scaled_sums(const ScaledProduct& p, const int32_t* sums, std::byte* columns,
                        int thread_count);

}  // namespace bp::kernels
