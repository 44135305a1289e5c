#include "registry/captures/captured_program.hpp"

#include <string>
#include <utility>

#include "backplane/program.h"
#include "registry/boundary/error_slot.hpp"
#include "registry/boundary/fail.hpp"
#include "registry/calls/claims.hpp"
#include "registry/captures/refused_node.hpp"
#include "registry/dispatch/submit.hpp"

namespace bp::core {
namespace {

ByteRange bytes_of(const bp_buffer_ref& ref) {
  return {ref.buffer, ref.byte_offset, ref.byte_offset + ref.size_bytes};
}

// Finds the slot of an argument; slots.size() if it is in none.
bp_status find_slot(const std::vector<bp_buffer_ref>& slots, const ByteRange& argument,
                    uint64_t& out_slot) {
  for (out_slot = 0; out_slot < slots.size(); ++out_slot) {
    const ByteRange slot = bytes_of(slots[out_slot]);
    if (slot.contains(argument)) return BP_OK;
    if (!slot.overlaps(argument)) continue;
    return fail(BP_INVALID_ARGUMENT,
                "capture.end: the launches reach memory that is partly inside of slot " +
                    std::to_string(out_slot) + "; a tensor is inside of a slot or outside of it");
  }
  return BP_OK;
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
    status = find_slot(slots, range_of(argument), slot);
    if (status != BP_OK) return status;
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
  if (status != BP_OK) return status;
  const std::string defect = lent_kernel_defect(kernel_);
  if (!defect.empty()) return fail(BP_INTERNAL, "executable_kernel: " + defect);
  if (kernel_->workspace_size == nullptr) return BP_OK;
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

// Each launch waits for the one before, which has the same memory. The stream of that one may have
// ended, and its address be that of another, so streams are not compared.
bp_status CapturedProgram::launch(bp_stream* stream) {
  if (kernel_ == nullptr) return BP_OK;  // Nothing was recorded.
  const bp_event_ops& events = target_.own_tables.events;
  const std::lock_guard lock(mutex_);
  const bp_stream_ops& streams = target_.own_tables.streams;
  bp_status status = last_launch_ == nullptr
                         ? events.create(events.self, target_.device, nullptr, &last_launch_)
                         : streams.wait_event(streams.self, stream, last_launch_);
  if (status != BP_OK) return status;
  BlockHandle workspace;
  status = allocate_workspace(target_, stream, required_bytes_, preferred_bytes_, workspace);
  if (status != BP_OK) return status;
  bp_program_args frame{};
  frame.struct_size = sizeof(frame);
  frame.tensors = recorded_.arguments.data();
  frame.tensor_count = recorded_.arguments.size();
  bp_launch launch{};
  launch.device = target_.device;
  launch.stream = stream;
  launch.flags = recorded_.flags;
  launch.workspace = range_of(workspace);
  status = kernel_->launch(kernel_, &launch, &frame);
  if (status != BP_OK) return status;
  return events.record(events.self, last_launch_, stream);
}

}  // namespace bp::core
