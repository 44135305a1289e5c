// Whether strided tensors share memory. Where no cheap proof exists that they do not, they count as
// sharing it.
#pragma once

#include <cstdint>
#include <limits>

#include "backplane/tensor.h"

namespace bp {

// Whether two elements of `tensor` may lie in one place, as with a stride of 0. False only where
// the axes can be put in an order in which each steps over all that the ones after it reach.
[[nodiscard]] bool overlaps_itself(const bp_tensor& tensor);

// Whether `a` and `b` may share a byte. False for other buffers, for ranges that do not meet, and
// for slices that lie beside each other, such as two blocks of columns of one matrix.
[[nodiscard]] bool overlap(const bp_tensor& a, const bp_tensor& b);

// Whether element i of `a` and of `b` are the same for every i.
[[nodiscard]] bool is_same_memory(const bp_tensor& a, const bp_tensor& b);

inline constexpr int64_t kFarthestByte = std::numeric_limits<int64_t>::max();

// [begin, end) in bytes of the buffer; both 0 for a tensor without elements. What cannot be counted
// ends at kFarthestByte.
struct ByteRange {
  int64_t begin;
  int64_t end;

  [[nodiscard]] bool is_empty() const { return begin == 0 && end == 0; }
};
[[nodiscard]] ByteRange byte_range(const bp_tensor& tensor);

}  // namespace bp
