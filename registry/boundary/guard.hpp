// The one adapter between C++ and the C functions of host.h.
#pragma once

#include <exception>
#include <new>

#include "registry/boundary/error_slot.hpp"
#include "registry/boundary/fail.hpp"

namespace bp::core {

// Runs `body`, which returns a status; no exception reaches the caller.
template <typename Body>
bp_status guarded(Body&& body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return set_error(nullptr, BP_OUT_OF_MEMORY, kOutOfHostMemory);
  } catch (const std::exception& error) {
    return set_error(nullptr, BP_INTERNAL, error.what());
  }
}

}  // namespace bp::core
