#version 460
#extension GL_GOOGLE_include_directive : require
// The strided elements of map.comp, where tensors are bound and rows of eight elements are dense, or
// one element again and again, in each of them.
#define BOUND_ROWS
#include "map_bound.glsl"
