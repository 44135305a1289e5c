// The middle of repeated measurements and how far they scatter around it.
#pragma once

#include <vector>

namespace bp::conformance {

// Of normally distributed values, the median absolute deviation times this is one sigma.
constexpr double kDeviationScale = 1.4826;

struct Spread {
  double median = 0;
  double deviation = 0;  // Median of |x - median|.
};

// Zero for no values.
Spread spread_of(std::vector<double> values);

// Whether two medians differ by more than three scaled deviations of their difference.
bool differ(const Spread& a, const Spread& b);

// How surely values of `a` tend to be above those of `b`: the z of the rank sum of Mann and
// Whitney, which is normally distributed where both come from one distribution, whatever it is. 0
// if either is empty.
double rank_difference(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace bp::conformance
