#include "backends/host_kernels/scaled_product.hpp"

#include <iterator>

#include "backends/host_kernels/scaled_work.hpp"
#include "kernel_env.hpp"

namespace bp::kernels {
namespace {

// Returns how many elements of a row share an element of `scale`.
int64_t block_of(const bp_tensor& of, const bp_tensor& scale) {
  return of.shape[of.ndim - 1] / scale.shape[of.ndim - 1];
}

// Rows whose codes are read in whole bytes, one after the other.
bool has_whole_rows(const bp_tensor& b) {
  const int64_t bits = code_format(b.dtype).bits;
  return b.strides[1] == 1 && b.shape[1] * bits % 8 == 0 &&
         (b.shape[0] == 1 || b.strides[0] * bits % 8 == 0);
}

// Returns whether the lanes of a vector have one block each, whatever its length.
bool fits_lanes(int64_t block, bp_dtype b_dtype) {
  constexpr int64_t kLeastBlock = 16;
  const int64_t bits = code_format(b_dtype).bits;
  const int64_t most_chunk = kMostLanes * 32 / (bits == 6 ? 8 : bits);
  return block >= kLeastBlock && (block % most_chunk == 0 || most_chunk % block == 0);
}

}  // namespace

bool is_integer_product(const bp_matmul_scaled_args& args) {
  return args.a_scale != nullptr && code_format(args.a->dtype).is_integer() &&
         code_format(args.b->dtype).is_integer() &&
         block_of(*args.a, *args.a_scale) == args.b->shape[1] &&
         block_of(*args.b, *args.b_scale) <= kMostExactTerms;
}

bp_reason scaled_product_refusal(const bp_matmul_scaled_args& args) {
  if (!has_scaled_rows()) return "the processor has no vectors for it";
  const int64_t depth = args.b->shape[1];
  if (depth == 0) return "the depth is 0";
  if (!has_whole_rows(*args.b)) return "the rows of b are not dense, or end within a byte";
  const int64_t block = block_of(*args.b, *args.b_scale);
  if (block != depth && !fits_lanes(block, args.b->dtype)) {
    return "a block of b has neither a whole row nor 16, 32, 64 or a multiple of 256 elements";
  }
  return nullptr;
}

bp_reason scaled_dot_bf16_refusal(const bp_matmul_scaled_args& args) {
  if (!has_byte_tables()) return "the processor has no AVX512_VBMI";
  const CodeFormat format = code_format(args.b->dtype);
  if (format.is_integer() && format.bits == 8) return "b consists of integers of 8 bits";
  return nullptr;
}

ScaledProduct scaled_product_of(const bp_matmul_scaled_args& args) {
  ScaledProduct p;
  p.a = view_of(*args.a);
  p.y = view_of(*args.y);
  p.a_dtype = args.a->dtype;
  p.b_dtype = args.b->dtype;
  p.y_dtype = args.y->dtype;
  p.b = data<std::byte>(*args.b);
  p.b_row_bytes = args.b->strides[0] * code_format(p.b_dtype).bits / 8;
  if (args.a_scale != nullptr) p.a_scale = BlockTensor(*args.a, *args.a_scale, args.a_tensor_scale);
  p.b_scale = BlockTensor(*args.b, *args.b_scale, args.b_tensor_scale);
  if (args.b_zero != nullptr) p.b_zero = BlockTensor(*args.b, *args.b_zero);
  if (args.a_zero != nullptr) p.a_zero = BlockTensor(*args.a, *args.a_zero);
  p.is_integer = is_integer_product(args);
  p.has_zero = args.b_zero != nullptr;
  p.has_zero_of_a = p.is_integer && (args.a_zero != nullptr || p.a_dtype == BP_U8);
  p.cols = args.b->shape[0];
  p.depth = args.b->shape[1];
  p.rows = element_count(*args.a) / p.depth;
  p.block = block_of(*args.b, *args.b_scale);
  return p;
}

ScaledProduct scaled_shape_of(const bp_matmul_scaled_args& args) {
  bp_matmul_scaled_args copy = args;
  const bp_tensor** const operands[] = {&copy.a,
                                        &copy.b,
                                        &copy.b_scale,
                                        &copy.y,
                                        &copy.a_scale,
                                        &copy.b_zero,
                                        &copy.a_zero,
                                        &copy.a_tensor_scale,
                                        &copy.b_tensor_scale};
  bp_tensor without_buffers[std::size(operands)];
  bp_tensor* next = without_buffers;
  for (const bp_tensor** const operand : operands) {
    if (*operand == nullptr) continue;
    *next = **operand;
    next->buffer = nullptr;
    *operand = next++;
  }
  return scaled_product_of(copy);
}

}  // namespace bp::kernels
