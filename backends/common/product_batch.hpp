// The batch of a product in as few axes as the strides of its operands allow. A Product has
// batch_ndim, batch, and the operands a, b, y and preactivation, each with rows, row_stride and
// batch_strides: that of a kernel of the cpu or of the cuda backend.
#pragma once

#include <cstdint>

namespace bp {

template <typename Product>
void remove_batch_axis(Product& p, uint32_t axis) {
  --p.batch_ndim;
  for (uint32_t i = axis; i < p.batch_ndim; ++i) {
    p.batch[i] = p.batch[i + 1];
    for (auto* o : {&p.a, &p.b, &p.y, &p.preactivation}) {
      o->batch_strides[i] = o->batch_strides[i + 1];
    }
  }
}

// Whether the batch axis continues the rows of `o`.
template <typename Operand>
bool continues_rows(const Operand& o, uint32_t axis) {
  return o.rows == 1 || o.batch_strides[axis] == o.rows * o.row_stride;
}

// Batches that share b are more rows of one product.
template <typename Product>
void fold_batch_into_rows(Product& p) {
  for (uint32_t i = p.batch_ndim; i-- > 0;) {
    if (p.batch[i] == 1) {
      remove_batch_axis(p, i);
      continue;
    }
    if (i + 1 != p.batch_ndim || p.b.batch_strides[i] != 0 || !continues_rows(p.a, i) ||
        !continues_rows(p.y, i) || !continues_rows(p.preactivation, i)) {
      continue;
    }
    for (auto* o : {&p.a, &p.y, &p.preactivation}) {
      if (o->rows == 1) o->row_stride = o->batch_strides[i];
      o->rows *= p.batch[i];
    }
    remove_batch_axis(p, i);
  }
}

// Neighbouring batch axes that lie as one do in every operand become one.
template <typename Product>
void merge_batch_axes(Product& p) {
  for (uint32_t i = p.batch_ndim; i-- > 1;) {
    bool is_one = true;
    for (const auto* o : {&p.a, &p.b, &p.y, &p.preactivation}) {
      is_one = is_one && o->batch_strides[i - 1] == o->batch_strides[i] * p.batch[i];
    }
    if (!is_one) continue;
    p.batch[i] *= p.batch[i - 1];
    remove_batch_axis(p, i - 1);
  }
}

}  // namespace bp
