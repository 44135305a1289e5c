#include "registry/state/reasons.hpp"

namespace bp::core {

Reason* Reasons::find(const Cause& cause) {
  const std::lock_guard lock(mutex_);
  const auto found = by_cause_.find(cause);
  return found == by_cause_.end() ? nullptr : found->second;
}

Reason& Reasons::add(const Cause& cause, uint32_t op, bp_kernel_sources source,
                     const std::string& text) {
  const std::lock_guard lock(mutex_);
  Reason& reason = named_locked(op, source, text);
  if (by_cause_.size() < kMaxCauses) by_cause_.emplace(cause, &reason);
  return reason;
}

Reason& Reasons::named_locked(uint32_t op, bp_kernel_sources source, const std::string& text) {
  const auto found = by_text_.find({op, source, text});
  if (found != by_text_.end()) return *found->second;
  const bool is_last = reasons_.size() >= kMaxReasons - 1;
  if (is_last && reasons_.size() == kMaxReasons) return reasons_.back();
  Reason& reason = reasons_.emplace_back();
  if (is_last) {
    reason.text = "reasons that are not told apart, because the list is full";
    return reason;
  }
  reason.op = op;
  reason.source = source;
  reason.text = text;
  by_text_.emplace(std::tuple{op, source, text}, &reason);
  return reason;
}

size_t Reasons::count() const {
  const std::lock_guard lock(mutex_);
  return reasons_.size();
}

const Reason* Reasons::at(uint64_t index) const {
  const std::lock_guard lock(mutex_);
  return index < reasons_.size() ? &reasons_[index] : nullptr;
}

}  // namespace bp::core
