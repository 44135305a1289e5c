#include "registry/lifetime/program_memory.hpp"

#include <cstring>
#include <memory>
#include <string>

#include "backplane/ops.h"
#include "registry/boundary/guard.hpp"
#include "registry/lifetime/pass_on.hpp"
#include "registry/state/program_refusal.hpp"

namespace bp::core {
namespace {

// A row-major tensor of the elements of a range.
struct RangeView {
  RangeView(const bp_buffer_ref& range, bp_dtype dtype, uint64_t element_bytes)
      : count(static_cast<int64_t>(range.size_bytes / element_bytes)) {
    tensor.buffer = range.buffer;
    tensor.byte_offset = range.byte_offset;
    tensor.shape = &count;
    tensor.strides = &stride;
    tensor.ndim = 1;
    tensor.dtype = dtype;
  }
  RangeView(const RangeView&) = delete;

  int64_t count, stride = 1;
  bp_tensor tensor{};
};

bp_status record(const Target& target, bp_stream* stream, uint32_t op, const void* args) {
  return bp_op_launch(&target, stream, 0, op, args);
}

bp_status copy(void* self, bp_stream* stream, const bp_buffer_ref* dst, const bp_buffer_ref* src) {
  Target& target = target_of(self);
  const bool is_whole = dst != nullptr && src != nullptr && dst->size_bytes == src->size_bytes;
  if (!is_whole || !is_in_program(target, stream)) [[likely]] {
    return target.next_allocator.copy(target.next_allocator.self, stream, dst, src);
  }
  const RangeView x(*src, BP_U8, 1), y(*dst, BP_U8, 1);
  const bp_copy_args args{.struct_size = sizeof(args), .flags = 0, .x = &x.tensor, .y = &y.tensor};
  return record(target, stream, BP_OP_COPY, &args);
}

// The dtype of a pattern as a scalar; 0 if there is none.
bp_dtype dtype_of_pattern(uint64_t size_bytes) {
  switch (size_bytes) {
    case 1:
      return BP_I8;
    case 2:
      return BP_I16;
    case 4:
      return BP_I32;
    case 8:
      return BP_I64;
    default:
      return 0;
  }
}

int64_t value_of(const void* pattern, uint64_t size_bytes) {
  uint64_t bits = 0;
  std::memcpy(&bits, pattern, size_bytes);
  const auto unused = static_cast<int>(64 - 8 * size_bytes);
  return static_cast<int64_t>(bits << unused) >> unused;
}

bp_status fill(void* self, bp_stream* stream, const bp_buffer_ref* dst, const void* pattern,
               uint64_t pattern_size_bytes) {
  Target& target = target_of(self);
  const bp_dtype dtype = dtype_of_pattern(pattern_size_bytes);
  const bool is_fill = dst != nullptr && pattern != nullptr && dtype != 0 &&
                       dst->size_bytes % pattern_size_bytes == 0;
  if (!is_fill) {
    const bp_status status = refuse_in_program(target, stream, "allocator.fill of this pattern");
    if (status != BP_OK) return status;
  }
  if (!is_fill || !is_in_program(target, stream)) [[likely]] {
    return target.next_allocator.fill(target.next_allocator.self, stream, dst, pattern,
                                      pattern_size_bytes);
  }
  const RangeView y(*dst, dtype, pattern_size_bytes);
  const int64_t value = value_of(pattern, pattern_size_bytes);
  const bp_fill_args args{.struct_size = sizeof(args),
                          .flags = 0,
                          .y = &y.tensor,
                          .value = nullptr,
                          .value_scalar = {BP_I64, 0, static_cast<uint64_t>(value)}};
  return record(target, stream, BP_OP_FILL, &args);
}

bp_status copy_from_host(void* self, bp_stream* stream, const bp_buffer_ref* dst, const void* src,
                         bp_borrow borrow) {
  Target& target = target_of(self);
  const bp_status status = refuse_in_program(target, stream, "allocator.copy_from_host");
  if (status != BP_OK) return status;
  return target.next_allocator.copy_from_host(target.next_allocator.self, stream, dst, src, borrow);
}

bp_status copy_to_host(void* self, bp_stream* stream, void* dst, const bp_buffer_ref* src,
                       bp_borrow borrow, uint64_t timeout_ns) {
  Target& target = target_of(self);
  const bp_status status = refuse_in_program(target, stream, "allocator.copy_to_host");
  if (status != BP_OK) return status;
  return target.next_allocator.copy_to_host(target.next_allocator.self, stream, dst, src, borrow,
                                            timeout_ns);
}

bp_status copy_peer(void* self, bp_stream* stream, const bp_buffer_ref* dst,
                    const bp_buffer_ref* src) {
  Target& target = target_of(self);
  const bp_status status = refuse_in_program(target, stream, "allocator.copy_peer");
  if (status != BP_OK) return status;
  return target.next_allocator.copy_peer(target.next_allocator.self, stream, dst, src);
}

}  // namespace

void watch_memory(Target& target) {
  if (!target.has_table(BP_STRUCT_COMPILER_OPS)) return;
  bp_allocator_ops& memory = target.own_tables.allocator;
  pass_all_on<&Target::next_allocator>(target, memory);
  memory.copy = copy;
  memory.fill = fill;
  memory.copy_from_host = copy_from_host;
  memory.copy_to_host = copy_to_host;
  memory.copy_peer = copy_peer;
}

}  // namespace bp::core
