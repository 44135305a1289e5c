// The measured calls as data. Each row takes a case of the suite, which brings the oracle, and
// gives it the shapes of real work.
#pragma once

#include <string>
#include <vector>

#include "conformance/cases/engine/op_case.hpp"

namespace bp::conformance {

struct PerfShape {
  std::string_view tensor;  // Of a list: once for each of its tensors, in order.
  Shape shape;
};

struct PerfRow {
  uint32_t op = 0;
  const char* what;  // The third part of the id.
  const char* base;  // The case of the suite behind its dtype: "random.17.dense".
  std::vector<bp_dtype> dtypes;
  std::vector<PerfShape> shapes;      // Of inputs and inouts, and of outputs that do not follow.
  std::vector<Attribute> attributes;  // Those that differ from the base.
  int64_t index_end = 0;              // Above the largest index; 0: the call has none.
};

// The lists, each a table at the end of its file.
void add_element_rows(std::vector<PerfRow>& rows);  // Element-wise ops, copies, look-ups.
void add_line_rows(std::vector<PerfRow>& rows);     // Reductions, norms, sorting, losses.
void add_product_rows(std::vector<PerfRow>& rows);  // Products, windows, attention.

struct PerfCall {
  std::string id;     // "perf.matmul.square512.f32".
  std::string group;  // That of the suite.
  OpCase op_case;
};

// Every row in each of its dtypes. Throws std::logic_error where a row names a case that the suite
// does not have, or makes no legal call.
std::vector<PerfCall> perf_calls();

}  // namespace bp::conformance
