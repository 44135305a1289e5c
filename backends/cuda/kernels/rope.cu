// rope and rope_backward, for tensors of every layout. A thread rotates one pair of elements, or
// copies an element that is not in a pair. It reads a pair before it writes it, so y may be x.
#include "backends/cuda/kernels/list.hpp"
#include "backends/cuda/kernels/rows.cuh"

namespace bp::cuda {
namespace {

struct RopePlan {
  RowTensor x, cos, sin, y;
  int64_t units = 0;          // The units of all rows.
  uint32_t units_of_row = 0;  // Pairs, then elements to copy.
  uint32_t pairs = 0;
  uint32_t step = 1, distance = 1;  // Between pairs, and inside a pair.
  double direction = 1;             // If -1, it rotates back.
};

template <typename T>
__global__ void __launch_bounds__(kBlockThreads) rope_kernel(RopePlan plan) {
  using C = Compute<T>;
  const int64_t unit = int64_t{blockIdx.x} * kBlockThreads + threadIdx.x;
  if (unit >= plan.units) return;
  const auto row = static_cast<uint32_t>(unit / plan.units_of_row);
  const auto i = static_cast<uint32_t>(unit % plan.units_of_row);
  const T* const x = plan.x.row<T>(row);
  T* const y = plan.y.row<T>(row);
  if (i >= plan.pairs) {
    const uint32_t rest = i + plan.pairs;
    y[plan.y.elements.offset(rest)] = x[plan.x.elements.offset(rest)];
    return;
  }
  const uint32_t first = i * plan.step, second = first + plan.distance;
  const C a = widen(x[plan.x.elements.offset(first)]), b = widen(x[plan.x.elements.offset(second)]);
  const C c = plan.cos.row<C>(row)[plan.cos.elements.offset(i)];
  const C s = static_cast<C>(plan.direction) * plan.sin.row<C>(row)[plan.sin.elements.offset(i)];
  y[plan.y.elements.offset(first)] = narrow<T>(a * c - b * s);
  y[plan.y.elements.offset(second)] = narrow<T>(b * c + a * s);
}

bp_status submit(const bp_tensor& y, const bp_tensor& x, const bp_tensor& cos, const bp_tensor& sin,
                 bool is_interleaved, double direction, Launch& launch) {
  const uint32_t axes = last_axes(x.ndim, 1);
  const RowExtents extents = row_extents(x, axes);
  RopePlan plan;
  plan.x = row_tensor(x, axes);
  plan.cos = row_tensor(cos, axes);
  plan.sin = row_tensor(sin, axes);
  plan.y = row_tensor(y, axes);
  plan.pairs = static_cast<uint32_t>(cos.shape[cos.ndim - 1]);
  plan.units_of_row = static_cast<uint32_t>(extents.count) - plan.pairs;
  plan.units = extents.rows * plan.units_of_row;
  plan.step = is_interleaved ? 2 : 1;
  plan.distance = is_interleaved ? 1 : plan.pairs;
  plan.direction = direction;
  const unsigned blocks = blocks_for(plan.units, kBlockThreads);
  return with_float(x.dtype, [&]<typename T>(T) {
    return run<rope_kernel<T>>(launch, blocks, kBlockThreads, 0, plan);
  });
}

bp_status rope_launch(const bp_rope_args& args, Launch& launch) {
  return submit(*args.y, *args.x, *args.cos, *args.sin, args.is_interleaved != 0, 1, launch);
}

bp_status rope_backward_launch(const bp_rope_backward_args& args, Launch& launch) {
  return submit(*args.grad_x, *args.grad_y, *args.cos, *args.sin, args.is_interleaved != 0, -1,
                launch);
}

bp_reason rope_supports(const bp_rope_args& args) {
  return too_many_rows(*args.x, last_axes(args.x->ndim, 1));
}
bp_reason rope_backward_supports(const bp_rope_backward_args& args) {
  return too_many_rows(*args.grad_y, last_axes(args.grad_y->ndim, 1));
}

}  // namespace

constinit const bp_kernel kRope = make_kernel<bp_rope_args, rope_launch, rope_supports>(
    kernel_row("rope", BP_OP_ROPE, kFloatDtypes, BP_KERNEL_IN_PLACE));
constinit const bp_kernel kRopeBackward =
    make_kernel<bp_rope_backward_args, rope_backward_launch, rope_backward_supports>(
        kernel_row("rope_backward", BP_OP_ROPE_BACKWARD, kFloatDtypes, BP_KERNEL_IN_PLACE));

}  // namespace bp::cuda
