// Products of bf16 by AMX, the tile registers of some x86 processors. Pairs are summed in f32, and
// subnormal elements and sums count as 0.
#pragma once

#include <cstdint>

namespace bp::kernels {

// The rows of a tile, and the elements of bf16 in one of its rows.
constexpr int64_t kAmxRows = 16, kAmxDepth = 32;

// Returns whether this processor has AMX for bf16, and the system lets this process use it.
bool has_amx_bf16();

// Gives the calling thread its tile registers while it lives. has_amx_bf16() must be true.
class AmxScope {
 public:
  AmxScope();
  ~AmxScope();
  AmxScope(const AmxScope&) = delete;
  AmxScope& operator=(const AmxScope&) = delete;
};

// Computes c = a b within an AmxScope.
//
//   a  (rows, depth)         elements of bf16, with rows `a_stride` elements apart
//   b  (depth / 2, 32, 2)    element (k, j, i) is row 2 * k + i of column j, without gaps
//   c  (rows, 32)            f32, without gaps
//
// `rows` is a multiple of kAmxRows, and `depth` of kAmxDepth.
void multiply_amx(const uint16_t* a, int64_t a_stride, const uint32_t* b, int64_t rows,
                  int64_t depth, float* c);

}  // namespace bp::kernels
