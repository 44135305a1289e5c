// Writes texts into memory of the caller.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>

#include "registry/boundary/fail.hpp"

namespace bp::core {

// Copies `whole` to `text`, ended with a zero byte and cut at `capacity`. *out_size is the size of
// all of `whole`, the zero byte included.
inline bp_status write_text(const std::string& whole, uint64_t capacity, char* text,
                            uint64_t* out_size) {
  if (out_size == nullptr) return is_null("out_size");
  if (text == nullptr && capacity != 0) return is_null("text");
  if (capacity != 0) {
    const size_t size = std::min<size_t>(whole.size(), capacity - 1);
    std::memcpy(text, whole.data(), size);
    text[size] = '\0';
  }
  *out_size = whole.size() + 1;
  return BP_OK;
}

}  // namespace bp::core
