#version 460
#extension GL_GOOGLE_include_directive : require
// logcumsumexp along one axis (running.glsl). The shader is compiled for each type in which it
// computes.
#include "prelude.glsl"
#include "element.glsl"
#if defined(COMPUTE_F32)
#include "math.glsl"
#define VALUE float
#else
#include "math64.glsl"
spirv_execution_mode(extensions = ["SPV_KHR_float_controls"], capabilities = [4466], 4461, 64);
#define VALUE double
#endif
#define FIRST VALUE
#define SECOND VALUE
#include "running.glsl"
#include "primitives.glsl"

// A State is the largest element, and the sum of exp(x) over exp(largest).
#if defined(COMPUTE_F32)
VALUE lowest() { return -infinity(); }
VALUE element(uint64_t address) { return load_f32(kType, address); }
void put_element(uint64_t address, VALUE value) { store_f32(kType, address, value); }
#else
VALUE lowest() { return packDouble2x32(uvec2(0u, 0xfff00000u)); }
VALUE element(uint64_t address) {
  return packDouble2x32(unpackUint2x32(Bytes8(address).value));
}
void put_element(uint64_t address, VALUE value) {
  Bytes8(address).value = packUint2x32(unpackDouble2x32(value));
}
#endif

State none() { return State(lowest(), VALUE(0)); }

State load(uint64_t address, uint64_t index) { return State(element(address), VALUE(1)); }

State combine(State a, State b) {
  if (is_nan(a.first)) return a;
  if (is_nan(b.first)) return b;
  const bool is_rising = is_below(a.first, b.first);
  if (!is_rising && !is_below(b.first, a.first)) {  // Both may be infinite.
    return State(a.first, a.second + b.second);
  }
  State high = a, low = b;
  if (is_rising) high = b, low = a;
  return State(high.first, high.second + low.second * exp_of(low.first - high.first));
}

// An infinite element, and NaN, is the result itself.
void store(Line line, uint64_t place, State state) {
  VALUE result = state.first;
  if (is_finite(result)) result += log_of(state.second);
  put_element(moved(line.y, record.y_step, place), result);
}
