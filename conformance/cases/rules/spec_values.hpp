// The values and functions of expressions of the spec.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>

#include "conformance/memory/layout.hpp"

namespace bp::conformance::spec {

// A value that does not exist: an extent behind the last, a window that does not fit, a number that
// cannot be counted.
using Nothing = std::monostate;
using Value = std::variant<Nothing, int64_t, double, Shape>;

constexpr int64_t kEnd = INT64_MAX;  // The end of a slice.

inline bool exists(const Value& value) { return !std::holds_alternative<Nothing>(value); }

// Returns the product of all extents; nothing if it cannot be counted.
std::optional<int64_t> product(const Shape& shape);

// Returns whether the elements of a tensor can be counted. An axis of extent 0 counts as extent 1.
bool is_countable(Shape shape);
bool are_distinct(const Shape& values);

// The operators and functions that ops_spec/README.md lists.
Value add(int64_t a, int64_t b);
Value sub(int64_t a, int64_t b);
Value mul(int64_t a, int64_t b);
Value quotient(int64_t a, int64_t b);
Value remainder(int64_t a, int64_t b);
Value lower(int64_t a, int64_t b);
Value higher(int64_t a, int64_t b);
Value at(const Shape& shape, int64_t i);
Value slice(const Shape& shape, int64_t from, int64_t to);
Value concat(const Shape& a, const Shape& b);
Value repeat(const Shape& shape, int64_t times);
Value reduced(const Shape& shape, const Shape& axes, int64_t keepdims);
Value blocks(const Shape& shape, const Shape& counts);
Value window(const Shape& size, const Shape& kernel, const Shape& stride, const Shape& padding,
             const Shape& dilation);
Value covered(const Shape& count, const Shape& kernel, const Shape& stride, const Shape& padding,
              const Shape& dilation, const Shape& extra);
Value band(int64_t rows, int64_t columns, int64_t begin, int64_t end);

}  // namespace bp::conformance::spec
