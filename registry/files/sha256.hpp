// SHA-256, as FIPS 180-4 defines it: the names of the payloads of a recording.
#pragma once

#include <cstddef>
#include <string>

namespace bp::core {

// 64 hexadecimal digits.
std::string sha256(const void* bytes, size_t size);

}  // namespace bp::core
