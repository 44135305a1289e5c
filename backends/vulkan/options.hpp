// The options of the backend, which the user sets.
#pragma once

#include <string>

#include "backplane/shell/options.hpp"

namespace bp::vulkan {

struct Options {
  // Those of the devices found that are offered.
  ChosenDevices devices;
  // Where compiled pipelines are kept; empty: nowhere.
  std::string cache_folder;
  // Validation layers check every call. Their messages are lines of level ERROR in the host's log.
  bool has_validation = false;
  // A test sets "no", which removes barriers, to see validation find the hazards.
  bool has_barriers = true;
};

// Reads the options that the user gave to `host`. Throws StatusError for a value that is not valid.
Options read_options(const bp_host& host);

}  // namespace bp::vulkan
