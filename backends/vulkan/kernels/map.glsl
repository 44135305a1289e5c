// Computes y = op(a, b, c) for each element of map.comp and map_bound.comp, in the type for which
// the shader is compiled.
#if defined(COMPUTE_F32)
#include "math.glsl"
#elif defined(COMPUTE_F64)
#include "math64.glsl"
#endif

#define BP_MAP_OP(name, number) const uint name = number;
#define BP_MAP_LONG_OP(name, number) const uint name = number;
#include "map_ops.def"
#include "elementwise_ops.def"
#undef BP_MAP_OP
#undef BP_MAP_LONG_OP

layout(constant_id = 1) const uint kOp = 0;
layout(constant_id = 2) const uint kOperands = 2;  // Includes the result, operand 0.
layout(constant_id = 3) const uint kRank = 1;      // It is 0 if dense.
layout(constant_id = 4) const uint kUniform = 0;   // If bit k is set, operand k repeats one
                                                   // element.
layout(constant_id = 5) const uint kType0 = 14;
layout(constant_id = 6) const uint kType1 = 14;
layout(constant_id = 7) const uint kType2 = 14;
layout(constant_id = 8) const uint kType3 = 14;

// Whether the code of the op is long, so that eight copies of it would take the driver long.
#define BP_MAP_OP(name, number)
#define BP_MAP_LONG_OP(name, number) || kOp == number
const bool kIsLong = false
#include "elementwise_ops.def"
    ;

const uint kGroup = 8u;  // The elements of an invocation if all operands are dense.

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
#elif defined(COMPUTE_F64)
// This sets SignedZeroInfNanPreserve for floats of 64 bits.
spirv_execution_mode(extensions = ["SPV_KHR_float_controls"], capabilities = [4466], 4461, 64);
#define VALUE double
#define BITS uint64_t
VALUE decode(uint type, BITS bits) { return packDouble2x32(unpackUint2x32(bits)); }
BITS encode(uint type, VALUE value) {
  if (type == BP_BOOL) return value != 0.0 ? 1ul : 0ul;
  return packUint2x32(unpackDouble2x32(value));
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
#endif
#include "primitives.glsl"

VALUE apply(VALUE a, VALUE b, VALUE c) {
  switch (kOp) {
#if defined(COMPUTE_F32)
    case kMapGelu:
      return gelu_f32(a);
    case kMapGeluBackward:
      return a * gelu_derivative(b);
    case kMapGeluTanh:
      return gelu_tanh_f32(a);
    case kMapGeluTanhBackward:
      return a * gelu_tanh_derivative(b);
#include "elementwise_f32.glsl"
#elif defined(COMPUTE_F64)
#include "elementwise_f64.glsl"
#else
    case kMapWhere:
      return a != VALUE(0) ? b : c;
#include "elementwise_integers.glsl"
#endif
  }
  return a;
}
