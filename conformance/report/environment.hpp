// The machine on which a run takes place, for those who want to repeat it.
#pragma once

#include <nlohmann/json.hpp>

namespace bp::conformance {

// Returns "system", "kernel", "machine", "processor", "processors", "compiler" (of the suite) and
// "time" (UTC). What the machine does not tell is "".
nlohmann::json environment_json();

}  // namespace bp::conformance
