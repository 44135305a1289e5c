#include "conformance/perf/spread.hpp"

#include <algorithm>
#include <cmath>

namespace bp::conformance {
namespace {

constexpr size_t kMostStretches = 8;
// The 97.5 % quantile of Student's t for each number of stretches, which has one degree of freedom
// less.
constexpr double kStudent[kMostStretches + 1] = {0,     0,     12.71, 4.303, 3.182,
                                                 2.776, 2.571, 2.447, 2.365};

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

double uncertainty_of(const std::vector<double>& values) {
  const size_t count = std::min(values.size(), kMostStretches);
  if (count < 2) return HUGE_VAL;
  std::vector<double> logarithms;
  double mean = 0, squares = 0;
  for (size_t i = 0; i < count; ++i) {
    const auto at = [&](size_t stretch) {
      return values.begin() + static_cast<std::ptrdiff_t>(stretch * values.size() / count);
    };
    std::vector<double> stretch(at(i), at(i + 1));
    logarithms.push_back(std::log(median_of(stretch)));
    mean += logarithms.back() / static_cast<double>(count);
  }
  for (const double logarithm : logarithms) squares += (logarithm - mean) * (logarithm - mean);
  const auto freedom = static_cast<double>(count - 1);
  return kStudent[count] * std::sqrt(squares / freedom / static_cast<double>(count));
}

double rank_difference(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.empty() || b.empty()) return 0;
  double above = 0;  // The number of pairs in which a is above b; a tie counts as half a pair.
  for (const double x : a) {
    for (const double y : b) above += x > y ? 1 : x == y ? 0.5 : 0;
  }
  const auto m = static_cast<double>(a.size()), n = static_cast<double>(b.size());
  return (above - m * n / 2) / std::sqrt(m * n * (m + n + 1) / 12);
}

}  // namespace bp::conformance
