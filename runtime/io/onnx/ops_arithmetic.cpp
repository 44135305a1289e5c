// Arithmetic of two or more inputs that broadcast, and bits.
#include "runtime/io/onnx/composed.hpp"
#include "runtime/io/onnx/op_table.hpp"

namespace bp::onnx {
namespace {

using Binary = Tensor (*)(const Operand&, const Operand&);

// Integers wrap, so wide unsigned ones may be computed in i64.
template <Binary kOp>
Values wrapping(const Call& call) {
  const auto [a, b] = operands(call);
  return {converted(kOp(computable(a), computable(b)), a.dtype())};
}

// The quotient of integers is rounded towards zero, so the rest, which has the sign of `a`, goes
// first; then the division has no fraction.
Values divide(const Call& call) {
  const auto [a, b] = operands(call);
  if (is_plain_float(a.dtype())) return {div(a, b)};
  const Tensor x = checked_computable(call, a);
  const Tensor y = checked_computable(call, b);
  return {converted(floor_divide(sub(x, fmod(x, y)), y), a.dtype())};
}

Values modulo(const Call& call) {
  const auto [a, b] = operands(call);
  const bool is_fmod = call.flag("fmod", false);
  constexpr int64_t kFirstOfFloats = 28;  // Before, the rest of floats had the sign of a.
  if (!is_fmod && is_plain_float(a.dtype()) && call.opset() < kFirstOfFloats) {
    call.refuse("the inputs are " + dtype_text(a.dtype()) + ", for which fmod must be 1");
  }
  const Tensor x = checked_computable(call, a);
  const Tensor y = checked_computable(call, b);
  return {converted(is_fmod ? fmod(x, y) : remainder(x, y), a.dtype())};
}

// Squares the base for each bit of the largest exponent. Integers wrap.
Tensor integer_power(Tensor base, Tensor exponent) {
  exponent = exponent.to(BP_I64);
  int64_t rest = exponent.numel() == 0 ? 0 : amax(exponent).item<int64_t>();
  Tensor result = ones({}, base.dtype(), base.device());
  do {  // The first round gives the result the shape of both.
    const Tensor is_set = ne(bitwise_and(exponent, 1), 0);
    result = where(is_set, mul(result, base), result);
    exponent = shift_right(exponent, 1);
    base = mul(base, base);
    rest >>= 1;
  } while (rest > 0);
  return result;
}

bool has_negative(const Tensor& x) {
  return x.numel() > 0 && amin(x, kAllAxes, false).item<int64_t>() < 0;
}

// The result has the dtype of the base.
Values power(const Call& call) {
  const auto [base, exponent] = operands(call);
  const bool is_integer = !is_plain_float(base.dtype());
  if (is_integer && !is_plain_float(exponent.dtype())) {
    const Tensor whole = checked_computable(call, exponent);
    if (!has_negative(whole)) {
      return {converted(integer_power(computable(base), whole), base.dtype())};
    }
  }
  const bool is_wide = is_integer || exponent.dtype() == BP_F64;
  const bp_dtype dtype = is_wide ? bp_dtype{BP_F64} : base.dtype();
  return {converted(pow(converted(base, dtype), converted(exponent, dtype)), base.dtype())};
}

template <Binary kOp>
Tensor fold(const Call& call) {
  const std::vector<Tensor> inputs = call.all_inputs();
  Tensor result = ordered(inputs[0]);
  for (size_t i = 1; i < inputs.size(); ++i) result = kOp(result, ordered(inputs[i]));
  return unordered(result, inputs[0].dtype());
}

template <Binary kOp>
Values folded(const Call& call) {
  return {fold<kOp>(call)};
}

Values mean_of_inputs(const Call& call) {
  return {fold<bp::add>(call) / static_cast<double>(call.input_count())};
}

// A u64 is shifted as a signed number; the copies of its sign are cleared.
Values bit_shift(const Call& call) {
  const auto [a, b] = operands(call);
  const Tensor x = computable(a);
  const Tensor count = computable(b);
  const std::string direction = call.text("direction", "");
  if (direction == "LEFT") return {converted(shift_left(x, count), a.dtype())};
  if (direction != "RIGHT") {
    call.refuse("attribute 'direction' is '" + direction + "'; allowed: LEFT and RIGHT");
  }
  Tensor y = shift_right(x, count);
  if (a.dtype() == BP_U64) {
    const Tensor cleared = shift_left(full({}, -1, BP_I64, a.device()), 64 - count);
    y = bitwise_and(y, bitwise_not(cleared));
  }
  return {converted(y, a.dtype())};
}

constexpr OpRow kRows[] = {
    {"Add", 1, wrapping<bp::add>, "axis broadcast", OnnxRoute::kOp},
    {"BitShift", 11, bit_shift, "direction", OnnxRoute::kOp},
    {"BitwiseAnd", 18, wrapping<bp::bitwise_and>, "", OnnxRoute::kOp},
    {"BitwiseOr", 18, wrapping<bp::bitwise_or>, "", OnnxRoute::kOp},
    {"BitwiseXor", 18, wrapping<bp::bitwise_xor>, "", OnnxRoute::kOp},
    {"Div", 1, divide, "axis broadcast", OnnxRoute::kOp},
    {"Max", 1, folded<bp::maximum>, "", OnnxRoute::kOp},
    {"Mean", 1, mean_of_inputs, ""},
    {"Min", 1, folded<bp::minimum>, "", OnnxRoute::kOp},
    {"Mod", 10, modulo, "fmod", OnnxRoute::kOp},
    {"Mul", 1, wrapping<bp::mul>, "axis broadcast", OnnxRoute::kOp},
    {"Pow", 1, power, "axis broadcast", OnnxRoute::kOp},
    {"Sub", 1, wrapping<bp::sub>, "axis broadcast", OnnxRoute::kOp},
    {"Sum", 1, folded<bp::add>, "", OnnxRoute::kOp},
};

}  // namespace

std::span<const OpRow> arithmetic_ops() { return kRows; }

}  // namespace bp::onnx
