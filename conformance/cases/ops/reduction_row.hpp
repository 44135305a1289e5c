// A row of the list that emit_reductions.py writes. The oracle and the cases of a reduction follow
// from it.
#pragma once

#include "conformance/cases/ops/elementwise_row.hpp"

namespace bp::conformance::reductions {

using elementwise::Dtypes;

struct Row {
  uint32_t op;
  Dtypes dtypes;
  bool gives_i64 = false;  // The result is i64 if the elements are not floats, or if it is a count.

  // How numbers are combined: exactly one of these is true, unless the formula counts.
  bool adds = false;
  bool multiplies = false;
  bool is_smallest = false;
  bool is_largest = false;

  // The map is a condition, and the formula counts the elements for which it holds. The result is
  // the count, unless the formula asks whether the condition holds for any element, or for all.
  bool counts = false;
  bool is_any = false;
  bool is_all = false;

  bool has_shift = false;
  bool has_map = false;
  bool has_finish = false;
  bool copies_one = false;  // If there are no axes, the result is x in each bit.
  bool is_long = false;     // The formula has functions, such as exp, whose errors may all have one
                            // sign.
};

}  // namespace bp::conformance::reductions
