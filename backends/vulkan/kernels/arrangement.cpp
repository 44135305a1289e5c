// flip, roll, pad and tile, for tensors of every layout. They are copies of boxes (moves.hpp), each
// of which is a dispatch (map.comp).
#include "backends/vulkan/kernels/map.hpp"
#include "backplane/shell/moves.hpp"
#include "backplane/shell/scalar.hpp"

namespace bp::vulkan {
namespace {

// Returns the elements of `tensor` that a box names by `strides`, from the one at `offset` on.
bp_tensor elements_of(const bp_tensor& tensor, const Move& move, const int64_t* strides,
                      int64_t offset) {
  bp_tensor part = tensor;
  part.ndim = move.ndim;
  part.shape = move.shape;
  part.strides = strides;
  part.byte_offset += static_cast<uint64_t>(offset * dtype_size_bytes(tensor.dtype));
  return part;
}

// The value of a call is in the tensor `value`, or has the bits of `scalar` if that is NULL.
template <typename Args>
bp_status submit_moves(const Args& args, Launch& launch, const bp_tensor* value = nullptr,
                       uint64_t scalar = 0) {
  for (const Move& move : moves_of(args)) {
    const bp_tensor to = elements_of(*args.y, move, move.to_strides, move.to_offset);
    const bp_tensor* from = move.is_value ? value : args.x;
    bp_tensor elements;
    if (from != nullptr) {
      elements = elements_of(*from, move, move.from_strides, move.from_offset);
      from = &elements;
    }
    const bp_status status = submit_move(launch, kMapCopy, {&to, from}, scalar);
    if (status != BP_OK) return status;
  }
  return BP_OK;
}

template <typename Args>
bp_status move_launch(const Args& args, Launch& launch) {
  return submit_moves(args, launch);
}

bp_status pad_launch(const bp_pad_args& args, Launch& launch) {
  const uint64_t scalar =
      args.value == nullptr ? convert_scalar(args.value_scalar, args.y->dtype) : 0;
  return submit_moves(args, launch, args.value, scalar);
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

}  // namespace bp::vulkan
