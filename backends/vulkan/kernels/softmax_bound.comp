#version 460
#extension GL_GOOGLE_include_directive : require
// softmax and log_softmax, and their gradients, where tensors are bound and rows are vectors. Buffer
// 0 is the result, and 1 and 2 are the operands.
#define BOUND_ROWS
#include "softmax.glsl"
