// The mutants of launches: what one launch does to another, and what launch() may not do. Each
// comment begins with the number of the kill table.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <thread>

#include "backplane/ops.h"
#include "conformance/mutants/mutant.hpp"
#include "registry/tensors/strides.hpp"

namespace bp::mutants {
namespace {

constexpr uint32_t kRelu[] = {BP_OP_RELU};
constexpr uint32_t kSoftmax[] = {BP_OP_SOFTMAX};
constexpr uint32_t kMinimum[] = {BP_OP_MINIMUM};

bool is_dense(const bp_tensor& tensor) {
  return tensors::has_elements(tensor) && tensors::is_contiguous(tensor);
}

bp_buffer_ref range_of(const bp_tensor& tensor) {
  const View view(tensor);
  return {tensor.buffer, tensor.byte_offset,
          static_cast<uint64_t>(view.element_count() * view.item_size_bytes())};
}

bp_status allocate(const Call& call, uint64_t size_bytes, bp_buffer** out_buffer) {
  const bp_allocator_ops& memory = *call.wrapped.allocator;
  const bp_allocate_desc desc{.struct_size = sizeof(desc),
                              .struct_type = BP_STRUCT_ALLOCATE_DESC,
                              .size_bytes = size_bytes};
  return memory.allocate(memory.self, call.launch->device, &desc, out_buffer);
}

// What a kernel keeps between its launches. The mutex of the kernel guards it.
struct Remembered {
  uint64_t questions = 0;        // How often it was asked for its workspace.
  std::thread::id thread;        // That of the first launch.
  bp_buffer* scratch = nullptr;  // It lives as long as the backend.
};

Remembered& remembered_by(const Wrapped& wrapped) {
  if (wrapped.state == nullptr) wrapped.state = std::make_shared<Remembered>();
  return *static_cast<Remembered*>(wrapped.state.get());
}

// 70: all launches of a kernel have one place for their results, from which each copies its own
// some time later.
bp_status share_scratch(const Call& call, std::string_view, const void* args) {
  constexpr uint64_t kResult = 1 << 20, kDelay = 8 << 20;
  auto frame = *static_cast<const bp_relu_args*>(args);
  const bp_buffer_ref y = range_of(*frame.y);
  if (!is_dense(*frame.y) || y.size_bytes > kResult) return call.run(args);
  bp_buffer* scratch = nullptr;
  {
    const std::lock_guard lock(call.wrapped.mutex);
    Remembered& kept = remembered_by(call.wrapped);
    if (kept.scratch == nullptr) {
      const bp_status status = allocate(call, kResult + kDelay, &kept.scratch);
      if (status != BP_OK) return status;
    }
    scratch = kept.scratch;
  }
  bp_tensor shared = *frame.y;
  shared.buffer = scratch;
  shared.byte_offset = 0;
  frame.y = &shared;
  if (const bp_status status = call.run(&frame); status != BP_OK) return status;
  const bp_status delay = call.scribble({scratch, kResult, kDelay});
  if (delay != BP_OK) return delay;
  const bp_buffer_ref from{scratch, 0, y.size_bytes};
  const bp_allocator_ops& memory = *call.wrapped.allocator;
  return memory.copy(memory.self, call.launch->stream, &y, &from);
}

// 71: a launch from another thread than the first writes a part of the result alone.
bp_status know_one_thread(const Call& call, std::string_view, const void* args) {
  const auto& frame = *static_cast<const bp_relu_args*>(args);
  const bp_status status = call.run(args);
  if (status != BP_OK || !is_dense(*frame.y)) return status;
  {
    const std::lock_guard lock(call.wrapped.mutex);
    Remembered& kept = remembered_by(call.wrapped);
    if (kept.thread == std::thread::id()) kept.thread = std::this_thread::get_id();
    if (kept.thread == std::this_thread::get_id()) return BP_OK;
  }
  bp_buffer_ref last = range_of(*frame.y);
  const auto item = static_cast<uint64_t>(item_size_bytes(frame.y->dtype));
  last.byte_offset += last.size_bytes - item;
  last.size_bytes = item;
  return call.scribble(last);
}

// 72: finds what it compiled by the shape, and so takes the axis of the first call with a shape.
bp_status keep_first_axis(const Call& call, std::string_view, const void* args) {
  auto frame = *static_cast<const bp_softmax_args*>(args);
  const auto* extents = reinterpret_cast<const std::byte*>(frame.x->shape);
  const std::vector<std::byte> key(extents, extents + frame.x->ndim * sizeof(int64_t));
  const std::lock_guard lock(call.wrapped.mutex);
  for (const Kept& kept : call.wrapped.kept) {
    if (kept.key != key) continue;
    frame.axis = static_cast<int32_t>(kept.result.front());
    return call.run(&frame);
  }
  call.wrapped.kept.push_back({key, {static_cast<std::byte>(frame.axis)}});
  return call.run(&frame);
}

// 73: waits for the work that it has submitted.
bp_status wait_for_work(const Call& call, std::string_view, const void* args) {
  const auto& frame = *static_cast<const bp_relu_args*>(args);
  const bp_status status = call.run(args);
  if (status != BP_OK || !tensors::has_elements(*frame.y)) return status;
  const bp_allocator_ops& memory = *call.wrapped.allocator;
  const bp_buffer_ref first{frame.y->buffer, frame.y->byte_offset, 1};
  std::byte byte{};
  return memory.copy_to_host(memory.self, call.launch->stream, &byte, &first, BP_BORROW_DURING_CALL,
                             UINT64_MAX);
}

// 74: allocates device memory in each launch, and frees it behind the work.
bp_status allocate_in_launch(const Call& call, std::string_view, const void* args) {
  bp_buffer* buffer = nullptr;
  if (const bp_status status = allocate(call, 64 << 10, &buffer); status != BP_OK) return status;
  const bp_status status = call.run(args);
  const bp_allocator_ops& memory = *call.wrapped.allocator;
  static_cast<void>(memory.deallocate(memory.self, buffer, call.launch->stream));
  return status;
}

// 75: each launch leaves host memory, a descriptor, or device memory behind.
bp_status leave_behind(const Call& call, std::string_view strength, const void* args) {
  bp_buffer* buffer = nullptr;
  if (strength == "device") {
    if (const bp_status status = allocate(call, 4096, &buffer); status != BP_OK) return status;
  } else if (strength == "descriptor") {
    static_cast<void>(dup(STDERR_FILENO));
  } else {
    static_cast<volatile char*>(std::malloc(48))[0] = 0;
  }
  return call.run(args);
}

// 76: takes the element behind the first operand into the last result. The memory there shows only
// where it holds a smaller number.
bp_status read_behind(const Call& call, std::string_view, const void* args) {
  auto frame = *static_cast<const bp_minimum_args*>(args);
  if (const bp_status status = call.run(args); status != BP_OK) return status;
  if (!is_dense(*frame.a) || !is_dense(*frame.y) || frame.a->ndim == 0) return BP_OK;
  View behind(*frame.a), last(*frame.y);
  const int64_t count = last.element_count();
  for (uint32_t axis = 0; axis < last.rank(); ++axis) behind.extent(axis) = last.extent(axis) = 1;
  behind.advance(count);
  last.advance(count - 1);
  frame.a = behind.get();
  frame.b = frame.y = last.get();
  return call.run(&frame);
}

// 77: works in its workspace from the next multiple of 512 bytes on, so that it ends behind it.
constexpr uint64_t kRoundedBytes = 512;
bp_status round_workspace(const Call& call, std::string_view, const void* args) {
  bp_buffer_ref used = call.launch->workspace;
  used.byte_offset = (used.byte_offset + kRoundedBytes - 1) / kRoundedBytes * kRoundedBytes;
  const bp_status status = call.scribble(used);
  return status == BP_OK ? call.run(args) : status;
}

// 79: leaves the result of a launch in its workspace, behind a mark, and gives it again where it
// finds the mark.
constexpr uint64_t kMark = 0xA5C3F00D7E57AB1Eu;
constexpr uint64_t kMarkBytes = 64, kTrustedBytes = 4096;
bp_status trust_workspace(const Call& call, std::string_view, const void* args) {
  const auto& frame = *static_cast<const bp_relu_args*>(args);
  const bp_buffer_ref y = range_of(*frame.y);
  if (!is_dense(*frame.y) || y.size_bytes > kTrustedBytes - kMarkBytes) return call.run(args);
  const bp_buffer_ref& workspace = call.launch->workspace;
  const bp_buffer_ref place{workspace.buffer, workspace.byte_offset, sizeof(kMark)};
  const bp_buffer_ref left{workspace.buffer, workspace.byte_offset + kMarkBytes, y.size_bytes};
  const bp_allocator_ops& memory = *call.wrapped.allocator;
  bp_stream* const stream = call.launch->stream;
  uint64_t mark = 0;
  bp_status status =
      memory.copy_to_host(memory.self, stream, &mark, &place, BP_BORROW_DURING_CALL, UINT64_MAX);
  if (status != BP_OK) return status;
  if (mark == kMark) return memory.copy(memory.self, stream, &y, &left);
  if (status = call.run(args); status != BP_OK) return status;
  if (status = memory.copy(memory.self, stream, &left, &y); status != BP_OK) return status;
  return memory.copy_from_host(memory.self, stream, &place, &kMark, BP_BORROW_DURING_CALL);
}

// Asks the good kernel for its workspace, and adds `more` to it.
bp_status ask_for_more(const Wrapped& wrapped, bp_device* device, bp_launch_flags flags,
                       const void* args, uint64_t more, uint64_t* out_required_bytes,
                       uint64_t* out_preferred_bytes) {
  uint64_t required = 0, preferred = 0;
  const bp_kernel& good = *wrapped.good;
  if (good.workspace_size != nullptr) {
    const bp_status status = good.workspace_size(&good, device, flags, args, &required, &preferred);
    if (status != BP_OK) return status;
  }
  *out_required_bytes = required + more;
  *out_preferred_bytes = std::max(required, preferred) + more;
  return BP_OK;
}

// 79_size: needs less workspace from the third question on. What it asked for before is enough.
bp_status answer_less(const bp_kernel* self, bp_device* device, bp_launch_flags flags,
                      const void* args, uint64_t* out_required_bytes,
                      uint64_t* out_preferred_bytes) {
  const auto& wrapped = *static_cast<const Wrapped*>(self->state);
  const std::lock_guard lock(wrapped.mutex);
  const uint64_t more = ++remembered_by(wrapped).questions < 3 ? kTrustedBytes : 256;
  return ask_for_more(wrapped, device, flags, args, more, out_required_bytes, out_preferred_bytes);
}

// 79_bare: needs less workspace for tensors without buffers.
bp_status answer_bare(const bp_kernel* self, bp_device* device, bp_launch_flags flags,
                      const void* args, uint64_t* out_required_bytes,
                      uint64_t* out_preferred_bytes) {
  const bool is_bare = static_cast<const bp_relu_args*>(args)->x->buffer == nullptr;
  return ask_for_more(*static_cast<const Wrapped*>(self->state), device, flags, args,
                      is_bare ? 256 : kTrustedBytes, out_required_bytes, out_preferred_bytes);
}
bp_status run_good(const Call& call, std::string_view, const void* args) { return call.run(args); }
void answer_with_less(bp_kernel& kernel) { kernel.workspace_size = answer_less; }
void answer_by_buffers(bp_kernel& kernel) { kernel.workspace_size = answer_bare; }

constexpr Mutant kMutants[] = {
    {"70", kRelu, share_scratch},
    {"71", kRelu, know_one_thread},
    {"72", kSoftmax, keep_first_axis},
    {"73", kRelu, wait_for_work},
    {"74", kRelu, allocate_in_launch},
    {"75", kRelu, leave_behind},
    {"76", kMinimum, read_behind},
    {"77", kRelu, round_workspace, kRoundedBytes},
    {"79", kRelu, trust_workspace, kTrustedBytes},
    {.id = "79_size", .ops = kRelu, .launch = run_good, .declare = answer_with_less},
    {.id = "79_bare", .ops = kRelu, .launch = run_good, .declare = answer_by_buffers},
};

}  // namespace

std::span<const Mutant> launch_mutants() { return kMutants; }

}  // namespace bp::mutants
