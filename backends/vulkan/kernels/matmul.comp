#version 460
#extension GL_GOOGLE_include_directive : require
// The matrix product for devices with many threads. A workgroup of 16 x 16 invocations computes a
// tile of 64 x 64, from slices of 16 along k in shared memory. Each invocation computes 4 x 4
// elements.
#include "matmul.glsl"

const uint kTile = 64u, kSlice = 16u;

shared float slice_a[kSlice][kTile + 1u];
shared float slice_b[kSlice][kTile + 1u];

void main() {
  const uint self = gl_LocalInvocationID.x;
  if (!tile_exists(group_number(), kTile, kTile)) return;
  const Tile tile = find_tile(group_number(), kTile, kTile);

  const uint row = self / 16u, col = self % 16u;  // The place in 16 x 16.
  vec4 sums[4], totals[4];
  [[unroll]] for (uint i = 0u; i < 4u; ++i) sums[i] = totals[i] = vec4(0.0);
  for (uint begin = 0u; begin < tile.k; begin += kSlice) {
    barrier();
    // Neighbours in the workgroup load neighbours along k of a, and along n of b.
    [[unroll]] for (uint i = 0u; i < 4u; ++i) {
      const uint ka = begin + col, ma = tile.m + row + 16u * i;
      const bool has_a = ka < tile.k && ma < record.m;
      float value = 0.0;
      if (has_a) value = load_f32(kTypeA, moved(moved(tile.a, record.a_m, ma), record.a_k, ka));
      slice_a[col][row + 16u * i] = value;
      const uint kb = begin + row, nb = tile.n + col + 16u * i;
      const bool has_b = kb < tile.k && nb < record.n;
      value = 0.0;
      if (has_b) value = load_f32(kTypeB, moved(moved(tile.b, record.b_k, kb), record.b_n, nb));
      slice_b[row][col + 16u * i] = value;
    }
    barrier();
    [[unroll]] for (uint k = 0u; k < kSlice; ++k) {
      vec4 right;
      [[unroll]] for (uint j = 0u; j < 4u; ++j) right[j] = slice_b[k][col + 16u * j];
      [[unroll]] for (uint i = 0u; i < 4u; ++i) sums[i] += slice_a[k][row + 16u * i] * right;
    }
    if ((begin + kSlice) % kBlock != 0u) continue;
    [[unroll]] for (uint i = 0u; i < 4u; ++i) {
      totals[i] += sums[i];
      sums[i] = vec4(0.0);
    }
  }

  [[unroll]] for (uint i = 0u; i < 4u; ++i) {
    [[unroll]] for (uint j = 0u; j < 4u; ++j) {
      finish(tile, tile.m + row + 16u * i, tile.n + col + 16u * j,
             totals[i][j] + sums[i][j]);
    }
  }
}
