// Where the host fallback runs.
#pragma once

#include "backplane/host.h"

namespace bp {

// The first loaded device of class host; nullptr if there is none.
const bp_target* host_target(const bp_registry* registry);

}  // namespace bp
