#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
// The matrix product for processors. Vectors of the machine are subgroups there, shared memory
// gives no gain, and the cost of loads grows with the number of invocations.
//
// A workgroup is one subgroup of L invocations, and computes 4 L rows and 4 L columns. Invocation l
// holds columns 4 l to 4 l + 3 of all rows. It loads one row of each quarter of a, which the other
// invocations get from it by a shuffle. If neighbours in memory are neighbours in the matrix, it
// loads eight bytes at a time, because on lavapipe a load of 4 or of 8 bytes costs 130 cycles. Four
// steps along k are done at once, so that a sum is fetched once for four products. A shuffle from a
// constant invocation costs nothing there. A broadcast costs 20 cycles; with it the product of
// 1024^3 takes 1.5 times as long.
#include "matmul.glsl"

const uint kMostLanes = 8u, kQuarters = 4u, kSteps = 4u;

shared float results[16u * kMostLanes * kMostLanes];

vec2 pair(uint64_t address) { return uintBitsToFloat(unpackUint2x32(Bytes8(address).value)); }

// Returns the row of quarter q that invocation j loads. Pairs along m are rows 2 j and 2 j + 1 of a
// half.
uint row_of(uint q, uint j) {
  return kPairsA == 2u ? (q >> 1) * 2u * kLocalSize + 2u * j + (q & 1u) : q * kLocalSize + j;
}

// Loads the elements k to k + 3 of the rows of this invocation, one vector for each quarter.
void load_a(uint64_t at[4], int64_t step, out vec4 a[4]) {
  [[unroll]] for (uint q = 0u; q < kQuarters; ++q) {
    if (kPairsA == 1u) {
      a[q] = vec4(pair(at[q]), pair(at[q] + 8ul));
    } else if (kPairsA == 2u) {
      if ((q & 1u) != 0u) continue;
      [[unroll]] for (uint s = 0u; s < kSteps; ++s) {
        const vec2 both = pair(moved(at[q], step, s));
        a[q][s] = both.x;
        a[q + 1u][s] = both.y;
      }
    } else {
      [[unroll]] for (uint s = 0u; s < kSteps; ++s) {
        a[q][s] = load_f32(kTypeA, moved(at[q], step, s));
      }
    }
  }
}

// Loads the four columns of this invocation, one vector for each of the elements k to k + 3.
void load_b(uint64_t at[4], int64_t step, out vec4 b[4]) {
  [[unroll]] for (uint c = 0u; c < 4u; ++c) {
    if (kPairsB == 1u) {
      const vec4 all = vec4(pair(at[c]), pair(at[c] + 8ul));
      [[unroll]] for (uint s = 0u; s < kSteps; ++s) b[s][c] = all[s];
    } else if (kPairsB == 2u) {
      if ((c & 1u) != 0u) continue;
      [[unroll]] for (uint s = 0u; s < kSteps; ++s) {
        const vec2 both = pair(moved(at[c], step, s));
        b[s][c] = both.x;
        b[s][c + 1u] = both.y;
      }
    } else {
      [[unroll]] for (uint s = 0u; s < kSteps; ++s) {
        b[s][c] = load_f32(kTypeB, moved(at[c], step, s));
      }
    }
  }
}

void main() {
  const uint lane = gl_LocalInvocationID.x, rows = 4u * kLocalSize, cols = 4u * kLocalSize;
  if (!tile_exists(group_number(), rows, cols)) return;
  const Tile tile = find_tile(group_number(), rows, cols);

  // Rows and columns outside the matrix read the last row or column, or the last pair, and are not
  // written.
  const uint last_m = kPairsA == 2u ? record.m - 2u : record.m - 1u;
  const uint last_n = kPairsB == 2u ? record.n - 2u : record.n - 1u;
  uint64_t a_at[4], b_at[4];
  [[unroll]] for (uint q = 0u; q < kQuarters; ++q) {
    a_at[q] = moved(tile.a, record.a_m, min(tile.m + row_of(q, lane), last_m));
    b_at[q] = moved(tile.b, record.b_n, min(tile.n + 4u * lane + q, last_n));
    // The first row of a pair decides the place of both.
    if (kPairsA == 2u && (q & 1u) != 0u) a_at[q] = a_at[q - 1u] + 4ul;
    if (kPairsB == 2u && (q & 1u) != 0u) b_at[q] = b_at[q - 1u] + 4ul;
  }

  vec4 totals[kQuarters * kMostLanes];
  [[unroll]] for (uint j = 0u; j < kQuarters * kMostLanes; ++j) totals[j] = vec4(0.0);
  const uint64_t a_step = uint64_t(4l * record.a_k), b_step = uint64_t(4l * record.b_k);
  const uint whole = tile.k / kSteps;
  for (uint begin = 0u; begin < whole; begin += kBlock / kSteps) {
    vec4 sums[kQuarters * kMostLanes];
    [[unroll]] for (uint j = 0u; j < kQuarters * kMostLanes; ++j) sums[j] = vec4(0.0);
    const uint end = min(begin + kBlock / kSteps, whole);
    for (uint i = begin; i < end; ++i) {
      vec4 a[4], b[4];
      load_a(a_at, record.a_k, a);
      load_b(b_at, record.b_k, b);
      [[unroll]] for (uint q = 0u; q < kQuarters; ++q) {
        [[unroll]] for (uint j = 0u; j < kMostLanes; ++j) {
          if (j >= kLocalSize) continue;
          vec4 sum = sums[q * kMostLanes + j];
          [[unroll]] for (uint s = 0u; s < kSteps; ++s) sum += subgroupShuffle(a[q][s], j) * b[s];
          sums[q * kMostLanes + j] = sum;
        }
        a_at[q] += a_step;
        b_at[q] += b_step;
      }
    }
    [[unroll]] for (uint j = 0u; j < kQuarters * kMostLanes; ++j) totals[j] += sums[j];
  }
  for (uint i = whole * kSteps; i < tile.k; ++i) {
    vec4 b;
    [[unroll]] for (uint c = 0u; c < 4u; ++c) b[c] = load_f32(kTypeB, b_at[c]);
    [[unroll]] for (uint q = 0u; q < kQuarters; ++q) {
      const float a = load_f32(kTypeA, a_at[q]);
      [[unroll]] for (uint j = 0u; j < kMostLanes; ++j) {
        if (j < kLocalSize) totals[q * kMostLanes + j] += subgroupShuffle(a, j) * b;
      }
      a_at[q] += uint64_t(record.a_k);
      b_at[q] += uint64_t(record.b_k);
    }
  }

  // The sums go through shared memory, so that the steps after the sum are compiled once and not
  // for each element.
  [[unroll]] for (uint q = 0u; q < kQuarters; ++q) {
    [[unroll]] for (uint j = 0u; j < kMostLanes; ++j) {
      if (j >= kLocalSize) continue;
      [[unroll]] for (uint c = 0u; c < 4u; ++c) {
        results[row_of(q, j) * cols + 4u * lane + c] = totals[q * kMostLanes + j][c];
      }
    }
  }
  barrier();
  for (uint i = lane; i < rows * cols; i += kLocalSize) {
    finish(tile, tile.m + i / cols, tile.n + i % cols, results[i]);
  }
}
