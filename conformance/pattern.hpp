// Regular expressions over ids of cases, matched in a time that grows with the length of the
// expression times that of the id: no expression recurses, and none runs on.
//
// The syntax is that of ECMAScript without back references, assertions other than ^ and $, and
// Unicode escapes. An expression has at most kMaxPatternBytes bytes, nests at most kMaxPatternDepth
// groups, and has at most kMaxPatternStates states when its counted repetitions are written out.
#pragma once

#include <bitset>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace bp::conformance {

constexpr size_t kMaxPatternBytes = 4096;
constexpr size_t kMaxPatternDepth = 50;
constexpr size_t kMaxPatternStates = 4096;

// What is wrong with an expression, and at which byte.
struct PatternError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Pattern {
 public:
  // Throws PatternError.
  explicit Pattern(std::string_view text);

  // Whether the whole of `text` matches.
  bool matches(std::string_view text) const;

 private:
  friend class PatternReader;

  enum class Kind { kBytes, kSplit, kBegin, kEnd, kAccept };
  // A state takes one of `bytes` and goes to `next`; a split goes to both without taking any.
  struct State {
    Kind kind = Kind::kSplit;
    size_t next = 0;
    size_t other = 0;
    std::bitset<256> bytes = {};
  };
  class Threads;

  std::vector<State> states_;
  size_t start_ = 0;
};

}  // namespace bp::conformance
