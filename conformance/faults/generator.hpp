// Draws faults by a seed: each combination of an op or an entry, a place, a condition and a kind
// that the backend can have.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "conformance/faults/fault.hpp"

namespace bp::faults {

// An op of which the backend has kernels, and the dtypes that their claims name.
struct Subject {
  std::string op;
  std::vector<std::string> dtypes;
};

// Returns "values", "tables.order", ...: faults of one family are found, or missed, in one way.
std::string family_of(const Fault& fault);

// Returns all families, for messages.
std::vector<std::string> families();

class Generator {
 public:
  // `wanted` is a family, or "" for all. No fault comes twice.
  Generator(uint64_t seed, std::vector<Subject> subjects, std::string wanted);

  // Returns the next fault. Returns nothing if no more can be found.
  std::optional<Fault> next();

 private:
  uint64_t below(uint64_t count);
  Fault draw();
  Fault draw_kernel_fault();
  Fault draw_entry_fault();
  bool can_be(const Fault& fault) const;

  uint64_t seed_;
  uint64_t drawn_ = 0;
  std::vector<Subject> subjects_;
  std::string wanted_;
  std::set<std::string> known_;
};

}  // namespace bp::faults
