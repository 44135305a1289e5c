// softmax and log_softmax along one axis, and their gradients. kLanes invocations share a row.
//
// One pass finds the maximum, so that exp() never overflows. A second pass sums, and a third one
// writes. Sums are added in blocks of 64, so that the error grows with the square root of their
// length. In bound tensors, neighbours are elements of one row, or of rows next to each other.
#include "prelude.glsl"
#include "element.glsl"
#if defined(COMPUTE_F64)
#include "float64.glsl"
#include "math64.glsl"
#else
#include "math.glsl"
#endif
#include "lanes.glsl"
#include "axes.glsl"
#include "row_values.glsl"

layout(constant_id = 2) const uint kOp = 0;
layout(constant_id = 3) const uint kType = 14;
layout(constant_id = 4) const uint kRank = 1;
layout(constant_id = 5) const uint kAcross = 0;  // If 1, neighbours are of different rows.

const uint kSoftmax = 0u, kLogSoftmax = 1u, kSoftmaxBackward = 2u, kLogSoftmaxBackward = 3u;

// The operands are the result, and then x, or grad_y and y.
BP_RECORD {
  uint64_t addresses[3];
  uint64_t row_count;
  uint64_t row_size;
  int64_t steps[3];         // In bytes, along the axis.
  uint extents[8];          // The other axes' extents.
  int64_t strides[3][8];
} BP_RECORD_NAME;

// The elements of a row that are taken at once. If neighbours are of several rows, each has its own
// row in every value, and there is one lane.
const uint kStep = kAcross != 0u ? 1u : kNeighbours;

#if defined(BOUND_ROWS)
vec4 exp_of_negative(vec4 x) {
  return vec4(exp_of_negative(x.x), exp_of_negative(x.y), exp_of_negative(x.z),
              exp_of_negative(x.w));
}
vec4 exp_of(vec4 x) { return vec4(exp_f32(x.x), exp_f32(x.y), exp_f32(x.z), exp_f32(x.w)); }
vec4 log_of(vec4 x) { return vec4(log_f32(x.x), log_f32(x.y), log_f32(x.z), log_f32(x.w)); }
#elif defined(COMPUTE_F64)
double exp_of_negative(double x) { return exp_f64(x); }
double exp_of(double x) { return exp_f64(x); }
double log_of(double x) { return log_f64(x); }
#else
float exp_of(float x) { return exp_f32(x); }
float log_of(float x) { return log_f32(x); }
#endif

VALUES sum_of_row(VALUES values) {
  if (kAcross != 0u) return values;
  return VALUES(sum_lanes(total_of(values)));
}

VALUES most_of_row(VALUES values) {
  if (kAcross != 0u) return values;
  return VALUES(max_lanes(most_of(values)));
}

struct Row {
  PLACE to, first, second;     // The lane's first place; the steps follow.
  PLACE to_step, first_step, second_step;
  uint count;                  // The lane's steps; 0 behind the last row.
};

VALUES load(uint operand, PLACE place) { return load_values(operand, kType, place); }

// Returns the term of the sum.
VALUES term(Row row, VALUES peak) {
  const VALUES x = load(1u, row.first);
  if (kOp == kSoftmaxBackward) return x * load(2u, row.second);
  if (kOp == kLogSoftmaxBackward) return x;
  return exp_of_negative(x - peak);
}

VALUES find_sum(Row row, VALUES peak) {
  Sum sum = no_sum();
  for (uint i = 0u; i < row.count; ++i) {
    take(sum, term(row, peak));
    row.first += row.first_step;
    row.second += row.second_step;
  }
  return sum_of_row(sum_of(sum));
}

VALUES find_peak(Row row) {
  VALUES peak = VALUES(-infinity());
  for (uint i = 0u; i < row.count; ++i) {
    peak = larger_of(peak, load(1u, row.first));
    row.first += row.first_step;
  }
  return most_of_row(peak);
}

VALUES result(Row row, VALUES peak, VALUES sum, VALUES log_sum) {
  const VALUES x = load(1u, row.first);
  if (kOp == kSoftmax) return exp_of_negative(x - peak) / sum;
  if (kOp == kLogSoftmax) {
    precise const VALUES shifted = x - peak;
    return shifted - log_sum;
  }
  const VALUES y = load(2u, row.second);
  if (kOp == kSoftmaxBackward) return y * (x - sum);
  return x - exp_of(y) * sum;
}

// These functions return the first place of this lane in row `index`, and the distance to its next
// place.
PLACE first_place(uint operand, uint index) {
  const uint64_t begin =
      offset_of(index, kRank, record.extents, record.strides[operand]) +
      uint64_t(int64_t(uint64_t(lane() * kStep)) * record.steps[operand]);
  return place_of(kType, record.addresses[operand], begin);
}

PLACE step_of(uint operand) {
  return place_of(kType, 0ul, uint64_t(record.steps[operand] * int64_t(uint64_t(kLanes * kStep))));
}

void main() {
  const uint number = row_number();
  const bool exists = uint64_t(number) < record.row_count;
  const uint index = exists ? number : 0u;
  Row row;
  row.to = first_place(0u, index);
  row.first = first_place(1u, index);
  row.second = first_place(2u, index);
  row.to_step = step_of(0u);
  row.first_step = step_of(1u);
  row.second_step = step_of(2u);
  const uint steps = uint(record.row_size) / kStep;
  row.count = exists && lane() < steps ? (steps - lane() + kLanes - 1u) / kLanes : 0u;

  const bool is_forward = kOp == kSoftmax || kOp == kLogSoftmax;
  const VALUES peak = is_forward ? find_peak(row) : VALUES(0.0);
  const VALUES sum = find_sum(row, peak);
  const VALUES log_sum = kOp == kLogSoftmax ? log_of(sum) : VALUES(0.0);
  for (uint i = 0u; i < row.count; ++i) {
    store_values(kType, row.to, result(row, peak, sum, log_sum));
    row.to += row.to_step;
    row.first += row.first_step;
    row.second += row.second_step;
  }
}
