#version 460
#extension GL_GOOGLE_include_directive : require
// The losses between the elements of two tensors.
//
//   each    the loss of each element: an invocation has one
//   parts   the sums of parts of the losses: kLanes invocations share a part
//   total   the sum of the parts, or their mean: one row
//
// The shader is compiled for each type in which it computes.
#include "prelude.glsl"
#include "element.glsl"
#if defined(COMPUTE_F64)
#include "math64.glsl"
#else
#include "math.glsl"
#endif
#include "lanes.glsl"
#include "axes.glsl"
#if defined(COMPUTE_F64)
#include "float64.glsl"
#endif
#include "row_values.glsl"
#define VALUE VALUES
#include "primitives.glsl"

layout(constant_id = 2) const uint kOp = 0;
layout(constant_id = 3) const uint kType = 14;
layout(constant_id = 4) const uint kRank = 1;
layout(constant_id = 5) const uint kPass = 0;
layout(constant_id = 6) const uint kIsMean = 0;

const uint kMse = 552u, kL1 = 553u, kSmoothL1 = 554u, kHuber = 555u, kBce = 556u, kKlDiv = 557u;
const uint kEach = 0u, kParts = 1u, kTotal = 2u;

// Strides are in bytes. A missing tensor is 0.
BP_RECORD {
  uint64_t y, x, target, pos_weight, weight;
  uint64_t parts;         // The sums of parts, as VALUE.
  uint64_t count, part_count, part_size;
  uint64_t width;         // The bits of the width of the parabola, as VALUE.
  uint extents[8];
  int64_t y_strides[8], x_strides[8], target_strides[8], pos_weight_strides[8], weight_strides[8];
} BP_RECORD_NAME;

#if defined(COMPUTE_F64)
const uint kPartType = BP_F64;
VALUE width() { return packDouble2x32(unpackUint2x32(record.width)); }
#else
const uint kPartType = BP_F32;
VALUE width() { return uintBitsToFloat(uint(record.width)); }
#endif

VALUE load(uint64_t address, uint i, int64_t strides[8]) {
  return load_values(1u, kType, address + offset_of(i, kRank, record.extents, strides));
}

// Returns the loss of element i in the formula of two elements.
VALUE loss_of_distance(VALUE x, VALUE target) {
  const VALUE difference = x - target;
  if (kOp == kMse) return difference * difference;
  const VALUE distance = magnitude_of(difference);
  if (kOp == kL1) return distance;
  const VALUE near = smaller_of(distance, width());
  const VALUE rest = distance - near * VALUE(0.5);
  if (kOp == kHuber) return near * rest;
  return near / width() * rest;  // The product comes last, because it could overflow.
}

// -log(sigmoid(x)) and -log(sigmoid(-x)) share log(1 + exp(-|x|)).
VALUE binary_loss(uint i, VALUE x, VALUE target) {
  const VALUE shared_part = log1p_of(exp_of(negative_of(magnitude_of(x))));
  const VALUE of_one = shared_part - smaller_of(x, VALUE(0));
  const VALUE of_zero = shared_part + larger_of(x, VALUE(0));
  VALUE first = target * of_one;
  if (record.pos_weight != 0ul) first *= load(record.pos_weight, i, record.pos_weight_strides);
  const VALUE loss = first + (VALUE(1) - target) * of_zero;
  if (record.weight == 0ul) return loss;
  return loss * load(record.weight, i, record.weight_strides);
}

VALUE loss_at(uint i) {
  const VALUE x = load(record.x, i, record.x_strides);
  const VALUE target = load(record.target, i, record.target_strides);
  if (kOp == kBce) return binary_loss(i, x, target);
  if (kOp == kKlDiv) return is_zero(target) ? VALUE(0) : target * (log_of(target) - x);
  return loss_of_distance(x, target);
}

void run_part(uint number) {
  const bool exists = uint64_t(number) < record.part_count;
  const uint begin = exists ? number * uint(record.part_size) : 0u;
  const uint end = exists ? uint(min(uint64_t(begin) + record.part_size, record.count)) : 0u;
  Sum sum = no_sum();
  for (uint i = begin + lane(); i < end; i += kLanes) take(sum, loss_at(i));
  const VALUE total = sum_lanes(sum_of(sum));
  if (!exists || lane() != 0u) return;
  store_values(kPartType, record.parts + uint64_t(number * size_of(kPartType)), total);
}

void run_total(uint number) {
  const uint end = number == 0u ? uint(record.part_count) : 0u;
  Sum sum = no_sum();
  for (uint i = lane(); i < end; i += kLanes) {
    take(sum, load_values(1u, kPartType, record.parts + uint64_t(i * size_of(kPartType))));
  }
  VALUE total = sum_lanes(sum_of(sum));
  if (number != 0u || lane() != 0u) return;
  if (kIsMean != 0u) {
    // Drivers differ on 0 / 0.
    total = record.count == 0ul ? VALUE(quiet_nan()) : total / VALUE(record.count);
  }
  store_values(kType, record.y, total);
}

void main() {
  if (kPass == kEach) {
    const uint i = group_number() * kLocalSize + gl_LocalInvocationID.x;
    if (uint64_t(i) >= record.count) return;
    const uint64_t to = record.y + offset_of(i, kRank, record.extents, record.y_strides);
    store_values(kType, to, loss_at(i));
  } else if (kPass == kParts) {
    run_part(row_number());
  } else {
    run_total(row_number());
  }
}
