// The SHA-256 of a file. It identifies the plugin in a report.
#pragma once

#include <string>

namespace bp::conformance {

// Returns 64 hexadecimal digits, or "" if the file cannot be read.
std::string sha256_of_file(const std::string& path);

}  // namespace bp::conformance
