// embedding_backward adds rows of grad_y to the rows of grad_weight that indices name
// (scatter.comp). A line is a column of both.
#include "backends/vulkan/kernels/scatter.hpp"

namespace bp::vulkan {
namespace {

uint64_t backward_workspace(const bp_embedding_backward_args& args, const Env&) {
  return sum_workspace(*args.grad_weight);
}

bp_status backward_launch(const bp_embedding_backward_args& args, Launch& launch) {
  const bp_tensor &grad_y = *args.grad_y, &indices = *args.indices;
  return submit_scatter_sum(launch, *args.grad_weight, nullptr, [&](const bp_tensor& y) {
    Scatter s{.op = "embedding_backward",
              .adds = true,
              .bounds = args.bounds,
              .line_ndim = 1,
              .place_ndim = 1};
    s.y.tensor = &y;
    s.src.tensor = &grad_y;
    s.indices.tensor = &indices;
    s.line_shape[0] = y.shape[1];
    s.y.line[0] = y.strides[1];
    s.src.line[0] = grad_y.strides[grad_y.ndim - 1];
    s.walk_ndim = indices.ndim;
    for (uint32_t i = 0; i < indices.ndim; ++i) {
      s.walk_shape[i] = indices.shape[i];
      s.src.walk[i] = grad_y.strides[i];
      s.indices.walk[i] = indices.strides[i];
    }
    s.place_shape[0] = y.shape[0];
    s.place[0] = y.strides[0];
    return s;
  });
}

constexpr auto kDtypes = with_indices(kF32Dtypes);

}  // namespace

constinit const bp_kernel kEmbeddingBackward =
    make_kernel<bp_embedding_backward_args, backward_launch, nullptr, backward_workspace>(
        kernel_row("embedding_backward", BP_OP_EMBEDDING_BACKWARD, {kDtypes, 2}));

}  // namespace bp::vulkan
