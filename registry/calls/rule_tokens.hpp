// Divides the expressions and formulas of an op that was described at run time into tokens.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

#include "registry/boundary/plugin_text.hpp"

namespace bp::core {

// The exception that ends a parse. `offset` is the place of the token that is wrong.
struct Fault {
  size_t offset = 0;
  std::string text;
};

// How deeply expressions and formulas may be nested.
inline constexpr uint32_t kMaxNesting = 32;

class RuleTokens {
 public:
  explicit RuleTokens(std::string_view text) : text_(text) { next(); }

  std::string_view current() const { return token_; }
  size_t offset() const { return static_cast<size_t>(token_.data() - text_.data()); }
  std::string_view text() const { return text_; }
  bool is_end() const { return token_.empty(); }
  bool is_word() const { return !token_.empty() && is_word_character(token_[0]); }
  bool is_number() const { return !token_.empty() && is_digit(token_[0]); }

  // Returns the token behind the current one.
  std::string_view ahead() const { return token_from(offset() + token_.size()); }

  void next() { token_ = token_from(token_.data() == nullptr ? 0 : offset() + token_.size()); }

  // Goes back to a token that offset() has named before.
  void go_to(size_t offset) { token_ = token_from(offset); }

  bool take(std::string_view token) {
    if (token_ != token) return false;
    next();
    return true;
  }

  void expect(std::string_view token) {
    if (!take(token)) fail("'" + std::string(token) + "' is expected in place of " + quoted());
  }

  // Returns the current token for a text.
  std::string quoted() const {
    return is_end() ? "the end" : "'" + clean_text(token_, LineBreaks::kEscape) + "'";
  }

  [[noreturn]] void fail(const std::string& what) const { throw Fault{offset(), what}; }

 private:
  static constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }
  static constexpr bool is_word_character(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '_';
  }

  size_t end_of_word(size_t at) const {
    while (at < text_.size() && is_word_character(text_[at])) ++at;
    return at;
  }

  // Returns the end of a number such as 12, 0.5 or 1.0e-30, which begins at `at`.
  size_t end_of_number(size_t at) const {
    size_t end = end_of_word(at);
    if (end < text_.size() && text_[end] == '.') end = end_of_word(end + 1);
    const bool has_exponent = text_[end - 1] == 'e' && end < text_.size();
    if (has_exponent && (text_[end] == '-' || text_[end] == '+')) end = end_of_word(end + 1);
    return end;
  }

  std::string_view token_from(size_t at) const {
    while (at < text_.size() && (text_[at] == ' ' || text_[at] == '\n')) ++at;
    if (at == text_.size()) return text_.substr(at);
    size_t end = is_digit(text_[at]) ? end_of_number(at) : end_of_word(at);
    if (end == at) {
      constexpr std::string_view kPairs[] = {"//", "==", "!=", "<=", ">="};
      const bool is_pair = std::ranges::count(kPairs, text_.substr(at, 2)) != 0;
      end = at + (is_pair ? 2 : 1);
    }
    return text_.substr(at, end - at);
  }

  std::string_view text_, token_;
};

}  // namespace bp::core
