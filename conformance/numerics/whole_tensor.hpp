// Checks on a whole output after each of its elements was accepted.
#pragma once

#include <cstdint>

#include "conformance/numerics/accept.hpp"

namespace bp::conformance {

// Collects the signed error of right results: z = sign(r) * (y - r) / (ulp(r) / 2 + u * S). A mean
// far from 0 shows that stores or adders truncate, which no single element shows.
class SignedBias {
 public:
  void add(bp_dtype dtype, double y, DoubleDouble r, double magnitude, const Numerics& numerics);

  uint64_t count() const { return count_; }
  double mean() const { return count_ == 0 ? 0 : total_ / static_cast<double>(count_); }

  // Returns whether there are enough elements and their mean is beyond 3 / sqrt(count).
  bool is_suspicious() const;

 private:
  double total_ = 0;
  uint64_t count_ = 0;
};

// Checks that the expected values prove something. If more than half of them were zero, or all of
// them were equal, a kernel that computes nothing could pass.
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
