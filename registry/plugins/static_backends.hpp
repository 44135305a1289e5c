// The backends that are linked into the library. CMake writes the table from
// BACKPLANE_LINK_STATIC_BACKENDS. The table is empty by default. It ends with a row of NULLs that
// does not count, because an array cannot be empty.
#ifndef BACKPLANE_REGISTRY_STATIC_BACKENDS_HPP_
#define BACKPLANE_REGISTRY_STATIC_BACKENDS_HPP_

#include <cstddef>

#include "backplane/backend.h"

struct bp_static_backend {
  const char* name;  // "vendor.backend".
  bp_backend_entry_fn* entry;
};

extern const bp_static_backend kStaticBackends[];
extern const size_t kStaticBackendCount;

#endif  // BACKPLANE_REGISTRY_STATIC_BACKENDS_HPP_
