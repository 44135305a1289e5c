#include "registry/services/staged_bytes.hpp"

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "registry/boundary/error_slot.hpp"
#include "registry/boundary/fail.hpp"
#include "registry/services/gate.hpp"

namespace bp::services {
namespace {

// One copy. The callbacks of both streams own it together, so that it ends behind both. The bytes
// lie in pinned memory of the second device, because a copy from other memory may read it before
// the first device has written it. Where there is none that both sides reach at once, the copies go
// in turn, through memory of the host.
struct Staging {
  Staging() = default;
  Staging(const Staging&) = delete;
  ~Staging() {
    if (loan != nullptr) loan->end();
  }

  std::vector<unsigned char> own_bytes;  // For copies in turn.
  unsigned char* bytes = nullptr;
  bp_buffer_ref pinned{};      // The same for work of the second device, or no buffer.
  std::shared_ptr<Loan> loan;  // Of pinned memory.
  std::shared_ptr<Gate> gate;  // Of the second device; NULL if it has none.
  Completion completion;
};
using Owner = std::shared_ptr<Staging>;

// The first device has written the bytes, or has failed.
void on_written(void* user_data, bp_status status) {
  const std::unique_ptr<Owner> owner(static_cast<Owner*>(user_data));
  Staging& staging = **owner;
  if (staging.loan != nullptr) staging.loan->end_writing();
  staging.gate->signal(status);
  if (staging.completion.call != nullptr) {
    staging.completion.call(staging.completion.user_data, status);
  }
}

// The second device has read the bytes.
void on_read(void* user_data, bp_status) { delete static_cast<Owner*>(user_data); }

// Waits for both devices. This serves devices without host-signalled events, or without pinned
// memory.
bp_status copy_in_turn(const CopySide& dst_side, const bp_buffer_ref& dst, const CopySide& src_side,
                       const bp_buffer_ref& src, Staging& staging) {
  const bp_allocator_ops& from = *src_side.target->allocator;
  bp_status status = from.copy_to_host(from.self, src_side.stream, staging.bytes, &src,
                                       BP_BORROW_DURING_CALL, UINT64_MAX);
  if (status != BP_OK) return status;
  const bp_allocator_ops& to = *dst_side.target->allocator;
  status = to.copy_from_host(to.self, dst_side.stream, &dst, staging.bytes, BP_BORROW_DURING_CALL);
  if (status == BP_OK && staging.completion.call != nullptr) {
    staging.completion.call(staging.completion.user_data, BP_OK);
  }
  return status;
}

// Lets the second device wait at the gate and then read the bytes.
bp_status submit_read(const CopySide& side, const bp_buffer_ref& dst, Staging& staging) {
  const bp_stream_ops& streams = *side.target->streams;
  const bp_allocator_ops& memory = *side.target->allocator;
  const bp_status status = staging.gate->hold(streams, side.stream);
  if (status != BP_OK) return status;
  return memory.copy(memory.self, side.stream, &dst, &staging.pinned);
}

// Takes pinned memory for the bytes. Returns false if there is none.
bool take_bytes(const DevicePlace& dst, Staging& staging) {
  if (dst.pinned == nullptr || !dst.pinned->is_direct()) return false;
  void* memory = nullptr;
  if (dst.pinned->allocate(dst.range.size_bytes, &memory) != BP_OK) {
    core::set_error(nullptr, BP_OK, "");
    return false;
  }
  staging.bytes = static_cast<unsigned char*>(memory);
  staging.pinned = dst.pinned->find(memory, dst.range.size_bytes).ref;
  staging.loan = std::make_shared<Loan>();
  static_cast<void>(dst.pinned->free_behind(memory, staging.loan));
  return true;
}

}  // namespace

bp_status copy_through_host(const CopySide& dst_side, const bp_buffer_ref& dst,
                            const CopySide& src_side, const bp_buffer_ref& src,
                            const Completion& completion) {
  const auto staging = std::make_shared<Staging>();
  staging->completion = completion;
  staging->gate = Gate::make(*dst_side.target, *dst_side.cache);
  if (staging->gate == nullptr || !take_bytes(dst_side.place(dst), *staging)) {
    staging->own_bytes.resize(dst.size_bytes);
    staging->bytes = staging->own_bytes.data();
    return copy_in_turn(dst_side, dst, src_side, src, *staging);
  }
  auto written = std::make_unique<Owner>(staging), read = std::make_unique<Owner>(staging);
  const bp_allocator_ops& from = *src_side.target->allocator;
  bp_status status = from.copy_to_host(from.self, src_side.stream, staging->bytes, &src,
                                       BP_BORROW_UNTIL_COMPLETE, UINT64_MAX);
  const bool is_written = status == BP_OK;
  if (is_written) status = submit_read(dst_side, dst, *staging);
  if (status == BP_OK) {
    call_when_done(*src_side.target, src_side.stream, {on_written, written.release()});
    call_when_done(*dst_side.target, dst_side.stream, {on_read, read.release()});
    return BP_OK;
  }
  // No work may use the bytes any more, and no stream may wait for ever.
  const std::string words = core::take_error();
  const bp_stream_ops& streams = *src_side.target->streams;
  if (is_written) static_cast<void>(streams.synchronize(streams.self, src_side.stream, UINT64_MAX));
  staging->gate->signal(BP_ABORTED);
  return fail(status, words);
}

void Cache::keep_event(std::shared_ptr<StagedEvent> event) {
  std::vector<bp_event*> signalled;
  {
    const std::lock_guard lock(mutex_);
    signalled.reserve(staged_.size());
    staged_.push_back(std::move(event));
    std::erase_if(staged_, [&](const std::shared_ptr<StagedEvent>& staged) {
      if (staged->is_signalled) signalled.push_back(staged->event);
      return staged->is_signalled.load();
    });
  }
  destroy_events(signalled);
}

void Cache::end_staged_events() {
  std::vector<std::shared_ptr<StagedEvent>> staged;
  {
    const std::lock_guard lock(mutex_);
    staged.swap(staged_);
  }
  for (const std::shared_ptr<StagedEvent>& one : staged) {
    while (!one->is_signalled) std::this_thread::yield();  // The work before it has ended.
    destroy_events({one->event});
  }
}

}  // namespace bp::services
