// The device memory of an executable: its end, and load() and unload().
#include <string>

#include "backplane/shell/boundary.hpp"
#include "backplane/shell/executable.hpp"

namespace bp {

// Frees the memory on a new stream, after all its uses, so that submitted work can go on.
void Executable::free_memory() {
  std::vector<bp_buffer*> buffers;
  for (const NodePlan& p : plans_) {
    if (p.plan != nullptr) static_cast<void>(p.kernel->plan_release(p.kernel, p.plan));
    buffers.push_back(p.packed);
  }
  buffers.push_back(constants_);
  std::vector<OwnedEvent> events;
  for (const Use& use : uses_) events.push_back(use.event);
  uses_.clear();
  plans_.clear();
  constants_ = nullptr;
  constant_bytes_ = 0;
  shared_.drop(held_, backend_.events, events, buffers);
  const bp_stream_ops& streams = backend_.streams;
  bp_stream* stream = nullptr;
  if (events.empty() || streams.create(streams.self, device_, nullptr, &stream) != BP_OK) {
    for (const OwnedEvent& event : events) {
      static_cast<void>(backend_.events.synchronize(backend_.events.self, event.get(), UINT64_MAX));
    }
    for (bp_buffer* buffer : buffers) free(buffer, nullptr);
    return;
  }
  for (const OwnedEvent& event : events) {
    static_cast<void>(streams.wait_event(streams.self, stream, event.get()));
  }
  for (bp_buffer* buffer : buffers) free(buffer, stream);
  static_cast<void>(streams.destroy(streams.self, stream));
}

bool Executable::is_loaded() const {
  const std::shared_lock lock(residence_);
  return is_loaded_;
}

void Executable::check_here(const std::string& call) const {
  if (!target_.is_described()) return;
  throw StatusError(BP_UNSUPPORTED, call +
                                        ": the executable was compiled for a description of a "
                                        "device; serialize it, and deserialize it for the device");
}

void Executable::load(const bp_program* constants) {
  check_here("load");
  const std::unique_lock lock(residence_);
  if (is_loaded_) return;
  program_.give_constants(constants, "load");
  request_.call = "load";
  try {
    {
      const std::lock_guard guard(mutex_);
      recent_.clear();
    }
    resolve();
    upload_constants();
    is_loaded_ = true;
  } catch (...) {
    free_memory();
    request_.call = "launch";
    throw;
  }
  request_.call = "launch";
}

// A launch of another thread ends first, so that its use of the memory is known.
void Executable::unload() {
  const std::unique_lock lock(residence_);
  if (!is_loaded_) return;
  if (pin_.use_count() > 1) {
    throw StatusError(BP_UNSUPPORTED,
                      "unload: a capture, a graph or an instance of one has a launch of the "
                      "executable; destroy it first");
  }
  is_loaded_ = false;
  free_memory();
}

}  // namespace bp
