// Reads and writes the header of a file of weights as text, without a file and without a device.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backplane/runtime/safetensors.hpp"

namespace bp::safetensors {

inline constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // Other readers accept as much.
inline constexpr uint64_t kAlignment = 8;                 // The elements begin at a multiple of it.

// The entry of one tensor, whose elements are bytes [begin, end) behind the header.
struct Entry {
  std::string name;
  bp_dtype dtype;
  std::vector<int64_t> shape;
  uint64_t begin, end;

  bool operator==(const Entry&) const = default;
};

struct Header {
  Metadata metadata;
  std::vector<Entry> entries;  // Sorted by name.
};

// The names of dtypes in the format, such as "F32". name_of_dtype() returns NULL for a dtype that
// the format has not.
std::optional<bp_dtype> dtype_of_name(const std::string& name);
const char* name_of_dtype(bp_dtype dtype);

// Reads the header `text` in front of `data_bytes` of elements. Everything is checked: JSON,
// dtypes, shapes, and that the elements lie without gaps or overlap. Throws Error, which names the
// file `path` and the field.
Header read_header(const std::string& path, const std::string& text, uint64_t data_bytes);

// Returns the text of `header`, padded with spaces so that the elements are aligned. Throws Error.
std::string write_header(const Header& header);

}  // namespace bp::safetensors
