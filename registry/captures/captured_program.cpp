#include "registry/captures/captured_program.hpp"

#include <string>
#include <utility>

#include "backplane/program.h"
#include "registry/boundary/error_slot.hpp"
#include "registry/boundary/fail.hpp"
#include "registry/captures/refused_node.hpp"

namespace bp::core {
namespace {

bool contains(const bp_buffer_ref& slot, const bp_tensor& argument, uint64_t size_bytes) {
  return slot.buffer == argument.buffer && slot.byte_offset <= argument.byte_offset &&
         argument.byte_offset + size_bytes <= slot.byte_offset + slot.size_bytes;
}

uint64_t bytes_of(const bp_tensor& tensor) {
  uint64_t count = 1;
  for (uint32_t axis = 0; axis < tensor.ndim; ++axis) {
    count *= static_cast<uint64_t>(tensor.shape[axis]);
  }
  return (count * bp_dtype_bits(tensor.dtype) + 7) / 8;
}

}  // namespace

bp_status CapturedProgram::make(Target& target, ProgramRecorder& recorder,
                                const std::vector<bp_buffer_ref>& slots,
                                const std::vector<bp_buffer_ref>& held,
                                std::unique_ptr<CapturedProgram>& out) {
  std::unique_ptr<CapturedProgram> made(new CapturedProgram(target));
  bp_status status = recorder.finish(held, made->recorded_);
  if (status != BP_OK) return status;
  made->node_count_ = made->recorded_.nodes.size();
  made->slots_ = slots;
  for (const bp_tensor& argument : made->recorded_.arguments) {
    uint64_t slot = 0;
    while (slot < slots.size() && !contains(slots[slot], argument, bytes_of(argument))) ++slot;
    made->slot_of_.push_back(slot);
    made->offset_in_slot_.push_back(
        slot == slots.size() ? 0 : argument.byte_offset - slots[slot].byte_offset);
  }
  if (made->node_count_ != 0) status = made->compile();
  if (status == BP_OK) out = std::move(made);
  return status;
}

bp_status CapturedProgram::compile() {
  const bp_compiler_ops& compiler = target_.own_tables.compiler;
  const bp_compile_desc desc = recorded_.desc();
  DecomposedHandle decomposed;
  const bp_compile_desc* whole = nullptr;
  bp_status status = decompose(target_, desc, decomposed, whole);
  if (status != BP_OK) return status;
  status = compiler.compile(compiler.self, target_.device, whole, &executable_);
  if (status != BP_OK) {
    const std::string words = take_error(), node = refused_node(target_, *whole, *decomposed);
    return fail(status, "capture.end: the program of " + std::to_string(node_count_) +
                            " launches is not compiled: " + (node.empty() ? words : node));
  }
  status = compiler.executable_kernel(compiler.self, executable_, &kernel_);
  if (status != BP_OK || kernel_->workspace_size == nullptr) return status;
  bp_program_args frame{};
  frame.struct_size = sizeof(frame);
  return kernel_->workspace_size(kernel_, target_.device, recorded_.flags, &frame, &required_bytes_,
                                 &preferred_bytes_);
}

CapturedProgram::~CapturedProgram() {
  if (executable_ != nullptr && end() != BP_OK) static_cast<void>(take_error());
}

bp_status CapturedProgram::end() {
  bp_status status = BP_OK;
  if (last_launch_ != nullptr) {
    const bp_event_ops& events = target_.own_tables.events;
    status = events.destroy(events.self, std::exchange(last_launch_, nullptr));
  }
  if (executable_ == nullptr) return status;
  const bp_compiler_ops& compiler = target_.own_tables.compiler;
  kernel_ = nullptr;
  const bp_status released = compiler.release(compiler.self, std::exchange(executable_, nullptr));
  return status != BP_OK ? status : released;
}

bp_status CapturedProgram::bind(uint64_t slot, const bp_buffer_ref& range) {
  if (slot >= slots_.size()) {
    return fail(BP_INVALID_ARGUMENT, "captured_graph.bind: slot is " + std::to_string(slot) +
                                         ", and the graph has " + std::to_string(slots_.size()));
  }
  if (range.size_bytes < slots_[slot].size_bytes) {
    return fail(BP_INVALID_ARGUMENT, "captured_graph.bind: slot " + std::to_string(slot) + " has " +
                                         std::to_string(slots_[slot].size_bytes) +
                                         " bytes, and the range " +
                                         std::to_string(range.size_bytes));
  }
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < recorded_.arguments.size(); ++i) {
    if (slot_of_[i] != slot) continue;
    recorded_.arguments[i].buffer = range.buffer;
    recorded_.arguments[i].byte_offset = range.byte_offset + offset_in_slot_[i];
  }
  return BP_OK;
}

// Lets `stream` wait for the launch before, which has the same memory.
bp_status CapturedProgram::order_behind_the_last(bp_stream* stream) {
  if (last_stream_ == stream || last_launch_ == nullptr) return BP_OK;
  const bp_stream_ops& streams = target_.own_tables.streams;
  return streams.wait_event(streams.self, stream, last_launch_);
}

bp_status CapturedProgram::take_workspace(bp_stream* stream, bp_block** out_block) {
  const uint64_t preferred = std::max(required_bytes_, preferred_bytes_);
  if (preferred == 0) return BP_OK;
  const bp_status status = target_.cache->allocate(stream, preferred, out_block);
  if (status != BP_OUT_OF_MEMORY || required_bytes_ == preferred) return status;
  if (required_bytes_ == 0) return BP_OK;
  return target_.cache->allocate(stream, required_bytes_, out_block);
}

bp_status CapturedProgram::launch(bp_stream* stream) {
  if (kernel_ == nullptr) return BP_OK;  // Nothing was recorded.
  const bp_event_ops& events = target_.own_tables.events;
  const std::lock_guard lock(mutex_);
  bp_status status = BP_OK;
  if (last_launch_ == nullptr) {
    status = events.create(events.self, target_.device, nullptr, &last_launch_);
  } else {
    status = order_behind_the_last(stream);
  }
  bp_block* block = nullptr;
  if (status == BP_OK) status = take_workspace(stream, &block);
  if (status != BP_OK) return status;
  const services::BlockHandle workspace(block);
  bp_program_args frame{};
  frame.struct_size = sizeof(frame);
  frame.tensors = recorded_.arguments.data();
  frame.tensor_count = recorded_.arguments.size();
  bp_launch launch{};
  launch.device = target_.device;
  launch.stream = stream;
  launch.flags = recorded_.flags;
  if (block != nullptr) launch.workspace = block->ref;
  status = kernel_->launch(kernel_, &launch, &frame);
  if (status != BP_OK) return status;
  last_stream_ = stream;
  return events.record(events.self, last_launch_, stream);
}

}  // namespace bp::core
