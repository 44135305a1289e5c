// The extents of a program that its launches decide: ranges, and formulas over earlier extents.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "backplane/compiler.h"

namespace bp {

// The numbers of all extents of a program in one launch.
using ExtentNumbers = std::vector<int64_t>;

// Returns what an entry of a shape or a term is: a number, or -(i + 1) for numbers[i].
inline int64_t number_of(int64_t entry, const ExtentNumbers& numbers) {
  return entry >= 0 ? entry : numbers[static_cast<size_t>(-(entry + 1))];
}

struct ProgramExtent {
  bp_extent_kind kind = 0;
  int64_t min = 0, preferred = 0, max = 0;
  std::vector<int64_t> terms;

  bool is_range() const { return kind == BP_EXTENT_RANGE; }
};

class ProgramExtents {
 public:
  ProgramExtents() = default;

  // Reads the extents of a program of the host. Throws StatusError if one of them cannot be.
  explicit ProgramExtents(const bp_program& theirs);

  // Reads what write_to() wrote, from words[position] on, and moves `position` behind it. Throws
  // StatusError.
  ProgramExtents(const std::vector<uint64_t>& words, size_t& position);
  void write_to(std::vector<uint64_t>& words) const;

  bool empty() const { return extents_.empty(); }
  size_t size() const { return extents_.size(); }
  bool is_range(size_t i) const { return extents_[i].is_range(); }

  // Returns whether an entry is a number, or names one of the extents.
  bool knows(int64_t entry) const {
    return entry >= 0 || static_cast<uint64_t>(-(entry + 1)) < extents_.size();
  }

  // Returns the numbers of a launch whose ranges are in `ranges`, which has a place for each
  // extent. Throws StatusError of BP_INVALID_ARGUMENT, whose text begins with `subject` and names
  // the extent, for a number outside of its range, and for a formula without a result.
  ExtentNumbers evaluated(const ExtentNumbers& ranges, const std::string& subject) const;

  // Returns the numbers if all ranges are at their ends, or preferred.
  ExtentNumbers smallest() const;
  ExtentNumbers preferred() const;
  ExtentNumbers largest() const;

  // Returns numbers that those of no launch exceed. INT64_MAX stands for those of more than 63
  // bits.
  ExtentNumbers bounds() const;

 private:
  void check(size_t index) const;
  ExtentNumbers at(int64_t ProgramExtent::*end, const char* subject) const;

  std::vector<ProgramExtent> extents_;
};

}  // namespace bp
