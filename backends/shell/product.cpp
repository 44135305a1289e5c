#include "backplane/shell/product.hpp"

#include <algorithm>
#include <utility>

namespace bp {
namespace {

// Returns the operand whose matrices are the last two axes of `tensor`.
ProductOperand matrices_of(const bp_tensor& tensor, AddressOf address_of) {
  ProductOperand o;
  o.address = address_of(tensor);
  o.dtype = tensor.dtype;
  const uint32_t batch_ndim = tensor.ndim - 2;
  o.rows = tensor.shape[batch_ndim];
  o.cols = tensor.shape[batch_ndim + 1];
  o.row_stride = tensor.strides[batch_ndim];
  o.col_stride = tensor.strides[batch_ndim + 1];
  std::copy_n(tensor.strides, batch_ndim, o.batch_strides);
  return o;
}

// Returns the operand whose rows are the second-last axis of `tensor`. A tensor without that axis
// has one row.
ProductOperand rows_of(const bp_tensor& tensor, AddressOf address_of) {
  if (tensor.ndim > 1) return matrices_of(tensor, address_of);
  ProductOperand o;
  o.address = address_of(tensor);
  o.dtype = tensor.dtype;
  o.rows = 1;
  o.cols = tensor.shape[0];
  o.col_stride = tensor.strides[0];
  return o;
}

void remove_batch_axis(Product& p, uint32_t axis) {
  --p.batch_ndim;
  for (uint32_t i = axis; i < p.batch_ndim; ++i) {
    p.batch[i] = p.batch[i + 1];
    for (ProductOperand* o : {&p.a, &p.b, &p.y, &p.preactivation}) {
      o->batch_strides[i] = o->batch_strides[i + 1];
    }
  }
}

// Returns whether the batch axis continues the rows of `o`.
bool continues_rows(const ProductOperand& o, uint32_t axis) {
  return o.rows == 1 || o.batch_strides[axis] == o.rows * o.row_stride;
}

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
    for (ProductOperand* o : {&p.a, &p.y, &p.preactivation}) {
      if (o->rows == 1) o->row_stride = o->batch_strides[i];
      o->rows *= p.batch[i];
    }
    remove_batch_axis(p, i);
  }
}

void merge_batch_axes(Product& p) {
  for (uint32_t i = p.batch_ndim; i-- > 1;) {
    bool is_one = true;
    for (const ProductOperand* o : {&p.a, &p.b, &p.y, &p.preactivation}) {
      is_one = is_one && o->batch_strides[i - 1] == o->batch_strides[i] * p.batch[i];
    }
    if (!is_one) continue;
    p.batch[i] *= p.batch[i - 1];
    remove_batch_axis(p, i - 1);
  }
}

}  // namespace

int64_t Product::batch_count() const {
  int64_t count = 1;
  for (uint32_t i = 0; i < batch_ndim; ++i) count *= batch[i];
  return count;
}

Product product_of(const bp_matmul_args& args, AddressOf address_of) {
  Product p;
  p.batch_ndim = args.y->ndim - 2;
  std::copy_n(args.y->shape, p.batch_ndim, p.batch);
  p.a = matrices_of(*args.a, address_of);
  p.b = matrices_of(*args.b, address_of);
  p.y = matrices_of(*args.y, address_of);
  p.preactivation = p.y;
  p.preactivation.address = nullptr;
  return p;
}

Product product_of(const bp_linear_args& args, AddressOf address_of) {
  Product p;
  p.batch_ndim = args.x->ndim < 2 ? 0 : args.x->ndim - 2;
  std::copy_n(args.x->shape, p.batch_ndim, p.batch);
  p.a = rows_of(*args.x, address_of);
  p.b = matrices_of(*args.weight, address_of);
  std::swap(p.b.rows, p.b.cols);
  std::swap(p.b.row_stride, p.b.col_stride);
  p.y = rows_of(*args.y, address_of);
  p.has_preactivation = args.preactivation != nullptr;
  p.preactivation = p.has_preactivation ? rows_of(*args.preactivation, address_of) : p.y;
  if (!p.has_preactivation) p.preactivation.address = nullptr;
  p.activation = args.activation;
  p.has_bias = args.bias != nullptr;
  if (p.has_bias) {
    p.bias = address_of(*args.bias);
    p.bias_stride = args.bias->strides[0];
  }
  return p;
}

Product folded(Product p) {
  fold_batch_into_rows(p);
  merge_batch_axes(p);
  return p;
}

}  // namespace bp
