#version 460
#extension GL_GOOGLE_include_directive : require
// The reductions with a formula in f32, where x is bound, as buffer 1, and four neighbours of it
// belong to one result, or to four.
#define COMPUTE_F32
#define BOUND_ROWS
#include "reduce.glsl"
