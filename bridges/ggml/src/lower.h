// How each op of ggml is computed: one function per op, or family of ops.
//
// A function reads the node, makes views of its tensors, and launches what gives its result. It
// throws Refusal where a form of the op is not served. Several functions write the result in
// parts; the node's result never overlaps its inputs then (Parts in lower.cpp).
#pragma once

#include "emitter.h"

namespace bpg {

// Emits the node. Nodes that are views alone, and those without elements, emit nothing.
void lower(Emitter& e, const ggml_tensor* node);

using LowerFn = void(Emitter& e, const ggml_tensor* node);

LowerFn lower_binary, lower_unary_op, lower_unary, lower_glu, lower_scale, lower_clamp,
    lower_leaky_relu, lower_fill;
LowerFn lower_mul_mat;
LowerFn lower_copy;

// Repeats `b` to the shape of `a`, whose extents are multiples of those of `b`. `a` and `y` get
// more axes where `b` has more than one element and fewer than `a`.
void repeat_like(View& b, View& a, View& y);

// The parameters of a node, which ggml keeps as words.
float float_param(const ggml_tensor* node, int index);
int32_t int_param(const ggml_tensor* node, int index);

}  // namespace bpg
