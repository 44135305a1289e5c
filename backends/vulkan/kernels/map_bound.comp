#version 460
#extension GL_GOOGLE_include_directive : require
// The dense elements of map.comp, where tensors are bound.
#include "map_bound.glsl"
