// The parts that the kernels of attention share: the record, tensors by coordinates, the keys that
// a query sees, and the test for rows to repair.
//
// A workgroup works on kRows rows at once, which are queries or keys, so that all of them use what
// it reads of the other side. The other side is read in tiles of kTile.
#include "prelude.glsl"
#include "element.glsl"
#include "math.glsl"
#include "weight_dropout.glsl"

layout(constant_id = 1) const uint kType = 14;
layout(constant_id = 2) const uint kHasMask = 0;
layout(constant_id = 3) const uint kHasBias = 0;
layout(constant_id = 4) const uint kHasBand = 0;

layout(constant_id = 5) const uint kHasDropout = 0;

const uint kRows = 4u, kTile = 64u, kMostWidth = 256u;

struct Tensor {
  uint64_t address;
  int64_t strides[4];  // Bytes: batch, head, row and column.
};

BP_RECORD {
  Tensor q, k, v, mask, bias, y, lse;
  Tensor grad_y, grad_q, grad_k, grad_v;  // Not wanted if the address is 0.
  uint batch, heads, key_heads, queries, keys, width, value_width;
  float scale;
  float softcap;             // None if 0.
  int band_begin, band_end;  // Query i sees the keys from i + begin on, before i + end.
  uint reserved;
  Tensor sinks, grad_sinks;  // The stride of heads is the first one.
  uint64_t delta;  // For the gradient: (batch, heads, queries), f32.
  Dropout dropout;
} BP_RECORD_NAME;

uint64_t at(Tensor t, uint batch, uint head, uint row) {
  return t.address + uint64_t(int64_t(uint64_t(batch)) * t.strides[0] +
                              int64_t(uint64_t(head)) * t.strides[1] +
                              int64_t(uint64_t(row)) * t.strides[2]);
}

uint64_t column(uint64_t row, Tensor t, uint i) {
  return row + uint64_t(int64_t(uint64_t(i)) * t.strides[3]);
}

float element(Tensor t, uint64_t row, uint i) { return load_f32(kType, column(row, t, i)); }

bool is_seen(uint batch, uint head, uint query, uint key) {
  if (query >= record.queries || key >= record.keys) return false;
  const int distance = int(key) - int(query);
  if (kHasBand != 0u && (distance < record.band_begin || distance >= record.band_end)) return false;
  if (kHasMask == 0u) return true;
  const uint64_t row = at(record.mask, batch, head, query);
  return uint(Bytes1(column(row, record.mask, key)).value) != 0u;
}

// Returns the range of the other side, in whole tiles, in which a row of a block sees, or is seen by,
// something.
uvec2 range_of_tiles(bool rows_are_queries, uint first_row, uint others) {
  if (kHasBand == 0u) return uvec2(0u, others);
  const int first = int(first_row), last = first + int(kRows) - 1;
  const int low = rows_are_queries ? first + record.band_begin : first - record.band_end + 1;
  const int high = rows_are_queries ? last + record.band_end : last - record.band_begin + 1;
  const uint begin = uint(clamp(low, 0, int(others))) / kTile * kTile;
  return uvec2(begin, uint(clamp(high, 0, int(others))));
}

// Returns tanh(x / softcap), or 0 if there is no soft cap. Its slope is then 1.
float bent(float x) { return record.softcap == 0.0 ? 0.0 : tanh_f32(x / record.softcap); }

float capped(float x) { return record.softcap == 0.0 ? x : record.softcap * bent(x); }

// Returns the sink of a head, or -inf if there are no sinks.
float sink_of(uint head) {
  if (record.sinks.address == 0ul) return -infinity();
  return Float32(at(record.sinks, head, 0u, 0u)).value;
}

float bias_at(uint batch, uint head, uint query, uint key) {
  if (kHasBias == 0u) return 0.0;
  return element(record.bias, at(record.bias, batch, head, query), key);
}

// Returns what dropout multiplies a weight by.
float factor_at(uint batch, uint head, uint query, uint key) {
  if (kHasDropout == 0u) return 1.0;
  return dropout_factor(record.dropout, weight_number(record.dropout, batch, head, query, key));
}

// Returns whether all elements of kRows rows, or of the rows that exist, are finite. All
// invocations of the workgroup call it, and get the same result.
//
// If attention is computed by products, a key that a query does not see has the weight 0, which
// times a value that is not finite is NaN. A kernel that repairs computes such rows again without
// the keys that are not seen.
shared uint is_wrong;

bool are_finite(Tensor t, uint batch, uint head, uint first, uint rows, uint width) {
  if (t.address == 0ul) return true;
  barrier();
  if (gl_LocalInvocationID.x == 0u) is_wrong = 0u;
  barrier();
  for (uint r = first; r < min(first + kRows, rows); ++r) {
    const uint64_t row = at(t, batch, head, r);
    for (uint c = gl_LocalInvocationID.x; c < width; c += kLocalSize) {
      if (!(abs(element(t, row, c)) < infinity())) is_wrong = 1u;
    }
  }
  barrier();
  return is_wrong == 0u;
}
