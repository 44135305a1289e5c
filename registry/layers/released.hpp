// Knows the sizes and bits that structs had in earlier minors, and cuts structs to them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "backplane/backend.h"

namespace bp::layers {

// Returns sizeof `Struct` in the headers of `minor`, or 0 if the struct did not exist.
template <typename Struct>
constexpr uint32_t released_size([[maybe_unused]] uint32_t minor) {
  if (minor >= BP_ABI_MINOR) return sizeof(Struct);
  uint32_t size = 0;
#define BP_RELEASED(released_minor, type, last)                                      \
  if constexpr (std::is_same_v<Struct, type>) {                                      \
    if ((released_minor) <= minor) size = offsetof(type, last) + sizeof(type::last); \
  }
#include "registry/layers/released.def"
  return size;
}

// Returns the bits that a request of this type may have in `minor`.
template <typename Desc>
constexpr uint32_t released_bits([[maybe_unused]] uint32_t minor) {
  uint32_t known = UINT32_MAX;
#define BP_RELEASED_BITS(released_minor, type, member, bits)               \
  if constexpr (std::is_same_v<Desc, type>) {                              \
    if (minor < BP_ABI_MINOR && (released_minor) <= minor) known = (bits); \
  }
#include "registry/layers/released.def"
  return known;
}

// Removes what `value` did not have in `minor`. A struct that is shorter already stays as it is.
template <typename Struct>
void cut(Struct& value, uint32_t minor) {
  const uint32_t size = released_size<Struct>(minor);
  if (size >= value.struct_size) return;
  std::memset(reinterpret_cast<unsigned char*>(&value) + size, 0, sizeof(Struct) - size);
  value.struct_size = size;
}

}  // namespace bp::layers
