// where, for tensors of every layout (map.comp). Elements keep their bits.
#include "backends/vulkan/kernels/map.hpp"
#include "backplane/shell/scalar.hpp"

namespace bp::vulkan {
namespace {

bp_status where_launch(const bp_where_args& args, Launch& launch) {
  const uint64_t scalar =
      args.b == nullptr ? convert_moved_operand(args.b_scalar, args.a->dtype) : 0;
  return submit_move(launch, kMapWhere, {args.y, args.condition, args.a, args.b}, scalar);
}

}  // namespace

constinit const bp_kernel kWhere = make_kernel<bp_where_args, where_launch>(
    kernel_row("where", BP_OP_WHERE, kAnyDtypes, BP_KERNEL_IN_PLACE | BP_KERNEL_TAKES_SCALAR));

}  // namespace bp::vulkan
