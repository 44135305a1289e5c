#include "conformance/cases/engine/op_mistakes.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "registry/boundary/number_text.hpp"

namespace bp::conformance {
namespace {

// The kinds of wrong values, the one that explains most first.
enum Kind {
  kNotNan,
  kNan,
  kNotInfinite,
  kInfinite,
  kZeroSign,
  kFlushed,
  kZero,
  kSign,
  kNeighbour,
  kNextInteger,
  kClose,
  kOther,
};
constexpr std::array<const char*, kOther + 1> kWords = {
    "should be NaN",
    "is NaN and should be a number",
    "should be infinite",
    "is infinite and should not be",
    "is a zero of the wrong sign",
    "is 0 where the right value is subnormal",
    "is 0 where the right value is not",
    "has the wrong sign",
    "is a neighbour of the right value: it is rounded wrongly",
    "differs from the right value by 1",
    "is off by at most 1 %",
    "is off by more than 1 %",
};

// The tiles that kernels have: vectors, and blocks of threads.
constexpr std::array<int64_t, 7> kTiles = {4, 8, 16, 32, 64, 128, 256};

double smallest_normal(bp_dtype dtype) {
  const FloatFormat* format = float_format(dtype);
  return format == nullptr ? 0 : format->smallest_normal();
}

double relative_error(DoubleDouble y, DoubleDouble r) {
  const double error = abs(y - r).hi;
  return error == 0 ? 0 : error / std::fabs(r.hi);
}

Kind kind_of_number(bp_dtype dtype, DoubleDouble y, DoubleDouble r) {
  if (y == r) return kZeroSign;
  if (y == DoubleDouble(0.0)) {
    return std::fabs(r.hi) < smallest_normal(dtype) ? kFlushed : kZero;
  }
  if (y == DoubleDouble(0.0) - r) return kSign;
  const double error = abs(y - r).hi;
  // The value of a rounded result is known up to half a unit.
  if (is_float(dtype) && error <= 1.5 * ulp(dtype, r.hi)) return kNeighbour;
  if (!is_float(dtype) && error == 1) return kNextInteger;
  return relative_error(y, r) <= 0.01 ? kClose : kOther;
}

Kind kind_of(bp_dtype dtype, DoubleDouble y, DoubleDouble r) {
  if (isnan(r)) return kNotNan;
  if (isnan(y)) return kNan;
  if (std::isinf(r.hi)) return kNotInfinite;
  if (std::isinf(y.hi)) return kInfinite;
  return kind_of_number(dtype, y, r);
}

DoubleDouble got(const Mistakes& m, int64_t i) { return m.output.value[static_cast<size_t>(i)]; }
DoubleDouble right(const Mistakes& m, int64_t i) {
  return m.expected.value[static_cast<size_t>(i)];
}

// Returns "; none of the 3 that should be NaN is right", or how many are.
std::string share_text(const Mistakes& m, Kind kind, size_t wrong) {
  const bool is_nan = kind == kNotNan;
  const auto belongs = [&](DoubleDouble r) { return is_nan ? isnan(r) : std::isinf(r.hi); };
  const auto all = static_cast<size_t>(std::ranges::count_if(m.expected.value, belongs));
  const std::string what = is_nan ? " that should be NaN" : " that should be infinite";
  if (all == wrong) return "; none of the " + std::to_string(all) + what + " is right";
  return "; " + std::to_string(all - wrong) + " others" + what + " are right";
}

// Returns whether each wrong element holds what relation(element) gives. One or two could do so by
// chance.
template <typename Relation>
bool all_hold(const Mistakes& m, Relation relation) {
  return m.wrong.size() > 2 &&
         std::ranges::all_of(m.wrong, [&](int64_t i) { return relation(i) == got(m, i); });
}

// Returns a rule that gives all the wrong values, or "".
std::string rule_of(const Mistakes& m) {
  const auto count = static_cast<int64_t>(m.output.value.size());
  const auto neighbour = [&](int64_t step) {
    return all_hold(m, [&](int64_t i) {
      const int64_t from = i + step;
      return from < 0 || from >= count ? DoubleDouble(std::nan("")) : right(m, from);
    });
  };
  if (neighbour(1)) return "each holds the right value of the element behind it";
  if (neighbour(-1)) return "each holds the right value of the element before it";
  for (const double factor : {2.0, 0.5}) {
    if (all_hold(m, [&](int64_t i) { return right(m, i) * DoubleDouble(factor); })) {
      return "each is " + short_text(factor) + " times the right value";
    }
  }
  const DoubleDouble first = got(m, m.wrong.front());
  if (all_hold(m, [&](int64_t) { return first; }) && first != DoubleDouble(0.0)) {
    return "all hold the same value";
  }
  return "";
}

std::string worst_text(const Mistakes& m) {
  double worst = 0;
  for (const int64_t i : m.wrong) worst = std::max(worst, relative_error(got(m, i), right(m, i)));
  return "; the largest relative error is " + short_text(worst, 2);
}

// Returns the first and last coordinate of the wrong elements on an axis.
std::pair<int64_t, int64_t> span_of(const Mistakes& m, size_t axis) {
  int64_t first = m.output.shape[axis], last = 0;
  for (const int64_t i : m.wrong) {
    const int64_t at = coordinates(i, m.output.shape)[axis];
    first = std::min(first, at), last = std::max(last, at);
  }
  return {first, last};
}

// Returns "every 16th element from 3 on" if the wrong elements have such a distance, else "".
std::string lanes_of(const Mistakes& m) {
  const auto count = static_cast<int64_t>(m.output.value.size());
  for (const int64_t step : {64, 32, 16, 8, 4, 2}) {
    const int64_t first = m.wrong.front() % step;
    const int64_t members = (count - first + step - 1) / step;
    const bool is_lane = m.wrong.size() > 2 && static_cast<int64_t>(m.wrong.size()) == members &&
                         std::ranges::all_of(m.wrong, [&](int64_t i) { return i % step == first; });
    if (is_lane) {
      return "element " + std::to_string(first) + " of every " + std::to_string(step) +
             " in row-major order";
    }
  }
  return "";
}

std::string box_of(const Mistakes& m) {
  std::string text;
  int64_t volume = 1;
  for (size_t axis = 0; axis < m.output.shape.size(); ++axis) {
    const auto [first, last] = span_of(m, axis);
    volume *= last - first + 1;
    if (first == 0 && last == m.output.shape[axis] - 1) continue;
    text += (text.empty() ? "" : " and ") + std::string("index ") + std::to_string(first);
    if (last != first) text += " to " + std::to_string(last);
    text += " (of " + std::to_string(m.output.shape[axis]) + ") on axis " + std::to_string(axis);
  }
  const bool is_full = volume == static_cast<int64_t>(m.wrong.size());
  if (text.empty()) return "scattered over the whole tensor";
  return (is_full ? "all elements with " : "some elements with ") + text;
}

}  // namespace

std::string value_of(const Mistakes& m) {
  std::array<size_t, kWords.size()> counts{};
  for (const int64_t i : m.wrong) ++counts[kind_of(m.output.dtype, got(m, i), right(m, i))];
  const auto* const most = std::ranges::max_element(counts);
  const auto kind = static_cast<Kind>(most - counts.begin());
  if (std::string rule = rule_of(m); !rule.empty() && kind >= kNeighbour) return rule;
  if (*most == m.wrong.size()) {
    std::string text = std::string(m.wrong.size() == 1 ? "it " : "each ") + kWords[kind];
    if (kind == kNotNan || kind == kNotInfinite) return text + share_text(m, kind, *most);
    return kind == kClose || kind == kNeighbour ? text + worst_text(m) : text;
  }
  std::string text;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] == 0) continue;
    text += (text.empty() ? "" : "; ") + std::to_string(counts[i]) + " of them: " + kWords[i];
  }
  return text;
}

std::string place_of(const Mistakes& m) {
  if (m.wrong.size() == m.output.value.size()) return "all elements of the tensor";
  if (m.wrong.size() == 1) return "this element alone";
  const std::string lanes = lanes_of(m);
  const std::string box = box_of(m);
  return lanes.empty() || box.starts_with("all ") ? box : lanes;
}

bool fill_a_tail(const Mistakes& m) {
  const auto wrong = static_cast<int64_t>(m.wrong.size());
  const auto begins_tail = [&](int64_t first, int64_t extent) {
    return std::ranges::any_of(kTiles, [&](int64_t tile) {
      return extent > tile && extent % tile != 0 && first == extent - extent % tile;
    });
  };
  const auto count = static_cast<int64_t>(m.output.value.size());
  if (wrong == count - m.wrong.front() && begins_tail(m.wrong.front(), count)) return true;
  for (size_t axis = 0; axis < m.output.shape.size(); ++axis) {
    const int64_t extent = m.output.shape[axis], first = span_of(m, axis).first;
    if (wrong == count / extent * (extent - first) && begins_tail(first, extent)) return true;
  }
  return false;
}

}  // namespace bp::conformance
