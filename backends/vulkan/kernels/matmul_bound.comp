#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
// The matrix product for processors, if the matrices can be bound. a is buffer 0 of set 0, and b is
// buffer 1. y is buffer 2 if its rows are stored four columns at a time.
//
// A workgroup is one subgroup of L invocations, and computes 4 L rows and 4 L columns. Invocation l
// holds columns 4 l to 4 l + 3 of all rows. It loads one row of each quarter of a, and the other
// invocations get this row by a shuffle; a shuffle from a constant invocation costs nothing on
// lavapipe. Loads are expensive, so they take four neighbours at a time if neighbours in memory are
// neighbours along k or across it. Four steps along k are done at once, so that a sum is fetched
// once for four products.
//
// On two threads of a Xeon (2.3 GHz), 1152 x 1152 x 1024 f32 reaches 37 GF/s, and 17 GF/s by
// address. Tiles of twice the columns reach 44 GF/s, but take twice as long to compile.
#define BP_PUSHED uint a_first; uint b_first; uint y_first;
#include "matmul.glsl"

layout(constant_id = 10) const uint kStoresVectors = 0;

const uint kMostLanes = 8u, kQuarters = 4u, kSteps = 4u;

// Neighbours are loaded one by one (0), four along k, or four across it.
const uint kAlongK = 1u, kAcross = 2u;

#define BP_MATRIX(k)                                                                   \
  layout(set = 0, binding = k, scalar) readonly buffer Twos##k { uint16_t v[]; } twos_##k;   \
  layout(set = 0, binding = k, scalar) readonly buffer Fours##k { uint v[]; } fours_##k;     \
  layout(set = 0, binding = k, scalar) readonly buffer Eights##k { uvec2 v[]; } eights_##k;  \
  layout(set = 0, binding = k, scalar) readonly buffer Vectors##k { vec4 v[]; } vectors_##k;
BP_MATRIX(0)
BP_MATRIX(1)
layout(set = 0, binding = 2, scalar) writeonly buffer YEights { uvec2 v[]; } y_eights;
layout(set = 0, binding = 2, scalar) writeonly buffer YVectors { vec4 v[]; } y_vectors;

shared vec4 results[4u * kMostLanes * kMostLanes];

vec4 halves(uint type, uvec2 bits) {
  return vec4(decode_f32(type, bits.x & 0xffffu), decode_f32(type, bits.x >> 16),
              decode_f32(type, bits.y & 0xffffu), decode_f32(type, bits.y >> 16));
}

// These functions load element i of a or b, or the elements i to i + 3 if i is a multiple of 4.
float a_one(uint i) {
  return size_of(kTypeA) == 4u ? uintBitsToFloat(fours_0.v[i])
                               : decode_f32(kTypeA, uint(twos_0.v[i]));
}
float b_one(uint i) {
  return size_of(kTypeB) == 4u ? uintBitsToFloat(fours_1.v[i])
                               : decode_f32(kTypeB, uint(twos_1.v[i]));
}
vec4 a_four(uint i) {
  return size_of(kTypeA) == 4u ? vectors_0.v[i >> 2] : halves(kTypeA, eights_0.v[i >> 2]);
}
vec4 b_four(uint i) {
  return size_of(kTypeB) == 4u ? vectors_1.v[i >> 2] : halves(kTypeB, eights_1.v[i >> 2]);
}

// Returns the row of quarter q that invocation j loads.
uint row_of(uint q, uint j) { return kPairsA == kAcross ? 4u * j + q : q * kLocalSize + j; }

// Loads the elements k to k + 3 of the rows of this invocation, one vector for each quarter.
void load_a(uint at[4], uint step, out vec4 a[4]) {
  if (kPairsA == kAcross) {
    vec4 steps[4];
    [[unroll]] for (uint s = 0u; s < kSteps; ++s) steps[s] = a_four(at[0] + s * step);
    [[unroll]] for (uint q = 0u; q < kQuarters; ++q) {
      a[q] = vec4(steps[0][q], steps[1][q], steps[2][q], steps[3][q]);
    }
    return;
  }
  [[unroll]] for (uint q = 0u; q < kQuarters; ++q) {
    if (kPairsA == kAlongK) {
      a[q] = a_four(at[q]);
    } else {
      [[unroll]] for (uint s = 0u; s < kSteps; ++s) a[q][s] = a_one(at[q] + s * step);
    }
  }
}

// Loads the four columns of this invocation, one vector for each of the elements k to k + 3.
void load_b(uint at[4], uint step, out vec4 b[4]) {
  if (kPairsB == kAcross) {
    [[unroll]] for (uint s = 0u; s < kSteps; ++s) b[s] = b_four(at[0] + s * step);
    return;
  }
  [[unroll]] for (uint c = 0u; c < 4u; ++c) {
    vec4 column;
    if (kPairsB == kAlongK) {
      column = b_four(at[c]);
    } else {
      [[unroll]] for (uint s = 0u; s < kSteps; ++s) column[s] = b_one(at[c] + s * step);
    }
    [[unroll]] for (uint s = 0u; s < kSteps; ++s) b[s][c] = column[s];
  }
}

uint elements(int64_t bytes, uint type) { return uint(bytes) / size_of(type); }

// Returns the bias of columns n to n + 3.
vec4 bias_of(Tile tile, uint n) {
  vec4 bias = vec4(0.0);
  if (kHasBias == 0u) return bias;
  [[unroll]] for (uint c = 0u; c < 4u; ++c) {
    if (n + c < record.n) bias[c] = load_f32(kTypeY, moved(tile.bias, record.bias_n, n + c));
  }
  return bias;
}

// Writes columns n to n + 3 of row m.
void finish_four(Tile tile, uint m, uint n, vec4 sums) {
  if (m >= record.m || n >= record.n) return;
  if (kHasPreactivation != 0u) {
    const uint64_t row = moved(record.preactivation, record.preactivation_m, m);
    [[unroll]] for (uint c = 0u; c < 4u; ++c) {
      if (n + c < record.n) store_f32(kTypeY, moved(row, record.preactivation_n, n + c), sums[c]);
    }
  }
  [[unroll]] for (uint c = 0u; c < 4u; ++c) sums[c] = activate(sums[c]);
  if (kStoresVectors == 0u) {
    const uint64_t row = moved(tile.y, record.y_m, m);
    [[unroll]] for (uint c = 0u; c < 4u; ++c) {
      if (n + c < record.n) store_f32(kTypeY, moved(row, record.y_n, n + c), sums[c]);
    }
    return;
  }
  const uint place = push.y_first + elements(int64_t(tile.y - record.y), kTypeY) +
                     m * elements(record.y_m, kTypeY) + n;
  if (size_of(kTypeY) == 4u) {
    y_vectors.v[place >> 2] = sums;
    return;
  }
  uvec4 bits;
  [[unroll]] for (uint c = 0u; c < 4u; ++c) bits[c] = encode_f32(kTypeY, sums[c]);
  y_eights.v[place >> 2] = uvec2(bits.x | bits.y << 16, bits.z | bits.w << 16);
}

void main() {
  const uint lane = gl_LocalInvocationID.x, rows = 4u * kLocalSize, cols = 4u * kLocalSize;
  if (!tile_exists(group_number(), rows, cols)) return;
  const Tile tile = find_tile(group_number(), rows, cols);
  const uint a_m = elements(record.a_m, kTypeA), a_k = elements(record.a_k, kTypeA);
  const uint b_k = elements(record.b_k, kTypeB), b_n = elements(record.b_n, kTypeB);

  // Rows and columns outside the matrix read the last row or column, or the last four, and are not
  // written.
  const uint last_m = kPairsA == kAcross ? record.m - 4u : record.m - 1u;
  const uint last_n = kPairsB == kAcross ? record.n - 4u : record.n - 1u;
  uint a_at[4], b_at[4];
  [[unroll]] for (uint q = 0u; q < kQuarters; ++q) {
    const uint row = kPairsA == kAcross ? 4u * lane : row_of(q, lane);
    a_at[q] = push.a_first + elements(int64_t(tile.a - record.a), kTypeA) + min(tile.m + row, last_m) * a_m;
    if (kPairsA == kAcross) a_at[q] += q * a_m;
    const uint col = kPairsB == kAcross ? 4u * lane : 4u * lane + q;
    b_at[q] = push.b_first + elements(int64_t(tile.b - record.b), kTypeB) + min(tile.n + col, last_n) * b_n;
    if (kPairsB == kAcross) b_at[q] += q * b_n;
  }

  vec4 totals[kQuarters * kMostLanes];
  [[unroll]] for (uint j = 0u; j < kQuarters * kMostLanes; ++j) totals[j] = vec4(0.0);
  const uint whole = tile.k / kSteps;
  for (uint begin = 0u; begin < whole; begin += kBlock / kSteps) {
    vec4 sums[kQuarters * kMostLanes];
    [[unroll]] for (uint j = 0u; j < kQuarters * kMostLanes; ++j) sums[j] = vec4(0.0);
    const uint end = min(begin + kBlock / kSteps, whole);
    for (uint i = begin; i < end; ++i) {
      vec4 a[4], b[4];
      load_a(a_at, a_k, a);
      load_b(b_at, b_k, b);
      [[unroll]] for (uint q = 0u; q < kQuarters; ++q) {
        [[unroll]] for (uint j = 0u; j < kMostLanes; ++j) {
          if (j >= kLocalSize) continue;
          vec4 sum = sums[q * kMostLanes + j];
          [[unroll]] for (uint s = 0u; s < kSteps; ++s) sum += subgroupShuffle(a[q][s], j) * b[s];
          sums[q * kMostLanes + j] = sum;
        }
        a_at[q] += kSteps * a_k;
        b_at[q] += kSteps * b_k;
      }
    }
    [[unroll]] for (uint j = 0u; j < kQuarters * kMostLanes; ++j) totals[j] += sums[j];
  }
  for (uint i = whole * kSteps; i < tile.k; ++i) {
    vec4 b;
    [[unroll]] for (uint c = 0u; c < 4u; ++c) b[c] = b_one(b_at[c]);
    [[unroll]] for (uint q = 0u; q < kQuarters; ++q) {
      const float a = a_one(a_at[q]);
      [[unroll]] for (uint j = 0u; j < kMostLanes; ++j) {
        if (j < kLocalSize) totals[q * kMostLanes + j] += subgroupShuffle(a, j) * b;
      }
      a_at[q] += a_k;
      b_at[q] += b_k;
    }
  }

  // The sums go through shared memory, so that the steps after the sum are compiled once and not
  // for each row.
  [[unroll]] for (uint q = 0u; q < kQuarters; ++q) {
    [[unroll]] for (uint j = 0u; j < kMostLanes; ++j) {
      if (j < kLocalSize) results[row_of(q, j) * kLocalSize + lane] = totals[q * kMostLanes + j];
    }
  }
  const uint n = tile.n + 4u * lane;
  const vec4 bias = bias_of(tile, n);
  for (uint i = 0u; i < rows; ++i) {
    finish_four(tile, tile.m + i, n, results[i * kLocalSize + lane] + bias);
  }
}
