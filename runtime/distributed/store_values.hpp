// What the stores check and write alike.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "backplane/runtime/distributed/store.hpp"

namespace bp::distributed {

// Throw Error for a key or a value that no store takes.
void check_key(const std::string& key);
void check_value(const std::string& key, const std::string& value);

// Returns the number that `value` holds plus `amount`. Throws Error if it holds none, or if the sum
// does not fit in 64 bits.
int64_t add_to_value(const std::string& key, std::string_view value, int64_t amount);

// Returns text like "1.5 s".
std::string duration_text(Duration duration);

// Numbers in the bytes of a file or a connection are little-endian. The bytes must be there.
uint32_t read_u32(std::string_view bytes);
uint64_t read_u64(std::string_view bytes);
void append_u32(std::string& bytes, uint32_t value);
void append_u64(std::string& bytes, uint64_t value);

}  // namespace bp::distributed
