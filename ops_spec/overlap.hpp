// Finds whether strided tensors share memory. If no cheap proof exists that they do not, they count
// as sharing memory.
#pragma once

#include <cstdint>
#include <limits>

#include "backplane/tensor.h"

namespace bp {

// Returns whether two elements of `tensor` may lie in one place, as with a stride of 0. It is false
// only if the axes can be put in an order in which each axis steps over all that the later axes
// reach.
[[nodiscard]] bool overlaps_itself(const bp_tensor& tensor);

// Returns whether `a` and `b` may share a byte. It is false for different buffers, for ranges that
// do not meet, and for slices that lie beside each other, such as two blocks of columns of one
// matrix.
[[nodiscard]] bool overlap(const bp_tensor& a, const bp_tensor& b);

// Returns whether element i of `a` and element i of `b` are the same for every i.
[[nodiscard]] bool is_same_memory(const bp_tensor& a, const bp_tensor& b);

inline constexpr int64_t kFarthestByte = std::numeric_limits<int64_t>::max();

// The bytes [begin, end) of the buffer. Both are 0 for a tensor without elements. A range that
// cannot be counted ends at kFarthestByte.
struct ByteRange {
  int64_t begin;
  int64_t end;

  [[nodiscard]] bool is_empty() const { return begin == 0 && end == 0; }
};
[[nodiscard]] ByteRange byte_range(const bp_tensor& tensor);

}  // namespace bp
