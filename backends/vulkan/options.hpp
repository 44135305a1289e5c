// What the user chooses: the options of the backend.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "backplane/base.h"

namespace bp::vulkan {

struct Options {
  // Only this device of those found, by its number; else all.
  std::optional<uint32_t> device;
  // Where compiled pipelines are kept; empty: nowhere.
  std::string cache_folder;
  // Validation layers watch every call; their messages are lines of the host's log, as errors.
  bool has_validation = false;
  // "no" leaves barriers out, so that a test sees validation catch it.
  bool has_barriers = true;
};

// The options that the user gave to `host`. Throws StatusError for a value that does not fit.
Options read_options(const bp_host& host);

}  // namespace bp::vulkan
