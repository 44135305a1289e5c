// Shows validation layers, which do not track addresses, a range that a dispatch reads or writes.
// This shader runs before each dispatch and names one of its ranges in a descriptor. It does
// nothing, because its argument is never 0.
#version 460
#extension GL_EXT_scalar_block_layout : require

layout(local_size_x = 1) in;
layout(push_constant, scalar) uniform Push { uvec2 argument; } push;

#ifdef COMPUTE_READ
layout(set = 0, binding = 0, scalar) readonly buffer Shadow { uint words[]; } shadow;
#else
layout(set = 0, binding = 0, scalar) writeonly buffer Shadow { uint words[]; } shadow;
#endif

shared uint kept;

void main() {
  if (push.argument != uvec2(0)) return;
#ifdef COMPUTE_READ
  kept = shadow.words[0];
#else
  shadow.words[0] = 0;
#endif
}
