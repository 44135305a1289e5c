// The rules of the slots of semaphores, and how they order work.
#include "registry/layers/validate.hpp"

namespace bp::layers {

bp_status ValidateLayer::call(At<Slot::semaphore_create>, Continue next, bp_device* device,
                              const bp_semaphore_desc* desc, bp_semaphore** out_semaphore) {
  const bp_status status = next();
  if (status != BP_OK) return status;
  const std::lock_guard lock(mutex_);
  handles_.add(HandleKind::semaphore, *out_semaphore, {.device = device});
  hazards_.add_semaphore(*out_semaphore, desc == nullptr ? 0 : desc->initial_value);
  return status;
}

// What other processes have signalled is not known, so a wait for it leaves its stream unseen.
bp_status ValidateLayer::call(At<Slot::semaphore_import_semaphore>, Continue next,
                              bp_device* device, const bp_external_handle* /*handle*/,
                              bp_semaphore** out_semaphore) {
  const bp_status status = next();
  if (status != BP_OK) return status;
  const std::lock_guard lock(mutex_);
  handles_.add(HandleKind::semaphore, *out_semaphore, {.device = device});
  hazards_.add_semaphore(*out_semaphore, 0);
  return status;
}

bp_status ValidateLayer::call(At<Slot::semaphore_destroy>, Continue next, bp_semaphore* semaphore) {
  {
    const std::lock_guard lock(mutex_);
    hazards_.remove_semaphore(semaphore);
  }
  return end_through(HandleKind::semaphore, semaphore, Slot::semaphore_destroy, next);
}

bp_status ValidateLayer::call(At<Slot::semaphore_query>, Continue next, bp_semaphore* semaphore,
                              uint64_t* out_value) {
  const bp_status status = next();
  if (status != BP_OK) return status;
  const std::lock_guard lock(mutex_);
  hazards_.host_waits_for_semaphore(semaphore, *out_value);
  return status;
}

bp_status ValidateLayer::call(At<Slot::semaphore_signal>, Continue next, bp_semaphore* semaphore,
                              uint64_t value) {
  const bp_status status = next();
  if (status != BP_OK) return status;
  const std::lock_guard lock(mutex_);
  hazards_.signal_semaphore(semaphore, nullptr, value);
  return status;
}

// The value is reached also if the call returns a failure. BP_TIMEOUT may be one, or may not.
bp_status ValidateLayer::call(At<Slot::semaphore_synchronize>, Continue next,
                              bp_semaphore* semaphore, uint64_t value, uint64_t /*timeout_ns*/) {
  const bp_status status = next();
  if (status == BP_TIMEOUT) return status;
  const std::lock_guard lock(mutex_);
  hazards_.host_waits_for_semaphore(semaphore, value);
  return status;
}

bp_status ValidateLayer::call(At<Slot::semaphore_submit_signal>, Continue next, bp_stream* stream,
                              bp_semaphore* semaphore, uint64_t value) {
  const bp_status status = next();
  if (status != BP_OK) return status;
  const std::lock_guard lock(mutex_);
  hazards_.signal_semaphore(semaphore, stream, value);
  return status;
}

bp_status ValidateLayer::call(At<Slot::semaphore_submit_wait>, Continue next, bp_stream* stream,
                              bp_semaphore* semaphore, uint64_t value) {
  const bp_status status = next();
  if (status != BP_OK) return status;
  const std::lock_guard lock(mutex_);
  hazards_.wait_semaphore(stream, semaphore, value);
  return status;
}

}  // namespace bp::layers
