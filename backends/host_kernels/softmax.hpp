// Brings tensors of any layout to rows in memory, for softmax, log_softmax and their gradients.
#pragma once

#include <array>
#include <span>

#include "backends/host_kernels/softmax_rows.hpp"
#include "backends/host_kernels/strided.hpp"
#include "backplane/shell/shape.hpp"
#include "kernel_env.hpp"

namespace bp::kernels {

// Orders the axes of all views as the axes of the last view lie, if every view is then dense; else
// changes nothing. Returns the new index of `axis`.
uint32_t order_axes(std::span<View> views, uint32_t axis);

// Returns the extents of a dense view if the sums run over `axis`.
SoftmaxExtents softmax_extents(const View& view, uint32_t axis);

struct SoftmaxViews {
  SoftmaxViews(const bp_tensor& x_tensor, const bp_tensor& y_tensor, int32_t its_axis)
      : views{view_of(x_tensor), view_of(y_tensor)},
        axis(order_axes(views, static_cast<uint32_t>(its_axis))) {}

  const View& x() const { return views[0]; }
  const View& y() const { return views[1]; }

  std::array<View, 2> views;
  uint32_t axis;
};

// Returns the size of the workspace. If y is not contiguous, the result needs a place there.
inline uint64_t softmax_workspace_size_bytes(const bp_tensor& x, const bp_tensor& y, int32_t axis) {
  const SoftmaxViews views(x, y, axis);
  if (is_contiguous(views.y())) return 0;
  return static_cast<uint64_t>(element_count(views.y()) * dtype_size_bytes(y.dtype));
}

// Submits a call dense(dtype, x, y, extents, thread_count).
template <typename Dense>
bp_status submit_softmax(const bp_tensor& x, const bp_tensor& y, int32_t axis, Launch& launch,
                         Dense dense) {
  const SoftmaxViews views(x, y, axis);
  std::byte* const workspace = launch.workspace();
  return launch.submit([=, dtype = x.dtype, thread_count = launch.thread_count()] {
    if (element_count(views.x()) == 0) return;
    const int64_t size_bytes = dtype_size_bytes(dtype);
    View from = views.x(), to = views.y();
    if (!is_contiguous(to)) to = dense_view(to, workspace);
    if (!is_contiguous(from)) {
      copy_elements(from, to, size_bytes, thread_count);
      from = to;
    }
    dense(dtype, from.address, to.address, softmax_extents(to, views.axis), thread_count);
    if (to.address != views.y().address) copy_elements(to, views.y(), size_bytes, thread_count);
  });
}

}  // namespace bp::kernels
