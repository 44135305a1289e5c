// Finds what can be loaded: the backends linked into the program, and the manifests in the search
// path.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backplane/host.h"

namespace bp::core {

struct Manifest final : bp_manifest {
  Manifest() : bp_manifest{} {}
  Manifest(const Manifest&) = delete;

  std::string own_name, own_library, own_file, own_problem;
  bp_backend_entry_fn* entry = nullptr;  // Set for a backend that is linked in.

  // Sets the pointers of bp_manifest. Must be called after the last change.
  void seal();
};

using Manifests = std::vector<std::unique_ptr<Manifest>>;

// Returns the folders and files to look in, separated by ':'. `search_path` is NULL for the
// default. With `reads_environment`, BACKPLANE_BACKENDS replaces the default, and
// BACKPLANE_ADD_BACKENDS extends the path in use.
std::string effective_search_path(const char* search_path, bool reads_environment);

// Reads the manifests in `search_path`, sorted by file name, static backends first. A manifest that
// cannot be used is listed with its problem.
Manifests discover(const std::string& search_path);

}  // namespace bp::core
