// argmax, argmin, and the reductions with a formula, such as sum and amax, over any axes. kLanes
// invocations share one result.
//
//   outer axes   one result each; long reductions are cut into parts, with a result each
//   inner axes   what is reduced; lane l takes elements l, l + kLanes, ...
//
// Sums are added in blocks of 64, so that the error grows with the square root of their length. The
// formulas are emitted (ops_spec/emit_reductions.py). If a formula has a shift, an earlier dispatch
// has found the largest element of each result. The parts of a long reduction only map their
// elements; the dispatch that combines the parts finishes the results. If the map is a condition,
// invocations count in 64 bits, whatever type x has, and parts are counts.
//
// The shader is compiled for each type in which it computes.
#include "prelude.glsl"
#include "element.glsl"
#if defined(COMPUTE_F32)
#include "math.glsl"
#elif defined(COMPUTE_F64)
#include "math64.glsl"
#endif
#if defined(BOUND_ROWS)
#include "row_values.glsl"
#endif

layout(constant_id = 1) const uint kLanes = 8;
layout(constant_id = 2) const uint kOp = 0;
layout(constant_id = 3) const uint kToType = 14;
layout(constant_id = 4) const uint kFromType = 14;
layout(constant_id = 5) const uint kOuterRank = 1;
layout(constant_id = 6) const uint kInnerRank = 1;
layout(constant_id = 7) const uint kAcross = 0;  // If bound, neighbours belong to different
                                                 // results.

layout(constant_id = 8) const uint kMaps = 1;
layout(constant_id = 9) const uint kFinishes = 1;

const uint kArgmax = 303u, kArgmin = 310u;  // They are BP_OP_ARGMAX and BP_OP_ARGMIN.

BP_RECORD {
  uint64_t x, y;
  uint64_t shifts;       // The largest element of each result, as VALUE.
  uint64_t outer_count;  // The results, counting each part.
  uint64_t inner_count;  // The elements that are reduced to a result.
  uint64_t part_count;   // The parts of each result, the innermost outer axis.
  uint64_t part_size;    // The elements of a part.
  uint64_t count;        // The elements of a result, in all parts.
  uint outer_extents[8];
  int64_t outer_x[8];    // Strides in bytes, the innermost axis first.
  int64_t outer_y[8];
  uint inner_extents[8];
  int64_t inner_x[8];
  int64_t y_step;        // The distance of the four results, if across.
} BP_RECORD_NAME;

#if defined(COMPUTE_F32)
#define VALUE float
VALUE load(uint64_t address) { return load_f32(kFromType, address); }
void store(uint64_t address, VALUE value) { store_f32(kToType, address, value); }
VALUE largest_of(uint number) { return load_f32(BP_F32, record.shifts + 4ul * uint64_t(number)); }
VALUE lowest() { return -infinity(); }
VALUE highest() { return infinity(); }
bool is_none(VALUE x) { return is_nan(x); }
#elif defined(COMPUTE_F64)
spirv_execution_mode(extensions = ["SPV_KHR_float_controls"], capabilities = [4466], 4461, 64);
#define VALUE double
VALUE load(uint64_t address) { return packDouble2x32(unpackUint2x32(Bytes8(address).value)); }
void store(uint64_t address, VALUE value) {
  Bytes8(address).value = packUint2x32(unpackDouble2x32(value));
}
VALUE largest_of(uint number) { return load(record.shifts + 8ul * uint64_t(number)); }
VALUE lowest() { return packDouble2x32(uvec2(0u, 0xfff00000u)); }
VALUE highest() { return packDouble2x32(uvec2(0u, 0x7ff00000u)); }
bool is_none(VALUE x) { return is_nan(x); }
#else
#define VALUE int64_t
VALUE load(uint64_t address) { return load_i64(kFromType, address); }
void store(uint64_t address, VALUE value) { store_i64(kToType, address, value); }
VALUE lowest() { return int64_t(0x8000000000000000ul); }
VALUE highest() { return int64_t(0x7ffffffffffffffful); }
bool is_none(VALUE x) { return false; }
#endif
#include "primitives.glsl"
#if defined(COMPUTE_F32)
#include "reductions_f32.glsl"
#elif defined(COMPUTE_F64)
#include "reductions_f64.glsl"
#else
#include "reductions_integers.glsl"
#endif

shared VALUE lane_values[kLocalSize];
shared uint64_t lane_places[kLocalSize];  // Or counts.

struct Best {
  VALUE value;
  uint64_t place;
};

// Returns the larger of two elements, or for argmin the smaller one, or the first one if they are
// equal. NaN is more extreme than every number.
Best better(Best a, Best b) {
  const bool none_a = is_none(a.value), none_b = is_none(b.value);
  const bool is_rising = is_below(a.value, b.value), is_falling = is_below(b.value, a.value);
  const bool is_b_beyond = kOp == kArgmin ? is_falling : is_rising;
  bool takes_b = is_b_beyond || (!is_rising && !is_falling && b.place < a.place);
  if (none_a || none_b) takes_b = none_b && (!none_a || b.place < a.place);
  if (takes_b) return b;
  return a;
}

VALUE combine(VALUE a, VALUE b) {
  if (adds()) return a + b;
  if (multiplies()) return a * b;
  if (is_smallest()) return smaller_of(a, b);
  return larger_of(a, b);
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

// Returns the value with which each result begins.
VALUE identity() {
  if (adds()) return VALUE(0);
  if (multiplies()) return VALUE(1);
  return is_smallest() ? highest() : lowest();
}

// Returns the shift of a result, which is its largest element, or 0 if that is infinite. The
// largest of no elements is -infinity.
VALUE shift_of(uint number) {
#if defined(COMPUTE_F32) || defined(COMPUTE_F64)
  if (has_shift()) {
    const VALUE largest = largest_of(number);
    return abs(largest) == VALUE(infinity()) ? VALUE(0) : largest;
  }
#endif
  return VALUE(0);
}

VALUE mapped(VALUE x, VALUE shift) { return kMaps != 0u ? map_of(x, shift) : x; }

// Returns the value of this lane, over the elements begin + lane, begin + lane + kLanes, ... below
// end.
VALUE reduce_lane(uint64_t base, uint64_t begin, uint64_t end, VALUE shift) {
  VALUE result = identity();
  uint64_t i = begin;
  while (i < end) {
    VALUE block = identity();
    for (uint k = 0u; k < 64u && i < end; ++k, i += uint64_t(kLanes)) {
      block = combine(block, mapped(load(inner_address(base, i)), shift));
    }
    result = combine(result, block);
  }
  return result;
}

// Returns the count of this lane, over the same elements: how many the condition holds for. The
// elements of a pass without a map are counts.
uint64_t count_lane(uint64_t base, uint64_t begin, uint64_t end) {
  uint64_t count = 0ul;
  for (uint64_t i = begin; i < end; i += uint64_t(kLanes)) {
    const uint64_t address = inner_address(base, i);
    if (kMaps != 0u) {
      count += holds(load(address)) ? 1ul : 0ul;
    } else {
      count += uint64_t(load_i64(kFromType, address));
    }
  }
  return count;
}

void store_count(uint64_t address, uint64_t count) {
  uint64_t result = count;
  if (kFinishes != 0u && is_any()) result = count != 0ul ? 1ul : 0ul;
  if (kFinishes != 0u && is_all()) result = count == record.count ? 1ul : 0ul;
  store_i64(kToType, address, int64_t(result));
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

// Returns the finished result. The result of no elements is emitted, because drivers differ on 0 /
// 0.
VALUE finished(VALUE total, VALUE shift) {
  if (kFinishes == 0u) return total;
  if (record.count == 0ul) return result_of_none(total);
  return finish_of(total, VALUE(record.count), shift);
}

#if defined(BOUND_ROWS)
vec4 combine(vec4 a, vec4 b) {
  return vec4(combine(a.x, b.x), combine(a.y, b.y), combine(a.z, b.z), combine(a.w, b.w));
}

vec4 mapped(vec4 x, vec4 shift) {
  return vec4(mapped(x.x, shift.x), mapped(x.y, shift.y), mapped(x.z, shift.z),
              mapped(x.w, shift.w));
}

// Returns the shifts of neighbours: of result `number`, or of four results from there on.
vec4 shifts_of(uint number) {
  if (kAcross == 0u) return vec4(shift_of(number));
  return vec4(shift_of(number), shift_of(number + 1u), shift_of(number + 2u),
              shift_of(number + 3u));
}

// Returns the values of this lane, as reduce_lane() does. `base` counts bytes from the begin of x.
vec4 reduce_vectors(uint64_t base, uint64_t begin, uint64_t end, vec4 shift) {
  const uint step = kAcross != 0u ? 1u : kNeighbours;
  vec4 result = vec4(identity());
  uint i = uint(begin) * step;  // Lanes begin one vector apart.
  const uint last = uint(end);
  while (i < last) {
    vec4 block = vec4(identity());
    for (uint k = 0u; k < 64u && i < last; ++k, i += kLanes * step) {
      const uint64_t place = inner_address(base, uint64_t(i));
      const vec4 x = load_values(1u, kFromType, place_of(kFromType, 0ul, place));
      block = combine(block, mapped(x, shift));
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
  const uint part = rest % parts, number = rest / parts;
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

  if (kOp == kArgmax || kOp == kArgmin) {
    Best best = find_lane(from, first + uint64_t(lane), end, first);
    for (uint step = kLanes >> 1; step > 0u; step >>= 1) {
      barrier();
      lane_values[self] = best.value;
      lane_places[self] = best.place;
      barrier();
      // A lane without elements has the place `end`, and its element is never better.
      const Best other = Best(lane_values[self ^ step], lane_places[self ^ step]);
      if (other.place < end) best = best.place < end ? better(best, other) : other;
    }
    if (exists && lane == 0u) store_i64(kToType, to, int64_t(best.place));
    return;
  }
  if (counts()) {
    uint64_t count = count_lane(from, first + uint64_t(lane), end);
    for (uint step = kLanes >> 1; step > 0u; step >>= 1) {
      barrier();
      lane_places[self] = count;
      barrier();
      count += lane_places[self ^ step];
    }
    if (exists && lane == 0u) store_count(to, count);
    return;
  }
#if defined(BOUND_ROWS)
  // A part begins at a vector.
  const uint64_t begin = kAcross != 0u ? first + uint64_t(lane)
                                       : first / uint64_t(kNeighbours) + uint64_t(lane);
  const vec4 shifts = shifts_of(kAcross != 0u ? number * kNeighbours : number);
  const vec4 values = reduce_vectors(from, begin, end, shifts);
  if (kAcross != 0u) {
    [[unroll]] for (uint c = 0u; c < kNeighbours; ++c) {
      if (exists) store(to + uint64_t(record.y_step * int64_t(c)), finished(values[c], shifts[c]));
    }
    return;
  }
  VALUE value = combine(combine(values.x, values.y), combine(values.z, values.w));
  const VALUE shift = shifts.x;
#else
  const VALUE shift = shift_of(number);
  VALUE value = reduce_lane(from, first + uint64_t(lane), end, shift);
#endif
  for (uint step = kLanes >> 1; step > 0u; step >>= 1) {
    barrier();
    lane_values[self] = value;
    barrier();
    value = combine(value, lane_values[self ^ step]);
  }
  if (exists && lane == 0u) store(to, finished(value, shift));
}
