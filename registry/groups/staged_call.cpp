#include "registry/groups/staged_call.hpp"

#include <algorithm>
#include <utility>

#include "registry/boundary/error_slot.hpp"
#include "registry/boundary/fail.hpp"

namespace bp::core {
namespace {

bool overlap(const bp_buffer_ref& a, const bp_buffer_ref& b) {
  return a.size_bytes != 0 && b.size_bytes != 0 && a.buffer == b.buffer &&
         a.byte_offset < b.byte_offset + b.size_bytes &&
         b.byte_offset < a.byte_offset + a.size_bytes;
}

// The part of a range that a call uses.
bp_buffer_ref used(const bp_buffer_ref& range, uint64_t size_bytes) {
  const uint64_t size = std::min(range.size_bytes, size_bytes);
  return size == 0 ? bp_buffer_ref{} : bp_buffer_ref{range.buffer, range.byte_offset, size};
}

bp_status stream_failed(bp_status failure) {
  if (failure == BP_OK || failure == BP_DEVICE_LOST) return failure;
  return fail(BP_STREAM_FAILED, take_error());
}

}  // namespace

bp_status StagedCall::make(StagedGroup& group, const bp_target& transport,
                           const bp_collective_call& theirs, const std::string& name,
                           std::unique_ptr<StagedCall>& out_call) {
  std::unique_ptr<StagedCall> made(new StagedCall(group, transport, theirs));
  if (theirs.stream == nullptr) return fail(BP_INVALID_ARGUMENT, name + "stream is NULL");
  const StagedSizes sizes = staged_sizes(theirs, group.rank, group.world_size);
  made->send_.range = used(theirs.send, sizes.sent);
  made->receive_.range = used(theirs.receive, sizes.received);
  bp_status status = made->check(made->send_.range, name + "send");
  if (status == BP_OK) status = made->check(made->receive_.range, name + "receive");
  if (status == BP_OK) status = made->take_memory();
  if (status == BP_OK) status = made->make_gates();
  if (status == BP_OK) status = made->find_stream();
  if (status == BP_OK) out_call = std::move(made);
  return status;
}

bp_status StagedCall::check(const bp_buffer_ref& range, const std::string& name) const {
  if (range.size_bytes == 0) return BP_OK;
  bp_buffer_info info{.struct_size = sizeof(info), .struct_type = BP_STRUCT_BUFFER_INFO};
  const bp_allocator_ops& memory = *group_.target->allocator;
  const bp_status status = memory.buffer_info(memory.self, range.buffer, &info);
  if (status != BP_OK) return fail(status, name + ": " + take_error());
  if (info.device != group_.target->device) {
    return fail(BP_INVALID_ARGUMENT, name +
                                         ": the buffer is of another device than the group, "
                                         "which is one of " +
                                         group_.target->name);
  }
  if (range.byte_offset > info.size_bytes ||
      info.size_bytes - range.byte_offset < range.size_bytes) {
    return fail(BP_INVALID_ARGUMENT, name + ": the range leaves its buffer of " +
                                         std::to_string(info.size_bytes) + " bytes");
  }
  return BP_OK;
}

bp_status StagedCall::take_memory(uint64_t size_bytes, StagedMemory*& out_memory) {
  if (size_bytes == 0) return BP_OK;
  std::unique_ptr<StagedMemory> made;
  const bp_status status = StagedMemory::make(*group_.target, transport_, size_bytes, made);
  if (status != BP_OK) return status;
  out_memory = made.get();
  memory_.push_back(std::move(made));
  return BP_OK;
}

// Ranges that overlap on the device overlap in the same way on the host, so that the transport sees
// a call in place, or refuses it.
bp_status StagedCall::take_memory() {
  const bp_buffer_ref &sent = send_.range, &received = receive_.range;
  if (!overlap(sent, received)) {
    const bp_status status = take_memory(sent.size_bytes, send_.memory);
    return status == BP_OK ? take_memory(received.size_bytes, receive_.memory) : status;
  }
  const uint64_t first = std::min(sent.byte_offset, received.byte_offset);
  const uint64_t end =
      std::max(sent.byte_offset + sent.size_bytes, received.byte_offset + received.size_bytes);
  send_.offset = sent.byte_offset - first;
  receive_.offset = received.byte_offset - first;
  const bp_status status = take_memory(end - first, send_.memory);
  receive_.memory = send_.memory;
  return status;
}

bp_status StagedCall::make_gates() {
  for (const bp_target* const target : {&transport_, group_.target}) {
    if (impl(target).cache == nullptr) return backend_unloaded(target->name);
    auto& gate = target == &transport_ ? collected_ : finished_;
    gate = services::Gate::make(*target, *impl(target).cache);
    if (gate == nullptr) return fail(BP_UNSUPPORTED, take_error());
  }
  return BP_OK;
}

// Finds the stream of the transport that goes with the call's stream.
bp_status StagedCall::find_stream() {
  const bp_stream_ops& streams = *transport_.streams;
  const auto at =
      std::ranges::find(group_.streams, call_.stream, &std::pair<bp_stream*, bp_stream*>::first);
  if (at != group_.streams.end()) {
    stream_ = at->second;
    if (streams.status(streams.self, stream_) == BP_OK) return BP_OK;
    // An earlier call failed, and its failure went to the stream of the device, which tells it.
    return streams.clear_failure(streams.self, stream_);
  }
  const bp_status status = streams.create(streams.self, transport_.device, nullptr, &stream_);
  if (status == BP_OK) group_.streams.emplace_back(call_.stream, stream_);
  return status;
}

bp_status StagedCall::copy(const bp_buffer_ref& dst, const bp_buffer_ref& src) const {
  const bp_allocator_ops& memory = *group_.target->allocator;
  return memory.copy(memory.self, call_.stream, &dst, &src);
}

// Returns what keeps the memory until the work of the device's stream has ended.
services::Completion StagedCall::keep_memory() {
  const auto end = [](void* user_data, bp_status) { delete static_cast<Memory*>(user_data); };
  return {end, new Memory(memory_)};
}

bp_status StagedCall::collect() {
  const bp_stream_ops& streams = *group_.target->streams;
  bp_status status = stream_failed(streams.status(streams.self, call_.stream));
  if (status == BP_OK && receive_.memory != nullptr) {
    // A copy of no bytes: it shows that the stream and the range fit each other.
    bp_buffer_ref to = receive_.range, from = receive_.on_device();
    to.size_bytes = from.size_bytes = 0;
    status = copy(to, from);
  }
  if (status == BP_OK && send_.memory != nullptr) status = copy(send_.on_device(), send_.range);
  if (status == BP_OK) services::Gate::signal_behind(collected_, *group_.target, call_.stream);
  return status;
}

bp_status StagedCall::to_inner(bp_collective_call& out_call) {
  out_call = call_;
  out_call.group = group_.inner;
  out_call.stream = stream_;
  out_call.send = send_.on_transport();
  out_call.receive = receive_.on_transport();
  return collected_->hold(*transport_.streams, stream_);
}

void StagedCall::leave() {
  services::Gate::signal_behind(finished_, transport_, stream_);
  for (const auto& memory : memory_) memory->leave_transport(stream_);
}

bp_status StagedCall::deliver() {
  bp_status status = finished_->hold(*group_.target->streams, call_.stream);
  if (status == BP_OK && receive_.memory != nullptr) {
    status = copy(receive_.range, receive_.on_device());
  }
  services::call_when_done(*group_.target, call_.stream, keep_memory());
  return status;
}

void StagedCall::abandon() {
  for (const auto& memory : memory_) memory->leave_transport(nullptr);
  services::call_when_done(*group_.target, call_.stream, keep_memory());
}

}  // namespace bp::core
