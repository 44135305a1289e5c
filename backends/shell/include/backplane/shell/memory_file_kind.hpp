// What a descriptor from another process is, before it is taken (memory_file.hpp).
#pragma once

#include <cstdint>
#include <string>

namespace bp {

// Whether it is a file that a MemoryFile of this kind and size made, in any process.
bool is_memory_file(const std::string& kind, uint64_t size_bytes, int descriptor);

}  // namespace bp
