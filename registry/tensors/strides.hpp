// Computes where the elements of a tensor lie from its shape and its strides.
//
// Header-only: the registry, the runtime and the engine of the suite include it. Backends cannot,
// since they see the api alone: they have the same questions in backplane/shell/shape.hpp.
//
// Shapes have no negative extents here, and ranks are at most BP_MAX_RANK. Shapes and strides may
// come from outside, except where a function says that its caller knows something of them.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backplane/tensor.h"

namespace bp::tensors {

// Returns the low 64 bits of the product.
constexpr int64_t wrapped_product(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}

// A type for offsets of elements that exceed 64 bits.
__extension__ using Wide = __int128;

inline bool has_elements(uint32_t ndim, const int64_t* shape) {
  return std::find(shape, shape + ndim, 0) == shape + ndim;
}
inline bool has_elements(const bp_tensor& t) { return has_elements(t.ndim, t.shape); }

// Returns the number of elements. The caller knows that 64 bits hold it.
inline int64_t element_count(uint32_t ndim, const int64_t* shape) {
  int64_t count = 1;
  for (uint32_t axis = 0; axis < ndim; ++axis) count *= shape[axis];
  return count;
}
inline int64_t element_count(const bp_tensor& t) { return element_count(t.ndim, t.shape); }

// Returns whether each stride is the product of the extents behind it; the strides of extents 1 are
// free. It is false for some tensors without elements, whose strides mean nothing. If it is true,
// *out_count is the number of elements.
//
// Each launch calls this function, and a check for overflow takes a seventh more time. So products
// wrap around: both answers may be wrong for more elements than 64 bits hold, which no memory
// holds.
inline bool has_contiguous_strides(const bp_tensor& t, int64_t* out_count) {
  int64_t expected = 1;
  for (uint32_t axis = t.ndim; axis-- > 0;) {
    if (t.shape[axis] == 1) continue;
    if (t.strides[axis] != expected) return false;
    expected = wrapped_product(expected, t.shape[axis]);
  }
  *out_count = expected;
  return true;
}

// Returns whether the elements lie in row-major order without gaps. It is true for every tensor
// without elements.
inline bool is_contiguous(const bp_tensor& t) {
  int64_t count;
  return has_contiguous_strides(t, &count) || !has_elements(t);
}

// Counts an extent of 0 as 1, so that no stride is 0. The caller knows that 64 bits hold the
// product.
inline void set_contiguous_strides(uint32_t ndim, const int64_t* shape, int64_t* strides) {
  int64_t stride = 1;
  for (uint32_t axis = ndim; axis-- > 0;) {
    strides[axis] = stride;
    stride *= std::max<int64_t>(shape[axis], 1);
  }
}

// Returns the bytes from the first element on that `count` packed elements of `bits` take. Both
// numbers are those of a tensor that fits memory.
constexpr uint64_t packed_bytes(uint64_t count, uint32_t bits) {
  return bits % 8 == 0 ? count * (bits / 8) : (count * bits + 7) / 8;
}

// The elements of memory that a tensor reaches, relative to element (0, ..., 0).
struct Reach {
  Wide lowest = 0;
  Wide highest = 0;  // Below `lowest` if there are no elements.

  // Counts the elements that lie between the two as well.
  Wide span() const { return highest - lowest + 1; }
};

// An axis that leads farther than 2^80 elements counts as 2^80, which exceeds every memory.
inline Reach reach_of(uint32_t ndim, const int64_t* shape, const int64_t* strides) {
  constexpr Wide kFarthest = Wide{1} << 80;
  Reach reach;
  if (!has_elements(ndim, shape)) return {0, -1};
  for (uint32_t axis = 0; axis < ndim; ++axis) {
    const Wide last = Wide{shape[axis] - 1} * strides[axis];
    (last < 0 ? reach.lowest : reach.highest) += std::clamp(last, -kFarthest, kFarthest);
  }
  return reach;
}
inline Reach reach_of(const bp_tensor& t) { return reach_of(t.ndim, t.shape, t.strides); }

}  // namespace bp::tensors
