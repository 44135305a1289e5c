// A shader as the build embeds it: SPIR-V, in words, with the name of its source.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bp::vulkan {

struct Module {
  const char* name;
  const uint32_t* words;
  size_t word_count;
  const Module* with_bound_record = nullptr;  // The same, compiled with BOUND_RECORD.
};

}  // namespace bp::vulkan
