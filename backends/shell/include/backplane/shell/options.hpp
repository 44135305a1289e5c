// The options that a user gives to a backend through the host, and the sentence that refuses a
// value which does not fit.
//
//   const auto value = find_option(host, "threads");
//   if (value) count = read_number("threads", *value, 1, 64);
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "backplane/shell/entry.hpp"

namespace bp {

// What the user gave for `key`, until the host's next call; empty if nothing.
inline std::optional<std::string_view> find_option(const bp_host& host, const char* key) {
  const char* value = nullptr;
  if (host.get_option(host.self, key, &value) != BP_OK) return std::nullopt;
  return value;
}

// `allowed` ends the sentence: "yes or no".
[[noreturn]] inline void refuse_option(std::string_view key, std::string_view value,
                                       const std::string& allowed) {
  refuse(BP_INVALID_ARGUMENT,
         "option " + std::string(key) + ": \"" + std::string(value) + "\" is not " + allowed);
}

// Each reads the value of the option `key`, and throws StatusError for one that does not fit.

// A number in decimal, or in hexadecimal behind 0x.
inline uint64_t read_number(std::string_view key, std::string_view value, uint64_t least,
                            uint64_t most) {
  const bool is_hex = value.starts_with("0x");
  const std::string_view digits = is_hex ? value.substr(2) : value;
  uint64_t parsed = 0;
  const char* const end = digits.data() + digits.size();
  const auto [last, error] = std::from_chars(digits.data(), end, parsed, is_hex ? 16 : 10);
  if (error != std::errc() || last != end || parsed < least || parsed > most) {
    refuse_option(key, value,
                  "a number from " + std::to_string(least) + " to " + std::to_string(most));
  }
  return parsed;
}

// True for "yes".
inline bool read_yes_or_no(std::string_view key, std::string_view value) {
  if (value != "yes" && value != "no") refuse_option(key, value, "yes or no");
  return value == "yes";
}

}  // namespace bp
