// One tile of a matrix product for devices with many threads. A workgroup of 16 x 16 invocations
// computes a tile of 64 x 64, from slices of 16 along k in shared memory. Each invocation computes
// 4 x 4 elements.
//
// A shader that includes this file defines VALUE and VALUES, the type of a sum and of four of them;
// value_of_a(m, k) and value_of_b(k, n), which load elements that exist; and finish_value(m, n,
// sum). With ALONG_K neighbours in the workgroup load neighbours along k of b, else along n.
#include "matmul_block.glsl"

const uint kTile = 64u, kSlice = 16u;

shared VALUE slice_a[kSlice][kTile + 1u];
shared VALUE slice_b[kSlice][kTile + 1u];

// Loads the slices from `begin` on. Neighbours in the workgroup load neighbours along k of a.
void load_slices(uint first_m, uint first_n, uint rows, uint cols, uint begin, uint depth) {
  const uint row = gl_LocalInvocationID.x / 16u, col = gl_LocalInvocationID.x % 16u;
  [[unroll]] for (uint i = 0u; i < 4u; ++i) {
    const uint ka = begin + col, ma = first_m + row + 16u * i;
    VALUE value = VALUE(0);
    if (ka < depth && ma < rows) value = value_of_a(ma, ka);
    slice_a[col][row + 16u * i] = value;
#if defined(ALONG_K)
    const uint k = col, n = row + 16u * i;
#else
    const uint k = row, n = col + 16u * i;
#endif
    value = VALUE(0);
    if (begin + k < depth && first_n + n < cols) value = value_of_b(begin + k, first_n + n);
    slice_b[k][n] = value;
  }
}

// Computes the tile from row first_m and column first_n on of a product of `depth` terms.
void run_tile(uint first_m, uint first_n, uint rows, uint cols, uint depth) {
  const uint row = gl_LocalInvocationID.x / 16u, col = gl_LocalInvocationID.x % 16u;
  VALUES sums[4], totals[4];
  [[unroll]] for (uint i = 0u; i < 4u; ++i) sums[i] = totals[i] = VALUES(0);
  for (uint begin = 0u; begin < depth; begin += kSlice) {
    barrier();
    load_slices(first_m, first_n, rows, cols, begin, depth);
    barrier();
    [[unroll]] for (uint k = 0u; k < kSlice; ++k) {
      VALUES right;
      [[unroll]] for (uint j = 0u; j < 4u; ++j) right[j] = slice_b[k][col + 16u * j];
      [[unroll]] for (uint i = 0u; i < 4u; ++i) sums[i] += slice_a[k][row + 16u * i] * right;
    }
    if ((begin + kSlice) % kBlock != 0u) continue;
    [[unroll]] for (uint i = 0u; i < 4u; ++i) {
      totals[i] += sums[i];
      sums[i] = VALUES(0);
    }
  }
  [[unroll]] for (uint i = 0u; i < 4u; ++i) {
    [[unroll]] for (uint j = 0u; j < 4u; ++j) {
      const uint m = first_m + row + 16u * i, n = first_n + col + 16u * j;
      if (m < rows && n < cols) finish_value(m, n, totals[i][j] + sums[i][j]);
    }
  }
}
