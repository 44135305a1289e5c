// The parts that the fuzz targets of all modules share. backplane_fuzz_target() in
// BackplaneModule.cmake says how targets are built and run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

// The one function of a target checks what has to hold for every input. libFuzzer fixes its name.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);  // NOLINT

namespace bp::fuzz {

inline std::string_view text_of(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Ends the process if `holds` is false, so that whoever runs the target keeps the input.
inline void check(bool holds, std::string_view rule, std::string_view found = "") {
  if (holds) return;
  std::fprintf(stderr, "this does not hold: %.*s\n  found: %.*s\n", static_cast<int>(rule.size()),
               rule.data(), static_cast<int>(found.size()), found.data());
  std::abort();
}

}  // namespace bp::fuzz
