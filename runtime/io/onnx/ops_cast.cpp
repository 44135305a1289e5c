// Conversions between dtypes.
#include "runtime/io/onnx/composed.hpp"
#include "runtime/io/onnx/op_table.hpp"
#include "runtime/tensor/tensor_impl.hpp"

namespace bp::onnx {
namespace {

bool is_f8(bp_dtype dtype) { return dtype == BP_F8E4M3FN || dtype == BP_F8E5M2; }

bool is_packed_integer(bp_dtype dtype) {
  return dtype == BP_I4 || dtype == BP_U4 || dtype == BP_I2 || dtype == BP_U2;
}

// Kernels compute with these dtypes only where they quantise.
bool is_code(bp_dtype dtype) {
  return is_f8(dtype) || dtype == BP_F4E2M1 || is_packed_integer(dtype);
}

// Returns a view of the same bits as elements of another dtype of the same size.
Tensor as_bits(const Tensor& x, bp_dtype dtype) {
  Tensor y = detail::make_alias(x);
  y.impl()->view.dtype = dtype;
  return y;
}

// Returns a scale of 1 for all of `x`.
Tensor no_scale(const Tensor& x) {
  return ones(std::vector<int64_t>(static_cast<size_t>(x.ndim()), 1), BP_F32, x.device());
}

// Puts what a cast gives that does not saturate where `x` is beyond the largest number: NaN, or
// infinity in a dtype that has one. The bounds lie half a step behind the largest numbers, 448 and
// 57344; the first is a tie that goes to the even 448.
Tensor with_overflow(const Tensor& x, const Tensor& y) {
  const bool has_infinity = y.dtype() == BP_F8E5M2;
  const Tensor size = abs(x);
  const Tensor is_over = has_infinity ? ge(size, 61440) : gt(size, 464);
  const int64_t code = has_infinity ? 0x7C : 0x7F;
  const Tensor codes = where(lt(x, 0), scalar_like(double(code | 0x80), as_bits(y, BP_U8)),
                             scalar_like(double(code), as_bits(y, BP_U8)));
  return as_bits(where(is_over, codes, as_bits(y, BP_U8)), y.dtype());
}

// Returns the low bits of whole numbers, as the numbers that a dtype of few bits has for them.
Tensor low_bits(const Tensor& x, bp_dtype dtype) {
  const int64_t most = (int64_t{1} << bp_dtype_bits(dtype)) - 1, sign = (most + 1) / 2;
  const Tensor low = bitwise_and(converted(x, BP_I32), most);
  return dtype == BP_U4 || dtype == BP_U2 ? low : sub(bitwise_xor(low, sign), sign);
}

// The op quantize with a scale of 1 rounds to the nearest number, and saturates. An integer is what
// is left without the fraction, of which it has the low bits.
Tensor encoded(const Call& call, const Tensor& given, bp_dtype dtype) {
  Tensor x = is_packed_integer(dtype) ? low_bits(given, dtype) : given;
  if (x.dtype() != BP_F16 && x.dtype() != BP_BF16) x = converted(x, BP_F32);
  const Tensor y = quantize(x, no_scale(x), dtype);
  return is_f8(dtype) && !call.flag("saturate", true) ? with_overflow(x, y) : y;
}

Value cast_to(const Call& call, bp_dtype dtype) {
  if (call.value(0).dtype() == dtype) return call.value(0);
  Tensor x = call.input(0);
  for (const bp_dtype each : {x.dtype(), dtype}) {
    if (each == BP_F8E4M3FNUZ || each == BP_F8E5M2FNUZ || each == BP_F8E8M0FNU) {
      call.unsupported("no op reads or writes elements of " + dtype_text(each));
    }
  }
  if (is_code(x.dtype())) x = dequantize(x, no_scale(x));
  return is_code(dtype) ? encoded(call, x, dtype) : converted(x, dtype);
}

Values cast(const Call& call) {
  if (!call.has("to")) call.refuse("attribute 'to' is not given");
  return {cast_to(call, call.dtype("to", 0))};
}

Values cast_like(const Call& call) { return {cast_to(call, call.value(1).dtype())}; }

// A bool may have no other bits than 0 and 1, so bytes are compared with 0.
Values bit_cast(const Call& call) {
  if (!call.has("to")) call.refuse("attribute 'to' is not given");
  const bp_dtype dtype = call.dtype("to", 0);
  const Tensor x = call.input(0);
  if (bp_dtype_bits(dtype) != bp_dtype_bits(x.dtype())) {
    call.refuse("the elements of " + dtype_text(x.dtype()) + " and " + dtype_text(dtype) +
                " have different numbers of bits");
  }
  if (dtype == BP_BOOL && x.dtype() != BP_BOOL) return {ne(as_bits(x, BP_U8), 0)};
  return {as_bits(x, dtype)};
}

// round_mode is about f8e8m0fnu, which no op computes with.
constexpr OpRow kRows[] = {
    {"BitCast", 26, bit_cast, "to", OnnxRoute::kView},
    {"Cast", 6, cast, "to saturate", OnnxRoute::kOp},
    {"Cast", 24, cast, "to saturate round_mode", OnnxRoute::kOp},
    {"CastLike", 15, cast_like, "saturate", OnnxRoute::kOp},
    {"CastLike", 24, cast_like, "saturate round_mode", OnnxRoute::kOp},
};

}  // namespace

std::span<const OpRow> cast_ops() { return kRows; }

}  // namespace bp::onnx
