// The scan of running.comp and exponentials.comp along one axis: kLanes invocations share a line,
// and take a block of it with one element for each. Its lanes combine states with lanes 1, 2, 4, ...
// places before them. The including file defines
//   FIRST, SECOND              the types of the two numbers of a State
//   State none()               that of no elements
//   State load(x, index)       that of the element at the address x, number `index` of its line
//   State combine(a, b)        that of both; the elements of a come first
//   void store(line, place, state)   writes the results of an element
#include "axes.glsl"

layout(constant_id = 1) const uint kLanes = 8;
layout(constant_id = 2) const uint kType = 14;
layout(constant_id = 3) const uint kRank = 1;
layout(constant_id = 4) const uint kWantsLargest = 1;
layout(constant_id = 5) const uint kHasIndices = 0;
layout(constant_id = 6) const uint kIndexType = 7;

BP_RECORD {
  uint64_t x, y, indices;  // The first elements in the order of the scan.
  uint64_t line_number;
  uint64_t size;           // The elements of a line.
  uint extents[8];         // The other axes.
  int64_t x_step, y_step, index_step;  // In bytes, along the axis.
  int64_t x_strides[8], y_strides[8], index_strides[8];
} BP_RECORD_NAME;

struct State {
  FIRST first;
  SECOND second;
};

struct Line {
  uint64_t x, y, indices;
};

uint64_t moved(uint64_t address, int64_t step, uint64_t steps) {
  return address + uint64_t(step * int64_t(steps));
}

State none();
State load(uint64_t address, uint64_t index);
State combine(State a, State b);
void store(Line line, uint64_t place, State state);

shared FIRST lane_firsts[kLocalSize];
shared SECOND lane_seconds[kLocalSize];

void put(uint lane, State state) {
  barrier();
  lane_firsts[lane] = state.first;
  lane_seconds[lane] = state.second;
  barrier();
}

State taken(uint lane) { return State(lane_firsts[lane], lane_seconds[lane]); }

// Scans a line with all its lanes. Every invocation of the workgroup calls it.
void scan_together(Line line, bool exists) {
  const uint self = gl_LocalInvocationID.x, lane = self & (kLanes - 1u);
  State total = none();
  for (uint64_t done = 0ul; done < record.size; done += uint64_t(kLanes)) {
    const uint64_t place = done + uint64_t(lane);
    const bool is_inside = exists && place < record.size;
    State own = none();
    if (is_inside) own = load(moved(line.x, record.x_step, place), place);
    for (uint step = 1u; step < kLanes; step <<= 1) {
      put(self, own);
      if (lane >= step) own = combine(taken(self - step), own);
    }
    put(self, own);
    if (is_inside) store(line, place, combine(total, own));
    total = combine(total, taken(self | (kLanes - 1u)));
  }
}

// Scans a line with one invocation.
void scan_alone(Line line) {
  State total = none();
  for (uint64_t place = 0ul; place < record.size; ++place) {
    total = combine(total, load(moved(line.x, record.x_step, place), place));
    store(line, place, total);
  }
}

void main() {
  const uint number = group_number() * (kLocalSize / kLanes) + gl_LocalInvocationID.x / kLanes;
  const bool exists = uint64_t(number) < record.line_number;
  const uint chosen = exists ? number : 0u;
  Line line;
  line.x = record.x + offset_of(chosen, kRank, record.extents, record.x_strides);
  line.y = record.y + offset_of(chosen, kRank, record.extents, record.y_strides);
  line.indices = record.indices;
  if (kHasIndices != 0u) {
    line.indices += offset_of(chosen, kRank, record.extents, record.index_strides);
  }
  if (kLanes > 1u) {
    scan_together(line, exists);
  } else if (exists) {
    scan_alone(line);
  }
}
