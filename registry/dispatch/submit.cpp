#include "registry/dispatch/submit.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>

#include "registry/boundary/error_slot.hpp"
#include "registry/boundary/fail.hpp"
#include "registry/boundary/prefix.hpp"
#include "registry/calls/claims.hpp"
#include "registry/dispatch/reasons.hpp"
#include "registry/dispatch/selection.hpp"
#include "registry/services/decompose.hpp"
#include "registry/tensors/scalar.hpp"

namespace bp::core {
namespace {

// The tensors that stand for the inline scalars of one launch.
struct ScalarTensors {
  bp_tensor tensors[kMaxTensors];
  BlockHandle blocks[kMaxTensors];
};

// Makes a tensor with the value of an inline scalar. Its memory is filled and used in the order of
// the stream.
bp_status make_scalar_tensor(const Launch& l, uint32_t index, const void* frame, ScalarTensors& s) {
  const TensorArgument& argument = l.row.tensors[index];
  bp_tensor& tensor = s.tensors[index] = scalar_view(l.row, argument, l.kernel, frame);
  unsigned char pattern[16];
  const uint32_t size = scalar_bytes(scalar_at(frame, argument), tensor.dtype, pattern);
  if (size == 0) {
    return fail(BP_UNSUPPORTED, std::string(l.row.name) + ": " + argument.name +
                                    " is an inline scalar, and dtype " +
                                    std::to_string(tensor.dtype) + " cannot be made from one");
  }
  if (l.place != nullptr) {
    l.place->place->place(tensor);
    return BP_OK;
  }
  bp_block* block = nullptr;
  bp_status status = l.target.cache->allocate(l.stream, size, &block);
  if (status != BP_OK) return status;
  s.blocks[index].reset(block);
  const bp_allocator_ops& memory = l.target.own_tables.allocator;
  status = memory.fill(memory.self, l.stream, &block->ref, pattern, size);
  if (status != BP_OK) return status;
  tensor.buffer = block->ref.buffer;
  tensor.byte_offset = block->ref.byte_offset;
  l.target.counts[l.row.index].copied_scalars.fetch_add(1, std::memory_order_relaxed);
  count_call(reason_of_scalar(l.target, l.row, l.kernel, index));
  return BP_OK;
}

}  // namespace

bp_status check_not_capturing(const Launch& l, const char* what) {
  if (!l.target.has_table(BP_STRUCT_GRAPH_OPS)) return BP_OK;
  const bp_stream_ops& streams = l.target.own_tables.streams;
  uint32_t is_capturing = 0;
  const bp_status status = streams.is_capturing(streams.self, l.stream, &is_capturing);
  if (status != BP_OK || is_capturing == 0) return status;
  if (services::Captures& captures = l.target.caches->captures(); captures.any()) {
    std::shared_ptr<services::CaptureParts> parts;
    const bp_status found = captures.find(l.stream, parts);
    if (found != BP_OK || parts != nullptr) return found;
  }
  return fail(BP_INVALID_ARGUMENT, std::string(l.row.name) + ": the stream captures, and " +
                                       l.kernel.name + " needs " + what +
                                       ": capture with bp_capture_begin(), which keeps "
                                       "the memory, or give it memory that lives as long as the "
                                       "graph, with bp_kernel::launch");
}

bp_status call_with_workspace(const Launch& l, const void* frame) {
  uint64_t required = l.required_bytes, preferred = l.preferred_bytes;
  if (l.plan == nullptr) {
    const bp_status status =
        l.kernel.workspace_size(&l.kernel, l.target.device, l.flags, frame, &required, &preferred);
    if (status != BP_OK) return status;
  }
  BlockHandle workspace;
  const bp_status status = take_workspace(l, required, preferred, workspace);
  if (status != BP_OK) return status;
  return call_kernel(l, range_of(workspace), frame);
}

bp_status take_workspace(const Launch& l, uint64_t required, uint64_t preferred,
                         BlockHandle& out_workspace) {
  if (std::max(required, preferred) == 0) return BP_OK;
  const bp_status status = check_not_capturing(l, "workspace");
  if (status != BP_OK) return status;
  return allocate_workspace(l.target, l.stream, required, preferred, out_workspace);
}

bp_status allocate_workspace(const Target& target, bp_stream* stream, uint64_t required,
                             uint64_t preferred, BlockHandle& out_workspace) {
  preferred = std::max(required, preferred);
  if (preferred == 0) return BP_OK;
  bp_block* block = nullptr;
  bp_status status = target.cache->allocate(stream, preferred, &block);
  if (status == BP_OUT_OF_MEMORY && required < preferred) {
    if (required == 0) return BP_OK;
    status = target.cache->allocate(stream, required, &block);
  }
  out_workspace.reset(block);
  return status;
}

bp_status call_with_scalar_tensors(const Launch& l, const void* frame) {
  const bp_status legal =
      l.place != nullptr ? BP_OK : check_not_capturing(l, "its scalars as tensors");
  if (legal != BP_OK) return legal;
  const std::string refusal = operand_value_refusal(l.row, l.kernel, frame);
  if (!refusal.empty()) {
    return fail(BP_UNSUPPORTED, std::string(l.row.name) + " by " + l.kernel.name + ": " + refusal);
  }
  alignas(8) std::byte copy[kMaxFrameBytes];
  std::memcpy(copy, frame, l.kernel.args_size_bytes);
  std::memcpy(copy, &l.kernel.args_size_bytes, sizeof(l.kernel.args_size_bytes));
  ScalarTensors scalars;
  for (uint32_t i = 0; i < l.row.tensor_count; ++i) {
    const TensorArgument& argument = l.row.tensors[i];
    if (!has_inline_scalar(argument, frame)) continue;
    const bp_status status = make_scalar_tensor(l, i, frame, scalars);
    if (status != BP_OK) return status;
    const bp_tensor* tensor = &scalars.tensors[i];
    std::memcpy(copy + argument.offset, &tensor, sizeof(void*));
  }
  return call_any(l, copy);
}

bp_status call_with_other_frame(const Launch& l, bool needs_scalars, const void* args) {
  alignas(8) std::byte storage[kMaxFrameBytes];
  uint32_t offset = 0;
  const void* frame = fit_frame(l.row, args, l.kernel.args_size_bytes, storage, &offset);
  if (frame == nullptr) {
    return fail(BP_UNSUPPORTED, std::string(l.row.name) + " by " + l.kernel.name + ": " +
                                    later_member_refusal(l.row, l.kernel, offset));
  }
  return needs_scalars ? call_with_scalar_tensors(l, frame) : call_any(l, frame);
}

bp_status read(const bp_target* target, bp_launch_flags flags, uint32_t op, const void* args,
               Reading& r) {
  if (target == nullptr) return is_null("target");
  if (args == nullptr) return is_null("args");
  r.row = find_op(op);
  if (r.row == nullptr) return unknown_op(op);
  if ((flags & ~kKnownLaunchFlags) != 0) return unknown_flags(*r.row, flags);
  if (frame_size(args) > kMaxStructBytes) [[unlikely]] {
    return frame_too_long(*r.row, args);
  }
  r.frame = known_frame(*r.row, args, r.storage);
  if (r.frame == nullptr) return BP_INCOMPATIBLE;
  if (impl(target).cache == nullptr) {
    return backend_unloaded(target->name);
  }
  return read_call(*r.row, flags, r.frame, r.key, &r.has_null);
}

bp_status read_to_launch(const bp_target* target, bp_launch_flags flags, uint32_t op,
                         const void* args, Reading& r) {
  const bp_status status = read(target, flags, op, args, r);
  if (status == BP_OK && r.has_null) [[unlikely]] {
    return check_buffers(*r.row, r.frame);
  }
  return status;
}

bp_status nothing_left(Target& target, const Reading& r, bool was_tried) {
  std::string text = explain(target, *r.row, r.key, r.frame);
  if (was_tried) text += "\n  at the launch every kernel refused; the last: " + take_error();
  return fail(BP_UNSUPPORTED, text);
}

}  // namespace bp::core
