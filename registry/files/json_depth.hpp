// Finds how deep a JSON text nests before it is parsed. Parsers, and code that walks a parsed
// value, recurse once for each level, so a text of a few hundred kilobytes could end the process.
//
// Header-only: every module that reads JSON from outside includes it, also behind libbackplane.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace bp {

// No file that the project writes or documents nests deeper than ten levels.
inline constexpr size_t kMaxJsonDepth = 64;

// Returns why `text` must not be parsed as JSON: it nests deeper than `max_depth`. Returns "" if it
// does not. A bracket in a string does not count. A text that is no JSON also gets "", unless it
// opens too many brackets: the parser says what is wrong with it.
inline std::string json_depth_defect(std::string_view text, size_t max_depth = kMaxJsonDepth) {
  size_t depth = 0;
  bool is_in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (is_in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        is_in_string = false;
      }
    } else if (c == '"') {
      is_in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > max_depth) {
        return "the JSON nests deeper than " + std::to_string(max_depth) + " levels at byte " +
               std::to_string(i) + "; write it with fewer levels";
      }
    } else if ((c == ']' || c == '}') && depth > 0) {
      --depth;
    }
  }
  return "";
}

}  // namespace bp
