// layer_norm and rms_norm, their gradients, and the norms of channels: kLanes invocations share a
// row.
//
// A second pass over the row computes the variance around the mean. The gradients of gamma and beta
// are sums over rows; an invocation computes one column of one part of the rows, and the sums of
// parts are added afterwards (reduce.comp). Sums are added in blocks of 64.
#include "prelude.glsl"
#include "element.glsl"
#include "lanes.glsl"
#include "axes.glsl"
#include "row_values.glsl"

layout(constant_id = 2) const uint kOp = 0;
layout(constant_id = 3) const uint kType = 14;
layout(constant_id = 4) const uint kIsLayer = 1;  // If 0, it is an RMS norm.
layout(constant_id = 5) const uint kRowRank = 1;
layout(constant_id = 6) const uint kInnerRank = 1;

// kGiven normalizes by a given mean and variance.
const uint kForward = 0u, kBackward = 1u, kColumns = 2u, kGiven = 3u;

BP_RECORD {
  // A missing tensor is 0. In a gradient, `y` is grad_x.
  uint64_t y, x, grad_y, gamma, beta, mean, rstd, variance;
  uint64_t gamma_sums, beta_sums;  // The sums of parts: (parts, columns), f32.
  uint64_t row_count, row_size;
  uint part_count, part_size;
  float eps;
  // All strides are in bytes, the innermost axis first.
  uint row_extents[8];
  int64_t row_y[8], row_x[8], row_grad_y[8], row_mean[8], row_rstd[8], row_variance[8];
  int64_t row_gamma[8], row_beta[8];  // 0 if all rows have the same weights.
  uint inner_extents[8];
  int64_t inner_y[8], inner_x[8], inner_grad_y[8], inner_gamma[8], inner_beta[8];
} BP_RECORD_NAME;

struct Row {
  PLACE y, x, grad_y, gamma, beta;
  uint64_t mean, rstd, variance;
  uint size;  // Values; 0 behind the last row.
  bool exists;
};

Row find_row(uint number, bool exists) {
  Row row;
  const uint i = exists ? number : 0u;
  row.y = place_of(kType, record.y, offset_of(i, kRowRank, record.row_extents, record.row_y));
  row.x = place_of(kType, record.x, offset_of(i, kRowRank, record.row_extents, record.row_x));
  row.grad_y = place_of(kType, record.grad_y,
                        offset_of(i, kRowRank, record.row_extents, record.row_grad_y));
  row.gamma = place_of(kType, record.gamma,
                       offset_of(i, kRowRank, record.row_extents, record.row_gamma));
  row.beta = place_of(kType, record.beta,
                      offset_of(i, kRowRank, record.row_extents, record.row_beta));
  row.mean = record.mean + offset_of(i, kRowRank, record.row_extents, record.row_mean);
  row.rstd = record.rstd + offset_of(i, kRowRank, record.row_extents, record.row_rstd);
  row.variance =
      record.variance + offset_of(i, kRowRank, record.row_extents, record.row_variance);
  row.size = exists ? uint(record.row_size) / kNeighbours : 0u;
  row.exists = exists;
  return row;
}

// Returns the place of value i of a row, or of gamma and beta. Bound rows have no gaps.
PLACE inner(PLACE row, uint i, int64_t strides[8]) {
#if defined(BOUND_ROWS)
  return row + i;
#else
  return row + offset_of(i, kInnerRank, record.inner_extents, strides);
#endif
}

VALUES x_at(Row row, uint i) {
  return load_values(1u, kType, inner(row.x, i, record.inner_x));
}

VALUES grad_y_at(Row row, uint i) {
  return load_values(3u, kType, inner(row.grad_y, i, record.inner_grad_y));
}

VALUES gamma_at(Row row, uint i) {
  if (record.gamma == 0ul) return VALUES(1.0);
  return load_values(2u, kType, inner(row.gamma, i, record.inner_gamma));
}

VALUES beta_at(Row row, uint i) {
  if (record.beta == 0ul) return VALUES(0.0);
  return load_values(3u, kType, inner(row.beta, i, record.inner_beta));
}

void store(Row row, uint i, VALUES values) {
  store_values(kType, inner(row.y, i, record.inner_y), values);
}

float value_of(Sum sum) { return sum_lanes(total_of(sum_of(sum))); }

void write_row(Row row, float mean, float rstd) {
  for (uint i = lane(); i < row.size; i += kLanes) {
    const VALUES value = (x_at(row, i) - mean) * rstd * gamma_at(row, i);
    store(row, i, value + beta_at(row, i));
  }
}

void run_given(Row row) {
  if (!row.exists) return;
  const float variance = Float32(row.variance).value;
  write_row(row, Float32(row.mean).value, 1.0 / sqrt(variance + record.eps));
}

void run_forward(Row row) {
  const float count = float(record.row_size);
  float mean = 0.0;
  if (kIsLayer != 0u) {
    Sum sum = no_sum();
    for (uint i = lane(); i < row.size; i += kLanes) take(sum, x_at(row, i));
    mean = value_of(sum) / count;
  }
  Sum squares = no_sum();
  for (uint i = lane(); i < row.size; i += kLanes) {
    const VALUES centered = x_at(row, i) - mean;
    take(squares, centered * centered);
  }
  const float variance = value_of(squares) / count;
  const float rstd = 1.0 / sqrt(variance + record.eps);
  write_row(row, mean, rstd);
  if (!row.exists || lane() != 0u) return;
  if (record.mean != 0ul) Float32(row.mean).value = mean;
  if (record.rstd != 0ul) Float32(row.rstd).value = rstd;
  if (record.variance != 0ul) Float32(row.variance).value = variance;
}

void run_backward(Row row) {
  const float count = float(record.row_size);
  const bool exists = row.exists;
  float mean = 0.0, rstd = 0.0;
  if (exists) rstd = Float32(row.rstd).value;
  if (exists && kIsLayer != 0u) mean = Float32(row.mean).value;
  Sum h_sum = no_sum(), hu_sum = no_sum();
  for (uint i = lane(); i < row.size; i += kLanes) {
    const VALUES h = grad_y_at(row, i) * gamma_at(row, i);
    const VALUES u = (x_at(row, i) - mean) * rstd;
    if (kIsLayer != 0u) take(h_sum, h);
    take(hu_sum, h * u);
  }
  const float mean_h = kIsLayer != 0u ? value_of(h_sum) / count : 0.0;
  const float mean_hu = value_of(hu_sum) / count;
  for (uint i = lane(); i < row.size; i += kLanes) {
    const VALUES h = grad_y_at(row, i) * gamma_at(row, i);
    const VALUES u = (x_at(row, i) - mean) * rstd;
    store(row, i, rstd * (h - mean_h - u * mean_hu));
  }
}

void store_sums(uint64_t address, Sum sum) {
  if (address == 0ul) return;
  const VALUES values = sum_of(sum);
#if defined(BOUND_ROWS)
  [[unroll]] for (uint c = 0u; c < kNeighbours; ++c) {
    Float32(address + uint64_t(4u * c)).value = values[c];
  }
#else
  Float32(address).value = values;
#endif
}

// Computes one value of the columns, in one part of the rows. kLanes is 1.
void run_columns() {
  const uint number = row_number(), columns = uint(record.row_size) / kNeighbours;
  if (number >= record.part_count * columns) return;
  const uint part = number / columns, column = number - part * columns;
  const uint begin = part * record.part_size;
  const uint end = min(begin + record.part_size, uint(record.row_count));
  Sum gamma_sum = no_sum(), beta_sum = no_sum();
  for (uint i = begin; i < end; ++i) {
    const Row row = find_row(i, true);
    const VALUES g = grad_y_at(row, column);
    if (record.gamma_sums != 0ul) {
      float mean = 0.0;
      if (kIsLayer != 0u) mean = Float32(row.mean).value;
      take(gamma_sum, g * ((x_at(row, column) - mean) * Float32(row.rstd).value));
    }
    take(beta_sum, g);
  }
  const uint64_t offset = uint64_t(4u * kNeighbours * number);
  store_sums(record.gamma_sums == 0ul ? 0ul : record.gamma_sums + offset, gamma_sum);
  store_sums(record.beta_sums == 0ul ? 0ul : record.beta_sums + offset, beta_sum);
}

void main() {
  if (kOp == kColumns) {
    run_columns();
    return;
  }
  const uint number = row_number();
  const Row row = find_row(number, uint64_t(number) < record.row_count);
  if (kOp == kForward) {
    run_forward(row);
  } else if (kOp == kGiven) {
    run_given(row);
  } else {
    run_backward(row);
  }
}
