// rope and rope_backward, for tensors of every layout (rope.comp).
#include <algorithm>

#include "backends/vulkan/kernels/rows.hpp"

namespace bp::vulkan {
namespace {

struct RopeRecord {
  uint64_t addresses[4];
  int64_t steps[4];
  uint32_t count, row_size, pairs, reserved;
  uint32_t extents[BP_MAX_RANK];
  int64_t strides[4][BP_MAX_RANK];
};

constexpr int64_t kMost = int64_t{1} << 31;

// The tensors y, x, cos and sin.
using RopeTensors = std::array<const bp_tensor*, 4>;

bp_status submit_rope(Launch& launch, const RopeTensors& tensors, bool is_interleaved,
                      bool is_backward) {
  const bp_tensor &y = *tensors[0], &cos = *tensors[2];
  const uint32_t last = y.ndim - 1;
  const Walk rows = make_row_walk({tensors[0], tensors[1], tensors[2], tensors[3]}, last, 1);
  const int64_t of_row = y.shape[last] - cos.shape[last];
  if (rows.count == 0 || y.shape[last] == 0) return BP_OK;
  if (rows.count * of_row > kMost) {
    return launch.refuse(BP_UNSUPPORTED, "rope: x has more than 2^31 pairs");
  }
  RopeRecord record{};
  record.count = static_cast<uint32_t>(rows.count * of_row);
  record.row_size = static_cast<uint32_t>(y.shape[last]);
  record.pairs = static_cast<uint32_t>(cos.shape[last]);
  copy_extents(rows, record.extents);
  Ranges reads(launch), writes(launch, {&y});
  for (size_t k = 0; k < tensors.size(); ++k) {
    const bp_tensor& t = *tensors[k];
    record.addresses[k] = address_of(launch, &t);
    record.steps[k] = t.strides[last] * dtype_size_bytes(t.dtype);
    std::ranges::copy(rows.strides[k], record.strides[k]);
    if (k != 0) reads.add(&t);
  }
  const std::array<uint32_t, 5> constants = {local_size(launch), one_of(kF32Dtypes, y.dtype),
                                             std::max(rows.rank, 1u), is_interleaved ? 1u : 0u,
                                             is_backward ? 1u : 0u};
  return submit(launch, kRopeModule, constants, record,
                ceil_divide(record.count, local_size(launch)), {reads, writes});
}

bp_status rope_launch(const bp_rope_args& args, Launch& launch) {
  return submit_rope(launch, {args.y, args.x, args.cos, args.sin}, args.is_interleaved != 0, false);
}

bp_status rope_backward_launch(const bp_rope_backward_args& args, Launch& launch) {
  return submit_rope(launch, {args.grad_x, args.grad_y, args.cos, args.sin},
                     args.is_interleaved != 0, true);
}

}  // namespace

constinit const bp_kernel kRope = make_kernel<bp_rope_args, rope_launch>(
    kernel_row("rope", BP_OP_ROPE, kF32Dtypes, BP_KERNEL_IN_PLACE));
constinit const bp_kernel kRopeBackward = make_kernel<bp_rope_backward_args, rope_backward_launch>(
    kernel_row("rope_backward", BP_OP_ROPE_BACKWARD, kF32Dtypes, BP_KERNEL_IN_PLACE));

}  // namespace bp::vulkan
