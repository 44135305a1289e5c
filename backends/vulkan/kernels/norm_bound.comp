#version 460
#extension GL_GOOGLE_include_directive : require
// layer_norm and rms_norm, and their gradients, for bound tensors whose rows are vectors. Buffer 0
// is written. Buffer 1 is x, 2 is gamma, and 3 is beta or grad_y.
#define BOUND_ROWS
#include "norm.glsl"
