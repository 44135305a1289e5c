// The measured calls as data. Each row takes a case of the suite, which has an oracle, and gives it
// the shapes of real work.
#pragma once

#include <string>
#include <vector>

#include "conformance/cases/engine/op_case.hpp"

namespace bp::conformance {

struct PerfShape {
  std::string_view tensor;  // The name of the tensor; a list has one entry for each of its tensors,
                            // in order.
  Shape shape;
};

struct PerfRow {
  uint32_t op = 0;
  const char* what;  // The third part of the id.
  const char* base;  // The id of a case of the suite without its dtype: "random.17.dense".
  std::vector<bp_dtype> dtypes;
  std::vector<PerfShape> shapes;      // The shapes of inputs and inouts, and of outputs whose shape
                                      // does not follow.
  std::vector<Attribute> attributes;  // The attributes that differ from the base.
  int64_t index_end = 0;              // The end of the range of indices; 0 if the call has no index
                                      // input.
};

// Each function adds the table at the end of its file.
void add_element_rows(std::vector<PerfRow>& rows);  // Element-wise ops, copies, look-ups.
void add_line_rows(std::vector<PerfRow>& rows);     // Reductions, norms, transforms.
void add_image_rows(std::vector<PerfRow>& rows);    // Losses, norms of channels, resampling.
void add_model_rows(std::vector<PerfRow>& rows);    // Scans, selection, gates, cells, steps.
void add_product_rows(std::vector<PerfRow>& rows);  // Products, windows, attention.

struct PerfCall {
  std::string id;     // The id, such as "perf.matmul.square512.f32".
  std::string group;  // The group of the base case.
  OpCase op_case;
};

// Returns every row in each of its dtypes. Throws std::logic_error if a row names a case that the
// suite lacks, or makes no legal call.
std::vector<PerfCall> perf_calls();

}  // namespace bp::conformance
