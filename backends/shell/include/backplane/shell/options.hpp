// The options that a user gives to a backend through the host, and the error text for a value that
// is not valid.
//
//   const auto value = find_option(host, "threads");
//   if (value) count = read_number("threads", *value, 1, 64);
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backplane/shell/entry.hpp"

namespace bp {

// Returns what the user gave for `key`, or nothing. The text is valid until the host's next call.
inline std::optional<std::string_view> find_option(const bp_host& host, const char* key) {
  const char* value = nullptr;
  if (host.get_option(host.self, key, &value) != BP_OK) return std::nullopt;
  return value;
}

// Throws StatusError. `allowed` ends the sentence, such as "yes or no".
[[noreturn]] inline void refuse_option(std::string_view key, std::string_view value,
                                       const std::string& allowed) {
  refuse(BP_INVALID_ARGUMENT,
         "option " + std::string(key) + ": \"" + std::string(value) + "\" is not " + allowed);
}

// Reads the value of the option `key`, a number in decimal, or in hexadecimal after 0x. Throws
// StatusError if the value is not a number from `least` to `most`.
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

// Reads the value of the option `key`, and returns true for "yes". Throws StatusError if the value
// is neither "yes" nor "no".
inline bool read_yes_or_no(std::string_view key, std::string_view value) {
  if (value != "yes" && value != "no") refuse_option(key, value, "yes or no");
  return value == "yes";
}

// The option "devices" of backends that find their devices: the numbers of those that are offered,
// from 0 on in the order in which they were found, such as "0,2". Without the option all are.
class ChosenDevices {
 public:
  ChosenDevices() = default;  // All.
  explicit ChosenDevices(const bp_host& host) {
    const auto value = find_option(host, kKey);
    if (!value) return;
    has_choice_ = true;
    for (size_t begin = 0; begin <= value->size();) {
      const size_t end = std::min(value->find(',', begin), value->size());
      numbers_.push_back(read_one(*value, value->substr(begin, end - begin)));
      begin = end + 1;
    }
  }

  bool has(uint64_t number) const {
    return !has_choice_ || std::find(numbers_.begin(), numbers_.end(), number) != numbers_.end();
  }

  // Throws StatusError for the number of a device that was not found; `names` are of those found.
  void check(const std::vector<std::string>& names) const {
    for (const uint64_t number : numbers_) {
      if (number < names.size()) continue;
      std::string found = names.empty() ? "there is none that can be used" : "there are ";
      for (size_t k = 0; k < names.size(); ++k) {
        found += (k == 0 ? "" : ", ") + std::to_string(k) + ": " + names[k];
      }
      refuse(BP_INVALID_ARGUMENT, std::string("option ") + kKey + ": there is no device " +
                                      std::to_string(number) + "; " + found);
    }
  }

 private:
  static constexpr const char* kKey = "devices";

  static uint64_t read_one(std::string_view list, std::string_view digits) {
    uint64_t number = 0;
    const char* const end = digits.data() + digits.size();
    const auto [last, error] = std::from_chars(digits.data(), end, number);
    if (error != std::errc() || last != end) {
      refuse_option(kKey, list, "a list of device numbers, such as \"0,2\"");
    }
    return number;
  }

  bool has_choice_ = false;
  std::vector<uint64_t> numbers_;
};

}  // namespace bp
