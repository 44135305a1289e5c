// Invocations that work on one row together: kLanes of them, a power of two that divides the
// workgroup, next to each other in it.
layout(constant_id = 1) const uint kLanes = 8;

shared float lane_floats[kLocalSize];

uint lane() { return gl_LocalInvocationID.x & (kLanes - 1u); }

// The row of this invocation. Rows behind the last one exist too: their lanes take part in barriers.
uint row_number() {
  return group_number() * (kLocalSize / kLanes) + gl_LocalInvocationID.x / kLanes;
}

// The sum over the lanes of a row, the same in each: in an order that depends on kLanes alone.
float sum_lanes(float value) {
  if (kLanes == 1u) return value;
  const uint self = gl_LocalInvocationID.x;
  for (uint step = kLanes >> 1; step > 0u; step >>= 1) {
    barrier();
    lane_floats[self] = value;
    barrier();
    value += lane_floats[self ^ step];
  }
  return value;
}

float max_lanes(float value) {
  if (kLanes == 1u) return value;
  const uint self = gl_LocalInvocationID.x;
  for (uint step = kLanes >> 1; step > 0u; step >>= 1) {
    barrier();
    lane_floats[self] = value;
    barrier();
    value = larger_of(value, lane_floats[self ^ step]);
  }
  return value;
}
