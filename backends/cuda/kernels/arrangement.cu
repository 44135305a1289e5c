// flip, roll, pad and tile, for tensors of every layout. They are copies of boxes (moves.hpp), each
// of which is a launch.
#include "backends/cuda/kernels/list.hpp"
#include "backends/cuda/kernels/movement.hpp"
#include "backplane/shell/moves.hpp"

namespace bp::cuda {
namespace {

template <typename Args>
bp_status submit_moves(const Args& args, Launch& launch, const ScalarArgument& value) {
  const Operand y = operand(args.y), x = operand(args.x);
  for (const Move& move : moves_of(args)) {
    Operand to = y, from = x;
    to.data += move.to_offset * y.size_bytes;
    to.strides = move.to_strides;
    from.data = move.is_value ? value.address : x.data + move.from_offset * x.size_bytes;
    from.strides = move.from_strides;
    const Loop loop = make_loop(move.ndim, move.shape, {to, from});
    const bp_status status = submit_copy(launch, loop, y.size_bytes, value.bits);
    if (status != BP_OK) return status;
  }
  return BP_OK;
}

template <typename Args>
bp_status move_launch(const Args& args, Launch& launch) {
  return submit_moves(args, launch, {});
}

bp_status pad_launch(const bp_pad_args& args, Launch& launch) {
  return submit_moves(args, launch, ScalarArgument(args.value, args.value_scalar, args.y->dtype));
}

}  // namespace

constinit const bp_kernel kFlip = make_kernel<bp_flip_args, move_launch<bp_flip_args>>(
    kernel_row("flip", BP_OP_FLIP, kAnyDtypes));
constinit const bp_kernel kRoll = make_kernel<bp_roll_args, move_launch<bp_roll_args>>(
    kernel_row("roll", BP_OP_ROLL, kAnyDtypes));
constinit const bp_kernel kPad = make_kernel<bp_pad_args, pad_launch>(
    kernel_row("pad", BP_OP_PAD, kAnyDtypes, BP_KERNEL_TAKES_SCALAR));
constinit const bp_kernel kTile = make_kernel<bp_tile_args, move_launch<bp_tile_args>>(
    kernel_row("tile", BP_OP_TILE, kAnyDtypes));

}  // namespace bp::cuda
