#include "conformance/numerics/relaxed_row.hpp"

#include <algorithm>
#include <cmath>

namespace bp::conformance {

// exp of relaxed math is off by 2 abs(x) ulps more, which is at most 4 abs(x) unit roundoffs of
// f32. Its logarithm is off by 2^-21 more between 1/2 and 2, and the sum is at least 1.
RelaxedRow relaxed_row(std::span<const double> x, bp_dtype dtype, const Numerics& numerics) {
  constexpr double kUnit = 0x1p-24, kPerDistance = 4 * kUnit, kOfLog = 0x1p-21;
  RelaxedRow row{std::vector<double>(x.size()), 0};
  if (!numerics.relaxed || dtype == BP_F64 || x.empty()) return row;
  const double peak = *std::max_element(x.begin(), x.end());
  double total = 0, spread = 0;
  for (const double value : x) {
    const double distance = peak - value;
    if (!std::isfinite(distance)) continue;  // The exponential is exactly 0.
    total += std::exp(-distance);
    spread += std::exp(-distance) * distance;
  }
  if (total == 0) return row;
  const double mean = spread / total;
  for (size_t i = 0; i < x.size(); ++i) {
    if (std::isfinite(peak - x[i])) row.relative[i] = kPerDistance * (peak - x[i] + mean);
  }
  row.log = kPerDistance * mean + (total <= 2 ? kOfLog : 0);
  return row;
}

}  // namespace bp::conformance
