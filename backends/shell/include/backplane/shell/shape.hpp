// Functions that answer questions about dtypes and about the shape of a tensor.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "backplane/shell/boundary.hpp"
#include "backplane/tensor.h"

namespace bp {

// Returns the bytes of one element, or 0 for sub-byte dtypes and for dtypes that are not known.
constexpr int64_t dtype_size_bytes(bp_dtype dtype) {
  switch (dtype) {
    case BP_BOOL:
    case BP_I8:
    case BP_U8:
    case BP_F8E4M3FN:
    case BP_F8E5M2:
    case BP_F8E4M3FNUZ:
    case BP_F8E5M2FNUZ:
    case BP_F8E8M0FNU:
      return 1;
    case BP_I16:
    case BP_U16:
    case BP_F16:
    case BP_BF16:
      return 2;
    case BP_I32:
    case BP_U32:
    case BP_F32:
      return 4;
    case BP_I64:
    case BP_U64:
    case BP_F64:
    case BP_C64:
      return 8;
    case BP_C128:
      return 16;
    default:
      return 0;
  }
}

// Returns the bits of one element. A dtype that is not known counts as one of nibbles.
constexpr int64_t dtype_size_bits(bp_dtype dtype) {
  switch (dtype) {
    case BP_I2:
    case BP_U2:
      return 2;
    case BP_F6E2M3:
    case BP_F6E3M2:
      return 6;
    default:
      return dtype_size_bytes(dtype) == 0 ? 4 : 8 * dtype_size_bytes(dtype);
  }
}

// Returns a text such as "[2, 3]".
std::string shape_text(uint32_t ndim, const int64_t* shape);

// Returns a text such as "gather: element 5 of indices is 9, not from 0 to 3", which reports an
// index of an axis of `extent` elements. `position` is where the index lies in the argument,
// counted in elements from the first one, as strides are.
std::string bad_index_text(const std::string& op, const std::string& argument, int64_t position,
                           int64_t index, int64_t extent);

// Thrown for a shape with more elements, or with more of what `counted` names, than 64 bits can
// count. A stride of 0 lets such a tensor lie in any buffer.
class TooManyElements : public StatusError {
 public:
  TooManyElements(uint32_t ndim, const int64_t* shape, const char* counted = "elements")
      : StatusError(BP_INVALID_ARGUMENT, "a tensor has shape " + shape_text(ndim, shape) +
                                             ", and 64 bits do not hold its number of " + counted) {
  }
};

// Returns the product of the extents where 64 bits do not hold a part of it: 0 if an extent is 0.
// Else it throws TooManyElements.
int64_t product_beyond_64_bits(uint32_t ndim, const int64_t* shape);

// Returns the number of elements. Throws TooManyElements.
inline int64_t element_count(uint32_t ndim, const int64_t* shape) {
  int64_t count = 1;
  for (uint32_t i = 0; i < ndim; ++i) {
    if (__builtin_mul_overflow(count, shape[i], &count)) [[unlikely]] {
      return product_beyond_64_bits(ndim, shape);
    }
  }
  return count;
}
inline int64_t element_count(const bp_tensor& t) { return element_count(t.ndim, t.shape); }

// These functions return the extent and the stride of an axis. A tensor without axes has axis 0,
// which has one element.
inline int64_t axis_extent(const bp_tensor& t, size_t axis) {
  return t.ndim == 0 ? 1 : t.shape[axis];
}
inline int64_t axis_stride(const bp_tensor& t, size_t axis) {
  return t.ndim == 0 ? 0 : t.strides[axis];
}

// Returns why a tensor of i32 cannot hold each index below `extent`, or NULL. `indices` is an
// output of i32 or i64, or NULL.
inline bp_reason index_reason(const bp_tensor* indices, int64_t extent) {
  const bool fits = indices == nullptr || indices->dtype != BP_I32 || extent <= int64_t{1} << 31;
  return fits ? nullptr : "i32 does not hold each index; ask for indices of i64";
}

// Returns the bytes of the elements, each of item_bytes, without gaps. Throws TooManyElements.
inline int64_t dense_size_bytes(uint32_t ndim, const int64_t* shape, int64_t item_bytes) {
  int64_t size_bytes = 0;
  if (__builtin_mul_overflow(element_count(ndim, shape), item_bytes, &size_bytes)) [[unlikely]] {
    throw TooManyElements(ndim, shape, "bytes");
  }
  return size_bytes;
}

// Returns the strides of a row-major tensor. INT64_MAX stands for those of more than 63 bits.
std::vector<int64_t> row_major_strides(const std::vector<int64_t>& shape);

// Whether the elements lie in row-major order without gaps; the stride of an extent of 1 is free.
// Without elements every tensor does. A tensor with more elements than 64 bits can count does not.
inline bool is_contiguous(uint32_t ndim, const int64_t* shape, const int64_t* strides) {
  int64_t expected = 1;
  for (uint32_t i = ndim; i-- > 0;) {
    if (shape[i] == 1) continue;
    if (strides[i] != expected || __builtin_mul_overflow(expected, shape[i], &expected))
      return std::find(shape, shape + ndim, 0) != shape + ndim;
  }
  return true;
}
inline bool is_contiguous(const bp_tensor& t) { return is_contiguous(t.ndim, t.shape, t.strides); }

// Writes row-major strides without gaps. Throws TooManyElements.
inline void set_contiguous_strides(uint32_t ndim, const int64_t* shape, int64_t* strides) {
  int64_t stride = 1;
  for (uint32_t i = ndim; i-- > 0;) {
    strides[i] = stride;
    if (__builtin_mul_overflow(stride, shape[i], &stride)) [[unlikely]] {
      stride = product_beyond_64_bits(ndim, shape);
    }
  }
}

}  // namespace bp
