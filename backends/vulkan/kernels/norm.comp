#version 460
#extension GL_GOOGLE_include_directive : require
// layer_norm and rms_norm, and their gradients, for tensors of every layout.
#include "norm.glsl"
