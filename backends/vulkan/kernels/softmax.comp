#version 460
#extension GL_GOOGLE_include_directive : require
// softmax and log_softmax, and their gradients, for tensors of every layout.
// Compiled for each type that it computes in.
#include "softmax.glsl"
