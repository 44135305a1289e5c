#version 460
#extension GL_GOOGLE_include_directive : require
// sum, mean, amax and argmax, for tensors of every layout.
#include "reduce.glsl"
