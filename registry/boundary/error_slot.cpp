#include "registry/boundary/error_slot.hpp"

#include <utility>

#include "backplane/host.h"
#include "registry/boundary/fail.hpp"
#include "registry/boundary/forks.hpp"
#include "registry/boundary/plugin_text.hpp"

namespace bp {
namespace {

thread_local std::string slot;

}  // namespace

bp_status fail(bp_status code, const std::string& message) noexcept {
  try {
    // The message may have paths, options and names that were given to the host.
    const std::string text = clean_text(message, LineBreaks::kKeep, message.size());
    return core::set_error(nullptr, code, text.c_str());
  } catch (...) {
    return core::set_error(nullptr, code, nullptr);
  }
}

bp_status out_of_host_memory(const char* call) noexcept try {
  return fail(BP_OUT_OF_MEMORY, std::string(call) + ": " + kOutOfHostMemory);
} catch (...) {
  return core::set_error(nullptr, BP_OUT_OF_MEMORY, kOutOfHostMemory);
}

bp_status backend_unloaded(const char* name) {
  const char* const what =
      fork_count == 0 ? ": the backend of this device was unloaded; load it again and make its "
                        "objects anew"
                      : ": the backend of this device was loaded before this process was forked, "
                        "or was unloaded; a child of a fork cannot use what its parent has loaded: "
                        "load the backend in the child alone, or start workers as new processes";
  return fail(BP_DEVICE_LOST, std::string(name) + what);
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
