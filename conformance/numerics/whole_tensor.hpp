// Checks on a whole output, after each of its elements was accepted.
#pragma once

#include <cstdint>

#include "conformance/numerics/accept.hpp"

namespace bp::conformance {

// Collects the signed error of right results: z = sign(r) * (y - r) / (ulp(r) / 2 + u * S). A mean
// far from 0 exposes truncating stores and adders, which no single element shows.
class SignedBias {
 public:
  void add(bp_dtype dtype, double y, DoubleDouble r, double magnitude, const Numerics& numerics);

  uint64_t count() const { return count_; }
  double mean() const { return count_ == 0 ? 0 : total_ / static_cast<double>(count_); }

  // Whether there are enough elements, and their mean is beyond 3 / sqrt(count).
  bool is_suspicious() const;

 private:
  double total_ = 0;
  uint64_t count_ = 0;
};

// Whether the expected values prove something: more than half of them zero, or all of them equal,
// would let a kernel pass that computes nothing.
class Trust {
 public:
  void add(DoubleDouble expected);

  bool is_mistrusted() const;
  double zero_share() const;

 private:
  DoubleDouble first_;
  uint64_t count_ = 0;
  uint64_t zeros_ = 0;
  bool varies_ = false;
};

}  // namespace bp::conformance
