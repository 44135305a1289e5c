// kLanes invocations work on one row together. kLanes is a power of two that divides the size of
// the workgroup, and the invocations are next to each other in it.
//
// They exchange values through shared memory, or by shuffles if a subgroup holds the workgroup. If
// a processor runs shaders, shared memory is slow, because barriers keep every variable of an
// invocation in memory.
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require

layout(constant_id = 1) const uint kLanes = 8;

shared float lane_floats[kLocalSize];

uint lane() { return gl_LocalInvocationID.x & (kLanes - 1u); }

// Returns the row of this invocation. It may be behind the last row, because the lanes of such rows
// take part in barriers too.
uint row_number() {
  return group_number() * (kLocalSize / kLanes) + gl_LocalInvocationID.x / kLanes;
}

// Returns the value of the lane whose number differs in the bit `step`.
float exchange(float value, uint step) {
  if (kLocalSize == kLanes && kLanes <= gl_SubgroupSize) {
    return subgroupShuffleXor(value, step);
  }
  barrier();
  lane_floats[gl_LocalInvocationID.x] = value;
  barrier();
  return lane_floats[gl_LocalInvocationID.x ^ step];
}

// Returns the sum over the lanes of a row, with the same bits in each lane. The order of the sum
// depends on kLanes alone.
float sum_lanes(float value) {
  [[unroll]] for (uint step = 128u; step > 0u; step >>= 1) {
    if (step < kLanes) value += exchange(value, step);
  }
  return value;
}

float max_lanes(float value) {
  [[unroll]] for (uint step = 128u; step > 0u; step >>= 1) {
    if (step < kLanes) value = larger_of(value, exchange(value, step));
  }
  return value;
}

#if defined(COMPUTE_F64)
// f64 values are exchanged as two words.
shared uvec2 lane_doubles[kLocalSize];

double exchange(double value, uint step) {
  const uvec2 words = unpackDouble2x32(value);
  if (kLocalSize == kLanes && kLanes <= gl_SubgroupSize) {
    return packDouble2x32(subgroupShuffleXor(words, step));
  }
  barrier();
  lane_doubles[gl_LocalInvocationID.x] = words;
  barrier();
  return packDouble2x32(lane_doubles[gl_LocalInvocationID.x ^ step]);
}

double sum_lanes(double value) {
  [[unroll]] for (uint step = 128u; step > 0u; step >>= 1) {
    if (step < kLanes) value += exchange(value, step);
  }
  return value;
}

double max_lanes(double value) {
  [[unroll]] for (uint step = 128u; step > 0u; step >>= 1) {
    if (step < kLanes) value = larger_of(value, exchange(value, step));
  }
  return value;
}
#endif
