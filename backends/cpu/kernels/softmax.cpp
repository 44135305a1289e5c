// softmax along an axis:  y = exp(x - max(x)) / sum(exp(x - max(x)))  (softmax_rows.cpp)
#include "backends/cpu/kernels/softmax.hpp"

#include "backends/cpu/kernels/kernels.hpp"

namespace bp::kernels {

SoftmaxViews softmax_views(const bp_tensor& x, const bp_tensor& y, int32_t axis) {
  SoftmaxViews views = {view_of(x), view_of(y), static_cast<uint32_t>(axis)};
  SoftmaxViews sorted = views;
  for (uint32_t i = 1; i < x.ndim; ++i) {
    for (uint32_t j = i; j > 0 && sorted.y.strides[j - 1] < sorted.y.strides[j]; --j) {
      for (View* view : {&sorted.x, &sorted.y}) {
        std::swap(view->shape[j - 1], view->shape[j]);
        std::swap(view->strides[j - 1], view->strides[j]);
      }
      if (sorted.axis == j) {
        --sorted.axis;
      } else if (sorted.axis == j - 1) {
        ++sorted.axis;
      }
    }
  }
  return is_contiguous(sorted.x) && is_contiguous(sorted.y) ? sorted : views;
}

namespace {

uint64_t softmax_workspace(const bp_softmax_args& args, const Env&) {
  return softmax_workspace_size_bytes(*args.x, *args.y, args.axis);
}

bp_status softmax_launch(const bp_softmax_args& args, Launch& launch) {
  return submit_softmax(*args.x, *args.y, args.axis, launch,
                        [](auto... values) { softmax_dense(values...); });
}

constexpr bp_dtype kDtypes[] = {BP_F32, BP_F64};

}  // namespace

constinit const bp_kernel kSoftmax =
    make_kernel<bp_softmax_args, softmax_launch, nullptr, softmax_workspace>({
        .name = "softmax",
        .op = BP_OP_SOFTMAX,
        .flags = BP_KERNEL_DETERMINISTIC | BP_KERNEL_IN_PLACE,
        .dtype_rows = kDtypes,
        .dtype_row_count = std::size(kDtypes),
        .dtype_count = 1,
        .layouts = BP_LAYOUT_ANY,
    });

}  // namespace bp::kernels
