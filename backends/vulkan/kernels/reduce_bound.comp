#version 460
#extension GL_GOOGLE_include_directive : require
// The reductions with a formula in f32, if x is bound as buffer 1 and four neighbours in it belong
// to one result, or to four.
#define COMPUTE_F32
#define BOUND_ROWS
#include "reduce.glsl"
