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

const uint kSoftmax = 0u, kLogSoftmax = 1u, kSoftmaxBackward = 2u, kLogSoftmaxBackward = 3u;

// Operands: the result, then x, or grad_y and y.
layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer Record {
  uint64_t addresses[3];
  uint64_t row_count;
  uint64_t row_size;
  int64_t steps[3];         // In bytes, along the axis.
  uint extents[8];          // Of the other axes.
  int64_t strides[3][8];
};

struct Row {
  uint64_t to, first, second;
  int64_t to_step, first_step, second_step;
  uint size;  // 0 behind the last row.
};

float at_first(Row row, uint i) {
  return load_f32(kType, row.first + uint64_t(int64_t(uint64_t(i)) * row.first_step));
}
float at_second(Row row, uint i) {
  return load_f32(kType, row.second + uint64_t(int64_t(uint64_t(i)) * row.second_step));
}
void write(Row row, uint i, float value) {
  store_f32(kType, row.to + uint64_t(int64_t(uint64_t(i)) * row.to_step), value);
}

// What is summed, for element i.
float term(Row row, float peak, uint i) {
  if (kOp == kSoftmaxBackward) return at_first(row, i) * at_second(row, i);
  if (kOp == kLogSoftmaxBackward) return at_first(row, i);
  return exp_f32(at_first(row, i) - peak);
}

float sum_of_row(Row row, float peak) {
  float sum = 0.0, block = 0.0;
  uint taken = 0u;
  for (uint i = lane(); i < row.size; i += kLanes) {
    block += term(row, peak, i);
    if ((++taken & 63u) == 0u) {
      sum += block;
      block = 0.0;
    }
  }
  return sum_lanes(sum + block);
}

float peak_of_row(Row row) {
  float peak = -infinity();
  for (uint i = lane(); i < row.size; i += kLanes) peak = larger_of(peak, at_first(row, i));
  return max_lanes(peak);
}

void main() {
  Record record = Record(push.record);
  const uint number = row_number();
  const bool exists = uint64_t(number) < record.row_count;
  const uint index = exists ? number : 0u;
  Row row;
  row.to = record.addresses[0] + offset_of(index, kRank, record.extents, record.strides[0]);
  row.first = record.addresses[1] + offset_of(index, kRank, record.extents, record.strides[1]);
  row.second = record.addresses[2] + offset_of(index, kRank, record.extents, record.strides[2]);
  row.to_step = record.steps[0];
  row.first_step = record.steps[1];
  row.second_step = record.steps[2];
  row.size = exists ? uint(record.row_size) : 0u;

  const bool is_forward = kOp == kSoftmax || kOp == kLogSoftmax;
  const float peak = is_forward ? peak_of_row(row) : 0.0;
  const float sum = sum_of_row(row, peak);
  const float log_sum = kOp == kLogSoftmax ? log_f32(sum) : 0.0;
  for (uint i = lane(); i < row.size; i += kLanes) {
    float value = 0.0;
    if (kOp == kSoftmax) {
      value = exp_f32(at_first(row, i) - peak) / sum;
    } else if (kOp == kLogSoftmax) {
      precise const float shifted = at_first(row, i) - peak;
      value = shifted - log_sum;
    } else if (kOp == kSoftmaxBackward) {
      value = at_second(row, i) * (at_first(row, i) - sum);
    } else {
      value = at_first(row, i) - exp_f32(at_second(row, i)) * sum;
    }
    write(row, i, value);
  }
}
