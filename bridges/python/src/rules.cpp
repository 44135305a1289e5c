// A parser by recursive descent, which evaluates as it reads.
#include "rules.hpp"

#include <algorithm>
#include <cctype>

namespace bp::python {
namespace {

using Number = std::optional<int64_t>;

class Reader {
 public:
  Reader(std::string_view text, const RuleFacts& facts) : text_(text), facts_(facts) {}

  Number read() {
    const Number value = sum();
    skip();
    return text_.empty() ? value : std::nullopt;
  }

 private:
  void skip() {
    while (!text_.empty() && text_.front() == ' ') text_.remove_prefix(1);
  }

  bool take(std::string_view token) {
    skip();
    if (!text_.starts_with(token)) return false;
    text_.remove_prefix(token.size());
    return true;
  }

  std::string_view word() {
    skip();
    const auto* const end = std::find_if(text_.begin(), text_.end(), [](unsigned char c) {
      return std::isalnum(c) == 0 && c != '_';
    });
    const std::string_view found = text_.substr(0, static_cast<size_t>(end - text_.begin()));
    text_.remove_prefix(found.size());
    return found;
  }

  Number sum() {
    Number left = product();
    while (left) {
      const bool is_sum = take("+");
      if (!is_sum && !take("-")) return left;
      const Number right = product();
      if (!right) return right;
      left = is_sum ? *left + *right : *left - *right;
    }
    return left;
  }

  Number product() {
    Number left = atom();
    while (left && !text_.starts_with("**") && take("*")) {
      const Number right = atom();
      left = right ? Number(*left * *right) : right;
    }
    return left;
  }

  Number atom() {
    if (take("(")) {
      const Number value = sum();
      return take(")") ? value : std::nullopt;
    }
    const std::string_view name = word();
    if (name.empty()) return std::nullopt;
    if (std::isdigit(static_cast<unsigned char>(name[0])) != 0) return digits(name);
    if (take("(")) return call(name);
    return take(".ndim") ? facts_.ndim(name) : std::nullopt;
  }

  static Number digits(std::string_view text) {
    int64_t value = 0;
    for (const char c : text) {
      if (c < '0' || c > '9') return std::nullopt;
      value = value * 10 + (c - '0');
    }
    return value;
  }

  Number call(std::string_view name) {
    if (name == "len") {
      const Number value = facts_.length(word());
      return take(")") ? value : std::nullopt;
    }
    if (name != "max" && name != "min") return std::nullopt;
    Number value = sum();
    while (value && take(",")) {
      const Number other = sum();
      if (!other) return other;
      value = name == "max" ? std::max(*value, *other) : std::min(*value, *other);
    }
    return take(")") ? value : std::nullopt;
  }

  std::string_view text_;
  const RuleFacts& facts_;
};

}  // namespace

std::optional<int64_t> evaluate(std::string_view rule, const RuleFacts& facts) {
  return Reader(rule, facts).read();
}

}  // namespace bp::python
