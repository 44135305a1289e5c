// What map.comp and map_bound.comp compute for each element: y = op(a, b, c) in the type that the
// shader is compiled for.
#if defined(COMPUTE_F32)
#include "math.glsl"
#elif defined(COMPUTE_F64)
#include "math64.glsl"
#endif

#define BP_MAP_OP(name, number) const uint name = number;
#include "map_ops.def"

layout(constant_id = 1) const uint kOp = 0;
layout(constant_id = 2) const uint kOperands = 2;  // With the result, which is operand 0.
layout(constant_id = 3) const uint kRank = 1;      // 0: dense.
layout(constant_id = 4) const uint kUniform = 0;   // Bit k: operand k repeats one element.
layout(constant_id = 5) const uint kType0 = 14;
layout(constant_id = 6) const uint kType1 = 14;
layout(constant_id = 7) const uint kType2 = 14;
layout(constant_id = 8) const uint kType3 = 14;

const uint kGroup = 8u;  // Elements of an invocation where all operands are dense.

uint type_of(uint operand) {
  if (operand == 0u) return kType0;
  if (operand == 1u) return kType1;
  return operand == 2u ? kType2 : kType3;
}

bool is_uniform(uint operand) { return (kUniform >> operand & 1u) != 0u; }

#if defined(COMPUTE_F32)
#define VALUE float
#define BITS uint
VALUE decode(uint type, BITS bits) { return decode_f32(type, bits); }
BITS encode(uint type, VALUE value) { return encode_f32(type, value); }

VALUE apply(VALUE a, VALUE b, VALUE c) {
  switch (kOp) {
    case kMapNeg:
      return uintBitsToFloat(floatBitsToUint(a) ^ 0x80000000u);
    case kMapAbs:
      return uintBitsToFloat(floatBitsToUint(a) & 0x7fffffffu);
    case kMapRelu:
      return a < 0.0 ? 0.0 : a;  // NaN stays.
    case kMapReluBackward:
      return b > 0.0 ? a : 0.0;
    case kMapExp:
      return exp_f32(a);
    case kMapLog:
      return log_f32(a);
    case kMapSqrt:
      return sqrt(a);
    case kMapTanh:
      return tanh_f32(a);
    case kMapTanhBackward: {
      precise const float square = b * b;
      return a * (1.0 - square);
    }
    case kMapSigmoid:
      return sigmoid_f32(a);
    case kMapSigmoidBackward:
      return a * b * (1.0 - b);
    case kMapGelu:
      return gelu_f32(a);
    case kMapGeluBackward:
      return a * gelu_derivative(b);
    case kMapGeluTanh:
      return gelu_tanh_f32(a);
    case kMapGeluTanhBackward:
      return a * gelu_tanh_derivative(b);
    case kMapSilu:
      return silu_f32(a);
    case kMapSiluBackward:
      return a * silu_derivative(b);
    case kMapAdd:
      return a + b;
    case kMapSub:
      return a - b;
    case kMapMul:
      return a * b;
    case kMapDiv:
      return a / b;
    case kMapMaximum:
      return is_nan(b) ? b : (a < b ? b : a);
    case kMapMinimum:
      return is_nan(b) ? b : (b < a ? b : a);
    case kMapEq:
      return a == b ? 1.0 : 0.0;
    case kMapLt:
      return a < b ? 1.0 : 0.0;
  }
  return a;
}

#elif defined(COMPUTE_F64)
// SignedZeroInfNanPreserve for floats of 64 bits.
spirv_execution_mode(extensions = ["SPV_KHR_float_controls"], capabilities = [4466], 4461, 64);
#define VALUE double
#define BITS uint64_t
VALUE decode(uint type, BITS bits) { return packDouble2x32(unpackUint2x32(bits)); }
BITS encode(uint type, VALUE value) {
  if (type == BP_BOOL) return value != 0.0 ? 1ul : 0ul;
  return packUint2x32(unpackDouble2x32(value));
}

VALUE apply(VALUE a, VALUE b, VALUE c) {
  switch (kOp) {
    case kMapNeg:
      return -a;
    case kMapAbs:
      return abs(a);
    case kMapRelu:
      return a < 0.0lf ? 0.0lf : a;
    case kMapReluBackward:
      return b > 0.0lf ? a : 0.0lf;
    case kMapExp:
      return exp_f64(a);
    case kMapLog:
      return log_f64(a);
    case kMapSqrt:
      return sqrt(a);
    case kMapAdd:
      return a + b;
    case kMapSub:
      return a - b;
    case kMapMul:
      return a * b;
    case kMapDiv:
      return a / b;
    case kMapMaximum:
      return is_nan(b) ? b : (a < b ? b : a);
    case kMapMinimum:
      return is_nan(b) ? b : (b < a ? b : a);
    case kMapEq:
      return a == b ? 1.0lf : 0.0lf;
    case kMapLt:
      return a < b ? 1.0lf : 0.0lf;
  }
  return a;
}

#else
#if defined(COMPUTE_I32)
#define VALUE int
#define BITS uint
VALUE decode(uint type, BITS bits) { return decode_i32(type, bits); }
BITS encode(uint type, VALUE value) { return encode_i32(type, value); }
#else
#define VALUE int64_t
#define BITS uint64_t
VALUE decode(uint type, BITS bits) { return decode_i64(type, bits); }
BITS encode(uint type, VALUE value) { return encode_i64(type, value); }
#endif

VALUE apply(VALUE a, VALUE b, VALUE c) {
  switch (kOp) {
    case kMapNeg:
      return -a;
    case kMapAbs:
      return a < VALUE(0) ? -a : a;
    case kMapAdd:
      return a + b;
    case kMapSub:
      return a - b;
    case kMapMul:
      return a * b;
    case kMapMaximum:
      return a < b ? b : a;
    case kMapMinimum:
      return b < a ? b : a;
    case kMapEq:
      return VALUE(a == b ? 1 : 0);
    case kMapLt:
      return VALUE(a < b ? 1 : 0);
    case kMapWhere:
      return a != VALUE(0) ? b : c;
  }
  return a;
}
#endif
