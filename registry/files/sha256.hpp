// SHA-256, as FIPS 180-4 defines it: the names of the payloads of a recording, and of whatever else
// is known by its bytes.
//
// A module above the registry that includes this header compiles sha256.cpp into its own library,
// because libbackplane does not export the function.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace bp {

// 64 hexadecimal digits.
std::string sha256(const void* bytes, size_t size);
inline std::string sha256(std::string_view text) { return sha256(text.data(), text.size()); }

}  // namespace bp
