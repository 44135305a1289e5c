// Numbers that the rules of a description say: "2*(x.ndim - 2)", "len(params)".
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

namespace bp::python {

// What a rule asks for: the rank of a tensor, or the length of a list. Nothing for an unknown name.
struct RuleFacts {
  std::function<std::optional<int64_t>(std::string_view name)> ndim, length;
};

// Returns the number of a rule of integers, `name.ndim`, `len(name)`, `max`, `min`, + - * and
// parentheses. For any other rule it returns nothing: the host evaluates that one.
std::optional<int64_t> evaluate(std::string_view rule, const RuleFacts& facts);

}  // namespace bp::python
