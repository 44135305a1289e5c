#include "conformance/numerics/whole_tensor.hpp"

#include <cmath>

namespace bp::conformance {

void SignedBias::add(bp_dtype dtype, double y, DoubleDouble r, double magnitude,
                     const Numerics& numerics) {
  if (!std::isfinite(y) || !std::isfinite(r.hi) || r.hi == 0) return;
  // A result that is flushed to zero has an error toward zero, which the kernel declared.
  if (numerics.flush_outputs && std::fabs(r.hi) < float_format(dtype)->smallest_normal()) return;
  const double scale =
      0.5 * ulp(dtype, r.hi) + (numerics.accumulator + numerics.product) * magnitude;
  const double difference = (DoubleDouble(y) - r).hi / scale;
  total_ += std::signbit(r.hi) ? -difference : difference;
  ++count_;
}

bool SignedBias::is_suspicious() const {
  constexpr uint64_t kFewest = 256;
  return count_ >= kFewest && std::fabs(mean()) > 3 / std::sqrt(static_cast<double>(count_));
}

void Trust::add(DoubleDouble expected) {
  if (count_ == 0) first_ = expected;
  const bool is_same = expected == first_ || (isnan(expected) && isnan(first_));
  varies_ = varies_ || !is_same;
  zeros_ += expected.hi == 0;
  ++count_;
}

double Trust::zero_share() const {
  return count_ == 0 ? 0 : static_cast<double>(zeros_) / static_cast<double>(count_);
}

bool Trust::is_mistrusted() const { return count_ > 1 && (zero_share() > 0.5 || !varies_); }

}  // namespace bp::conformance
