// What the oracle and the cases of a reduction follow from: a row of the list that
// emit_reductions.py writes.
#pragma once

#include "conformance/cases/ops/elementwise_row.hpp"

namespace bp::conformance::reductions {

using elementwise::Dtypes;

struct Row {
  uint32_t op;
  Dtypes dtypes;
  bool gives_i64 = false;  // Where the elements are no floats.
  bool adds = false;       // Else the largest result counts.
  bool has_shift = false;
  bool has_map = false;
  bool has_finish = false;
  bool copies_one = false;  // Without axes the result is x in each bit.
  bool is_long = false;     // With functions that may be off to one side, as exp.
};

}  // namespace bp::conformance::reductions
