// The middle of repeated measurements and how far they scatter around it.
#pragma once

#include <vector>

namespace bp::conformance {

struct Spread {
  double median = 0;
  double deviation = 0;  // Median of |x - median|.
};

// Zero for no values.
Spread spread_of(std::vector<double> values);

// By how much the median of values that were measured one after the other may be off, as a share of
// it: half the width of the interval that holds it in 19 of 20 cases.
//
// Measurements that follow each other are alike, so that the scatter of all over the root of their
// number promises too much. The method of batch means (Schmeiser, Operations Research 30, 1982)
// asks how far the medians of b = 8 stretches of time differ:
//
//   t(b - 1) s / sqrt(b),   s the standard deviation of the logarithms of these medians,
//
// with the quantile of Student's t that leaves 5 % out at both ends together. Fewer values than 8
// are a stretch each; of fewer than two nothing is known: infinite.
double uncertainty_of(const std::vector<double>& values);

// How surely values of `a` tend to be above those of `b`: the z of the rank sum of Mann and
// Whitney, which is normally distributed where both come from one distribution, whatever it is. 0
// if either is empty.
double rank_difference(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace bp::conformance
