// SHA-256, as FIPS 180-4 defines it: identifies the plugin in a report.
#pragma once

#include <string>
#include <string_view>

namespace bp::conformance {

// 64 hexadecimal digits.
std::string sha256(std::string_view bytes);

// "" if the file cannot be read.
std::string sha256_of_file(const std::string& path);

}  // namespace bp::conformance
