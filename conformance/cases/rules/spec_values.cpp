#include "conformance/cases/rules/spec_values.hpp"

#include <algorithm>

namespace bp::conformance::spec {
namespace {

using Number = std::optional<int64_t>;
__extension__ using Wide = __int128;

constexpr int64_t kMostElements = int64_t{1} << 58;

Value to_value(Number number) { return number ? Value(*number) : Value(); }

Number narrowed(Wide value) {
  if (value > INT64_MAX || value < INT64_MIN) return std::nullopt;
  return static_cast<int64_t>(value);
}

int64_t floor_div(int64_t a, int64_t b) {
  return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}

}  // namespace

std::optional<int64_t> product(const Shape& shape) {
  if (std::ranges::find(shape, 0) != shape.end()) return 0;
  Number result = 1;
  for (const int64_t extent : shape) {
    if (result) result = narrowed(static_cast<Wide>(*result) * extent);
  }
  return result;
}

Value add(int64_t a, int64_t b) { return to_value(narrowed(static_cast<Wide>(a) + b)); }
Value sub(int64_t a, int64_t b) { return to_value(narrowed(static_cast<Wide>(a) - b)); }
Value mul(int64_t a, int64_t b) { return to_value(narrowed(static_cast<Wide>(a) * b)); }
Value quotient(int64_t a, int64_t b) { return b == 0 ? Value() : Value(floor_div(a, b)); }
Value remainder(int64_t a, int64_t b) { return b == 0 ? Value() : Value(a - floor_div(a, b) * b); }
Value lower(int64_t a, int64_t b) { return std::min(a, b); }
Value higher(int64_t a, int64_t b) { return std::max(a, b); }

Value at(const Shape& shape, int64_t i) {
  const auto count = static_cast<int64_t>(shape.size());
  if (i < 0) i += count;
  return i < 0 || i >= count ? Value() : Value(shape[static_cast<size_t>(i)]);
}

Value slice(const Shape& shape, int64_t from, int64_t to) {
  const auto count = static_cast<int64_t>(shape.size());
  const auto clip = [count](int64_t i) {
    return std::clamp(i < 0 ? i + count : i, int64_t{0}, count);
  };
  return Shape(shape.begin() + clip(from), shape.begin() + std::max(clip(from), clip(to)));
}

Value concat(const Shape& a, const Shape& b) {
  Shape result = a;
  result.insert(result.end(), b.begin(), b.end());
  return result;
}

Value repeat(const Shape& shape, int64_t times) {
  Shape result;
  for (int64_t i = 0; i < std::min<int64_t>(times, 100); ++i) {
    result.insert(result.end(), shape.begin(), shape.end());
  }
  return result;
}

Value reduced(const Shape& shape, const Shape& axes, int64_t keepdims) {
  Shape result;
  for (size_t i = 0; i < shape.size(); ++i) {
    const bool is_gone = std::ranges::find(axes, static_cast<int64_t>(i)) != axes.end();
    if (!is_gone || keepdims != 0) result.push_back(is_gone ? 1 : shape[i]);
  }
  return result;
}

// The block of an axis is what its extent divided by the count leaves without a rest.
Value blocks(const Shape& shape, const Shape& counts) {
  if (shape.size() != counts.size()) return {};
  for (size_t i = 0; i < shape.size(); ++i) {
    const bool divides = counts[i] == 0 ? shape[i] == 0 : shape[i] % counts[i] == 0;
    if (!divides) return {};
  }
  return counts;
}

Value window(const Shape& size, const Shape& kernel, const Shape& stride, const Shape& padding,
             const Shape& dilation) {
  const size_t n = size.size();
  if (kernel.size() != n || stride.size() != n || dilation.size() != n || padding.size() != 2 * n) {
    return {};
  }
  Shape result;
  for (size_t i = 0; i < n; ++i) {
    const Wide padded = static_cast<Wide>(size[i]) + padding[i] + padding[n + i];
    const Wide reach = static_cast<Wide>(dilation[i]) * (kernel[i] - 1) + 1;
    if (padded < reach || reach < 1 || stride[i] < 1) return {};
    const Number extent = narrowed((padded - reach) / stride[i] + 1);
    if (!extent) return {};
    result.push_back(*extent);
  }
  return result;
}

Value covered(const Shape& count, const Shape& kernel, const Shape& stride, const Shape& padding,
              const Shape& dilation, const Shape& extra) {
  const size_t n = count.size();
  if (kernel.size() != n || stride.size() != n || dilation.size() != n || extra.size() != n ||
      padding.size() != 2 * n) {
    return {};
  }
  Shape result;
  for (size_t i = 0; i < n; ++i) {
    const Wide reach = static_cast<Wide>(dilation[i]) * (kernel[i] - 1) + 1;
    const Wide whole = (static_cast<Wide>(count[i]) - 1) * stride[i] + reach + extra[i];
    const Number extent = narrowed(whole - padding[i] - padding[n + i]);
    if (count[i] < 1 || !extent || *extent < 0) return {};
    result.push_back(*extent);
  }
  return result;
}

// Counts row by row, in the words of the spec.
Value band(int64_t rows, int64_t columns, int64_t begin, int64_t end) {
  Wide total = 0;
  for (int64_t row = 0; row < rows; ++row) {
    const Wide first = std::max<Wide>(static_cast<Wide>(row) + begin, 0);
    const Wide last = std::min<Wide>(static_cast<Wide>(row) + end, columns);
    total += std::max<Wide>(last - first, 0);
  }
  return to_value(narrowed(total));
}

bool is_countable(Shape shape) {
  std::ranges::replace(shape, 0, 1);
  return std::ranges::all_of(shape, [](int64_t extent) { return extent > 0; }) &&
         product(shape).value_or(kEnd) <= kMostElements;
}

bool are_distinct(const Shape& values) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::ranges::count(values, values[i]) > 1) return false;
  }
  return true;
}

}  // namespace bp::conformance::spec
