// Checks a descriptor from another process before a MemoryFile (memory_file.hpp) takes it.
#pragma once

#include <cstdint>
#include <string>

namespace bp {

// Returns whether a MemoryFile of this kind and size, in any process, made the file.
bool is_memory_file(const std::string& kind, uint64_t size_bytes, int descriptor);

}  // namespace bp
