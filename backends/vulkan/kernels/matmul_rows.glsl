// A matrix product with few rows: a workgroup computes 8 columns, each with 32 invocations that go
// through k side by side. So each element of b is loaded once, and none of the arithmetic is for
// rows that do not exist. A shader that includes this file has included matmul_tile.glsl before,
// whose shared memory this one uses, and has a constant kFewRows: 1, 2, 4 or 8.
const uint kLanesOfColumn = 32u, kColumnsOfGroup = 8u, kRowSlice = 128u;

VALUE slice_value(uint row, uint k) {
  const uint at = row * kRowSlice + k;
  return slice_a[at / (kTile + 1u)][at % (kTile + 1u)];
}

void load_row_slice(uint rows, uint begin, uint depth) {
  for (uint at = gl_LocalInvocationID.x; at < kFewRows * kRowSlice; at += kLocalSize) {
    const uint row = at / kRowSlice, k = begin + at % kRowSlice;
    VALUE value = VALUE(0);
    if (row < rows && k < depth) value = value_of_a(row, k);
    slice_a[at / (kTile + 1u)][at % (kTile + 1u)] = value;
  }
}

// Adds up the lanes of four rows, and writes them.
void finish_rows(uint first_row, uint first_n, uint rows, uint cols, VALUES sums) {
  const uint own = gl_LocalInvocationID.x;
  barrier();
  [[unroll]] for (uint i = 0u; i < 4u; ++i) {
    const uint at = i * kLocalSize + own;
    slice_b[at / (kTile + 1u)][at % (kTile + 1u)] = sums[i];
  }
  barrier();
  if (own >= 4u * kColumnsOfGroup) return;
  const uint i = own / kColumnsOfGroup, m = first_row + i;
  const uint column = own % kColumnsOfGroup, n = first_n + column;
  if (m >= rows || n >= cols) return;
  VALUE sum = VALUE(0);
  for (uint lane = 0u; lane < kLanesOfColumn; ++lane) {
    const uint at = i * kLocalSize + column * kLanesOfColumn + lane;
    sum += slice_b[at / (kTile + 1u)][at % (kTile + 1u)];
  }
  finish_value(m, n, sum);
}

// Computes the columns from first_n on. A lane adds up 64 products at a time.
void run_rows(uint first_n, uint rows, uint cols, uint depth) {
  const uint lane = gl_LocalInvocationID.x % kLanesOfColumn;
  const uint n = first_n + gl_LocalInvocationID.x / kLanesOfColumn;
  VALUES sums[2], totals[2];
  [[unroll]] for (uint i = 0u; i < 2u; ++i) sums[i] = totals[i] = VALUES(0);
  for (uint begin = 0u; begin < depth; begin += kRowSlice) {
    barrier();
    load_row_slice(rows, begin, depth);
    barrier();
    for (uint k = lane; k < kRowSlice && begin + k < depth && n < cols; k += kLanesOfColumn) {
      const VALUE b = value_of_b(begin + k, n);
      [[unroll]] for (uint row = 0u; row < 8u; ++row) {
        if (row < kFewRows) sums[row / 4u][row % 4u] += slice_value(row, k) * b;
      }
    }
    if ((begin / kRowSlice) % 16u != 15u) continue;
    [[unroll]] for (uint i = 0u; i < 2u; ++i) {
      totals[i] += sums[i];
      sums[i] = VALUES(0);
    }
  }
  finish_rows(0u, first_n, rows, cols, totals[0] + sums[0]);
  if (kFewRows > 4u) finish_rows(4u, first_n, rows, cols, totals[1] + sums[1]);
}
