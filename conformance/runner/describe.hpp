// A loaded backend as data: `info` prints it, `info.json` holds it, and `list PLUGIN` marks cases
// by it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "backplane/host.h"

namespace bp::conformance {

nlohmann::json describe_plugin(const bp_plugin& plugin);

// Describes one device with its heaps, dtypes, tables and kernels.
nlohmann::json describe_target(const bp_target& target);

// Describes the manifests that discovery finds, each with its problem.
nlohmann::json describe_manifests(bp_registry* registry);

// Cleans all texts of a HELLO or an info.json, and checks the members that reports read. The worker
// that sends a HELLO shares its process with the backend, which may have changed any of it. Throws
// UsageError, which calls the document `name`.
void check_description(nlohmann::json& document, const std::string& name);

}  // namespace bp::conformance
