// How a kernel is called. What a call needs in every launch is inline; what only some need
// (scalars, workspace, frames of other builds) is out of the way.
#pragma once

#include "registry/calls/call.hpp"
#include "registry/services/caching_allocator.hpp"
#include "registry/state/state.hpp"

namespace bp::core {

using services::BlockHandle;

// One launch, as it travels through the functions below.
struct Launch {
  Target& target;
  bp_stream* stream;
  bp_launch_flags flags;
  const OpRow& row;
  const bp_kernel& kernel;
  bp_kernel_sources source;
  bp_plan* plan = nullptr;
  uint64_t required_bytes = 0, preferred_bytes = 0;  // Of workspace, for a launch with a plan.

  bp_launch with(const bp_buffer_ref& workspace) const {
    return {.next = source == BP_KERNEL_NATIVE ? nullptr : &target,
            .device = target.device,
            .stream = stream,
            .workspace = workspace,
            .plan = plan,
            .correlation_id = 0,
            .flags = flags,
            .reserved = 0};
  }
};

// Scratch memory of the launch: what is preferred, else what is required, and none if that is 0. It
// comes from the cache and goes back at once: the next launch on this stream, which runs behind
// this one, may have it.
bp_status take_workspace(const Launch& l, uint64_t required, uint64_t preferred,
                         BlockHandle& out_workspace);
inline bp_buffer_ref range_of(const BlockHandle& block) {
  return block == nullptr ? bp_buffer_ref{} : block->ref;
}

bp_status call_with_workspace(const Launch& l, const void* frame);
bp_status call_with_scalar_tensors(const Launch& l, const void* frame);
bp_status call_with_other_frame(const Launch& l, bool needs_scalars, const void* args);

inline bp_status call_kernel(const Launch& l, const bp_buffer_ref& workspace, const void* frame) {
  const bp_launch launch = l.with(workspace);
  return l.kernel.launch(&l.kernel, &launch, frame);
}

inline bp_status call_any(const Launch& l, const void* frame) {
  const bool has_workspace =
      l.plan == nullptr ? l.kernel.workspace_size != nullptr : l.preferred_bytes != 0;
  if (has_workspace) return call_with_workspace(l, frame);
  return call_kernel(l, {}, frame);
}

inline bp_status submit(const Launch& l, bool needs_scalars, const void* args) {
  if (frame_size(args) != l.kernel.args_size_bytes) [[unlikely]] {
    return call_with_other_frame(l, needs_scalars, args);
  }
  if (needs_scalars) [[unlikely]] {
    return call_with_scalar_tensors(l, args);
  }
  return call_any(l, args);
}

inline void count(Target& target, const OpRow& row, bp_kernel_sources source) {
  DispatchCounts& counts = target.counts[row.index];
  std::atomic<uint64_t>* counter = &counts.native;
  if (source == BP_KERNEL_DECOMPOSED) counter = &counts.decomposed;
  if (source == BP_KERNEL_HOST_FALLBACK) counter = &counts.host_fallback;
  counter->fetch_add(1, std::memory_order_relaxed);
}

// What every function on a call starts with. `storage` holds the frame of an older caller.
struct Reading {
  const OpRow* row = nullptr;
  const void* frame = nullptr;
  Key key;
  bool has_null = false;  // A tensor has no buffer.
  alignas(8) std::byte storage[kMaxFrameBytes];
};

bp_status read(const bp_target* target, bp_launch_flags flags, uint32_t op, const void* args,
               Reading& r);

// read() for a call that will run, where a question needs no memory.
bp_status read_to_launch(const bp_target* target, bp_launch_flags flags, uint32_t op,
                         const void* args, Reading& r);

// After every candidate was passed over.
bp_status nothing_left(Target& target, const Reading& r, bool was_tried);

}  // namespace bp::core
