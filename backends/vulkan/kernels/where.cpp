// where, for tensors of every layout (map.comp): elements move as they are.
#include "backends/vulkan/kernels/map.hpp"
#include "backplane/shell/scalar.hpp"

namespace bp::vulkan {
namespace {

bp_status where_launch(const bp_where_args& args, Launch& launch) {
  const uint64_t scalar = args.b == nullptr ? convert_scalar(args.b_scalar, args.a->dtype) : 0;
  return submit_move(launch, kMapWhere, {args.y, args.condition, args.a, args.b}, scalar);
}

}  // namespace

constinit const bp_kernel kWhere = make_kernel<bp_where_args, where_launch>({
    .name = "where",
    .op = BP_OP_WHERE,
    .flags = BP_KERNEL_IN_PLACE | BP_KERNEL_TAKES_SCALAR,
    .dtype_rows = kAnyDtypes,
    .dtype_row_count = std::size(kAnyDtypes),
    .dtype_count = 1,
});

}  // namespace bp::vulkan
