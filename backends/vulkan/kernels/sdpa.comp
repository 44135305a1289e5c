#version 460
#extension GL_GOOGLE_include_directive : require
// sdpa by tiles of keys, with the maximum and the sum of the keys so far. Scores never leave the
// workgroup. A new maximum scales the earlier sums. A sink joins the sum in the end.
#include "sdpa.glsl"

layout(constant_id = 6) const uint kRepairs = 0;  // If 1, only blocks with values that are not
                                                  // finite.

shared float queries[kRows][kMostWidth];
shared float sums[kRows][kMostWidth];  // The sums of weight * v.
shared float weights[kRows][kTile];
shared uint seen[kTile];  // If bit r is set, row r sees the key.

bool row_sees(uint r, uint j) { return (seen[j] >> r & 1u) != 0u; }

// Computes the scores of a tile of keys for all rows.
void score_tile(uint batch, uint head, uint first_query, uint first_key) {
  const uint key_head = head / (record.heads / record.key_heads);
  for (uint j = gl_LocalInvocationID.x; j < kTile; j += kLocalSize) {
    const uint key = first_key + j;
    const uint64_t row = at(record.k, batch, key_head, min(key, record.keys - 1u));
    vec4 dots = vec4(0.0);
    for (uint c = 0u; c < record.width; c += 4u) {
      vec4 part = vec4(0.0);
      [[unroll]] for (uint d = 0u; d < 4u; ++d) {
        if (c + d < record.width) {
          const float value = element(record.k, row, c + d);
          [[unroll]] for (uint r = 0u; r < kRows; ++r) part[r] += queries[r][c + d] * value;
        }
      }
      dots += part;
    }
    uint bits = 0u;
    [[unroll]] for (uint r = 0u; r < kRows; ++r) {
      const uint query = first_query + r;
      if (!is_seen(batch, head, query, key)) continue;
      bits |= 1u << r;
      weights[r][j] = capped(record.scale * dots[r]) + bias_at(batch, head, query, key);
    }
    seen[j] = bits;
  }
}

// Drops weights of a tile, after they were added up. A dropped one is not seen any more, so that it
// adds nothing, whatever its value is.
void drop_tile(uint batch, uint head, uint first_query, uint first_key) {
  for (uint j = gl_LocalInvocationID.x; j < kTile; j += kLocalSize) {
    uint bits = seen[j];
    [[unroll]] for (uint r = 0u; r < kRows; ++r) {
      if ((bits >> r & 1u) == 0u) continue;
      const float factor = factor_at(batch, head, first_query + r, first_key + j);
      weights[r][j] *= factor;
      if (factor == 0.0) bits &= ~(1u << r);
    }
    seen[j] = bits;
  }
}

void main() {
  const uint lane = gl_LocalInvocationID.x;
  const uint blocks = (record.queries + kRows - 1u) / kRows, number = group_number();
  const uint block = number % blocks, head = number / blocks % record.heads;
  const uint batch = number / blocks / record.heads;
  if (batch >= record.batch) return;
  const uint first_query = block * kRows;
  if (kRepairs != 0u && are_finite(record.y, batch, head, first_query, record.queries,
                                   record.value_width)) {
    return;
  }
  for (uint c = lane; c < kMostWidth; c += kLocalSize) {
    [[unroll]] for (uint r = 0u; r < kRows; ++r) {
      const uint query = min(first_query + r, record.queries - 1u);
      float value = 0.0;
      if (c < record.width) value = element(record.q, at(record.q, batch, head, query), c);
      queries[r][c] = value;
      sums[r][c] = 0.0;
    }
  }
  const uint key_head = head / (record.heads / record.key_heads);
  const float sink = sink_of(head);
  vec4 peaks = vec4(-infinity()), totals = vec4(0.0);
  uint sees = 0u;
  const uvec2 range = range_of_tiles(true, first_query, record.keys);
  for (uint first_key = range.x; first_key < range.y; first_key += kTile) {
    const uint tile = min(kTile, record.keys - first_key);
    barrier();
    score_tile(batch, head, first_query, first_key);
    barrier();
    vec4 now = peaks, factors;
    for (uint j = 0u; j < tile; ++j) {
      sees |= seen[j];
      [[unroll]] for (uint r = 0u; r < kRows; ++r) {
        if (row_sees(r, j)) now[r] = larger_of(now[r], weights[r][j]);
      }
    }
    // If all scores so far are -inf, there is nothing to scale.
    [[unroll]] for (uint r = 0u; r < kRows; ++r) {
      factors[r] = peaks[r] == now[r] ? 1.0 : exp_f32(peaks[r] - now[r]);
    }
    peaks = now;
    barrier();
    for (uint j = lane; j < kTile; j += kLocalSize) {
      [[unroll]] for (uint r = 0u; r < kRows; ++r) {
        float weight = 0.0;
        if (row_sees(r, j) && peaks[r] != -infinity()) weight = exp_f32(weights[r][j] - peaks[r]);
        weights[r][j] = weight;
      }
    }
    barrier();
    vec4 total = vec4(0.0);
    for (uint j = 0u; j < tile; ++j) {
      [[unroll]] for (uint r = 0u; r < kRows; ++r) total[r] += weights[r][j];
    }
    totals = totals * factors + total;
    if (kHasDropout != 0u) {
      barrier();
      drop_tile(batch, head, first_query, first_key);
      barrier();
    }
    for (uint c = lane; c < record.value_width; c += kLocalSize) {
      vec4 added = vec4(0.0);
      for (uint first = 0u; first < tile; first += 4u) {
        [[unroll]] for (uint d = 0u; d < 4u; ++d) {
          const uint j = first + d;
          if (j < tile && seen[j] != 0u) {
            const float value =
                element(record.v, at(record.v, batch, key_head, first_key + j), c);
            [[unroll]] for (uint r = 0u; r < kRows; ++r) {
              if (row_sees(r, j)) added[r] += weights[r][j] * value;
            }
          }
        }
      }
      [[unroll]] for (uint r = 0u; r < kRows; ++r) {
        sums[r][c] = sums[r][c] * factors[r] + added[r];
      }
    }
  }
  barrier();
  [[unroll]] for (uint r = 0u; r < kRows; ++r) {
    const uint query = first_query + r;
    if (query >= record.queries) continue;
    const uint64_t row = at(record.y, batch, head, query);
    // A row whose scores are all -inf counts as a row that sees no key.
    const bool sees_any = (sees >> r & 1u) != 0u && peaks[r] != -infinity();
    const float divisor = sink == -infinity() ? totals[r] : totals[r] + exp_f32(sink - peaks[r]);
    for (uint c = lane; c < record.value_width; c += kLocalSize) {
      store_f32(kType, column(row, record.y, c), sees_any ? sums[r][c] / divisor : 0.0);
    }
    if (lane == 0u && record.lse.address != 0ul) {
      const float peak = larger_of(peaks[r], sink);
      float total = peak == peaks[r] ? totals[r] : totals[r] * exp_f32(peaks[r] - peak);
      if (sink != -infinity()) total += exp_f32(sink - peak);
      const float lse = peak == -infinity() ? peak : peak + log_f32(total);
      Float32(at(record.lse, batch, head, query)).value = lse;
    }
  }
}
