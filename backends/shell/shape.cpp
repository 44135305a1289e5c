#include "backplane/shell/shape.hpp"

namespace bp {

std::string shape_text(uint32_t ndim, const int64_t* shape) {
  std::string text = "[";
  for (uint32_t axis = 0; axis < ndim; ++axis) {
    text += (axis == 0 ? "" : ", ") + std::to_string(shape[axis]);
  }
  return text + "]";
}

std::vector<int64_t> row_major_strides(const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size());
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = stride;
    if (__builtin_mul_overflow(stride, std::max<int64_t>(shape[i], 1), &stride)) stride = INT64_MAX;
  }
  return strides;
}

std::string bad_index_text(const std::string& op, const std::string& argument, int64_t position,
                           int64_t index, int64_t extent) {
  return op + ": element " + std::to_string(position) + " of " + argument + " is " +
         std::to_string(index) + ", not from 0 to " + std::to_string(extent - 1);
}

int64_t product_beyond_64_bits(uint32_t ndim, const int64_t* shape) {
  if (std::find(shape, shape + ndim, 0) != shape + ndim) return 0;
  throw TooManyElements(ndim, shape);
}

}  // namespace bp
