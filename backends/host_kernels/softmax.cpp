// softmax along an axis:  y = exp(x - max(x)) / sum(exp(x - max(x)))  (softmax_rows.cpp)
#include "backends/host_kernels/softmax.hpp"

#include <algorithm>
#include <utility>

#include "backends/host_kernels/kernels.hpp"

namespace bp::kernels {

uint32_t order_axes(std::span<View> views, uint32_t axis) {
  constexpr size_t kMostViews = 3;
  std::array<View, kMostViews> sorted;
  std::copy(views.begin(), views.end(), sorted.begin());
  const View& last = sorted[views.size() - 1];
  uint32_t place = axis;
  for (uint32_t i = 1; i < last.ndim; ++i) {
    for (uint32_t j = i; j > 0 && last.strides[j - 1] < last.strides[j]; --j) {
      for (View& view : sorted) {
        std::swap(view.shape[j - 1], view.shape[j]);
        std::swap(view.strides[j - 1], view.strides[j]);
      }
      if (place == j) {
        --place;
      } else if (place == j - 1) {
        ++place;
      }
    }
  }
  for (size_t i = 0; i < views.size(); ++i) {
    if (!is_contiguous(sorted[i])) return axis;
  }
  std::copy_n(sorted.begin(), views.size(), views.begin());
  return place;
}

SoftmaxExtents softmax_extents(const View& view, uint32_t axis) {
  SoftmaxExtents e{1, view.ndim == 0 ? 1 : view.shape[axis], 1};
  for (uint32_t i = 0; i < axis; ++i) e.outer *= view.shape[i];
  for (uint32_t i = axis + 1; i < view.ndim; ++i) e.inner *= view.shape[i];
  return e;
}

namespace {

uint64_t softmax_workspace(const bp_softmax_args& args, const Env&) {
  return softmax_workspace_size_bytes(*args.x, *args.y, args.axis);
}

bp_status softmax_launch(const bp_softmax_args& args, Launch& launch) {
  return submit_softmax(*args.x, *args.y, args.axis, launch, softmax_dense);
}

}  // namespace

extern constinit const bp_kernel kSoftmax =
    make_kernel<bp_softmax_args, softmax_launch, nullptr, softmax_workspace>(
        kernel_row("softmax", BP_OP_SOFTMAX, kFloatDtypes, BP_KERNEL_IN_PLACE));

}  // namespace bp::kernels
