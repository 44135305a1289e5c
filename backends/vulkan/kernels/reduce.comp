#version 460
#extension GL_GOOGLE_include_directive : require
// argmax, argmin, and the reductions with a formula, for tensors of every layout.
#include "reduce.glsl"
