#version 460
#extension GL_GOOGLE_include_directive : require
// softmax and log_softmax along one axis, and their gradients: kLanes invocations share a row.
//
// One pass finds the maximum, so exp() never overflows; a second sums, a third writes. Sums are
// added up in blocks of 64, so that the error grows with the square root of their length.
#include "prelude.glsl"
#include "element.glsl"
#include "math.glsl"
#include "lanes.glsl"
#include "axes.glsl"

layout(constant_id = 2) const uint kOp = 0;
layout(constant_id = 3) const uint kType = 14;
layout(constant_id = 4) const uint kRank = 1;
layout(constant_id = 5) const uint kPairs = 0;  // Neighbours in a row are loaded eight bytes at a time.

const uint kSoftmax = 0u, kLogSoftmax = 1u, kSoftmaxBackward = 2u, kLogSoftmaxBackward = 3u;

// Operands: the result, then x, or grad_y and y.
BP_RECORD {
  uint64_t addresses[3];
  uint64_t row_count;
  uint64_t row_size;
  int64_t steps[3];         // In bytes, along the axis.
  uint extents[8];          // Of the other axes.
  int64_t strides[3][8];
} BP_RECORD_NAME;

// Steps along a row: of one element, or of two that are loaded at once.
const uint kStep = kPairs != 0u ? 2u : 1u;

struct Row {
  uint64_t to, first, second;     // The place of this lane, and how far it is to its next one.
  uint64_t to_step, first_step, second_step;
  uint count;                     // Steps of this lane; 0 behind the last row.
};

vec2 load(uint64_t address) {
  if (kPairs != 0u) return uintBitsToFloat(unpackUint2x32(Bytes8(address).value));
  return vec2(load_f32(kType, address), 0.0);
}

void write(uint64_t address, vec2 value) {
  if (kPairs != 0u) {
    Bytes8(address).value = packUint2x32(floatBitsToUint(value));
  } else {
    store_f32(kType, address, value.x);
  }
}

// What is summed.
vec2 term(Row row, float peak) {
  const vec2 x = load(row.first);
  if (kOp == kSoftmaxBackward) return x * load(row.second);
  if (kOp == kLogSoftmaxBackward) return x;
  return vec2(exp_of_negative(x.x - peak), kPairs != 0u ? exp_of_negative(x.y - peak) : 0.0);
}

float sum_of_row(Row row, float peak) {
  vec2 sum = vec2(0.0), block = vec2(0.0);
  for (uint i = 0u; i < row.count; ++i) {
    block += term(row, peak);
    if ((i & 63u) == 63u) {
      sum += block;
      block = vec2(0.0);
    }
    row.first += row.first_step;
    row.second += row.second_step;
  }
  sum += block;
  return sum_lanes(kPairs != 0u ? sum.x + sum.y : sum.x);
}

float peak_of_row(Row row) {
  vec2 peak = vec2(-infinity());
  for (uint i = 0u; i < row.count; ++i) {
    const vec2 x = load(row.first);
    peak.x = larger_of(peak.x, x.x);
    if (kPairs != 0u) peak.y = larger_of(peak.y, x.y);
    row.first += row.first_step;
  }
  return max_lanes(larger_of(peak.x, peak.y));
}

vec2 result(Row row, float peak, float sum, float log_sum) {
  const vec2 x = load(row.first);
  if (kOp == kSoftmax) {
    return vec2(exp_of_negative(x.x - peak), exp_of_negative(x.y - peak)) / sum;
  }
  if (kOp == kLogSoftmax) {
    precise const vec2 shifted = x - peak;
    return shifted - log_sum;
  }
  const vec2 y = load(row.second);
  if (kOp == kSoftmaxBackward) return y * (x - sum);
  return x - vec2(exp_f32(y.x), kPairs != 0u ? exp_f32(y.y) : 0.0) * sum;
}

// The place of this lane in a row that begins at `address`.
uint64_t place(uint64_t address, int64_t step) {
  return address + uint64_t(int64_t(uint64_t(lane() * kStep)) * step);
}

void main() {
  const uint number = row_number();
  const bool exists = uint64_t(number) < record.row_count;
  const uint index = exists ? number : 0u;
  Row row;
  row.to = place(record.addresses[0] + offset_of(index, kRank, record.extents, record.strides[0]),
                 record.steps[0]);
  row.first = place(
      record.addresses[1] + offset_of(index, kRank, record.extents, record.strides[1]),
      record.steps[1]);
  row.second = place(
      record.addresses[2] + offset_of(index, kRank, record.extents, record.strides[2]),
      record.steps[2]);
  const int64_t far = int64_t(uint64_t(kLanes * kStep));
  row.to_step = uint64_t(record.steps[0] * far);
  row.first_step = uint64_t(record.steps[1] * far);
  row.second_step = uint64_t(record.steps[2] * far);
  const uint steps = uint(record.row_size) / kStep;  // Pairs come in an even number of elements.
  row.count = exists && lane() < steps ? (steps - lane() + kLanes - 1u) / kLanes : 0u;

  const bool is_forward = kOp == kSoftmax || kOp == kLogSoftmax;
  const float peak = is_forward ? peak_of_row(row) : 0.0;
  const float sum = sum_of_row(row, peak);
  const float log_sum = kOp == kLogSoftmax ? log_f32(sum) : 0.0;
  for (uint i = 0u; i < row.count; ++i) {
    write(row.to, result(row, peak, sum, log_sum));
    row.to += row.to_step;
    row.first += row.first_step;
    row.second += row.second_step;
  }
}
