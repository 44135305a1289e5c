// Walks over the batch of a product.
#pragma once

#include <cstdint>

#include "backplane/shell/product.hpp"

namespace bp::kernels {

// Where the matrices of one index of the batch begin, in elements.
struct BatchOffsets {
  int64_t a = 0, b = 0, y = 0, preactivation = 0;
};

// Calls fn(BatchOffsets) for each index of the first `axes` of the batch.
template <typename Fn>
void for_each_batch(const Product& p, uint32_t axes, int64_t begin, int64_t end, Fn&& fn) {
  for (int64_t index = begin; index < end; ++index) {
    BatchOffsets offsets;
    int64_t rest = index;
    for (uint32_t i = axes; i-- > 0; rest /= p.batch[i]) {
      const int64_t at = rest % p.batch[i];
      offsets.a += at * p.a.batch_strides[i];
      offsets.b += at * p.b.batch_strides[i];
      offsets.y += at * p.y.batch_strides[i];
      offsets.preactivation += at * p.preactivation.batch_strides[i];
    }
    fn(offsets);
  }
}

}  // namespace bp::kernels
