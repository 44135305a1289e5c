#include "backends/host_kernels/strided.hpp"

#include <algorithm>

#include "backends/host_kernels/copy.hpp"
#include "kernel_env.hpp"

namespace bp::kernels {

View view_of(const bp_tensor& tensor) {
  View view;
  view.address = data<std::byte>(tensor);
  view.ndim = tensor.ndim;
  std::copy_n(tensor.shape, tensor.ndim, view.shape);
  std::copy_n(tensor.strides, tensor.ndim, view.strides);
  return view;
}

View dense_view(const View& like, std::byte* address) {
  View view = like;
  view.address = address;
  set_contiguous_strides(view.ndim, view.shape, view.strides);
  return view;
}

void copy_elements(const View& from, const View& to, int64_t element_size_bytes, int thread_count) {
  const LoopOperand operands[] = {{to.address, to.strides, element_size_bytes},
                                  {from.address, from.strides, element_size_bytes}};
  run_copy(make_loop(to.ndim, to.shape, operands), element_size_bytes, thread_count);
}

DenseCopy::DenseCopy(const View& its_view, bp_dtype its_dtype, bp_dtype its_dense_dtype)
    : is_needed(true),
      dtype(its_dtype),
      dense_dtype(its_dense_dtype),
      view(its_view),
      dense(dense_view(its_view, nullptr)) {}

uint64_t DenseCopy::size_bytes() const {
  if (!is_needed) return 0;
  return static_cast<uint64_t>(element_count(view) * dtype_size_bytes(dense_dtype));
}

uint64_t reserve_bytes(uint64_t size_bytes, uint64_t& end) {
  constexpr uint64_t kAlignmentBytes = 64;  // The size of a cache line and of the widest vector.
  const uint64_t begin = end;
  end += (size_bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
  return begin;
}

}  // namespace bp::kernels
