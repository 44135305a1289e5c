// Records the calls of semaphores.
#include "registry/layers/record.hpp"
#include "registry/layers/words.hpp"

namespace bp::layers {

bp_status RecordLayer::create_semaphore(const bp_semaphore_ops& next, bp_device* device,
                                        const bp_semaphore_desc* desc,
                                        bp_semaphore** out_semaphore) {
  const bp_status status = next.create(next.self, device, desc, out_semaphore);
  write("semaphore.create", status, [&](Json& line) {
    line["device"] = number_of(device);
    RecordedSemaphore& semaphore = semaphores_.add(*out_semaphore);
    semaphore.seen = desc == nullptr ? 0 : desc->initial_value;
    line["semaphore"] = semaphore.number;
    line["value"] = semaphore.seen;
    line["flags"] = desc == nullptr ? 0 : desc->flags;
  });
  return status;
}

bp_status RecordLayer::destroy_semaphore(const bp_semaphore_ops& next, bp_semaphore* semaphore) {
  uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    number = semaphores_.take(semaphore);
  }
  const bp_status status = next.destroy(next.self, semaphore);
  if (number == 0) return status;
  write("semaphore.destroy", status, [&](Json& line) { line["semaphore"] = number; });
  return status;
}

// Writes a query only if it gives a new value: the program then goes on as after a wait for it.
bp_status RecordLayer::query_semaphore(const bp_semaphore_ops& next, bp_semaphore* semaphore,
                                       uint64_t* out_value) {
  const bp_status status = next.query(next.self, semaphore, out_value);
  if (status != BP_OK) return status;
  {
    const std::lock_guard lock(mutex_);
    RecordedSemaphore* facts = semaphores_.find(semaphore);
    if (facts != nullptr && facts->seen >= *out_value) return status;
    if (facts != nullptr) facts->seen = *out_value;
  }
  write("semaphore.query", status, [&](Json& line) {
    line["semaphore"] = number_of(semaphore);
    line["value"] = *out_value;
  });
  return status;
}

bp_status RecordLayer::signal_semaphore(const bp_semaphore_ops& next, bp_semaphore* semaphore,
                                        uint64_t value) {
  write("semaphore.signal", BP_OK, [&](Json& line) {
    line["semaphore"] = number_of(semaphore);
    line["value"] = value;
  });
  const bp_status status = next.signal(next.self, semaphore, value);
  if (status != BP_OK) {
    write_unrecorded("semaphore.signal",
                     "it failed (" + status_words(status) + ") after its line was written");
  }
  return status;
}

bp_status RecordLayer::synchronize_semaphore(const bp_semaphore_ops& next, bp_semaphore* semaphore,
                                             uint64_t value, uint64_t timeout_ns) {
  const bp_status status = next.synchronize(next.self, semaphore, value, timeout_ns);
  if (status == BP_TIMEOUT) return status;
  write("semaphore.synchronize", status, [&](Json& line) {
    line["semaphore"] = number_of(semaphore);
    line["value"] = value;
  });
  return status;
}

bp_status RecordLayer::submit_signal(const bp_semaphore_ops& next, bp_stream* stream,
                                     bp_semaphore* semaphore, uint64_t value) {
  const bp_status status = next.submit_signal(next.self, stream, semaphore, value);
  write("semaphore.submit_signal", status, [&](Json& line) {
    line["stream"] = number_of(stream);
    line["semaphore"] = number_of(semaphore);
    line["value"] = value;
  });
  return status;
}

bp_status RecordLayer::submit_wait(const bp_semaphore_ops& next, bp_stream* stream,
                                   bp_semaphore* semaphore, uint64_t value) {
  const bp_status status = next.submit_wait(next.self, stream, semaphore, value);
  write("semaphore.submit_wait", status, [&](Json& line) {
    line["stream"] = number_of(stream);
    line["semaphore"] = number_of(semaphore);
    line["value"] = value;
  });
  return status;
}

bp_status RecordLayer::clear_semaphore(const bp_semaphore_ops& next, bp_semaphore* semaphore) {
  const bp_status status = next.clear_failure(next.self, semaphore);
  write("semaphore.clear_failure", status,
        [&](Json& line) { line["semaphore"] = number_of(semaphore); });
  return status;
}

}  // namespace bp::layers
