// The mutants of layouts and memory. Each comment begins with the number of the kill table.
#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

#include "backplane/ops.h"
#include "conformance/mutants/mutant.hpp"
#include "registry/tensors/strides.hpp"

namespace bp::mutants {

int64_t item_size_bytes(bp_dtype dtype) {
  switch (dtype) {
    case BP_F64:
    case BP_I64:
    case BP_U64:
      return 8;
    case BP_F32:
    case BP_I32:
    case BP_U32:
      return 4;
    case BP_F16:
    case BP_BF16:
    case BP_I16:
    case BP_U16:
      return 2;
    default:
      return 1;
  }
}

View::View(const bp_tensor& tensor) : tensor_(tensor) {
  std::copy_n(tensor.shape, tensor.ndim, shape_.begin());
  std::copy_n(tensor.strides, tensor.ndim, strides_.begin());
  tensor_.shape = shape_.data();
  tensor_.strides = strides_.data();
}

int64_t View::item_size_bytes() const { return mutants::item_size_bytes(tensor_.dtype); }

void View::advance(int64_t elements) {
  tensor_.byte_offset += static_cast<uint64_t>(elements * item_size_bytes());
}

void View::reverse(uint32_t axis) {
  if (shape_[axis] == 0) return;
  advance((shape_[axis] - 1) * strides_[axis]);
  strides_[axis] = -strides_[axis];
}

int64_t View::element_count() const { return tensors::element_count(tensor_); }

bp_status Call::run(const void* args) const {
  return wrapped.good->launch(wrapped.good, launch, args);
}

bp_status Call::scribble(const bp_buffer_ref& range) const {
  const uint8_t pattern = 0x5A;
  const bp_allocator_ops& allocator = *wrapped.allocator;
  return allocator.fill(allocator.self, launch->stream, &range, &pattern, 1);
}

namespace {

constexpr int64_t kTile = 16;
constexpr int64_t kVector = 8;

constexpr uint32_t kMatmul[] = {BP_OP_MATMUL};
constexpr uint32_t kBinary[] = {BP_OP_ADD, BP_OP_SUB, BP_OP_MUL, BP_OP_DIV, BP_OP_MAXIMUM};
constexpr uint32_t kUnary[] = {BP_OP_NEG, BP_OP_EXP, BP_OP_LOG, BP_OP_SQRT, BP_OP_RELU};
constexpr uint32_t kSum[] = {BP_OP_SUM};
constexpr uint32_t kLinear[] = {BP_OP_LINEAR};
constexpr uint32_t kQuantize[] = {BP_OP_QUANTIZE};
constexpr uint32_t kSoftmax[] = {BP_OP_SOFTMAX, BP_OP_LOG_SOFTMAX};

// The frames of a family are alike, so one function changes them all.
using BinaryArgs = bp_add_args;
using UnaryArgs = bp_neg_args;

template <typename Frame>
constexpr bool is_binary = sizeof(Frame) == sizeof(BinaryArgs) &&
                           offsetof(Frame, a) == offsetof(BinaryArgs, a) &&
                           offsetof(Frame, b) == offsetof(BinaryArgs, b) &&
                           offsetof(Frame, y) == offsetof(BinaryArgs, y);
template <typename Frame>
constexpr bool is_unary = sizeof(Frame) == sizeof(UnaryArgs) &&
                          offsetof(Frame, x) == offsetof(UnaryArgs, x) &&
                          offsetof(Frame, y) == offsetof(UnaryArgs, y);
static_assert(is_binary<bp_sub_args> && is_binary<bp_mul_args> && is_binary<bp_div_args> &&
              is_binary<bp_maximum_args>);
static_assert(is_unary<bp_exp_args> && is_unary<bp_log_args> && is_unary<bp_sqrt_args> &&
              is_unary<bp_relu_args>);

// 1: drops the products behind the last whole tile of K. Subtle: only the very last product.
bp_status ignore_k_tail(const Call& call, std::string_view strength, const void* args) {
  auto frame = *static_cast<const bp_matmul_args*>(args);
  View a(*frame.a), b(*frame.b);
  int64_t& columns = a.extent(a.rank() - 1);
  const int64_t tail = columns % kTile;
  columns -= strength == "subtle" ? std::min<int64_t>(tail, 1) : tail;
  b.extent(b.rank() - 2) = columns;
  frame.a = a.get();
  frame.b = b.get();
  return call.run(&frame);
}

// 2: finds the rows of the edge tile of M with the row stride of b. Rows that would then lie
// outside a keep their own stride, so that the process does not die.
bp_status edge_tile_with_other_stride(const Call& call, std::string_view, const void* args) {
  auto frame = *static_cast<const bp_matmul_args*>(args);
  if (const bp_status status = call.run(&frame); status != BP_OK) return status;
  View a(*frame.a), y(*frame.y), b(*frame.b);
  const uint32_t row_axis = a.rank() - 2;
  const int64_t rows = a.extent(row_axis);
  const int64_t first = rows - rows % kTile;
  const int64_t wrong = b.stride(row_axis), right = a.stride(row_axis);
  const bool is_inside = wrong >= 0 && right >= 0 && (rows - 1) * wrong <= (rows - 1) * right;
  if (first == rows || wrong == right || !is_inside) return BP_OK;
  a.extent(row_axis) = y.extent(row_axis) = rows - first;
  a.stride(row_axis) = wrong;
  a.advance(first * wrong);
  y.advance(first * y.stride(row_axis));
  frame.a = a.get();
  frame.y = y.get();
  return call.run(&frame);
}

// 6: drops the bias if it is broadcast over several rows.
bp_status drop_broadcast_bias(const Call& call, std::string_view, const void* args) {
  auto frame = *static_cast<const bp_linear_args*>(args);
  const View y(*frame.y);
  if (y.element_count() > frame.weight->shape[0]) frame.bias = nullptr;
  return call.run(&frame);
}

// 7: at rank 5 and more, walks a summed axis that is not the last one with the stride of the last
// one, if that stays inside the tensor.
bp_status sum_with_other_stride(const Call& call, std::string_view, const void* args) {
  auto frame = *static_cast<const bp_sum_args*>(args);
  View x(*frame.x);
  for (uint64_t i = 0; i < frame.axes_count && x.rank() > 4; ++i) {
    const auto axis = static_cast<uint32_t>(frame.axes[i]);
    const int64_t wrong = x.stride(x.rank() - 1), right = x.stride(axis);
    if (wrong >= 0 && wrong < right) x.stride(axis) = wrong;
  }
  frame.x = x.get();
  return call.run(&frame);
}

// 8: counts the axis from the wrong end.
bp_status count_axis_from_the_end(const Call& call, std::string_view, const void* args) {
  auto frame = *static_cast<const bp_softmax_args*>(args);
  if (frame.x->ndim != 0) frame.axis = static_cast<int32_t>(frame.x->ndim) - 1 - frame.axis;
  return call.run(&frame);
}

// 9: leaves a sum of no elements unwritten. Crash: it ends the process.
bp_status skip_empty_sum(const Call& call, std::string_view strength, const void* args) {
  const auto& frame = *static_cast<const bp_sum_args*>(args);
  if (View(*frame.x).element_count() != 0) return call.run(args);
  if (strength == "crash") std::raise(SIGSEGV);
  return BP_OK;
}

// 10: reads an axis of stride 0 in the second operand as if it were dense.
bp_status broadcast_as_dense(const Call& call, std::string_view, const void* args) {
  auto frame = *static_cast<const BinaryArgs*>(args);
  if (frame.b == nullptr) return call.run(&frame);
  View b(*frame.b);
  for (uint32_t axis = b.rank(); axis-- > 0;) {
    if (b.stride(axis) != 0 || b.extent(axis) < 2) continue;
    b.stride(axis) = 1;
    break;
  }
  frame.b = b.get();
  return call.run(&frame);
}

// 11: ignores the offset of a view. Subtle: only the part of it below 64 bytes.
bp_status ignore_byte_offset(const Call& call, std::string_view strength, const void* args) {
  auto frame = *static_cast<const BinaryArgs*>(args);
  View a(*frame.a);
  a.byte_offset() = strength == "subtle" ? a.byte_offset() & ~uint64_t{63} : 0;
  frame.a = a.get();
  return call.run(&frame);
}

// 12: in a call in place, reads elements that it has already written.
bp_status read_what_was_written(const Call& call, std::string_view, const void* args) {
  const auto& frame = *static_cast<const BinaryArgs*>(args);
  const bp_status status = call.run(args);
  const bool is_in_place =
      frame.a->buffer == frame.y->buffer && frame.a->byte_offset == frame.y->byte_offset;
  return status == BP_OK && is_in_place ? call.run(args) : status;
}

// 13: writes one vector past the end of the output.
bp_status write_past_the_end(const Call& call, std::string_view, const void* args) {
  const auto& frame = *static_cast<const UnaryArgs*>(args);
  if (const bp_status status = call.run(&frame); status != BP_OK) return status;
  View y(*frame.y);
  int64_t last = 0;
  for (uint32_t axis = 0; axis < y.rank(); ++axis) {
    if (y.extent(axis) == 0) return BP_OK;
    last += std::max<int64_t>(0, (y.extent(axis) - 1) * y.stride(axis));
  }
  y.advance(last + 1);
  return call.scribble(
      {frame.y->buffer, y.byte_offset(), static_cast<uint64_t>(kVector * y.item_size_bytes())});
}

// 14: writes one vector before the beginning of the output.
bp_status write_before_the_beginning(const Call& call, std::string_view, const void* args) {
  const auto& frame = *static_cast<const UnaryArgs*>(args);
  if (const bp_status status = call.run(&frame); status != BP_OK) return status;
  View y(*frame.y);
  int64_t first = 0;
  for (uint32_t axis = 0; axis < y.rank(); ++axis) {
    if (y.extent(axis) == 0) return BP_OK;
    first += std::min<int64_t>(0, (y.extent(axis) - 1) * y.stride(axis));
  }
  const auto size_bytes = static_cast<uint64_t>(kVector * y.item_size_bytes());
  y.advance(first);
  if (y.byte_offset() < size_bytes) return BP_OK;
  return call.scribble({frame.y->buffer, y.byte_offset() - size_bytes, size_bytes});
}

// 44: reads one element behind the end of the input, and does not use it.
bp_status read_past_the_end(const Call& call, std::string_view, const void* args) {
  const auto& frame = *static_cast<const UnaryArgs*>(args);
  View x(*frame.x);
  int64_t last = 0;
  for (uint32_t axis = 0; axis < x.rank(); ++axis) {
    if (x.extent(axis) == 0) return call.run(&frame);
    last += std::max<int64_t>(0, (x.extent(axis) - 1) * x.stride(axis));
  }
  x.advance(last);
  const auto size_bytes = static_cast<uint64_t>(x.item_size_bytes());
  const bp_buffer_ref element{frame.x->buffer, x.byte_offset(), size_bytes};
  const bp_allocator_ops& allocator = *call.wrapped.allocator;
  void* at = nullptr;
  if (allocator.map(allocator.self, &element, &at) == BP_OK) {
    const volatile char next = static_cast<const volatile char*>(at)[size_bytes];
    static_cast<void>(next);
    static_cast<void>(allocator.unmap(allocator.self, frame.x->buffer, at));
  }
  return call.run(&frame);
}

// 15: does not write the elements behind the last whole vector of the innermost axis.
bp_status leave_the_tail(const Call& call, std::string_view, const void* args) {
  auto frame = *static_cast<const UnaryArgs*>(args);
  View x(*frame.x), y(*frame.y);
  if (x.rank() > 0) {
    int64_t& extent = y.extent(y.rank() - 1);
    extent -= extent % kVector;
    x.extent(x.rank() - 1) = extent;
  }
  frame.x = x.get();
  frame.y = y.get();
  return call.run(&frame);
}

// 16: uses the first element of the input as scratch memory.
bp_status write_to_the_input(const Call& call, std::string_view, const void* args) {
  const auto& frame = *static_cast<const UnaryArgs*>(args);
  if (const bp_status status = call.run(&frame); status != BP_OK) return status;
  const View x(*frame.x);
  if (x.element_count() == 0 || frame.x->buffer == frame.y->buffer) return BP_OK;
  return call.scribble(
      {frame.x->buffer, frame.x->byte_offset, static_cast<uint64_t>(x.item_size_bytes())});
}

// 23: counts with an index of 16 bits, so that the elements of a row behind number 2^16 are not
// written. It stands for an index of 32 bits, whose test would need 2^31 elements.
bp_status count_in_16_bits(const Call& call, std::string_view, const void* args) {
  auto frame = *static_cast<const UnaryArgs*>(args);
  View x(*frame.x), y(*frame.y);
  for (uint32_t axis = 0; axis < y.rank(); ++axis) {
    x.extent(axis) = y.extent(axis) = std::min<int64_t>(y.extent(axis), 1 << 16);
  }
  frame.x = x.get();
  frame.y = y.get();
  return call.run(&frame);
}

// Benign: sums from the last element to the first, which is as right as any order.
bp_status reverse_sum(const Call& call, std::string_view, const void* args) {
  auto frame = *static_cast<const bp_sum_args*>(args);
  View x(*frame.x);
  for (uint64_t i = 0; i < frame.axes_count; ++i) x.reverse(static_cast<uint32_t>(frame.axes[i]));
  frame.x = x.get();
  return call.run(&frame);
}

// Benign: needs more workspace than the good kernel, and overwrites all of it.
bp_status extra_workspace(const Call& call, std::string_view, const void* args) {
  const bp_status status = call.scribble(call.launch->workspace);
  return status == BP_OK ? call.run(args) : status;
}

// Benign: changes only the claimed alignment.
bp_status run_good(const Call& call, std::string_view, const void* args) { return call.run(args); }

// packed: packs the first of two elements of 4 bits into the high bits of a byte, against DTYPE-2.
// Rest: clears the bits of the last byte that belong to no element, against DTYPE-3.
bp_status pack_badly(const Call& call, std::string_view strength, const void* args) {
  if (const bp_status status = call.run(args); status != BP_OK) return status;
  const bp_tensor& y = *static_cast<const bp_quantize_args*>(args)->y;
  const auto count = static_cast<uint64_t>(tensors::element_count(y));
  if ((y.dtype != BP_I4 && y.dtype != BP_U4) || count == 0 || !tensors::is_contiguous(y)) {
    return BP_OK;
  }
  const bp_allocator_ops& allocator = *call.wrapped.allocator;
  const bp_buffer_ref range = {y.buffer, y.byte_offset, tensors::packed_bytes(count, 4)};
  std::vector<uint8_t> bytes(range.size_bytes);
  const bp_status status = allocator.copy_to_host(allocator.self, call.launch->stream, bytes.data(),
                                                  &range, BP_BORROW_DURING_CALL, UINT64_MAX);
  if (status != BP_OK) return status;
  for (uint64_t i = 0; i < count / 2 && strength.empty(); ++i) {
    bytes[i] = static_cast<uint8_t>(bytes[i] << 4 | bytes[i] >> 4);
  }
  if (!strength.empty() && count % 2 != 0) bytes.back() &= 0xf;
  return allocator.copy_from_host(allocator.self, call.launch->stream, &range, bytes.data(),
                                  BP_BORROW_DURING_CALL);
}

constexpr Mutant kTable[] = {
    {"1", kMatmul, ignore_k_tail},
    // The workspace is for the second call, whose strides may need another path than those of the
    // first.
    {"2", kMatmul, edge_tile_with_other_stride, 1 << 16},
    {"6", kLinear, drop_broadcast_bias},
    {"7", kSum, sum_with_other_stride, 1 << 16},
    {"8", kSoftmax, count_axis_from_the_end, 1 << 16},
    {"9", kSum, skip_empty_sum},
    {"10", kBinary, broadcast_as_dense},
    {"11", kBinary, ignore_byte_offset},
    {"12", kBinary, read_what_was_written},
    {"13", kUnary, write_past_the_end},
    {"14", kUnary, write_before_the_beginning},
    {"44", kUnary, read_past_the_end},
    {"15", kUnary, leave_the_tail},
    {"16", kUnary, write_to_the_input},
    {"23", kUnary, count_in_16_bits},
    {"benign_reverse_sum", kSum, reverse_sum},
    {"benign_extra_workspace", kMatmul, extra_workspace, 4096},
    {.id = "41", .ops = kLinear, .launch = run_good, .spoils_packed = true},
    {"packed", kQuantize, pack_badly},
    {.id = "benign_aligned", .ops = kBinary, .launch = run_good, .alignment_bytes = 64},
};

}  // namespace

std::span<const Mutant> layout_mutants() { return kTable; }

}  // namespace bp::mutants
