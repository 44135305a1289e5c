// Regular expressions over ids of cases, matched in a time that grows with the length of the
// expression times the length of the id. Matching never recurses or backtracks.
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

// The problem of an expression, and the byte where it is.
struct PatternError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Pattern {
 public:
  // Throws PatternError if `text` is not a valid expression.
  explicit Pattern(std::string_view text);

  // Returns whether the whole of `text` matches.
  bool matches(std::string_view text) const;

 private:
  friend class PatternReader;

  enum class Kind { kBytes, kSplit, kBegin, kEnd, kAccept };
  // A state reads one of `bytes` and goes to `next`. A split goes to both of its states without
  // reading a byte.
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
