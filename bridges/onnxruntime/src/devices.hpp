// Which devices of which plugins ONNX Runtime is offered.
//
// BACKPLANE_ORT_PLUGINS names plugins, separated by commas: paths, or names in manifests. One that
// cannot be loaded is then an error. Without the variable each plugin that a manifest of the search
// path names is offered, and one that cannot be loaded is passed over with a warning.
#pragma once

#include <functional>
#include <vector>

#include "backplane/runtime/device.hpp"

namespace bpo {

// Loads the plugins into the registry of the runtime, those that it has already excepted, and
// returns their devices in that order. If none of the plugins has a device of class host, the first
// one of the search path that has one is loaded too, and not offered: a call that a device turns
// out not to compute, though the trial of its node said nothing, is computed there. `warn` gets a
// sentence for each plugin that was passed over.
std::vector<bp::Device> find_devices(const std::function<void(const std::string&)>& warn);

// Returns the device of that name among the loaded ones. Throws bp::Error if there is none.
bp::Device device_of_name(const char* name);

}  // namespace bpo
