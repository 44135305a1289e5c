#version 460
#extension GL_GOOGLE_include_directive : require
// Computes the strided elements of map.comp if tensors are bound, and rows of eight elements are
// dense, or repeat one element, in each of them.
#define BOUND_ROWS
#include "map_bound.glsl"
