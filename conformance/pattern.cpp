#include "conformance/pattern.hpp"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

namespace bp::conformance {
namespace {

using Bytes = std::bitset<256>;

Bytes bytes_that(int (*is_member)(int)) {
  Bytes bytes;
  for (int c = 0; c < 128; ++c) bytes[static_cast<size_t>(c)] = is_member(c) != 0;
  return bytes;
}

Bytes only(char c) {
  Bytes bytes;
  bytes.set(static_cast<unsigned char>(c));
  return bytes;
}

Bytes words() {
  Bytes bytes = bytes_that(std::isalnum);
  bytes.set('_');
  return bytes;
}

Bytes all_but_line_ends() {
  Bytes bytes = ~Bytes();
  bytes.reset('\n');
  bytes.reset('\r');
  return bytes;
}

// Returns the bytes of an escape such as \d; nothing if `c` is not the letter of a class.
std::optional<Bytes> class_of_escape(char c) {
  switch (c) {
    case 'd':
      return bytes_that(std::isdigit);
    case 'D':
      return ~bytes_that(std::isdigit);
    case 's':
      return bytes_that(std::isspace);
    case 'S':
      return ~bytes_that(std::isspace);
    case 'w':
      return words();
    case 'W':
      return ~words();
    default:
      return std::nullopt;
  }
}

// A part of an expression. Its depth is the depth of its groups, which is bounded.
struct Node {
  enum class Kind { kEmpty, kBytes, kBegin, kEnd, kSequence, kChoice, kRepeat };
  Kind kind = Kind::kEmpty;
  Bytes bytes = {};
  std::vector<Node> parts = {};
  size_t least = 0;
  std::optional<size_t> most = {};  // If empty, the number of repetitions has no limit.
};

}  // namespace

// Reads an expression and writes its states, from its end to its beginning.
class PatternReader {
 public:
  PatternReader(std::string_view text, Pattern& pattern) : text_(text), pattern_(pattern) {}

  void read() {
    if (text_.size() > kMaxPatternBytes) {
      throw PatternError("the expression has " + std::to_string(text_.size()) +
                         " bytes; allowed: at most " + std::to_string(kMaxPatternBytes));
    }
    const Node whole = choice(0);
    if (at_ < text_.size()) refuse("a ) without its (");
    const size_t accept = add({.kind = Pattern::Kind::kAccept});
    pattern_.start_ = write(whole, accept);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw PatternError("at byte " + std::to_string(at_ + 1) + " the expression has " + what);
  }

  bool is_at(char c) const { return at_ < text_.size() && text_[at_] == c; }
  bool take(char c) {
    const bool is_there = is_at(c);
    at_ += is_there;
    return is_there;
  }

  Node choice(size_t depth) {
    if (depth > kMaxPatternDepth) {
      refuse("more than " + std::to_string(kMaxPatternDepth) + " groups in each other");
    }
    Node choices{.kind = Node::Kind::kChoice};
    choices.parts.push_back(sequence(depth));
    while (take('|')) choices.parts.push_back(sequence(depth));
    return choices;
  }

  Node sequence(size_t depth) {
    Node all{.kind = Node::Kind::kSequence};
    while (at_ < text_.size() && !is_at('|') && !is_at(')')) {
      all.parts.push_back(repeated(atom(depth)));
    }
    return all;
  }

  Node repeated(Node part) {
    Node repeat{.kind = Node::Kind::kRepeat};
    if (take('*')) {
      // A star repeats from 0 times on, without limit.
    } else if (take('+')) {
      repeat.least = 1;
    } else if (take('?')) {
      repeat.most = 1;
    } else if (take('{')) {
      read_counts(repeat);
    } else {
      return part;
    }
    take('?');  // A lazy repetition matches the same texts, because a match always covers the whole
                // text.
    if (is_at('*') || is_at('+') || is_at('?') || is_at('{'))
      refuse("a repetition of a repetition");
    repeat.parts.push_back(std::move(part));
    return repeat;
  }

  void read_counts(Node& repeat) {
    repeat.least = number();
    repeat.most = repeat.least;
    if (take(',')) {
      repeat.most.reset();
      if (!is_at('}')) repeat.most = number();
    }
    if (!take('}')) refuse("a { without its }");
    if (repeat.most && *repeat.most < repeat.least)
      refuse("a repetition whose end is less than its beginning");
  }

  size_t number() {
    const size_t begin = at_;
    size_t value = 0;
    for (; at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])); ++at_) {
      value = value * 10 + static_cast<size_t>(text_[at_] - '0');
      if (value > kMaxPatternStates) refuse_size();
    }
    if (at_ == begin) refuse("a { without a number; write \\{ for the character");
    return value;
  }

  Node atom(size_t depth) {
    const char c = text_[at_];
    if (c == '*' || c == '+' || c == '?' || c == '{') refuse("a repetition of nothing");
    if (c == '}') refuse("a } alone; write \\}");
    if (c == ']') refuse("a ] alone; write \\]");
    ++at_;
    if (c == '^') return {.kind = Node::Kind::kBegin};
    if (c == '$') return {.kind = Node::Kind::kEnd};
    if (c == '(') return group(depth);
    Node one{.kind = Node::Kind::kBytes};
    one.bytes = c == '.' ? all_but_line_ends() : c == '[' ? set() : c == '\\' ? escape() : only(c);
    return one;
  }

  Node group(size_t depth) {
    if (take('?') && !take(':')) refuse("a group of the kind (?, of which only (?: is known");
    Node inside = choice(depth + 1);
    if (!take(')')) refuse("a ( without its )");
    return inside;
  }

  Bytes escape() {
    if (at_ >= text_.size()) refuse("a \\ at its end");
    const char c = text_[at_++];
    if (const auto several = class_of_escape(c)) return *several;
    if (c == 't') return only('\t');
    if (c == 'n') return only('\n');
    if (std::isalnum(static_cast<unsigned char>(c))) {
      --at_;
      refuse(std::string("the escape \\") + c + ", which is not known");
    }
    return only(c);
  }

  Bytes set() {
    const bool is_negated = take('^');
    Bytes bytes;
    while (!is_at(']')) {
      if (at_ >= text_.size()) refuse("a [ without its ]");
      const Bytes first = member();
      const bool is_range =
          is_at('-') && at_ + 1 < text_.size() && text_[at_ + 1] != ']' && first.count() == 1;
      if (!is_range) {
        bytes |= first;
        continue;
      }
      ++at_;
      const Bytes last = member();
      if (last.count() != 1) refuse("a range that ends in a class");
      const size_t low = lowest(first), high = lowest(last);
      if (high < low) refuse("a range whose end is before its beginning");
      for (size_t i = low; i <= high; ++i) bytes.set(i);
    }
    ++at_;
    return is_negated ? ~bytes : bytes;
  }

  Bytes member() {
    if (text_.substr(at_).starts_with("[:"))
      refuse("a class such as [:alpha:], which is not known");
    const char c = text_[at_++];
    return c == '\\' ? escape() : only(c);
  }

  static size_t lowest(const Bytes& bytes) {
    size_t at = 0;
    while (!bytes[at]) ++at;
    return at;
  }

  [[noreturn]] static void refuse_size() {
    throw PatternError(
        "the expression repeats so much that it has too many states; allowed: at most " +
        std::to_string(kMaxPatternStates));
  }

  size_t add(Pattern::State state) {
    if (pattern_.states_.size() >= kMaxPatternStates) refuse_size();
    pattern_.states_.push_back(std::move(state));
    return pattern_.states_.size() - 1;
  }

  // Writes `node`, followed by the state `next`, and returns the first state of `node`.
  size_t write(const Node& node, size_t next) {
    using Kind = Node::Kind;
    // A repetition of nothing makes no state, but takes time too.
    if (++written_ > 8 * kMaxPatternStates) refuse_size();
    switch (node.kind) {
      case Kind::kEmpty:
        return next;
      case Kind::kBytes:
        return add({.kind = Pattern::Kind::kBytes, .next = next, .bytes = node.bytes});
      case Kind::kBegin:
        return add({.kind = Pattern::Kind::kBegin, .next = next});
      case Kind::kEnd:
        return add({.kind = Pattern::Kind::kEnd, .next = next});
      case Kind::kSequence:
        for (size_t i = node.parts.size(); i-- > 0;) next = write(node.parts[i], next);
        return next;
      case Kind::kChoice: {
        size_t first = write(node.parts.back(), next);
        for (size_t i = node.parts.size() - 1; i-- > 0;) {
          first = add({.next = write(node.parts[i], next), .other = first});
        }
        return first;
      }
      case Kind::kRepeat:
        return write_repeat(node, next);
    }
    return next;
  }

  size_t write_repeat(const Node& node, size_t next) {
    const Node& part = node.parts.front();
    size_t first = next;
    if (!node.most) {
      const size_t loop = add({.other = next});
      const size_t body = write(part, loop);
      pattern_.states_[loop].next = body;
      first = loop;
    } else {
      for (size_t i = node.least; i < *node.most; ++i) {
        first = add({.next = write(part, first), .other = next});
      }
    }
    for (size_t i = 0; i < node.least; ++i) first = write(part, first);
    return first;
  }

  std::string_view text_;
  Pattern& pattern_;
  size_t at_ = 0;
  size_t written_ = 0;
};

// The set of states that a text can have reached.
class Pattern::Threads {
 public:
  explicit Threads(const Pattern& pattern)
      : pattern_(pattern), seen_(pattern.states_.size(), SIZE_MAX) {}

  // Adds `state`, and all states that follow it without a byte. `at` is the number of bytes read so
  // far.
  void add(size_t state, size_t at, size_t size) {
    waiting_.push_back(state);
    while (!waiting_.empty()) {
      const size_t index = waiting_.back();
      waiting_.pop_back();
      if (seen_[index] == at) continue;
      seen_[index] = at;
      const State& reached = pattern_.states_[index];
      if (reached.kind == Kind::kSplit) {
        waiting_.push_back(reached.next);
        waiting_.push_back(reached.other);
      } else if (reached.kind == Kind::kBegin || reached.kind == Kind::kEnd) {
        if (at == (reached.kind == Kind::kBegin ? 0 : size)) waiting_.push_back(reached.next);
      } else {
        states_.push_back(index);
      }
    }
  }

  std::vector<size_t> take() { return std::exchange(states_, {}); }

 private:
  const Pattern& pattern_;
  std::vector<size_t> seen_;  // For each state, the number of bytes after which it was last added.
  std::vector<size_t> waiting_, states_;
};

Pattern::Pattern(std::string_view text) { PatternReader(text, *this).read(); }

bool Pattern::matches(std::string_view text) const {
  Threads threads(*this);
  threads.add(start_, 0, text.size());
  std::vector<size_t> now = threads.take();
  for (size_t at = 0; at < text.size() && !now.empty(); ++at) {
    const auto byte = static_cast<unsigned char>(text[at]);
    for (const size_t index : now) {
      const State& state = states_[index];
      if (state.kind == Kind::kBytes && state.bytes[byte]) {
        threads.add(state.next, at + 1, text.size());
      }
    }
    now = threads.take();
  }
  return std::ranges::any_of(now,
                             [&](size_t index) { return states_[index].kind == Kind::kAccept; });
}

}  // namespace bp::conformance
