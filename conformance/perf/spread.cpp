#include "conformance/perf/spread.hpp"

#include <algorithm>
#include <cmath>

namespace bp::conformance {
namespace {

double median_of(std::vector<double>& values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

}  // namespace

Spread spread_of(std::vector<double> values) {
  Spread spread;
  spread.median = median_of(values);
  for (double& value : values) value = std::fabs(value - spread.median);
  spread.deviation = median_of(values);
  return spread;
}

bool differ(const Spread& a, const Spread& b) {
  const double scatter = kDeviationScale * std::hypot(a.deviation, b.deviation);
  return std::fabs(a.median - b.median) > 3 * scatter;
}

double rank_difference(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.empty() || b.empty()) return 0;
  double above = 0;  // Pairs in which a is above; a tie is half of one.
  for (const double x : a) {
    for (const double y : b) above += x > y ? 1 : x == y ? 0.5 : 0;
  }
  const auto m = static_cast<double>(a.size()), n = static_cast<double>(b.size());
  return (above - m * n / 2) / std::sqrt(m * n * (m + n + 1) / 12);
}

}  // namespace bp::conformance
