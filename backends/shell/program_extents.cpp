#include "backplane/shell/program_extents.hpp"

#include <algorithm>

#include "backplane/shell/boundary.hpp"
#include "backplane/shell/first_size.hpp"
#include "backplane/shell/program_bytes.hpp"

namespace bp {
namespace {

[[noreturn]] void invalid(const std::string& text) { throw StatusError(BP_INVALID_ARGUMENT, text); }

std::string name_of(size_t index) { return "extent " + std::to_string(index); }

// Returns the result of a formula over numbers. Throws StatusError, whose text begins with
// `subject`.
int64_t result_of(bp_extent_kind kind, const std::vector<int64_t>& terms,
                  const std::string& subject) {
  if (kind == BP_EXTENT_MAXIMUM) return std::ranges::max(terms);
  int64_t result = terms[0];
  if (kind == BP_EXTENT_QUOTIENT) {
    const std::string division = std::to_string(terms[0]) + " / " + std::to_string(terms[1]);
    if (terms[1] == 0) invalid(subject + division + " has no result");
    if (result % terms[1] != 0) invalid(subject + division + " has a remainder");
    return result / terms[1];
  }
  for (size_t i = 1; i < terms.size(); ++i) {
    const bool is_too_large = kind == BP_EXTENT_SUM
                                  ? __builtin_add_overflow(result, terms[i], &result)
                                  : __builtin_mul_overflow(result, terms[i], &result);
    if (is_too_large) invalid(subject + "it is more than 63 bits hold");
  }
  return result;
}

int64_t saturated(bp_extent_kind kind, int64_t a, int64_t b) {
  int64_t result = 0;
  const bool is_too_large = kind == BP_EXTENT_SUM ? __builtin_add_overflow(a, b, &result)
                                                  : __builtin_mul_overflow(a, b, &result);
  return is_too_large ? INT64_MAX : result;
}

struct Bounds {
  ExtentNumbers low, high;
};

// Adds the bounds of a formula, whose terms are never negative.
void add_bounds(const ProgramExtent& extent, Bounds& bounds) {
  std::vector<int64_t> low, high;
  for (const int64_t term : extent.terms) {
    low.push_back(number_of(term, bounds.low));
    high.push_back(number_of(term, bounds.high));
  }
  int64_t lowest = low[0], highest = high[0];
  if (extent.kind == BP_EXTENT_QUOTIENT) {
    lowest = high[1] == INT64_MAX ? 0 : low[0] / std::max<int64_t>(high[1], 1);
    highest = high[0] / std::max<int64_t>(low[1], 1);
  } else if (extent.kind == BP_EXTENT_MAXIMUM) {
    lowest = std::ranges::max(low);
    highest = std::ranges::max(high);
  } else {
    for (size_t i = 1; i < low.size(); ++i) {
      lowest = saturated(extent.kind, lowest, low[i]);
      highest = saturated(extent.kind, highest, high[i]);
    }
  }
  bounds.low.push_back(lowest);
  bounds.high.push_back(highest);
}

ProgramExtent read_extent(const bp_program_extent* theirs, const std::string& name) {
  const auto ours =
      read_desc(theirs, kFirstSize<bp_program_extent>, BP_STRUCT_PROGRAM_EXTENT, "compile");
  if (ours.reserved != 0) invalid(name + ": reserved is not 0");
  if (ours.term_count != 0 && ours.terms == nullptr) {
    invalid(name + ": terms is NULL, and term_count is " + std::to_string(ours.term_count));
  }
  return {ours.kind, ours.min, ours.preferred, ours.max,
          std::vector<int64_t>(ours.terms, ours.terms + ours.term_count)};
}

}  // namespace

ProgramExtents::ProgramExtents(const bp_program& theirs) {
  if (theirs.extent_count == 0) return;
  if (theirs.extents == nullptr) {
    invalid("program: extents is NULL, and extent_count is " + std::to_string(theirs.extent_count));
  }
  if (theirs.extent_stride_bytes < kFirstSize<bp_program_extent>) {
    invalid("program: extent_stride_bytes is smaller than the struct of an extent");
  }
  const auto* const bytes = reinterpret_cast<const std::byte*>(theirs.extents);
  for (size_t i = 0; i < theirs.extent_count; ++i) {
    const auto* const extent =
        reinterpret_cast<const bp_program_extent*>(bytes + i * theirs.extent_stride_bytes);
    check_stride(extent, theirs.extent_stride_bytes, "program: extent_stride_bytes");
    extents_.push_back(read_extent(extent, "program: " + name_of(i)));
    check(i);
  }
}

void ProgramExtents::check(size_t index) const {
  const ProgramExtent& extent = extents_[index];
  const std::string subject = "program: " + name_of(index) + ": ";
  if (extent.kind < BP_EXTENT_RANGE || extent.kind > BP_EXTENT_MAXIMUM) {
    throw StatusError(BP_UNSUPPORTED,
                      subject + "kind " + std::to_string(extent.kind) + " is not known");
  }
  const std::string range = std::to_string(extent.min) + ", " + std::to_string(extent.preferred) +
                            ", " + std::to_string(extent.max);
  if (extent.is_range()) {
    if (!extent.terms.empty()) invalid(subject + "a range has no terms");
    const bool is_ordered =
        0 <= extent.min && extent.min <= extent.preferred && extent.preferred <= extent.max;
    if (!is_ordered) {
      invalid(subject + "min, preferred and max are " + range +
              "; they must not fall, and min must be at least 0");
    }
    return;
  }
  if (extent.min != 0 || extent.preferred != 0 || extent.max != 0) {
    invalid(subject + "min, preferred and max are " + range + "; those of a formula are 0");
  }
  const bool is_quotient = extent.kind == BP_EXTENT_QUOTIENT;
  if (is_quotient ? extent.terms.size() != 2 : extent.terms.empty()) {
    invalid(subject + "it has " + std::to_string(extent.terms.size()) +
            " terms; a quotient has 2, and any other formula at least 1");
  }
  for (const int64_t term : extent.terms) {
    if (term >= 0 || static_cast<uint64_t>(-(term + 1)) < index) continue;
    invalid(subject + "the term " + std::to_string(term) + " names " +
            name_of(static_cast<size_t>(-(term + 1))) + ", and only earlier extents are allowed");
  }
}

ExtentNumbers ProgramExtents::evaluated(const ExtentNumbers& ranges,
                                        const std::string& subject) const {
  ExtentNumbers numbers;
  for (size_t i = 0; i < extents_.size(); ++i) {
    const ProgramExtent& extent = extents_[i];
    if (!extent.is_range()) {
      std::vector<int64_t> terms;
      for (const int64_t term : extent.terms) terms.push_back(number_of(term, numbers));
      numbers.push_back(result_of(extent.kind, terms, subject + ": " + name_of(i) + ": "));
      continue;
    }
    if (ranges[i] < extent.min || ranges[i] > extent.max) {
      invalid(subject + ": " + name_of(i) + " is " + std::to_string(ranges[i]) + "; its range is " +
              std::to_string(extent.min) + " to " + std::to_string(extent.max));
    }
    numbers.push_back(ranges[i]);
  }
  return numbers;
}

ExtentNumbers ProgramExtents::at(int64_t ProgramExtent::*end, const char* subject) const {
  ExtentNumbers ranges;
  for (const ProgramExtent& extent : extents_) ranges.push_back(extent.*end);
  return evaluated(ranges, subject);
}

ExtentNumbers ProgramExtents::smallest() const {
  return at(&ProgramExtent::min, "program: with each range at min");
}

ExtentNumbers ProgramExtents::preferred() const {
  return at(&ProgramExtent::preferred, "program: with each range at preferred");
}

ExtentNumbers ProgramExtents::largest() const {
  return at(&ProgramExtent::max, "program: with each range at max");
}

ExtentNumbers ProgramExtents::bounds() const {
  Bounds bounds;
  for (const ProgramExtent& extent : extents_) {
    if (extent.is_range()) {
      bounds.low.push_back(extent.min);
      bounds.high.push_back(extent.max);
    } else {
      add_bounds(extent, bounds);
    }
  }
  return bounds.high;
}

// ---- Words --------------------------------------------------------------------------------------

void ProgramExtents::write_to(std::vector<uint64_t>& words) const {
  words.push_back(extents_.size());
  for (const ProgramExtent& extent : extents_) {
    words.push_back(extent.kind);
    for (const int64_t number : {extent.min, extent.preferred, extent.max}) {
      words.push_back(static_cast<uint64_t>(number));
    }
    words.push_back(extent.terms.size());
    words.insert(words.end(), extent.terms.begin(), extent.terms.end());
  }
}

ProgramExtents::ProgramExtents(const std::vector<uint64_t>& words, size_t& position) {
  const auto next_number = [&] { return static_cast<int64_t>(next_word(words, position)); };
  for (uint64_t left = next_count(words, position); left > 0; --left) {
    ProgramExtent& extent = extents_.emplace_back();
    extent.kind = static_cast<bp_extent_kind>(next_word(words, position));
    for (int64_t* const number : {&extent.min, &extent.preferred, &extent.max}) {
      *number = next_number();
    }
    for (uint64_t n = next_count(words, position); n > 0; --n)
      extent.terms.push_back(next_number());
    check(extents_.size() - 1);
  }
}

}  // namespace bp
