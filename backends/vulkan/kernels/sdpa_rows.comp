#version 460
#extension GL_GOOGLE_include_directive : require
// The step on rows of scores between the products of attention. kLanes invocations share a row and
// take four neighbours at a time. `scores` is buffer 0 of set 0, and `slopes` is buffer 1.
//
//   forward   scores become weights, softmax(scale * score + bias) over the keys that are seen and
//             the sink
//   backward  scores become weights, exp(scale * score + bias - lse), and slopes, the products of
//             grad_y and v, scale * weight * (slope - delta)
//
// A soft cap bends scale * score, and its own slope multiplies the slopes.
//
// A key that is not seen has the weight 0, whatever its score is.
//
// Dropout multiplies the weights by factors m at the end. The slopes are then scale * weight * (m *
// slope - delta).
#include "prelude.glsl"
#include "element.glsl"
#include "math.glsl"
#include "lanes.glsl"
#define SUMMED vec4
#include "sum.glsl"
#include "weight_dropout.glsl"

layout(constant_id = 2) const uint kStage = 0;
layout(constant_id = 3) const uint kType = 14;  // The dtype of the bias.
layout(constant_id = 4) const uint kHasMask = 0;
layout(constant_id = 5) const uint kHasBias = 0;
layout(constant_id = 6) const uint kHasBand = 0;
layout(constant_id = 7) const uint kHasDropout = 0;

const uint kForward = 0u, kBackward = 1u;

struct Tensor {
  uint64_t address;
  int64_t strides[4];  // Bytes: batch, head, row and column.
};

BP_RECORD {
  Tensor mask, bias, lse, delta;  // Missing if 0. delta and lse have no columns.
  uint first_batch, first_head, first_query, first_key;  // Where the part begins.
  uint heads, queries, keys;                             // The extents of the part.
  uint row_count, row_vectors;                           // The extents of its memory.
  int band_begin, band_end;  // Query i sees the keys from i + begin on, before i + end.
  float scale, softcap;      // There is no cap if it is 0.
  uint reserved;
  Tensor sinks;              // The stride of heads is the first one.
  Dropout dropout;
} BP_RECORD_NAME;

layout(set = 0, binding = 0, scalar) buffer Scores { vec4 v[]; } scores;
layout(set = 0, binding = 1, scalar) buffer Slopes { vec4 v[]; } slopes;

// A row: its place in vectors, the keys that it has, the range of those that it sees, its sink, and
// the rows of its tensors.
struct Row {
  bool exists;
  uint first, vectors, seen_begin, seen_end;
  float sink;
  uint64_t mask, bias, lse, delta;
  uint64_t number;  // The number of its first weight, for the dropout.
};

uint64_t row_of(Tensor t, uint batch, uint head, uint query) {
  return t.address + uint64_t(int64_t(uint64_t(batch)) * t.strides[0] +
                              int64_t(uint64_t(head)) * t.strides[1] +
                              int64_t(uint64_t(query)) * t.strides[2]);
}

Row find_row(uint number) {
  Row row;
  row.exists = number < record.row_count;
  const uint place = row.exists ? number : 0u;
  const uint query = record.first_query + place % record.queries;
  const uint head = record.first_head + place / record.queries % record.heads;
  const uint batch = record.first_batch + place / record.queries / record.heads;
  row.first = place * record.row_vectors;
  row.vectors = row.exists ? (record.keys + 3u) / 4u : 0u;
  row.seen_begin = 0u;
  row.seen_end = record.keys;
  if (kHasBand != 0u) {
    const int place_of_query = int(query) - int(record.first_key), keys = int(record.keys);
    row.seen_begin = uint(clamp(place_of_query + record.band_begin, 0, keys));
    row.seen_end = uint(clamp(place_of_query + record.band_end, 0, keys));
  }
  row.sink = -infinity();
  if (record.sinks.address != 0ul) row.sink = Float32(row_of(record.sinks, head, 0u, 0u)).value;
  row.mask = row_of(record.mask, batch, head, query);
  row.bias = row_of(record.bias, batch, head, query);
  row.lse = row_of(record.lse, batch, head, query);
  row.delta = row_of(record.delta, batch, head, query);
  row.number = 0ul;
  if (kHasDropout != 0u) {
    row.number = weight_number(record.dropout, batch, head, query, record.first_key);
  }
  return row;
}

uint64_t column(uint64_t row, Tensor t, uint key) {
  return row + uint64_t(int64_t(uint64_t(record.first_key + key)) * t.strides[3]);
}

// Returns tanh(scale * score / softcap) of vector i, or 0 if there is no soft cap.
vec4 bent(Row row, uint i) {
  vec4 t = vec4(0.0);
  if (record.softcap == 0.0) return t;
  const vec4 score = record.scale * scores.v[row.first + i];
  [[unroll]] for (uint c = 0u; c < 4u; ++c) t[c] = tanh_f32(score[c] / record.softcap);
  return t;
}

// Returns scale * score + bias of vector i, or -inf for keys that are not seen.
vec4 shifted(Row row, uint i) {
  vec4 score = record.softcap == 0.0 ? record.scale * scores.v[row.first + i]
                                     : record.softcap * bent(row, i);
  [[unroll]] for (uint c = 0u; c < 4u; ++c) {
    const uint key = 4u * i + c;
    bool is_seen = key >= row.seen_begin && key < row.seen_end;
    if (kHasMask != 0u && is_seen) {
      is_seen = uint(Bytes1(column(row.mask, record.mask, key)).value) != 0u;
    }
    if (kHasBias != 0u && is_seen) {
      score[c] += load_f32(kType, column(row.bias, record.bias, key));
    }
    if (!is_seen) score[c] = -infinity();
  }
  return score;
}

// Returns what dropout multiplies the weights of vector i by.
vec4 factors(Row row, uint i) {
  if (kHasDropout == 0u) return vec4(1.0);
  return dropout_factors(record.dropout, row.number + uint64_t(4u * i));
}

float value_of(Sum sum) {
  const vec4 total = sum_of(sum);
  return sum_lanes((total.x + total.y) + (total.z + total.w));
}

void run_forward(Row row) {
  const bool keeps_scores = kHasMask + kHasBias != 0u || record.softcap != 0.0;
  vec4 peaks = vec4(row.sink);
  for (uint i = lane(); i < row.vectors; i += kLanes) {
    const vec4 score = shifted(row, i);
    if (keeps_scores) scores.v[row.first + i] = score;
    [[unroll]] for (uint c = 0u; c < 4u; ++c) peaks[c] = larger_of(peaks[c], score[c]);
  }
  const float peak =
      max_lanes(larger_of(larger_of(peaks.x, peaks.y), larger_of(peaks.z, peaks.w)));
  Sum sum = no_sum();
  for (uint i = lane(); i < row.vectors; i += kLanes) {
    vec4 weight = keeps_scores ? scores.v[row.first + i] : shifted(row, i);
    [[unroll]] for (uint c = 0u; c < 4u; ++c) {
      weight[c] = weight[c] == -infinity() ? 0.0 : exp_of_negative(weight[c] - peak);
    }
    take(sum, weight);
    scores.v[row.first + i] = weight;
  }
  const float of_sink = row.sink == -infinity() ? 0.0 : exp_of_negative(row.sink - peak);
  const float total = value_of(sum) + of_sink;
  for (uint i = lane(); i < row.vectors; i += kLanes) {
    const vec4 weight = scores.v[row.first + i];
    scores.v[row.first + i] = total == 0.0 ? vec4(0.0) : weight / total * factors(row, i);
  }
  if (!row.exists || lane() != 0u || record.lse.address == 0ul) return;
  Float32(row.lse).value = peak == -infinity() ? peak : peak + log_f32(total);
}

void run_backward(Row row) {
  const float lse = row.exists ? Float32(row.lse).value : 0.0;
  const float delta = row.exists ? Float32(row.delta).value : 0.0;
  for (uint i = lane(); i < row.vectors; i += kLanes) {
    const vec4 t = bent(row, i);
    vec4 weight = shifted(row, i);
    [[unroll]] for (uint c = 0u; c < 4u; ++c) {
      weight[c] = weight[c] == -infinity() ? 0.0 : exp_f32(weight[c] - lse);
    }
    const vec4 factor = factors(row, i);
    const vec4 of_value = slopes.v[row.first + i] * factor;
    vec4 slope = record.scale * weight * (1.0 - t * t) * (of_value - delta);
    [[unroll]] for (uint c = 0u; c < 4u; ++c) slope[c] = weight[c] == 0.0 ? 0.0 : slope[c];
    scores.v[row.first + i] = weight * factor;
    slopes.v[row.first + i] = slope;
  }
}

void main() {
  const Row row = find_row(row_number());
  if (kStage == kForward) {
    run_forward(row);
  } else {
    run_backward(row);
  }
}
