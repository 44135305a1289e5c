#version 460
#extension GL_GOOGLE_include_directive : require
// layer_norm and rms_norm, and their gradients, where tensors are bound and rows are vectors. Buffer
// 0 is what is written, 1 is x, 2 gamma, and 3 beta or grad_y.
#define BOUND_ROWS
#include "norm.glsl"
