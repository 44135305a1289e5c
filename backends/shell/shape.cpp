#include "backplane/shell/shape.hpp"

namespace bp {

std::string shape_text(uint32_t ndim, const int64_t* shape) {
  std::string text = "[";
  for (uint32_t axis = 0; axis < ndim; ++axis) {
    text += (axis == 0 ? "" : ", ") + std::to_string(shape[axis]);
  }
  return text + "]";
}

int64_t product_beyond_64_bits(uint32_t ndim, const int64_t* shape) {
  if (std::find(shape, shape + ndim, 0) != shape + ndim) return 0;
  throw TooManyElements(ndim, shape);
}

}  // namespace bp
