#version 460
#extension GL_GOOGLE_include_directive : require
// Computes the dense elements of map.comp if tensors are bound.
#include "map_bound.glsl"
