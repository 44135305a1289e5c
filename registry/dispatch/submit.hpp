// Submits launches to kernels. The steps that every launch needs are inline. The steps that only
// some launches need are in sources: scalars, layouts, workspace and frames of other builds.
#pragma once

#include "registry/calls/call.hpp"
#include "registry/calls/own_layouts.hpp"
#include "registry/services/caching_allocator.hpp"
#include "registry/state/state.hpp"

namespace bp::services {
struct PlaceLink;
}

namespace bp::core {

using services::BlockHandle;

// One launch, which the functions below pass on.
struct Launch {
  Target& target;
  bp_stream* stream;
  bp_launch_flags flags;
  const OpRow& row;
  const bp_kernel& kernel;
  bp_kernel_sources source;
  bp_plan* plan = nullptr;
  // The workspace that a launch with a plan needs, and the workspace with which it is fastest.
  uint64_t required_bytes = 0, preferred_bytes = 0;
  // Where a kernel of the host sends the parts of the op, if not to the stream.
  const services::PlaceLink* place = nullptr;

  const void* link() const {
    if (source == BP_KERNEL_NATIVE) return nullptr;
    return place == nullptr ? static_cast<const void*>(&target) : place;
  }
  bp_launch with(const bp_buffer_ref& workspace) const {
    return {.next = link(),
            .device = target.device,
            .stream = stream,
            .workspace = workspace,
            .plan = plan,
            .correlation_id = 0,
            .flags = flags,
            .reserved = 0};
  }
};

// Takes the workspace of a launch from the cache: the preferred size, or the required size if
// memory is short. It takes none if the size is 0. The launch gives the workspace back at once. The
// next launch on the stream may use it, because it runs after this one.
bp_status take_workspace(const Launch& l, uint64_t required, uint64_t preferred,
                         BlockHandle& out_workspace);

// Takes the same without the question whether the stream captures, for what is no kernel of an op.
bp_status allocate_workspace(const Target& target, bp_stream* stream, uint64_t required,
                             uint64_t preferred, BlockHandle& out_workspace);
inline bp_buffer_ref range_of(const BlockHandle& block) {
  return block == nullptr ? bp_buffer_ref{} : block->ref;
}

// Refuses a launch that needs memory of the cache, for `what`, while its stream captures, unless
// the capture is one of the host, which keeps the memory. Else the launch gives such memory back at
// once, and a replay would write to memory that another launch uses.
bp_status check_not_capturing(const Launch& l, const char* what);

bp_status call_with_workspace(const Launch& l, const void* frame);
bp_status call_with_layouts(const Launch& l, const void* frame);  // laying_out.hpp
bp_status call_with_scalar_tensors(const Launch& l, const void* frame);
bp_status call_with_other_frame(const Launch& l, bool needs_scalars, const void* args);

inline bp_status call_kernel(const Launch& l, const bp_buffer_ref& workspace, const void* frame) {
  const bp_launch launch = l.with(workspace);
  return l.kernel.launch(&l.kernel, &launch, frame);
}

// Calls the kernel with tensors that lie as it takes them.
inline bp_status call_in_place(const Launch& l, const void* frame) {
  const bool has_workspace =
      l.plan == nullptr ? l.kernel.workspace_size != nullptr : l.preferred_bytes != 0;
  if (has_workspace) return call_with_workspace(l, frame);
  return call_kernel(l, {}, frame);
}

inline bp_status call_any(const Launch& l, const void* frame) {
  if (l.kernel.layout_claims != nullptr && requires_layouts(l.kernel)) [[unlikely]] {
    return call_with_layouts(l, frame);
  }
  return call_in_place(l, frame);
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

// What is read from a call before anything else is done with it. `storage` holds the lengthened
// frame of a caller from an older build.
struct Reading {
  const OpRow* row = nullptr;
  const void* frame = nullptr;
  Key key;
  bool has_null = false;  // If true, a tensor has no buffer.
  alignas(8) std::byte storage[kMaxFrameBytes];
};

bp_status read(const bp_target* target, bp_launch_flags flags, uint32_t op, const void* args,
               Reading& r);

// Reads a call that will run, so it also refuses tensors without buffers. A question about a call
// needs no buffers; it uses read().
bp_status read_to_launch(const bp_target* target, bp_launch_flags flags, uint32_t op,
                         const void* args, Reading& r);

// Returns BP_UNSUPPORTED, with the explanation of the choice, when no candidate has served the
// call. `was_tried` says that at least one kernel was launched and refused.
bp_status nothing_left(Target& target, const Reading& r, bool was_tried);

}  // namespace bp::core
