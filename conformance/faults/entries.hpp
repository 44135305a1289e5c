// The entries of the tables, and what their signatures tell about the faults that they can have.
#pragma once

#include <span>
#include <string_view>
#include <tuple>
#include <type_traits>

#include "backplane/backend.h"
#include "conformance/faults/fault.hpp"

namespace bp::faults {

// Handles point to types that no header completes.
template <typename T>
constexpr bool kIsComplete = requires {
  sizeof(T);
};

template <typename Argument>
struct IsOut : std::false_type {};
template <typename T>
struct IsOut<T*> : std::bool_constant<!std::is_const_v<T> && !std::is_function_v<T> &&
                                      (std::is_void_v<T> || kIsComplete<T>)> {};

// An out parameter that receives a new handle.
template <typename Argument>
struct IsNewHandle : std::false_type {};
template <typename T>
struct IsNewHandle<T**> : std::true_type {};
template <typename Argument>
constexpr bool kIsNewHandle = IsNewHandle<Argument>::value;

// An out parameter that receives a number.
template <typename Argument>
constexpr bool kIsNumberOut =
    std::is_same_v<Argument, uint64_t*> || std::is_same_v<Argument, uint32_t*> ||
    std::is_same_v<Argument, int64_t*>;

template <typename Argument>
constexpr bool kIsRange = std::is_same_v<Argument, const bp_buffer_ref*>;

// A fault of entries, and whether an entry with a signature can have it.
struct Signature {
  bool has_out = false, has_new_handle = false, has_number_out = false, has_range = false,
       waits = false;
};

template <typename... Arguments>
constexpr Signature signature_of(std::string_view entry) {
  return {(IsOut<Arguments>::value || ...), (kIsNewHandle<Arguments> || ...),
          (kIsNumberOut<Arguments> || ...), (kIsRange<Arguments> || ...),
          entry == "synchronize" || entry == "query"};
}

struct Entry {
  std::string_view table;
  std::string_view name;
  Signature signature;

  bool can_have(std::string_view kind) const;
};

std::span<const Entry> entries();

}  // namespace bp::faults
