#version 460
#extension GL_GOOGLE_include_directive : require
// softmax and log_softmax, and their gradients, for tensors of every layout.
#include "softmax.glsl"
