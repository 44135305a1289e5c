#version 460
#extension GL_GOOGLE_include_directive : require
// The gradients of sdpa. Weights p are computed again from the scores and lse. Then
//
//   s = p * (grad_y v^T - delta), with delta = sum(grad_y * y) of each query, times the slope of
//       the soft cap
//   grad_q = scale * s k,  grad_k = scale * s^T q,  grad_v = p^T grad_y
//
// Dropout multiplies p by m: then s = p * (m * grad_y v^T - delta), and grad_v = (p * m)^T grad_y. If
// m is 0, so is m * grad_y v^T, and the weight adds nothing to grad_v, whatever v and grad_y are.
//
// Both sides work in the same way: the rows are queries and the keys come in tiles, or the rows are
// keys and the queries of all heads that share them come in tiles. Each side has a vector for the
// scores (q, k) and a vector of values (grad_y, v). delta is computed first, with one invocation
// for each query. The gradient of a sink is the sum of -exp(sink - lse) * delta over the queries of
// its head, by one workgroup.
#include "sdpa.glsl"

layout(constant_id = 6) const uint kStep = 0;
layout(constant_id = 7) const uint kRepairs = 0;  // If 1, only blocks with values that are not
                                                  // finite.

const uint kDelta = 0u, kQueries = 1u, kKeys = 2u, kSinks = 3u;
const uint kMostBackwardWidth = 192u;

shared float scored[kRows][kMostBackwardWidth];
shared float valued[kRows][kMostBackwardWidth];
shared float score_sums[kRows][kMostBackwardWidth];
shared float value_sums[kRows][kMostBackwardWidth];
shared float weights[kRows][kTile];
shared float slopes[kRows][kTile];
shared uint seen[kTile];  // A bit for each row that is seen, and kRows above it if it is kept.

uint64_t delta_of(uint64_t base, uint batch, uint head, uint query) {
  const uint row = (batch * record.heads + head) * record.queries + query;
  return base + 4ul * uint64_t(row);
}

void run_delta(uint64_t delta) {
  const uint number = group_number() * kLocalSize + gl_LocalInvocationID.x;
  if (number >= record.batch * record.heads * record.queries) return;
  const uint query = number % record.queries, head = number / record.queries % record.heads;
  const uint batch = number / record.queries / record.heads;
  const uint64_t y = at(record.y, batch, head, query);
  const uint64_t grad_y = at(record.grad_y, batch, head, query);
  float sum = 0.0;
  for (uint c = 0u; c < record.value_width; ++c) {
    sum += element(record.y, y, c) * element(record.grad_y, grad_y, c);
  }
  Float32(delta_of(delta, batch, head, query)).value = sum;
}

void run_sinks(uint64_t delta) {
  const uint head = group_number();
  if (head >= record.heads) return;
  const float sink = sink_of(head);
  float sum = 0.0;
  for (uint i = gl_LocalInvocationID.x; i < record.batch * record.queries; i += kLocalSize) {
    const uint batch = i / record.queries, query = i % record.queries;
    const float lse = Float32(at(record.lse, batch, head, query)).value;
    if (lse == -infinity()) continue;
    sum -= exp_f32(sink - lse) * Float32(delta_of(delta, batch, head, query)).value;
  }
  score_sums[0][gl_LocalInvocationID.x] = sum;
  barrier();
  if (gl_LocalInvocationID.x != 0u) return;
  float total = 0.0;
  for (uint i = 0u; i < kLocalSize; ++i) total += score_sums[0][i];
  Float32(at(record.grad_sinks, head, 0u, 0u)).value = total;
}

// One side of a pair, with the places of its two vectors.
struct Side {
  uint64_t scored, valued;
};

Side side_of(bool is_query, uint batch, uint head, uint row) {
  if (is_query) {
    return Side(at(record.q, batch, head, row), at(record.grad_y, batch, head, row));
  }
  return Side(at(record.k, batch, head, row), at(record.v, batch, head, row));
}

float scored_at(bool is_query, Side side, uint c) {
  if (is_query) return element(record.q, side.scored, c);
  return element(record.k, side.scored, c);
}

float valued_at(bool is_query, Side side, uint c) {
  if (is_query) return element(record.grad_y, side.valued, c);
  return element(record.v, side.valued, c);
}

// The values that stay the same while a workgroup walks over one head.
struct Place {
  uint batch, head, key_head, first_row;
};

// Computes the weights and slopes of a tile.
void weigh_tile(uint64_t delta, Place p, uint first) {
  const bool rows_are_queries = kStep == kQueries;
  const uint count = rows_are_queries ? record.keys : record.queries;
  for (uint j = gl_LocalInvocationID.x; j < kTile; j += kLocalSize) {
    const uint other = min(first + j, count - 1u);
    const Side side = side_of(!rows_are_queries, p.batch,
                              rows_are_queries ? p.key_head : p.head, other);
    vec4 scores = vec4(0.0), values = vec4(0.0);
    for (uint c = 0u; c < record.width; ++c) {
      const float value = scored_at(!rows_are_queries, side, c);
      [[unroll]] for (uint r = 0u; r < kRows; ++r) scores[r] += scored[r][c] * value;
    }
    for (uint c = 0u; c < record.value_width; ++c) {
      const float value = valued_at(!rows_are_queries, side, c);
      [[unroll]] for (uint r = 0u; r < kRows; ++r) values[r] += valued[r][c] * value;
    }
    uint bits = 0u;
    [[unroll]] for (uint r = 0u; r < kRows; ++r) {
      const uint query = rows_are_queries ? p.first_row + r : other;
      const uint key = rows_are_queries ? other : p.first_row + r;
      if (first + j >= count || !is_seen(p.batch, p.head, query, key)) continue;
      const float lse = Float32(at(record.lse, p.batch, p.head, query)).value;
      if (lse == -infinity()) continue;  // All scores are -inf, so the row sees no key.
      const float factor = factor_at(p.batch, p.head, query, key);
      bits |= (factor == 0.0 ? 1u : 1u | 1u << kRows) << r;
      const float product = record.scale * scores[r], t = bent(product);
      const float score = capped(product) + bias_at(p.batch, p.head, query, key);
      const float weight = exp_f32(score - lse);
      const float d = Float32(delta_of(delta, p.batch, p.head, query)).value;
      const float slope = factor == 0.0 ? 0.0 : factor * values[r];
      weights[r][j] = weight * factor;
      slopes[r][j] = weight * (1.0 - t * t) * (slope - d);
    }
    seen[j] = bits;
  }
}

// Adds a tile to the sums.
void add_tile(Place p, uint first) {
  const bool rows_are_queries = kStep == kQueries;
  const uint count = rows_are_queries ? record.keys : record.queries;
  const uint tile = min(kTile, count - first), head = rows_are_queries ? p.key_head : p.head;
  const uint columns = max(record.width, rows_are_queries ? 0u : record.value_width);
  for (uint c = gl_LocalInvocationID.x; c < columns; c += kLocalSize) {
    vec4 by_score = vec4(0.0), by_value = vec4(0.0);
    for (uint j = 0u; j < tile; ++j) {
      if (seen[j] == 0u) continue;
      const Side side = side_of(!rows_are_queries, p.batch, head, first + j);
      float score = 0.0, value = 0.0;
      if (c < record.width) score = scored_at(!rows_are_queries, side, c);
      if (!rows_are_queries && c < record.value_width) {
        value = valued_at(!rows_are_queries, side, c);
      }
      [[unroll]] for (uint r = 0u; r < kRows; ++r) {
        if ((seen[j] >> r & 1u) == 0u) continue;
        by_score[r] += slopes[r][j] * score;
        if (rows_are_queries || (seen[j] >> (r + kRows) & 1u) == 0u) continue;
        by_value[r] += weights[r][j] * value;
      }
    }
    [[unroll]] for (uint r = 0u; r < kRows; ++r) {
      score_sums[r][c] += by_score[r];
      value_sums[r][c] += by_value[r];
    }
  }
}

void write_sums(Place p) {
  const bool rows_are_queries = kStep == kQueries;
  const uint count = rows_are_queries ? record.queries : record.keys;
  [[unroll]] for (uint r = 0u; r < kRows; ++r) {
    const uint row = p.first_row + r;
    if (row >= count) continue;
    for (uint c = gl_LocalInvocationID.x; c < record.width; c += kLocalSize) {
      const float value = record.scale * score_sums[r][c];
      if (rows_are_queries) {
        store_f32(kType, column(at(record.grad_q, p.batch, p.head, row), record.grad_q, c), value);
      } else if (record.grad_k.address != 0ul) {
        store_f32(kType, column(at(record.grad_k, p.batch, p.key_head, row), record.grad_k, c),
                  value);
      }
    }
    if (rows_are_queries || record.grad_v.address == 0ul) continue;
    for (uint c = gl_LocalInvocationID.x; c < record.value_width; c += kLocalSize) {
      store_f32(kType, column(at(record.grad_v, p.batch, p.key_head, row), record.grad_v, c),
                value_sums[r][c]);
    }
  }
}

// Returns whether the rows of `p` need no repair.
bool is_right(Place p, uint row_head, uint rows) {
  if (kStep == kQueries) {
    return are_finite(record.grad_q, p.batch, row_head, p.first_row, rows, record.width);
  }
  const bool is_k_right =
      are_finite(record.grad_k, p.batch, row_head, p.first_row, rows, record.width);
  return are_finite(record.grad_v, p.batch, row_head, p.first_row, rows, record.value_width) &&
         is_k_right;
}

void main() {
  const uint64_t delta = record.delta;
  if (kStep == kDelta) {
    run_delta(delta);
    return;
  }
  if (kStep == kSinks) {
    run_sinks(delta);
    return;
  }
  const bool rows_are_queries = kStep == kQueries;
  const uint rows = rows_are_queries ? record.queries : record.keys;
  const uint others = rows_are_queries ? record.keys : record.queries;
  const uint row_heads = rows_are_queries ? record.heads : record.key_heads;
  const uint served = record.heads / record.key_heads;
  const uint blocks = (rows + kRows - 1u) / kRows, number = group_number();
  const uint row_head = number / blocks % row_heads;
  Place p;
  p.batch = number / blocks / row_heads;
  p.first_row = number % blocks * kRows;
  p.key_head = rows_are_queries ? row_head / served : row_head;
  if (p.batch >= record.batch) return;
  if (kRepairs != 0u && is_right(p, row_head, rows)) return;
  for (uint c = gl_LocalInvocationID.x; c < kMostBackwardWidth; c += kLocalSize) {
    [[unroll]] for (uint r = 0u; r < kRows; ++r) {
      const Side side = side_of(rows_are_queries, p.batch, row_head,
                                min(p.first_row + r, rows - 1u));
      scored[r][c] = c < record.width ? scored_at(rows_are_queries, side, c) : 0.0;
      valued[r][c] = c < record.value_width ? valued_at(rows_are_queries, side, c) : 0.0;
      score_sums[r][c] = value_sums[r][c] = 0.0;
    }
  }
  const uint first_head = rows_are_queries ? row_head : row_head * served;
  const uint head_count = rows_are_queries ? 1u : served;
  const uvec2 range = range_of_tiles(rows_are_queries, p.first_row, others);
  for (uint h = 0u; h < head_count; ++h) {
    p.head = first_head + h;
    for (uint first = range.x; first < range.y; first += kTile) {
      barrier();
      weigh_tile(delta, p, first);
      barrier();
      add_tile(p, first);
    }
  }
  barrier();
  write_sums(p);
}
