// flip, roll, pad and tile, for tensors of every layout. They are copies of boxes (moves.hpp).
//
// A box is a loop over (to, from): along an axis, `from` may move backwards, or not at all. A box
// of short rows repeats or reverses them in registers, and boxes that share rows are written row by
// row (parts.hpp).
#include <utility>

#include "backends/host_kernels/parts.hpp"
#include "backends/host_kernels/scalar.hpp"
#include "backplane/shell/moves.hpp"

namespace bp::kernels {
namespace {

// Returns the loop of a box. `value` is the value of the call.
Loop loop_of(const Move& move, std::byte* y, std::byte* x, int64_t size_bytes,
             const ScalarArgument& value) {
  LoopOperand from = {x + move.from_offset * size_bytes, move.from_strides, size_bytes};
  if (move.is_value) from.data = const_cast<std::byte*>(value.address());
  const LoopOperand operands[] = {{y + move.to_offset * size_bytes, move.to_strides, size_bytes},
                                  from};
  return make_loop(move.ndim, move.shape, operands, value.bits());
}

template <typename Args>
bp_status submit_moves(const Args& args, Launch& launch, const ScalarArgument& value) {
  const int64_t size_bytes = dtype_size_bytes(args.y->dtype);
  PartCopies copies(size_bytes);
  for (const Move& move : moves_of(args)) {
    copies.add(
        loop_of(move, data<std::byte>(*args.y), data<std::byte>(*args.x), size_bytes, value));
  }
  copies.join();
  return launch.submit(
      [copies = std::move(copies), threads = launch.thread_count()] { copies.run(threads); });
}

template <typename Args>
bp_status move_launch(const Args& args, Launch& launch) {
  return submit_moves(args, launch, {});
}

bp_status pad_launch(const bp_pad_args& args, Launch& launch) {
  return submit_moves(args, launch, ScalarArgument(args.value, args.value_scalar, args.y->dtype));
}

}  // namespace

extern constinit const bp_kernel kFlip = make_kernel<bp_flip_args, move_launch<bp_flip_args>>(
    kernel_row("flip", BP_OP_FLIP, kAnyDtypes));
extern constinit const bp_kernel kRoll = make_kernel<bp_roll_args, move_launch<bp_roll_args>>(
    kernel_row("roll", BP_OP_ROLL, kAnyDtypes));
extern constinit const bp_kernel kPad = make_kernel<bp_pad_args, pad_launch>(
    kernel_row("pad", BP_OP_PAD, kAnyDtypes, BP_KERNEL_TAKES_SCALAR));
extern constinit const bp_kernel kTile = make_kernel<bp_tile_args, move_launch<bp_tile_args>>(
    kernel_row("tile", BP_OP_TILE, kAnyDtypes));

}  // namespace bp::kernels
