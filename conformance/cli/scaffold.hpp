// The files of a new backend, as strings in the program.
#pragma once

#include <cstddef>

namespace bp::conformance {

struct ScaffoldFile {
  const char* path;  // The path in the folder of the backend.
  const char* text;
};

extern const ScaffoldFile kScaffoldFiles[];
extern const size_t kScaffoldFileCount;

}  // namespace bp::conformance
