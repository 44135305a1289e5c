#include "registry/error_slot.hpp"

#include <utility>

#include "backplane/host.h"
#include "registry/fail.hpp"

namespace bp {
namespace {

thread_local std::string slot;

}  // namespace

bp_status fail(bp_status code, const std::string& message) noexcept {
  return core::set_error(nullptr, code, message.c_str());
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
