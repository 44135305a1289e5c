#include "backplane/runtime/counted.hpp"

#include "backplane/runtime/ops.hpp"

namespace bp {

Tensor used_rows(const Tensor& rows, const Tensor& count) {
  return rows.narrow(0, 0, count.item<int64_t>());
}

Tensor exact_nonzero(const Tensor& x) {
  Tensor count;
  const Tensor rows = nonzero(x, &count);
  return used_rows(rows, count);
}

Tensor exact_masked_select(const Tensor& x, const Tensor& mask) {
  Tensor count;
  const Tensor rows = masked_select(x, mask, &count);
  return used_rows(rows, count);
}

}  // namespace bp
