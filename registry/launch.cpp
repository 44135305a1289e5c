// Finding and launching kernels. What a call needs in every launch stands in bp_op_launch() and
// submit(); what only some need (scalars, workspace, frames of other builds) is out of the way.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>

#include "registry/call.hpp"
#include "registry/claims.hpp"
#include "registry/fail.hpp"
#include "registry/guard.hpp"
#include "registry/out_struct.hpp"
#include "registry/scalar.hpp"
#include "registry/state.hpp"

namespace bp::core {
namespace {

// The end of the last member of the first release: it must not grow when the struct does.
constexpr uint32_t kFirstStatistics =
    offsetof(bp_dispatch_statistics, copied_scalar_count) + sizeof(uint64_t);

struct FreeBlock {
  void operator()(bp_block* block) const { static_cast<void>(services::Cache::free(block)); }
};
using BlockHandle = std::unique_ptr<bp_block, FreeBlock>;

// One launch, as it travels through the functions below.
struct Launch {
  Target& target;
  bp_stream* stream;
  bp_launch_flags flags;
  const OpRow& row;
  const bp_kernel& kernel;
  bp_kernel_sources source;
};

bp_status call_kernel(const Launch& l, const bp_buffer_ref& workspace, const void* frame) {
  const bp_launch launch{.next = l.source == BP_KERNEL_NATIVE ? nullptr : &l.target,
                         .device = l.target.device,
                         .stream = l.stream,
                         .workspace = workspace,
                         .plan = nullptr,
                         .correlation_id = 0,
                         .flags = l.flags,
                         .reserved = 0};
  return l.kernel.launch(&l.kernel, &launch, frame);
}

// Scratch memory comes from the cache and goes back at once: the next launch on this stream, which
// runs behind this one, may have it.
[[gnu::noinline]] bp_status call_with_workspace(const Launch& l, const void* frame) {
  uint64_t required = 0, preferred = 0;
  bp_status status =
      l.kernel.workspace_size(&l.kernel, l.target.device, frame, &required, &preferred);
  if (status != BP_OK) return status;
  preferred = std::max(required, preferred);
  if (preferred == 0) return call_kernel(l, {}, frame);
  bp_block* block = nullptr;
  status = l.target.cache->allocate(l.stream, preferred, &block);
  if (status == BP_OUT_OF_MEMORY && required < preferred) {
    if (required == 0) return call_kernel(l, {}, frame);
    status = l.target.cache->allocate(l.stream, required, &block);
  }
  if (status != BP_OK) return status;
  const BlockHandle workspace(block);
  return call_kernel(l, block->ref, frame);
}

bp_status call_any(const Launch& l, const void* frame) {
  if (l.kernel.workspace_size != nullptr) return call_with_workspace(l, frame);
  return call_kernel(l, {}, frame);
}

// Tensors that stand for the inline scalars of one launch.
struct ScalarTensors {
  bp_tensor tensors[kMaxTensors];
  BlockHandle blocks[kMaxTensors];
};

constexpr int64_t kNoStrides[BP_MAX_RANK] = {};

// A tensor with the value of an inline scalar: one element, or of the shape of the argument that it
// is like, with strides of 0. Its memory is filled and used in the order of the stream.
bp_status make_scalar_tensor(const Launch& l, uint32_t index, const void* frame, ScalarTensors& s) {
  const TensorArgument& argument = l.row.tensors[index];
  const bp_tensor* like = nullptr;
  if (argument.like != kNoArgument) like = tensor_at(frame, l.row.tensors[argument.like]);
  const bp_dtype dtype = like != nullptr ? like->dtype : argument.dtype;
  unsigned char pattern[16];
  const uint32_t size = scalar_bytes(scalar_at(frame, argument), dtype, pattern);
  if (size == 0) {
    return fail(BP_UNSUPPORTED, std::string(l.row.name) + ": " + argument.name +
                                    " is an inline scalar, and dtype " + std::to_string(dtype) +
                                    " cannot be made from one");
  }
  bp_block* block = nullptr;
  bp_status status = l.target.cache->allocate(l.stream, size, &block);
  if (status != BP_OK) return status;
  s.blocks[index].reset(block);
  const bp_allocator_ops& memory = l.target.own_allocator;
  status = memory.fill(memory.self, l.stream, &block->ref, pattern, size);
  if (status != BP_OK) return status;
  const bool is_operand = argument.kind == Kind::operand;
  s.tensors[index] = {.buffer = block->ref.buffer,
                      .byte_offset = block->ref.byte_offset,
                      .shape = is_operand ? like->shape : kNoStrides,
                      .strides = kNoStrides,
                      .ndim = is_operand ? like->ndim : 0,
                      .dtype = dtype,
                      .layout = nullptr,
                      .flags = 0,
                      .reserved = 0};
  l.target.counts[l.row.index].copied_scalars.fetch_add(1, std::memory_order_relaxed);
  return BP_OK;
}

[[gnu::noinline]] bp_status call_with_scalar_tensors(const Launch& l, const void* frame) {
  alignas(8) std::byte copy[kMaxFrameBytes];
  std::memcpy(copy, frame, frame_size(frame));
  ScalarTensors scalars;
  for (uint32_t i = 0; i < l.row.tensor_count; ++i) {
    const TensorArgument& argument = l.row.tensors[i];
    if (!argument.has_scalar() || tensor_at(frame, argument) != nullptr) continue;
    const bp_status status = make_scalar_tensor(l, i, frame, scalars);
    if (status != BP_OK) return status;
    const bp_tensor* tensor = &scalars.tensors[i];
    std::memcpy(copy + argument.offset, &tensor, sizeof(tensor));
  }
  return call_any(l, copy);
}

[[gnu::noinline]] bp_status call_with_other_frame(const Launch& l, bool needs_scalars,
                                                  const void* args) {
  alignas(8) std::byte storage[kMaxFrameBytes];
  uint32_t offset = 0;
  const void* frame = fit_frame(l.row, args, l.kernel.args_size_bytes, storage, &offset);
  if (frame == nullptr) {
    return fail(BP_UNSUPPORTED, std::string(l.row.name) + ": byte " + std::to_string(offset) +
                                    " of the frame is given, and " + l.kernel.name +
                                    " does not know it");
  }
  return needs_scalars ? call_with_scalar_tensors(l, frame) : call_any(l, frame);
}

bp_status submit(const Launch& l, bool needs_scalars, const void* args) {
  if (frame_size(args) != l.kernel.args_size_bytes) [[unlikely]] {
    return call_with_other_frame(l, needs_scalars, args);
  }
  if (needs_scalars) [[unlikely]] {
    return call_with_scalar_tensors(l, args);
  }
  return call_any(l, args);
}

void count(Target& target, const OpRow& row, bp_kernel_sources source) {
  DispatchCounts& counts = target.counts[row.index];
  std::atomic<uint64_t>* counter = &counts.native;
  if (source == BP_KERNEL_DECOMPOSED) counter = &counts.decomposed;
  if (source == BP_KERNEL_HOST_FALLBACK) counter = &counts.host_fallback;
  counter->fetch_add(1, std::memory_order_relaxed);
}

// What a status of the backend's vendor stands for.
bp_status classify(const Target& target, bp_status status) {
  const bp_backend* backend = target.owner().instance.backend();
  if (status >= 0 || backend == nullptr || backend->status_class == nullptr) return status;
  bp_status result = status;
  if (backend->status_class(backend->self, status, &result) != BP_OK) return status;
  return result;
}

bp_kernel_sources source_of(const bp_kernel& kernel) {
  if (&kernel == services::decomposition(kernel.op)) return BP_KERNEL_DECOMPOSED;
  if (&kernel == services::host_fallback(kernel.op)) return BP_KERNEL_HOST_FALLBACK;
  return BP_KERNEL_NATIVE;
}

bp_status unknown_op(uint32_t op) {
  return fail(BP_NOT_FOUND, "op " + std::to_string(op) + " is not known to this host");
}

bp_status bad_flags(const OpRow& row, bp_launch_flags flags) {
  return fail(BP_UNSUPPORTED, std::string(row.name) + ": launch flags are " +
                                  std::to_string(flags) + ", known bits are " +
                                  std::to_string(kKnownLaunchFlags));
}

bp_status is_null(const char* what) {
  return fail(BP_INVALID_ARGUMENT, std::string(what) + " is NULL");
}

// What every function on a call starts with. `storage` holds the frame of an older caller.
struct Reading {
  const OpRow* row = nullptr;
  const void* frame = nullptr;
  Key key;
  alignas(8) std::byte storage[kMaxFrameBytes];
};

bp_status read(const bp_target* target, bp_launch_flags flags, uint32_t op, const void* args,
               Reading& r) {
  if (target == nullptr) return is_null("target");
  if (args == nullptr) return is_null("args");
  r.row = find_op(op);
  if (r.row == nullptr) return unknown_op(op);
  if ((flags & ~kKnownLaunchFlags) != 0) return bad_flags(*r.row, flags);
  r.frame = known_frame(*r.row, args, r.storage);
  if (r.frame == nullptr) return BP_INCOMPATIBLE;
  if (impl(target).cache == nullptr) {
    return fail(BP_DEVICE_LOST, std::string(target->name) + ": its backend was unloaded");
  }
  return read_call(*r.row, flags, r.frame, r.key);
}

// After every candidate was passed over.
bp_status nothing_left(Target& target, const Reading& r, bool was_tried) {
  std::string text = explain(target, *r.row, r.key, r.frame);
  if (was_tried) text += "\n  at the launch every kernel refused; the last: " + take_error();
  return fail(BP_UNSUPPORTED, text);
}

bp_status launch_op(Target& target, bp_stream* stream, bp_launch_flags flags, const Reading& r) {
  const bp_kernel_sources sources = allowed_sources(target);
  if (stream == nullptr) stream = target.default_stream;
  bool was_tried = false;
  for (const Candidate& candidate : choose(target, *r.row, r.key, r.frame)->candidates) {
    if (!is_taken(target, *r.row, candidate, sources, flags, r.frame)) continue;
    const Launch l{target, stream, flags, *r.row, *candidate.kernel, candidate.source};
    bp_status status = submit(l, candidate.needs_scalar_tensors, r.frame);
    if (status == BP_OK) [[likely]] {
      count(target, *r.row, candidate.source);
      return BP_OK;
    }
    if (classify(target, status) != BP_UNSUPPORTED) return status;
    was_tried = true;
  }
  return nothing_left(target, r, was_tried);
}

}  // namespace
}  // namespace bp::core

using namespace bp::core;

bp_status bp_kernel_find(const bp_target* target, bp_launch_flags flags, bp_kernel_sources sources,
                         uint32_t op, const void* args, bp_kernel_choice* out_choice) {
  return guarded([&]() -> bp_status {
    if (out_choice == nullptr) return is_null("out_choice");
    Reading r;
    if (const bp_status status = read(target, flags, op, args, r); status != BP_OK) return status;
    if (sources == 0) sources = allowed_sources(impl(target));
    for (const Candidate& candidate : choose(impl(target), *r.row, r.key, r.frame)->candidates) {
      if (!is_taken(impl(target), *r.row, candidate, sources, flags, r.frame)) continue;
      *out_choice = {candidate.kernel, candidate.source, 0};
      return BP_OK;
    }
    return nothing_left(impl(target), r, false);
  });
}

bp_status bp_kernel_explain(const bp_target* target, bp_launch_flags flags, uint32_t op,
                            const void* args, uint64_t capacity, char* text, uint64_t* out_size) {
  return guarded([&]() -> bp_status {
    if (out_size == nullptr) return is_null("out_size");
    if (text == nullptr && capacity != 0) return is_null("text");
    Reading r;
    if (const bp_status status = read(target, flags, op, args, r); status != BP_OK) return status;
    const std::string whole = explain(impl(target), *r.row, r.key, r.frame);
    if (capacity != 0) {
      const size_t size = std::min<size_t>(whole.size(), capacity - 1);
      std::memcpy(text, whole.data(), size);
      text[size] = '\0';
    }
    *out_size = whole.size() + 1;
    return BP_OK;
  });
}

bp_status bp_op_launch(const bp_target* target, bp_stream* stream, bp_launch_flags flags,
                       uint32_t op, const void* args) {
  return guarded([&]() -> bp_status {
    Reading r;
    if (const bp_status status = read(target, flags, op, args, r); status != BP_OK) return status;
    return launch_op(impl(target), stream, flags, r);
  });
}

bp_status bp_kernel_launch(const bp_target* target, bp_stream* stream, bp_launch_flags flags,
                           const bp_kernel* kernel, const void* args) {
  return guarded([&]() -> bp_status {
    if (kernel == nullptr) return is_null("kernel");
    Reading r;
    const bp_status status = read(target, flags, kernel->op, args, r);
    if (status != BP_OK) return status;
    Target& t = impl(target);
    const bp_kernel_sources source = source_of(*kernel);
    const Launch l{t,     stream == nullptr ? t.default_stream : stream, flags, *r.row, *kernel,
                   source};
    const bp_status launched = submit(l, needs_scalar_tensors(*r.row, *kernel, r.key), r.frame);
    if (launched == BP_OK) count(t, *r.row, source);
    return launched;
  });
}

bp_status bp_target_statistics(const bp_target* target, uint32_t op,
                               bp_dispatch_statistics* out_statistics) {
  if (target == nullptr) return is_null("target");
  const OpRow* row = find_op(op);
  if (op != 0 && row == nullptr) return unknown_op(op);
  bp_dispatch_statistics sum{};
  for (const OpRow& each : op_rows()) {
    if (op != 0 && each.op != op) continue;
    const DispatchCounts& counts = impl(target).counts[each.index];
    sum.native_count += counts.native;
    sum.decomposed_count += counts.decomposed;
    sum.host_fallback_count += counts.host_fallback;
    sum.copied_scalar_count += counts.copied_scalars;
  }
  return write_out(sum, out_statistics, kFirstStatistics, "out_statistics");
}
