// The median of repeated measurements, and their scatter around it.
#pragma once

#include <vector>

namespace bp::conformance {

struct Spread {
  double median = 0;
  double deviation = 0;  // The median of |x - median|.
};

// Returns the spread of `values`; it is zero if there are none.
Spread spread_of(std::vector<double> values);

// Returns how far the median of values that were measured one after the other may be from the
// truth, as a share of it: half the width of the interval that holds the truth in 19 of 20 cases.
//
// Measurements that follow each other are correlated, so the scatter of all values, divided by the
// square root of their number, is too small. The method of batch means (Schmeiser, Operations
// Research 30, 1982) uses instead how far the medians of b = 8 stretches of time differ:
//
//   t(b - 1) s / sqrt(b)
//
// where s is the standard deviation of the logarithms of these medians, and t is the quantile of
// Student's t that leaves out 5 % at both ends together. If there are fewer than 8 values, each is
// a stretch. For fewer than two values the result is infinite.
double uncertainty_of(const std::vector<double>& values);

// Returns how surely values of `a` tend to be above values of `b`: the z value of the rank sum of
// Mann and Whitney. It is normally distributed if both come from the same distribution, whatever
// that is. It is 0 if `a` or `b` is empty.
double rank_difference(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace bp::conformance
