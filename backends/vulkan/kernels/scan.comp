#version 460
#extension GL_GOOGLE_include_directive : require
// cumsum and cumprod along one axis. A line of elements may be cut into parts, and kLanes
// invocations share a part.
//
//   totals   the total of each part, in scratch memory: only kWrites differs from the next stage
//   scan     the results; a part begins with the total of the parts before it, if there are several
//
// A block has one element for each lane. Its lanes combine totals with lanes 1, 2, 4, ... places
// before them. If an invocation has a part of its own, a block has 64 elements. So an error grows
// with the number of blocks and with the size of one, not with the number of elements.
//
// The shader is compiled for each type in which it computes.
#include "prelude.glsl"
#include "element.glsl"
#include "axes.glsl"

layout(constant_id = 1) const uint kLanes = 8;
layout(constant_id = 2) const uint kMultiplies = 0;
layout(constant_id = 3) const uint kToType = 14;
layout(constant_id = 4) const uint kFromType = 14;
layout(constant_id = 5) const uint kRank = 1;
layout(constant_id = 6) const uint kWrites = 1;
layout(constant_id = 7) const uint kIsExclusive = 0;
layout(constant_id = 8) const uint kHasTotals = 0;

BP_RECORD {
  uint64_t x, y;           // The first elements in the order of the scan.
  uint64_t totals;         // (lines, parts), as VALUE: written, or the totals before each part.
  uint64_t part_number;    // The parts of all lines.
  uint64_t size;           // The elements of a line.
  uint64_t part_size;
  uint64_t part_count;     // The parts of a line.
  uint extents[8];         // The other axes.
  int64_t x_step, y_step;  // In bytes, along the axis.
  int64_t x_strides[8], y_strides[8];
} BP_RECORD_NAME;

#if defined(COMPUTE_F32)
#define VALUE float
const uint kValueBytes = 4u;
VALUE load(uint64_t address) { return load_f32(kFromType, address); }
void store(uint64_t address, VALUE value) { store_f32(kToType, address, value); }
VALUE load_total(uint64_t address) { return load_f32(BP_F32, address); }
void store_total(uint64_t address, VALUE value) { store_f32(BP_F32, address, value); }
#elif defined(COMPUTE_F64)
spirv_execution_mode(extensions = ["SPV_KHR_float_controls"], capabilities = [4466], 4461, 64);
#define VALUE double
const uint kValueBytes = 8u;
VALUE load(uint64_t address) { return packDouble2x32(unpackUint2x32(Bytes8(address).value)); }
void store(uint64_t address, VALUE value) {
  Bytes8(address).value = packUint2x32(unpackDouble2x32(value));
}
VALUE load_total(uint64_t address) { return load(address); }
void store_total(uint64_t address, VALUE value) { store(address, value); }
#else
#define VALUE int64_t
const uint kValueBytes = 8u;
VALUE load(uint64_t address) { return load_i64(kFromType, address); }
void store(uint64_t address, VALUE value) { store_i64(kToType, address, value); }
VALUE load_total(uint64_t address) { return load_i64(BP_I64, address); }
void store_total(uint64_t address, VALUE value) { store_i64(BP_I64, address, value); }
#endif

shared VALUE lane_values[kLocalSize];

VALUE identity() { return VALUE(kMultiplies); }

VALUE combine(VALUE a, VALUE b) {
  if (kMultiplies != 0u) return a * b;
  return a + b;
}

uint64_t moved(uint64_t address, int64_t step, uint64_t steps) {
  return address + uint64_t(step * int64_t(steps));
}

// Returns the total up to this lane. All invocations of the workgroup call it.
VALUE scan_lanes(VALUE value, uint self, uint lane) {
  for (uint step = 1u; step < kLanes; step <<= 1) {
    barrier();
    lane_values[self] = value;
    barrier();
    if (lane >= step) value = combine(lane_values[self - step], value);
  }
  barrier();
  lane_values[self] = value;
  barrier();
  return value;
}

// Scans the elements from `begin` to `end` with all lanes of the part. A block that is behind `end`
// in this part may be within it in another one.
VALUE scan_part(uint64_t x, uint64_t y, uint64_t begin, uint64_t end, VALUE total) {
  const uint self = gl_LocalInvocationID.x, lane = self & (kLanes - 1u);
  for (uint64_t done = 0ul; done < record.part_size; done += uint64_t(kLanes)) {
    const uint64_t place = begin + done + uint64_t(lane);
    VALUE value = identity();
    if (place < end) value = load(moved(x, record.x_step, place));
    const VALUE own = scan_lanes(value, self, lane);
    if (kWrites != 0u && place < end) {
      VALUE before = total;
      if (kIsExclusive == 0u) {
        before = combine(total, own);
      } else if (lane > 0u) {
        before = combine(total, lane_values[self - 1u]);
      }
      store(moved(y, record.y_step, place), before);
    }
    total = combine(total, lane_values[self | (kLanes - 1u)]);
  }
  return total;
}

// Scans the same elements with one invocation.
VALUE scan_alone(uint64_t x, uint64_t y, uint64_t begin, uint64_t end, VALUE total) {
  uint64_t i = begin;
  while (i < end) {
    VALUE block = identity();
    for (uint k = 0u; k < 64u && i < end; ++k, ++i) {
      const VALUE value = load(moved(x, record.x_step, i));
      const VALUE before = block;
      block = combine(block, value);
      if (kWrites != 0u) {
        store(moved(y, record.y_step, i), combine(total, kIsExclusive != 0u ? before : block));
      }
    }
    total = combine(total, block);
  }
  return total;
}

void main() {
  const uint self = gl_LocalInvocationID.x;
  const uint number = group_number() * (kLocalSize / kLanes) + self / kLanes;
  const bool exists = uint64_t(number) < record.part_number;
  const uint taken = exists ? number : 0u;
  const uint parts = uint(record.part_count), line = taken / parts, part = taken - line * parts;
  const uint64_t x = record.x + offset_of(line, kRank, record.extents, record.x_strides);
  const uint64_t y = record.y + offset_of(line, kRank, record.extents, record.y_strides);
  const uint64_t begin = uint64_t(part) * record.part_size;
  const uint64_t end = exists ? min(begin + record.part_size, record.size) : begin;
  const uint64_t place = record.totals + uint64_t(taken) * uint64_t(kValueBytes);
  VALUE total = identity();
  if (kHasTotals != 0u) total = load_total(place);
  if (kLanes > 1u) {
    total = scan_part(x, y, begin, end, total);
  } else {
    total = scan_alone(x, y, begin, end, total);
  }
  if (kWrites == 0u && exists && (self & (kLanes - 1u)) == 0u) store_total(place, total);
}
