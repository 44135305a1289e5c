// A loaded backend as data: what `info` prints, `info.json` holds and `list PLUGIN` marks cases by.
#pragma once

#include <nlohmann/json.hpp>

#include "backplane/host.h"

namespace bp::conformance {

nlohmann::json describe_plugin(const bp_plugin& plugin);

// One device with its heaps, dtypes, tables and kernels.
nlohmann::json describe_target(const bp_target& target);

// The manifests that discovery finds, each with its problem.
nlohmann::json describe_manifests(bp_registry* registry);

}  // namespace bp::conformance
