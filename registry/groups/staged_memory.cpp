#include <string>

#include "registry/boundary/error_slot.hpp"
#include "registry/boundary/fail.hpp"
#include "registry/groups/staged_call.hpp"

namespace bp::core {

bp_status StagedMemory::make(const bp_target& target, const bp_target& transport,
                             uint64_t size_bytes, std::unique_ptr<StagedMemory>& out_memory) {
  auto made = std::make_unique<StagedMemory>();
  services::PinnedMemory* const pinned = impl(&target).pinned.get();
  if (pinned == nullptr) return backend_unloaded(target.name);
  if (pinned->is_direct()) {
    void* memory = nullptr;
    const bp_status status = pinned->allocate(size_bytes, &memory);
    if (status != BP_OK) return status;
    made->bytes_ = static_cast<unsigned char*>(memory);
    made->pinned_ = pinned->find(memory, size_bytes).ref;
    made->loan_ = std::make_shared<services::Loan>();
    static_cast<void>(pinned->free_behind(memory, made->loan_));
  } else {
    made->own_.resize(size_bytes);
    made->bytes_ = made->own_.data();
  }
  const bp_status wrapped = made->wrap(transport, size_bytes);
  if (wrapped == BP_OK) out_memory = std::move(made);
  return wrapped;
}

bp_status StagedMemory::wrap(const bp_target& transport, uint64_t size_bytes) {
  const bp_allocator_ops& memory = *transport.allocator;
  const bp_status status = memory.wrap_address(
      memory.self, transport.device, reinterpret_cast<uintptr_t>(bytes_), size_bytes, &buffer_);
  if (status == BP_OK) transport_ = &transport;
  return status;
}

void StagedMemory::leave_transport(bp_stream* stream) {
  if (buffer_ == nullptr) return;
  const bp_allocator_ops& memory = *transport_->allocator;
  static_cast<void>(memory.deallocate(memory.self, buffer_, stream));
  buffer_ = nullptr;
}

StagedMemory::~StagedMemory() {
  leave_transport(nullptr);  // It has left before, unless the call was refused.
  if (loan_ != nullptr) loan_->end();
}

}  // namespace bp::core
