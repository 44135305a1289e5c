// What a backend registers, as it offers it: the registry shows copies of its own size.
#pragma once

#include <cstdint>
#include <vector>

#include "backplane/backend.h"

namespace bp::conformance {

struct Offers {
  std::vector<const bp_struct_header*> tables;  // And kernels.
};

// Accepts and keeps everything. `offers` must outlive the registration.
bp_registrar recording_registrar(Offers& offers);

}  // namespace bp::conformance
