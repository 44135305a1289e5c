#include "backends/cpu/kernels/product_batch.hpp"

#include "backends/common/product_batch.hpp"

namespace bp::kernels {

int64_t batch_count(const Product& p) {
  int64_t count = 1;
  for (uint32_t i = 0; i < p.batch_ndim; ++i) count *= p.batch[i];
  return count;
}

Product folded(Product p) {
  fold_batch_into_rows(p);
  merge_batch_axes(p);
  return p;
}

}  // namespace bp::kernels
