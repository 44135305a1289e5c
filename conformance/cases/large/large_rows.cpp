// The list of large calls, from the ops of the other sources of this folder.
#include "conformance/cases/large/large_rows.hpp"

#include <algorithm>

#include "conformance/cases/large/large_builder.hpp"

namespace bp::conformance {
namespace {

std::vector<LargeOp> large_ops() {
  std::vector<LargeOp> ops;
  for (const auto table : {large_line_ops(), large_product_ops(), large_table_ops()}) {
    ops.insert(ops.end(), table.begin(), table.end());
  }
  return ops;
}

// Returns the first dense row of the op and the dtype that is a right call and needs no later part
// of the spec. Its oracle, derived inputs and further attributes are those of the large calls.
const OpCase* model_of(const OpCases& rows, uint32_t op, bp_dtype dtype) {
  const auto found = std::ranges::find_if(rows, [&](const OpCase& row) {
    return row.op == op && row.dtype == dtype_text(dtype) && row.layout == "dense" &&
           !row.fails_on_device && row.optional_part.empty();
  });
  return found == rows.end() ? nullptr : &*found;
}

constexpr bp_dtype kDtypes[] = {BP_F32, BP_F16, BP_BF16, BP_I32};

}  // namespace

LargeCall start_large(const OpCase& model, const std::string& detail, Tier tier) {
  LargeCall call{model, {}, tier};
  call.period.fill = "large";
  call.period.detail = detail;
  call.period.tensors.clear();
  call.period.is_exact = false;
  return call;
}

std::vector<LargeCall> large_calls(const OpCases& rows) {
  std::vector<LargeCall> calls;
  add_large_elements(rows, calls);
  for (const LargeOp& op : large_ops()) {
    for (const bp_dtype dtype : kDtypes) {
      const OpCase* const model = model_of(rows, op.op, dtype);
      if (model == nullptr) continue;
      Builder builder(*model, dtype, calls);
      op.add(builder);
    }
  }
  return calls;
}

}  // namespace bp::conformance
