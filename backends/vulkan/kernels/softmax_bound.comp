#version 460
#extension GL_GOOGLE_include_directive : require
// softmax and log_softmax, and their gradients, for bound tensors whose rows are vectors. Buffer 0
// is the result, and buffers 1 and 2 are the operands.
#define BOUND_ROWS
#include "softmax.glsl"
