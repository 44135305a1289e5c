#include "registry/state/stream_failures.hpp"

#include "registry/boundary/error_slot.hpp"

namespace bp::core {

bool StreamFailures::remember(bp_stream* stream, bp_status status, const std::string& text) {
  const std::lock_guard lock(mutex_);
  return failures_.try_emplace(stream, Failure{status, text}).second;
}

void StreamFailures::forget(bp_stream* stream) {
  const std::lock_guard lock(mutex_);
  failures_.erase(stream);
}

void StreamFailures::forget_all() {
  const std::lock_guard lock(mutex_);
  failures_.clear();
}

bp_status StreamFailures::in_words(bp_stream* stream, bp_status status) {
  if (status == BP_OK) return BP_OK;
  const std::lock_guard lock(mutex_);
  const auto found = failures_.find(stream);
  if (found == failures_.end() || found->second.status != status) return status;
  return set_error(nullptr, status, found->second.text.c_str());
}

}  // namespace bp::core
