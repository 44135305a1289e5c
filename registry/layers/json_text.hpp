// One JSON object as text, written member by member: a trace writes one for each call.
#pragma once

#include <string>
#include <string_view>
#include <type_traits>

#include "backplane/backend.h"

namespace bp::layers {

class JsonText {
 public:
  // `text` in quotes, with what JSON does not take escaped, and U+FFFD for a byte of no UTF-8.
  static std::string quoted(std::string_view text);

  void add(std::string_view key, std::string_view value) { add_raw(key, quoted(value)); }
  template <typename Number>
  requires std::is_arithmetic_v<Number>
  void add(std::string_view key, Number value) {
    static_assert(std::is_integral_v<Number>, "std::to_string() of a double follows the locale");
    add_raw(key, std::to_string(value));
  }

  std::string text() const { return text_ + "}"; }

 private:
  void add_raw(std::string_view key, std::string_view value);

  std::string text_ = "{";
};

// Writes the arguments of one call under the names that they have in the header.
class ArgumentText {
 public:
  // `names` is as of slot_arguments(). What out parameters point to is written if `is_ok`. `op` is
  // that of the kernel whose arguments they are.
  ArgumentText(JsonText& out, std::string_view names, bool is_ok, uint32_t op = 0)
      : out_(out), names_(names), is_ok_(is_ok), op_(op) {}

  void add(const char* text);
  void add(const bp_buffer_ref* range);
  void add(const bp_allocate_desc* desc);
  void add(const bp_prepare_desc* desc);
  void add(const bp_launch* launch);
  void add(const void* handle);

  // Numbers, handles, and where results are written.
  template <typename T>
  void add(T value) {
    if constexpr (std::is_arithmetic_v<T>) {
      out_.add(next_name(), value);
    } else if constexpr (is_out<T>()) {
      const std::string_view name = next_name();
      if (is_ok_ && value != nullptr) add_result(name, *value);
    } else if constexpr (std::is_function_v<std::remove_pointer_t<T>>) {
      add(reinterpret_cast<const void*>(value));
    } else {
      add(static_cast<const void*>(value));
    }
  }

 private:
  // uint64_t*, bp_buffer**: something that a call sets.
  template <typename T>
  static constexpr bool is_out() {
    using Target = std::remove_pointer_t<T>;
    return std::is_pointer_v<T> && !std::is_const_v<Target> &&
           (std::is_arithmetic_v<Target> || std::is_pointer_v<Target>);
  }

  template <typename T>
  void add_result(std::string_view name, T value) {
    if constexpr (std::is_arithmetic_v<T>) {
      out_.add(name, value);
    } else {
      add_handle(name, static_cast<const void*>(value));
    }
  }

  std::string_view next_name();
  void add_handle(std::string_view name, const void* handle);

  JsonText& out_;
  std::string_view names_;
  bool is_ok_;
  uint32_t op_;
};

}  // namespace bp::layers
