// The files of a new backend, as strings in the program.
#pragma once

#include <cstddef>
#include <span>

namespace bp::conformance {

struct ScaffoldFile {
  const char* path;  // The path in the folder of the backend.
  const char* text;
};

struct Scaffold {
  const ScaffoldFile* files;
  size_t count;

  std::span<const ScaffoldFile> all() const { return {files, count}; }
};

extern const Scaffold kPlainScaffold;  // In C, of the headers alone.
extern const Scaffold kAsyncScaffold;  // In C++, on the shell of the package.

}  // namespace bp::conformance
