// Quantised tensors. A product of integers is exact in f64 or i32, and is rounded once.
#include <utility>

#include "runtime/io/onnx/op_table.hpp"
#include "runtime/io/onnx/quantized.hpp"

namespace bp::onnx {

Tensor centred(const Call& call, size_t i, size_t zero, int64_t axis, bp_dtype dtype) {
  Tensor x = call.input(i).to(dtype);
  if (!call.has(zero)) return x;
  const Tensor point = call.input(zero).to(dtype);
  if (point.numel() == 1) return sub(x, point.reshape({}));
  return sub(x, point.ndim() == x.ndim() ? point : align_axis(point, axis, x.ndim()));
}

Tensor saturated(const Tensor& x, const Tensor& zero, bp_dtype dtype) {
  const bool is_signed = dtype == BP_I8 || dtype == BP_I16 || dtype == BP_I32;
  const int bits = static_cast<int>(bp_dtype_bits(dtype));
  const double low = is_signed ? -static_cast<double>(1LL << (bits - 1)) : 0;
  const double high = low + static_cast<double>((1LL << bits) - 1);
  Tensor y = round(x);
  if (zero) y = add(y, converted(zero, y.dtype()));
  return converted(minimum(maximum(y, low), high), dtype);
}

namespace {

// A scale of one element, or of one for each element of an axis, gets the rank of x. Blocks along
// the axis have a scale of that rank already.
Tensor along(const Call& call, const Tensor& scale, const Tensor& x) {
  if (scale.numel() == 1) {
    return scale.reshape(std::vector<int64_t>(static_cast<size_t>(x.ndim()), 1));
  }
  if (scale.ndim() == x.ndim() && x.ndim() != 1) return scale;
  return align_axis(scale, call.axis(call.integer("axis", 1), x.ndim()), x.ndim());
}

// Gives each element of x the scale or the zero point of its block.
Tensor spread(const Call& call, const Tensor& scale, const Tensor& x) {
  const int64_t size = call.integer("block_size", 0);
  if (size <= 0 || !scale) return scale;
  const int64_t axis = call.axis(call.integer("axis", 1), x.ndim());
  const int64_t extent = x.shape(axis), blocks = extent / size + (extent % size != 0 ? 1 : 0);
  if (scale.shape(axis) != blocks) {
    call.refuse("the scale has " + std::to_string(scale.shape(axis)) + " blocks along axis " +
                std::to_string(axis) + "; allowed: " + std::to_string(blocks));
  }
  return index_select(scale, floor_divide(count_up(extent, x.device()), size), axis);
}

// The ops take blocks of equal size alone, and other operations none at all.
bool has_equal_blocks(const Call& call, const Tensor& x) {
  const int64_t size = call.integer("block_size", 0);
  return size <= 0 || x.shape(call.axis(call.integer("axis", 1), x.ndim())) % size == 0;
}

bool is_quantized(bp_dtype dtype) {
  return dtype == BP_I8 || dtype == BP_U8 || dtype == BP_I4 || dtype == BP_U4 || dtype == BP_I2 ||
         dtype == BP_U2 || dtype == BP_F8E4M3FN || dtype == BP_F8E5M2 || dtype == BP_F4E2M1;
}

bool is_float_code(bp_dtype dtype) {
  return dtype == BP_F8E4M3FN || dtype == BP_F8E5M2 || dtype == BP_F4E2M1;
}

Values quantize_linear(const Call& call) {
  Tensor x = call.input(0);
  if (x.dtype() == BP_I32) x = x.to(BP_F32);
  Tensor scale = along(call, call.input(1), x);
  Tensor zero = call.has(2) ? along(call, call.input(2), x) : Tensor();
  const bp_dtype dtype = zero ? zero.dtype() : call.dtype("output_dtype", BP_U8);
  if (!call.flag("saturate", true)) call.unsupported("saturate is 0");
  if (!is_quantized(dtype) || !has_equal_blocks(call, x)) {
    scale = spread(call, scale, x);
    zero = spread(call, zero, x);
  }
  if (is_quantized(dtype)) {
    return {quantize(x, scale, dtype, is_float_code(dtype) ? Tensor() : zero)};
  }
  return {saturated(div(x, scale), zero, dtype)};
}

// Returns whether the op dequantize takes the scale and the zero point.
bool are_blocks(const Tensor& x, const Tensor& scale, const Tensor& zero) {
  if (scale.ndim() != x.ndim()) return false;
  for (int64_t i = 0; i < x.ndim(); ++i) {
    if (scale.shape(i) < 1 || x.shape(i) % scale.shape(i) != 0) return false;
  }
  return !zero || (zero.dtype() == x.dtype() && zero.shape() == scale.shape());
}

// The elements are not computed before somebody needs them.
Values dequantize_linear(const Call& call) {
  const Tensor x = call.input(0);
  Tensor scale = along(call, call.input(1), x);
  Tensor zero = call.has(2) ? along(call, call.input(2), x) : Tensor();
  const bp_dtype dtype = scale.dtype();
  if (!is_quantized(x.dtype()) || !has_equal_blocks(call, x)) {
    scale = spread(call, scale, x);
    zero = spread(call, zero, x);
  }
  if (is_quantized(x.dtype())) {
    if (is_float_code(x.dtype())) zero = Tensor();
    if (dtype == BP_F32 && are_blocks(x, scale, zero)) {
      return {
          std::make_shared<const Quantized>(Quantized{x, scale, zero, call.value(0).forms(), {}})};
    }
    return {dequantize(x, scale, zero, dtype)};
  }
  Tensor wide = converted(x, BP_F64);
  if (zero) wide = sub(wide, converted(zero, BP_F64));
  return {mul(wide, scale.to(BP_F64)).to(dtype)};
}

// The range of x, which has 0 in it, is divided into 255 steps.
Values dynamic_quantize_linear(const Call& call) {
  const Tensor x = call.input(0);
  const Tensor low = minimum(amin(x, kAllAxes, false), 0);
  const Tensor high = maximum(amax(x), 0);
  const Tensor scale = div(sub(high, low), 255);
  const Tensor zero = saturated(div(neg(low), scale), Tensor(), BP_U8);
  const std::vector<int64_t> ones_of_x(static_cast<size_t>(x.ndim()), 1);
  const Tensor y = quantize(x, scale.reshape(ones_of_x), BP_U8, zero.reshape(ones_of_x));
  return {y, scale, zero};
}

Values matmul_integer(const Call& call) {
  Tensor a = centred(call, 0, 2, -1, BP_I32);
  if (call.has(2) && call.input(2).ndim() == 1 && call.input(2).numel() > 1) {
    const Tensor points = call.input(2).to(BP_I32);
    a = sub(call.input(0).to(BP_I32), points.unsqueeze(1));
  }
  const int64_t columns = call.input(1).ndim() - 1;
  return {matmul_nd(a, centred(call, 1, 3, columns, BP_I32))};
}

// a, its scale and zero point; b, its scale and zero point; the scale and zero point of y.
Values qlinear_matmul(const Call& call) {
  const Tensor a = centred(call, 0, 2, call.input(0).ndim() - 2, BP_F64);
  const Tensor b = centred(call, 3, 5, call.input(3).ndim() - 1, BP_F64);
  Tensor a_scale = call.input(1).to(BP_F64);
  if (a_scale.ndim() == 1 && a_scale.numel() > 1) a_scale = a_scale.unsqueeze(1);
  const Tensor factor = mul(a_scale, call.input(4).to(BP_F64));
  const Tensor real = div(mul(matmul_nd(a, b), factor), call.input(6).to(BP_F64));
  return {saturated(real, call.input(7), call.input(7).dtype())};
}

// From opset 23 on a call may say in which dtype it computes, or what dtype it gives. 0 means that
// the inputs decide it.
Values quantize_with_precision(const Call& call) {
  if (call.integer("precision", 0) != 0) {
    call.unsupported("attribute 'precision' is not 0; the dtype of the scale decides it");
  }
  return quantize_linear(call);
}

Values dequantize_to_dtype(const Call& call) {
  const Tensor y = dequantize_linear(call)[0].on(call.device());
  if (call.integer("output_dtype", 0) == 0) return {y};
  return {converted(y, call.dtype("output_dtype", 0))};
}

constexpr OpRow kRows[] = {
    {"DequantizeLinear", 10, dequantize_linear, "axis block_size", OnnxRoute::kOp},
    {"DequantizeLinear", 23, dequantize_to_dtype, "axis block_size output_dtype", OnnxRoute::kOp},
    {"DynamicQuantizeLinear", 11, dynamic_quantize_linear, ""},
    {"MatMulInteger", 10, matmul_integer, ""},
    {"QLinearMatMul", 10, qlinear_matmul, ""},
    {"QuantizeLinear", 10, quantize_linear, "axis block_size output_dtype saturate",
     OnnxRoute::kOp},
    {"QuantizeLinear", 23, quantize_with_precision,
     "axis block_size output_dtype precision saturate", OnnxRoute::kOp},
};

}  // namespace

std::span<const OpRow> quantization_ops() { return kRows; }

}  // namespace bp::onnx
