// What every entry of the tables begins with.
#pragma once

#include <string>

#include "backends/vulkan/backend.hpp"

namespace bp::vulkan {

[[noreturn]] inline void refuse(bp_status status, const std::string& text) {
  throw StatusError(status, text);
}

// Throws StatusError if `pointer`, which `text` names, is NULL.
inline void require(const void* pointer, const char* text) {
  if (pointer == nullptr) refuse(BP_INVALID_ARGUMENT, std::string(text) + " is NULL");
}

// Runs body(const Instance&), which returns a status or throws, for an entry of a table.
template <typename Body>
bp_status entry(void* self, Body&& body) {
  const Instance& i = instance(self);
  return guarded(*i.host, [&]() -> bp_status { return body(i); });
}

}  // namespace bp::vulkan
