// Numbers as text and back, the same in every locale.
//
// printf(), strtod() and std::to_string() follow the locale of the program. A program that calls
// setlocale(LC_ALL, "") may have one in which 1.5 is written 1,5, which no JSON and no option has.
//
// Header-only: every module includes it, also behind libbackplane.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>

namespace bp {

// Writes `value` with `digits` digits. Here and below, numbers of digits above 100 mean 100.
inline std::string number_text(double value, std::chars_format format, int digits) {
  std::array<char, 512> text;  // The largest double has 309 digits in front of the point.
  const auto written = std::to_chars(text.data(), text.data() + text.size(), value, format,
                                     std::clamp(digits, 0, 100));
  return std::string(text.data(), written.ptr);
}

// Writes `value` as printf("%.*f") does in the C locale.
inline std::string fixed_text(double value, int digits) {
  return number_text(value, std::chars_format::fixed, digits);
}

// Writes `value` as printf("%.*e") does in the C locale.
inline std::string scientific_text(double value, int digits) {
  return number_text(value, std::chars_format::scientific, digits);
}

// Writes `value` as printf("%.*g") does in the C locale. 17 digits give every double back, and 9
// every float.
inline std::string short_text(double value, int digits = 6) {
  return number_text(value, std::chars_format::general, digits);
}

// Returns the number that is the whole of `text`, such as "1.5", "+2" or "1e-3". Returns nothing if
// `text` is anything else, or if a double cannot hold the number.
inline std::optional<double> parse_double(std::string_view text) {
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace bp
