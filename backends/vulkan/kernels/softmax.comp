#version 460
#extension GL_GOOGLE_include_directive : require
// softmax and log_softmax, and their gradients, for tensors of every layout. The shader is compiled
// for each type in which it computes.
#include "softmax.glsl"
