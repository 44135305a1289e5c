// A loaded backend as data: what `info` prints, `info.json` holds and `list PLUGIN` marks cases by.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "backplane/host.h"

namespace bp::conformance {

nlohmann::json describe_plugin(const bp_plugin& plugin);

// One device with its heaps, dtypes, tables and kernels.
nlohmann::json describe_target(const bp_target& target);

// The manifests that discovery finds, each with its problem.
nlohmann::json describe_manifests(bp_registry* registry);

// Cleans all texts of such a description, a HELLO or an info.json, and checks what reports read of
// it. A backend shares the process of the worker that sends it, and may have changed any of it.
// Throws UsageError, which calls the document `name`.
void check_description(nlohmann::json& document, const std::string& name);

}  // namespace bp::conformance
