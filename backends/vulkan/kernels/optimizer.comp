#version 460
#extension GL_GOOGLE_include_directive : require
// The optimizer steps, foreach_scale and scale_and_check_finite on one tensor of their lists. There
// is one invocation for each element.
//
// If the step is in the call, the host computes the bias corrections. If the step is in a tensor, one
// invocation of each workgroup computes them, with the same integers (bias_correction.glsl), so that
// a captured step has the bits of an eager one.
#include "prelude.glsl"
#include "element.glsl"
#include "axes.glsl"
#include "bias_correction.glsl"

layout(constant_id = 1) const uint kOp = 0;
layout(constant_id = 2) const uint kType = 14;
layout(constant_id = 3) const uint kRank = 1;
layout(constant_id = 4) const uint kHasBuffer = 0;
layout(constant_id = 5) const uint kNesterov = 0;

const uint kSgd = 0u, kAdamw = 1u, kScaleAndCheck = 2u, kAdam = 3u, kLion = 4u, kScale = 5u;
const bool kIsAdam = kOp == kAdam || kOp == kAdamw;

BP_RECORD {
  uint64_t param, grad, first, second;  // The buffers of the op.
  uint64_t found;
  uint64_t lr_address, step_address;  // If 0, the value is here.
  uint64_t count;
  int64_t step;
  float lr;
  float momentum, kept_of_grad, weight_decay;  // kept_of_grad is 1 - dampening.
  float beta1, rest1, beta2, rest2;            // The rests are 1 - beta.
  float correction1, correction2;              // They are 1 - beta^step.
  float eps;
  uint reserved;                   // 0: the fractions begin at 8 bytes.
  uint64_t fraction1, fraction2;   // They are beta * 2^64.
  uint extents[8];
  int64_t strides[4][8];  // In bytes, the innermost axis first.
} BP_RECORD_NAME;

// Returns the f32 nearest to the f64 at an address. It works on bits, so that it needs no f64
// arithmetic.
float load_f64_as_f32(uint64_t address) {
  const uint64_t bits = Bytes8(address).value;
  const uint sign = uint(bits >> 32) & 0x80000000u;
  const int exponent = int(uint(bits >> 52) & 0x7ffu) - 1023;
  const uint64_t fraction = bits & 0xffffffffffffful;
  if (exponent == 1024) {
    return uintBitsToFloat(sign | (fraction == 0ul ? 0x7f800000u : 0x7fc00000u));
  }
  if (exponent < -150) return uintBitsToFloat(sign);
  if (exponent > 127) return uintBitsToFloat(sign | 0x7f800000u);
  // The significand of 53 bits is rounded to 24 bits, or to fewer if the result is subnormal.
  const uint64_t significand = fraction | 0x10000000000000ul;
  const uint drop = exponent >= -126 ? 29u : uint(29 - 126 - exponent);
  const uint64_t half_way = 1ul << uint64_t(drop - 1u);
  const uint64_t rest = significand & ((1ul << uint64_t(drop)) - 1ul);
  uint kept = uint(significand >> uint64_t(drop));
  if (rest > half_way || (rest == half_way && (kept & 1u) != 0u)) ++kept;
  const uint base = exponent >= -126 ? uint(exponent + 126) << 23 : 0u;
  return uintBitsToFloat(sign | (base + kept));
}

// The bias corrections of a step that is in a tensor.
shared float shared_corrections[2];

void share_corrections() {
  if (gl_LocalInvocationID.x == 0u) {
    const uint64_t step = Bytes8(record.step_address).value;
    shared_corrections[0] = correction_of(record.fraction1, step);
    shared_corrections[1] = correction_of(record.fraction2, step);
  }
  barrier();
}

void run_sgd(uint64_t at[4]) {
  float lr = record.lr;
  int64_t step = record.step;
  if (record.lr_address != 0ul) lr = load_f64_as_f32(record.lr_address);
  if (record.step_address != 0ul) step = int64_t(Bytes8(record.step_address).value);
  const float param = load_f32(kType, at[0]);
  float grad = load_f32(kType, at[1]);
  grad += record.weight_decay * param;
  if (kHasBuffer != 0u) {
    float buffered = grad;
    if (step != 1l) {
      buffered = record.momentum * load_f32(kType, at[2]) + record.kept_of_grad * grad;
    }
    store_f32(kType, at[2], buffered);
    grad = kNesterov != 0u ? grad + record.momentum * buffered : buffered;
  }
  store_f32(kType, at[0], param - lr * grad);
}

// The weight decay of adamw_step acts on the parameter, that of adam_step on the gradient.
void run_adam(uint64_t at[4]) {
  float lr = record.lr, correction1 = record.correction1, correction2 = record.correction2;
  if (record.lr_address != 0ul) lr = load_f64_as_f32(record.lr_address);
  if (record.step_address != 0ul) {
    correction1 = shared_corrections[0];
    correction2 = shared_corrections[1];
  }
  float param = load_f32(kType, at[0]);
  float grad = load_f32(kType, at[1]);
  if (kOp == kAdamw) {
    param -= lr * record.weight_decay * param;
  } else {
    grad += record.weight_decay * param;
  }
  const float average = record.beta1 * load_f32(kType, at[2]) + record.rest1 * grad;
  const float squares = record.beta2 * load_f32(kType, at[3]) + record.rest2 * grad * grad;
  store_f32(kType, at[2], average);
  store_f32(kType, at[3], squares);
  const float m = average / correction1, v = squares / correction2;
  store_f32(kType, at[0], param - lr * m / (sqrt(v) + record.eps));
}

void run_lion(uint64_t at[4]) {
  float lr = record.lr;
  if (record.lr_address != 0ul) lr = load_f64_as_f32(record.lr_address);
  const float param = load_f32(kType, at[0]);
  const float grad = load_f32(kType, at[1]), average = load_f32(kType, at[2]);
  const float mixed = record.beta1 * average + record.rest1 * grad;
  const float direction = mixed > 0.0 ? 1.0 : mixed < 0.0 ? -1.0 : mixed;  // Of NaN it is NaN.
  store_f32(kType, at[0], param - lr * (direction + record.weight_decay * param));
  store_f32(kType, at[2], record.beta2 * average + record.rest2 * grad);
}

void run_scale(uint64_t at[4]) {
  float scale = record.lr;
  if (record.lr_address != 0ul) scale = load_f64_as_f32(record.lr_address);
  const float before = load_f32(kType, at[0]);
  const uint after = encode_f32(kType, before * scale);
  store_bits(size_of(kType), at[0], after);
  if (kOp == kScale) return;
  const float rounded = decode_f32(kType, after);
  // Every invocation that finds such an element writes the same value.
  if (!(abs(before) < infinity()) || !(abs(rounded) < infinity())) {
    Float32(record.found).value = 1.0;
  }
}

void main() {
  if (kIsAdam && record.step_address != 0ul) share_corrections();
  const uint i = group_number() * kLocalSize + gl_LocalInvocationID.x;
  if (uint64_t(i) >= record.count) return;
  uint64_t at[4];
  at[0] = record.param + offset_of(i, kRank, record.extents, record.strides[0]);
  if (kOp == kScale || kOp == kScaleAndCheck) {
    run_scale(at);
    return;
  }
  at[1] = record.grad + offset_of(i, kRank, record.extents, record.strides[1]);
  at[2] = record.first + offset_of(i, kRank, record.extents, record.strides[2]);
  at[3] = record.second + offset_of(i, kRank, record.extents, record.strides[3]);
  if (kOp == kSgd) {
    run_sgd(at);
  } else if (kOp == kLion) {
    run_lion(at);
  } else {
    run_adam(at);
  }
}
