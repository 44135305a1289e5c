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

// What the courier brings to a device when the transport is done.
struct Delivery {
  StagedCourier& courier;
  const bp_target& target;
  bp_buffer_ref range;
  const unsigned char* bytes;
  std::vector<std::shared_ptr<StagedMemory>> memory;
  std::shared_ptr<services::Gate> finished;

  void bring(bp_status status) const {
    if (status != BP_OK) return finished->signal(status);
    bp_stream* const stream = courier.stream_of(target);
    const bp_allocator_ops& allocator = *target.allocator;
    if (stream == nullptr) return finished->signal(BP_OUT_OF_MEMORY);
    status = allocator.copy_from_host(allocator.self, stream, &range, bytes, BP_BORROW_DURING_CALL);
    if (status != BP_OK) return finished->signal(status);
    services::Gate::signal_behind(finished, target, stream);
  }
};

bp_status stream_failed(bp_status failure) {
  if (failure == BP_OK || failure == BP_DEVICE_LOST) return failure;
  return fail(BP_STREAM_FAILED, take_error());
}

}  // namespace

bp_status StagedCall::make(StagedGroup& group, const bp_target& transport, StagedCourier& courier,
                           const bp_collective_call& theirs, const std::string& name,
                           std::unique_ptr<StagedCall>& out_call) {
  std::unique_ptr<StagedCall> made(new StagedCall(group, transport, courier, theirs));
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
    bp_buffer_ref none = receive_.range;
    none.size_bytes = 0;
    status = copy(none, none);
  }
  if (status == BP_OK && send_.memory != nullptr) status = read_range();
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

bp_status StagedCall::read_range() const {
  if (send_.memory->is_pinned()) return copy(send_.on_device(), send_.range);
  const bp_allocator_ops& memory = *group_.target->allocator;
  return memory.copy_to_host(memory.self, call_.stream, send_.memory->bytes() + send_.offset,
                             &send_.range, BP_BORROW_UNTIL_COMPLETE, UINT64_MAX);
}

// The work of the call's stream before collect() has ended when the transport begins, so a stream
// of the courier's own may write the range.
void StagedCall::send_courier() const {
  const auto on_end = [](void* user_data, bp_status status) {
    const std::shared_ptr<const Delivery> delivery(static_cast<const Delivery*>(user_data));
    delivery->courier.post([delivery, status] { delivery->bring(status); });
  };
  const unsigned char* const bytes = receive_.memory->bytes() + receive_.offset;
  auto* const delivery =
      new Delivery{courier_, *group_.target, receive_.range, bytes, memory_, finished_};
  services::call_when_done(transport_, stream_, {on_end, delivery});
}

void StagedCall::leave() {
  if (needs_courier()) {
    send_courier();
  } else {
    services::Gate::signal_behind(finished_, transport_, stream_);
  }
  for (const auto& memory : memory_) memory->leave_transport(stream_);
}

bp_status StagedCall::deliver() {
  bp_status status = finished_->hold(*group_.target->streams, call_.stream);
  if (status == BP_OK && receive_.memory != nullptr && receive_.memory->is_pinned()) {
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
