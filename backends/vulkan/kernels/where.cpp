// where and masked_fill, for tensors of every layout (map.comp). Elements keep their bits.
#include "backends/vulkan/kernels/map.hpp"
#include "backplane/shell/scalar.hpp"

namespace bp::vulkan {
namespace {

bp_status where_launch(const bp_where_args& args, Launch& launch) {
  const uint64_t scalar =
      args.b == nullptr ? convert_moved_operand(args.b_scalar, args.a->dtype) : 0;
  return submit_move(launch, kMapWhere, {args.y, args.condition, args.a, args.b}, scalar);
}

// masked_fill selects the value of the call or an element of x.
bp_status masked_fill_launch(const bp_masked_fill_args& args, Launch& launch) {
  if (args.value == nullptr) {
    const uint64_t bits = convert_scalar(args.value_scalar, args.y->dtype);
    return submit_move(launch, kMapWhere, {args.y, args.mask, nullptr, args.x}, bits);
  }
  const Repeated value(*args.value, *args.y);
  return submit_move(launch, kMapWhere, {args.y, args.mask, value.tensor(), args.x});
}

}  // namespace

constinit const bp_kernel kWhere = make_kernel<bp_where_args, where_launch>(
    kernel_row("where", BP_OP_WHERE, kAnyDtypes, BP_KERNEL_IN_PLACE | BP_KERNEL_TAKES_SCALAR));
constinit const bp_kernel kMaskedFill =
    make_kernel<bp_masked_fill_args, masked_fill_launch>(kernel_row(
        "masked_fill", BP_OP_MASKED_FILL, kAnyDtypes, BP_KERNEL_IN_PLACE | BP_KERNEL_TAKES_SCALAR));

}  // namespace bp::vulkan
