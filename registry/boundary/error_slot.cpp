#include "registry/boundary/error_slot.hpp"

#include <utility>

#include "backplane/host.h"
#include "registry/boundary/fail.hpp"
#include "registry/boundary/plugin_text.hpp"

namespace bp {
namespace {

thread_local std::string slot;

}  // namespace

bp_status fail(bp_status code, const std::string& message) noexcept {
  try {
    // Whatever went into it: paths, options and names that were given to the host.
    const std::string text = clean_text(message, LineBreaks::kKeep, message.size());
    return core::set_error(nullptr, code, text.c_str());
  } catch (...) {
    return core::set_error(nullptr, code, nullptr);
  }
}

namespace core {

bp_status set_error(void* /*self*/, bp_status status, const char* message) noexcept {
  try {
    slot = message == nullptr ? "" : message;
  } catch (...) {
    slot.clear();
  }
  return status;
}

std::string take_error() { return std::exchange(slot, {}); }

}  // namespace core
}  // namespace bp

const char* bp_error_text(void) { return bp::slot.c_str(); }

void bp_error_clear(void) { bp::slot.clear(); }
