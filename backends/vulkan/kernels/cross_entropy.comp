#version 460
#extension GL_GOOGLE_include_directive : require
// cross_entropy and its gradient, and nll_loss: kLanes invocations share a row.
//
//   rows     the loss and the logarithm of the sum of each row
//   picked   the loss of each row of log-probabilities: one invocation has a row
//   total    the sum of the losses, or their mean over the rows that are not ignored: one row
//   count    how many rows are not ignored: one row
//   backward the gradient of each row
#include "prelude.glsl"
#include "element.glsl"
#include "math.glsl"
#include "lanes.glsl"
#include "failure.glsl"
#define SUMMED float
#include "sum.glsl"

layout(constant_id = 2) const uint kOp = 0;
layout(constant_id = 3) const uint kType = 14;
layout(constant_id = 4) const uint kTargetType = 7;
layout(constant_id = 5) const uint kIsMean = 0;
layout(constant_id = 6) const uint kLossType = 14;  // The dtype of the losses of rows; f32 if they
layout(constant_id = 7) const uint kClamps = 0;
                                                    // are summed.

const uint kRows = 0u, kTotal = 1u, kCount = 2u, kBackward = 3u, kPicked = 4u;

// Strides are in bytes. A missing tensor is 0.
BP_RECORD {
  uint64_t x, target, lse, losses, y, grad_y, count, failure;
  uint64_t row_count, row_size;
  int64_t x_row, x_col, target_row, lse_row, loss_row, grad_y_row, y_row, y_col;
  int64_t ignore_index;
  float smoothing;
} BP_RECORD_NAME;

uint64_t moved(uint64_t address, int64_t stride, uint steps) {
  return address + uint64_t(stride * int64_t(uint64_t(steps)));
}

// Returns the class of a row, or ignore_index.
int64_t target_of(uint row) {
  const int64_t target = load_i64(kTargetType, moved(record.target, record.target_row, row));
  return target == record.ignore_index ? target
                                       : acting(target, int64_t(record.row_size), kClamps);
}

// Returns whether the target of a row is a class. A target that is neither a class nor ignored is a
// failure.
bool is_class(int64_t target, uint row) {
  if (target == record.ignore_index) return false;
  if (is_place(target, int64_t(record.row_size))) return true;
  fail_with(record.failure, target, moved(record.target, record.target_row, row));
  return false;
}

void run_rows(uint row, uint size) {
  const uint64_t x = moved(record.x, record.x_row, row);
  float peak = -infinity();
  for (uint i = lane(); i < size; i += kLanes) {
    peak = larger_of(peak, load_f32(kType, moved(x, record.x_col, i)));
  }
  peak = max_lanes(peak);
  Sum sum = no_sum(), distance = no_sum();
  for (uint i = lane(); i < size; i += kLanes) {
    const float value = load_f32(kType, moved(x, record.x_col, i));
    take(sum, exp_f32(value - peak));
    take(distance, peak - value);
  }
  const float log_sum = log_f32(sum_lanes(sum_of(sum)));
  float mean_distance = 0.0;
  if (record.smoothing != 0.0) {
    mean_distance = sum_lanes(sum_of(distance)) / float(record.row_size);
  }
  if (size == 0u || lane() != 0u) return;

  if (record.lse != 0ul) {
    Float32(moved(record.lse, record.lse_row, row)).value = peak + log_sum;
  }
  const int64_t target = target_of(row);
  float loss = 0.0;
  if (is_class(target, row)) {
    const float picked = load_f32(kType, x + uint64_t(target * record.x_col));
    loss = (peak - picked) + log_sum;
    if (record.smoothing != 0.0) {
      loss = (1.0 - record.smoothing) * loss + record.smoothing * (mean_distance + log_sum);
    }
  }
  store_f32(kLossType, moved(record.losses, record.loss_row, row), loss);
}

void run_picked(uint row) {
  const int64_t target = target_of(row);
  float loss = 0.0;
  if (is_class(target, row)) {
    const uint64_t x = moved(record.x, record.x_row, row);
    loss = -load_f32(kType, x + uint64_t(target * record.x_col));
  }
  store_f32(kLossType, moved(record.losses, record.loss_row, row), loss);
}

// Returns the number of rows that count, as a float. It is below 2^24.
float count_rows(bool exists) {
  float count = 0.0;
  if (exists) {
    for (uint i = lane(); i < uint(record.row_count); i += kLanes) {
      if (target_of(i) != record.ignore_index) count += 1.0;
    }
  }
  return sum_lanes(count);
}

void run_total(bool exists) {
  Sum sum = no_sum();
  for (uint i = lane(); exists && i < uint(record.row_count); i += kLanes) {
    take(sum, Float32(moved(record.losses, record.loss_row, i)).value);
  }
  float total = sum_lanes(sum_of(sum));
  if (kIsMean != 0u) total /= count_rows(exists);
  if (exists && lane() == 0u) store_f32(kType, record.y, total);
}

void run_backward(uint row, uint size) {
  if (size == 0u) return;
  const int64_t target = target_of(row);
  bool counts = target != record.ignore_index;
  if (lane() == 0u) counts = is_class(target, row);
  const float lse = Float32(moved(record.lse, record.lse_row, row)).value;
  float scale = load_f32(kType, moved(record.grad_y, record.grad_y_row, row));
  if (kIsMean != 0u) scale /= Float32(record.count).value;
  const float share = record.smoothing / float(record.row_size);
  for (uint i = lane(); i < size; i += kLanes) {
    const float x = load_f32(kType, moved(moved(record.x, record.x_row, row), record.x_col, i));
    float label = share;
    if (int64_t(uint64_t(i)) == target) label += 1.0 - record.smoothing;
    const float value = counts ? scale * (exp_f32(x - lse) - label) : 0.0;
    store_f32(kType, moved(moved(record.y, record.y_row, row), record.y_col, i), value);
  }
}

void main() {
  const uint row = row_number();
  const bool is_single = kOp == kTotal || kOp == kCount;
  const bool exists = is_single ? row == 0u : uint64_t(row) < record.row_count;
  const uint size = exists ? uint(record.row_size) : 0u;
  if (kOp == kRows) {
    run_rows(exists ? row : 0u, size);
  } else if (kOp == kPicked) {
    if (exists) run_picked(row);
  } else if (kOp == kTotal) {
    run_total(exists);
  } else if (kOp == kCount) {
    const float count = count_rows(exists);
    if (exists && lane() == 0u) Float32(record.count).value = count;
  } else {
    run_backward(row, size);
  }
}
