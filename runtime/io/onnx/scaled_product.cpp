#include "runtime/io/onnx/scaled_product.hpp"

#include "backplane/ops.h"
#include "backplane/runtime/ops.hpp"
#include "runtime/tensor/tensor_impl.hpp"

namespace bp::onnx {
namespace {

// The factors as matmul_scaled takes them: b is (n, k). An `a` of floats has no scale.
struct Factors {
  Tensor a, a_scale, a_zero, b, b_scale, b_zero;
};

// Only a constant is turned around: else it would be in each run. Elements that share a byte stay
// where they are.
bool is_usable(const Quantized& b, bool is_b_transposed) {
  if (b.codes.ndim() != 2) return false;
  return is_b_transposed || (b.forms != nullptr && b.codes.element_bits() >= 8);
}

const bp_tensor* given(const Tensor& tensor) { return tensor ? tensor.get() : nullptr; }

bool has_native_kernel(const Factors& f, Device device) {
  std::vector<int64_t> shape = f.a.shape().to_vector();
  shape.back() = f.b.shape(0);
  const Tensor y = detail::make_absent(device.target(), BP_F32, shape);
  const bp_matmul_scaled_args args{.struct_size = sizeof(args),
                                   .a = f.a.get(),
                                   .b = f.b.get(),
                                   .b_scale = f.b_scale.get(),
                                   .a_scale = given(f.a_scale),
                                   .b_zero = given(f.b_zero),
                                   .y = y.get(),
                                   .a_zero = given(f.a_zero)};
  bp_op_output output{};
  uint32_t count = 0;
  bp_kernel_choice choice{};
  return bp_op_infer(BP_OP_MATMUL_SCALED, &args, 1, &output, &count) == BP_OK &&
         bp_kernel_find(&device.target(), 0, BP_KERNEL_NATIVE, BP_OP_MATMUL_SCALED, &args,
                        &choice) == BP_OK;
}

Factors make_factors(const Quantized& b, bool is_b_transposed, Device device) {
  const auto turned = [&](const Tensor& x) {
    return x && !is_b_transposed ? x.transpose().contiguous() : x;
  };
  Factors f;
  f.b = is_b_transposed ? b.codes
                        : detail::make_absent(device.target(), b.codes.dtype(),
                                              {b.codes.shape(1), b.codes.shape(0)});
  f.b_scale = turned(b.scale);
  f.b_zero = turned(b.zero);
  return f;
}

}  // namespace

Tensor scaled_product(const Value& a, const Value& b, bool is_b_transposed, Device device) {
  const Quantized* const weight = b.quantized();
  if (weight == nullptr || !is_usable(*weight, is_b_transposed)) return Tensor();
  if (a.dtype() != BP_F32 || a.shape().empty()) return Tensor();
  Factors f = make_factors(*weight, is_b_transposed, device);
  bool has_kernel = false;
  if (const Quantized* const x = a.quantized()) {
    f.a = x->codes;
    f.a_scale = x->scale;
    f.a_zero = x->zero;
    has_kernel = has_native_kernel(f, device);
  }
  if (!has_kernel) {
    f.a = a.on(device);
    f.a_scale = f.a_zero = Tensor();
    if (!has_native_kernel(f, device)) return Tensor();
  }
  if (!is_b_transposed) f.b = weight->forms->transposed(weight->codes);
  return matmul_scaled(f.a, f.b, f.b_scale, f.a_scale, f.b_zero, BP_F32, f.a_zero);
}

}  // namespace bp::onnx
