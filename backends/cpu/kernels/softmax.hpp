// What softmax and log_softmax share: bringing any layout to rows in memory.
#pragma once

#include <algorithm>
#include <utility>

#include "backends/common/shape.hpp"
#include "backends/cpu/kernels/softmax_rows.hpp"
#include "backends/cpu/kernels/strided.hpp"
#include "kernel_env.hpp"

namespace bp::kernels {

// x and y, with their axes in the order in which y lies where that makes both dense.
struct SoftmaxViews {
  View x, y;
  uint32_t axis = 0;

  SoftmaxExtents extents() const {
    SoftmaxExtents e{1, x.shape[axis], 1};
    for (uint32_t i = 0; i < axis; ++i) e.outer *= x.shape[i];
    for (uint32_t i = axis + 1; i < x.ndim; ++i) e.inner *= x.shape[i];
    return e;
  }
};

SoftmaxViews softmax_views(const bp_tensor& x, const bp_tensor& y, int32_t axis);

// Neither operand as it lies can be written: the result needs a place of its own.
inline uint64_t softmax_workspace_size_bytes(const bp_tensor& x, const bp_tensor& y, int32_t axis) {
  const SoftmaxViews views = softmax_views(x, y, axis);
  if (is_contiguous(views.y)) return 0;
  return static_cast<uint64_t>(element_count(views.y) * dtype_size_bytes(y.dtype));
}

// Submits `dense` for the dtype of x: dense(x, y, extents, thread_count).
template <typename Dense>
bp_status submit_softmax(const bp_tensor& x, const bp_tensor& y, int32_t axis, Launch& launch,
                         Dense dense) {
  const SoftmaxViews views = softmax_views(x, y, axis);
  std::byte* const workspace = launch.workspace();
  return launch.submit([=, dtype = x.dtype, thread_count = launch.thread_count()] {
    if (element_count(views.x) == 0) return;
    const int64_t size_bytes = dtype_size_bytes(dtype);
    View from = views.x, to = views.y;
    if (!is_contiguous(to)) to = dense_view(to, workspace);
    if (!is_contiguous(from)) {
      copy_elements(from, to, size_bytes, thread_count);
      from = to;
    }
    const auto run = [&]<typename T>(T) {
      dense(reinterpret_cast<const T*>(from.address), reinterpret_cast<T*>(to.address),
            views.extents(), thread_count);
    };
    dtype == BP_F32 ? run(float{}) : run(double{});
    if (to.address != views.y.address) copy_elements(to, views.y, size_bytes, thread_count);
  });
}

}  // namespace bp::kernels
