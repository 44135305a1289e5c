// A shader that the build embeds: the words of its SPIR-V, and the name of its source.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bp::vulkan {

struct Module {
  const char* name;
  const uint32_t* words;
  size_t word_count;
  const Module* with_bound_record = nullptr;  // Compiled with BOUND_RECORD.
};

}  // namespace bp::vulkan
