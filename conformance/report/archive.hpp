// Archives in the format of POSIX tar ("ustar"), as far as packages need it: regular files with
// short names, in one folder, without owners and times, so that equal contents give equal bytes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace bp::conformance {

struct ArchivedFile {
  std::string name;
  std::string bytes;
};

// Throws std::invalid_argument for a name that is empty, has a '/', or is longer than 80 bytes.
std::string write_archive(const std::string& folder, const std::vector<ArchivedFile>& files);

// Reads what write_archive() wrote, without the folder in the names. Throws UsageError, which calls
// the archive `name`, for anything else: links, folders, absolute names, a wrong checksum, a part
// that is missing.
std::vector<ArchivedFile> read_archive(std::string_view bytes, const std::string& name);

}  // namespace bp::conformance
