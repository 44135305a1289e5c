// The options that a backend is loaded with: the program's own, then the options of the
// environment.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backplane/host.h"

namespace bp::core {

using BackendOptions = std::vector<std::pair<std::string, std::string>>;

// Appends to `options` what `text` gives the backend `name` and `options` does not have. From
// "npu.level=2,acme.cpu.threads=4" the backend acme.npu gets level. Options of other backends are
// passed over. Returns BP_INVALID_ARGUMENT if a part is not NAME.KEY=VALUE.
bp_status add_environment_options(std::string_view text, std::string_view name,
                                  BackendOptions& options);

}  // namespace bp::core
