#include "backends/cuda/kernels/scalar.hpp"

#include "backends/common/scalar.hpp"

namespace bp::cuda {

uint64_t convert_scalar(const bp_scalar& scalar, bp_dtype dtype) {
  return bp::convert_scalar(scalar, dtype);
}

}  // namespace bp::cuda
