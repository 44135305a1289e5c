// sum, mean, amax and argmax over any axes: kLanes invocations share one result.
//
//   outer axes   one result each; long reductions are cut into parts, with a result each
//   inner axes   what is reduced; lane l takes elements l, l + kLanes, ...
//
// Sums are added up in blocks of 64, so that the error grows with the square root of their length.
// Compiled for each type that it computes in.
#include "prelude.glsl"
#include "element.glsl"
#if defined(BOUND_ROWS)
#include "row_values.glsl"
#endif

layout(constant_id = 1) const uint kLanes = 8;
layout(constant_id = 2) const uint kOp = 0;
layout(constant_id = 3) const uint kToType = 14;
layout(constant_id = 4) const uint kFromType = 14;
layout(constant_id = 5) const uint kOuterRank = 1;
layout(constant_id = 6) const uint kInnerRank = 1;
layout(constant_id = 7) const uint kAcross = 0;  // Bound: neighbours belong to results next to each other.

const uint kSum = 0u, kMean = 1u, kAmax = 2u, kArgmax = 3u;

BP_RECORD {
  uint64_t x, y;
  uint64_t outer_count;  // Results, those of parts counted each.
  uint64_t inner_count;  // Elements that are reduced to a result.
  uint64_t part_count;   // Parts of each result: the innermost of the outer axes.
  uint64_t part_size;    // Elements of a part.
  uint64_t divisor;      // Of the mean.
  uint outer_extents[8];
  int64_t outer_x[8];    // Strides in bytes, the innermost axis first.
  int64_t outer_y[8];
  uint inner_extents[8];
  int64_t inner_x[8];
  int64_t y_step;        // Across, from one of the four results to the next.
} BP_RECORD_NAME;

#if defined(COMPUTE_F32)
#define VALUE float
VALUE load(uint64_t address) { return load_f32(kFromType, address); }
void store(uint64_t address, VALUE value) { store_f32(kToType, address, value); }
VALUE lowest() { return -infinity(); }
bool is_none(VALUE x) { return is_nan(x); }
#elif defined(COMPUTE_F64)
spirv_execution_mode(extensions = ["SPV_KHR_float_controls"], capabilities = [4466], 4461, 64);
#define VALUE double
VALUE load(uint64_t address) { return packDouble2x32(unpackUint2x32(Bytes8(address).value)); }
void store(uint64_t address, VALUE value) {
  Bytes8(address).value = packUint2x32(unpackDouble2x32(value));
}
VALUE lowest() { return packDouble2x32(uvec2(0u, 0xfff00000u)); }
bool is_none(VALUE x) {
  return (packUint2x32(unpackDouble2x32(x)) & 0x7ffffffffffffffful) > 0x7ff0000000000000ul;
}
#else
#define VALUE int64_t
VALUE load(uint64_t address) { return load_i64(kFromType, address); }
void store(uint64_t address, VALUE value) { store_i64(kToType, address, value); }
VALUE lowest() { return int64_t(0x8000000000000000ul); }
bool is_none(VALUE x) { return false; }
#endif

shared VALUE lane_values[kLocalSize];
shared uint64_t lane_places[kLocalSize];

struct Best {
  VALUE value;
  uint64_t place;
};

// The larger of two elements, and the first one of equals; NaN is larger than every number.
Best better(Best a, Best b) {
  const bool none_a = is_none(a.value), none_b = is_none(b.value);
  bool takes_b = a.value < b.value || (a.value == b.value && b.place < a.place);
  if (none_a || none_b) takes_b = none_b && (!none_a || b.place < a.place);
  if (takes_b) return b;
  return a;
}

VALUE combine(VALUE a, VALUE b) {
  if (kOp == kSum || kOp == kMean) return a + b;
  return is_none(b) ? b : (a < b ? b : a);
}

uint64_t inner_address(uint64_t base, uint64_t index) {
  uint64_t at = base;
  uint rest = uint(index);
  [[unroll]] for (uint axis = 0u; axis < 8u; ++axis) {
    if (axis >= kInnerRank) continue;
    uint place = rest;
    if (axis + 1u < kInnerRank) {
      const uint extent = record.inner_extents[axis];
      place = rest % extent;
      rest = rest / extent;
    }
    at += uint64_t(int64_t(uint64_t(place)) * record.inner_x[axis]);
  }
  return at;
}

// The value of this lane: of elements begin + lane, begin + lane + kLanes, ... below end.
VALUE reduce_lane(uint64_t base, uint64_t begin, uint64_t end) {
  const bool adds = kOp == kSum || kOp == kMean;
  VALUE result = adds ? VALUE(0) : lowest();
  uint64_t i = begin;
  while (i < end) {
    VALUE block = adds ? VALUE(0) : lowest();
    for (uint k = 0u; k < 64u && i < end; ++k, i += uint64_t(kLanes)) {
      block = combine(block, load(inner_address(base, i)));
    }
    result = combine(result, block);
  }
  return result;
}

Best find_lane(uint64_t base, uint64_t begin, uint64_t end, uint64_t first) {
  Best best = Best(lowest(), end);
  if (begin < end) best = Best(load(inner_address(base, begin)), begin);
  for (uint64_t i = begin + uint64_t(kLanes); i < end; i += uint64_t(kLanes)) {
    const VALUE value = load(inner_address(base, i));
    best = better(best, Best(value, i));
  }
  return best;
}

// What is left of a result: the divisor of a mean.
VALUE finished(VALUE value) {
  if (kOp != kMean) return value;
#if defined(COMPUTE_F32)
  if (record.divisor == 0ul) return quiet_nan();
#elif defined(COMPUTE_F64)
  if (record.divisor == 0ul) return packDouble2x32(uvec2(0u, 0x7ff80000u));
#endif
  return record.divisor == 0ul ? value : value / VALUE(record.divisor);
}

#if defined(BOUND_ROWS)
vec4 combine(vec4 a, vec4 b) {
  return vec4(combine(a.x, b.x), combine(a.y, b.y), combine(a.z, b.z), combine(a.w, b.w));
}

// The values of this lane, as reduce_lane() has its value. Bytes from `base` on count from the begin
// of x.
vec4 reduce_vectors(uint64_t base, uint64_t begin, uint64_t end) {
  const uint step = kAcross != 0u ? 1u : kNeighbours;
  const vec4 none = vec4(kOp == kAmax ? lowest() : 0.0);
  vec4 result = none;
  uint i = uint(begin) * step;  // Lanes begin one vector behind each other.
  const uint last = uint(end);
  while (i < last) {
    vec4 block = none;
    for (uint k = 0u; k < 64u && i < last; ++k, i += kLanes * step) {
      const uint64_t place = inner_address(base, uint64_t(i));
      block = combine(block, load_values(1u, kFromType, place_of(kFromType, 0ul, place)));
    }
    result = combine(result, block);
  }
  return result;
}
#endif

void main() {
  const uint self = gl_LocalInvocationID.x, lane = self & (kLanes - 1u);
  const uint row = group_number() * (kLocalSize / kLanes) + self / kLanes;
  const bool exists = uint64_t(row) < record.outer_count;
  const uint parts = uint(record.part_count);
  uint rest = exists ? row : 0u;
  const uint part = rest % parts;
  uint64_t from = record.x, to = record.y;
  [[unroll]] for (uint axis = 0u; axis < 8u; ++axis) {
    if (axis >= kOuterRank) continue;
    const uint extent = record.outer_extents[axis];
    const uint next = rest / extent;
    const int64_t place = int64_t(uint64_t(rest - next * extent));
    rest = next;
    from += uint64_t(place * record.outer_x[axis]);
    to += uint64_t(place * record.outer_y[axis]);
  }
  const uint64_t first = uint64_t(part) * record.part_size;
  const uint64_t end = exists ? min(first + record.part_size, record.inner_count) : 0ul;

  if (kOp == kArgmax) {
    Best best = find_lane(from, first + uint64_t(lane), end, first);
    for (uint step = kLanes >> 1; step > 0u; step >>= 1) {
      barrier();
      lane_values[self] = best.value;
      lane_places[self] = best.place;
      barrier();
      // A lane without elements has the place `end`, and never the better one.
      const Best other = Best(lane_values[self ^ step], lane_places[self ^ step]);
      if (other.place < end) best = best.place < end ? better(best, other) : other;
    }
    if (exists && lane == 0u) Bytes8(to).value = best.place;
    return;
  }
#if defined(BOUND_ROWS)
  // A part begins at a vector.
  const uint64_t begin = kAcross != 0u ? first + uint64_t(lane)
                                       : first / uint64_t(kNeighbours) + uint64_t(lane);
  const vec4 values = reduce_vectors(from, begin, end);
  if (kAcross != 0u) {
    [[unroll]] for (uint c = 0u; c < kNeighbours; ++c) {
      if (exists) store(to + uint64_t(record.y_step * int64_t(c)), finished(values[c]));
    }
    return;
  }
  VALUE value = combine(combine(values.x, values.y), combine(values.z, values.w));
#else
  VALUE value = reduce_lane(from, first + uint64_t(lane), end);
#endif
  for (uint step = kLanes >> 1; step > 0u; step >>= 1) {
    barrier();
    lane_values[self] = value;
    barrier();
    value = combine(value, lane_values[self ^ step]);
  }
  if (exists && lane == 0u) store(to, finished(value));
}
