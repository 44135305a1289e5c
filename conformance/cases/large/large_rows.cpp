// The list of large calls, from the ops of the other sources of this folder.
#include "conformance/cases/large/large_rows.hpp"

#include <algorithm>
#include <optional>
#include <utility>

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
// Other dtypes, which have medium calls only.
constexpr bp_dtype kMoreDtypes[] = {BP_F64, BP_I64, BP_I16, BP_I8, BP_U8};

void add_calls(const OpCases& rows, const LargeOp& op, bp_dtype dtype,
               std::vector<LargeCall>& calls) {
  const OpCase* const model = model_of(rows, op.op, dtype);
  if (model == nullptr) return;
  Builder builder(*model, dtype, calls);
  op.add(builder);
}

// Returns the extent that takes the place of a large one. Equal extents stay equal.
int64_t medium_extent(int64_t extent) {
  if (extent > kAbove16) return extent > kRows ? kAbove16 : 4129;
  return extent > 4096 ? 1289 : extent;
}

// Returns a call with the period of `call` and fewer repetitions, which is fast enough for tier
// smoke; nothing if there is none.
std::optional<LargeCall> medium(LargeCall call) {
  constexpr int64_t kMostElements = 400'000;
  int64_t elements = 0;
  for (size_t i = 0; i < call.growths.size(); ++i) {
    Growth& growth = call.growths[i];
    const Shape& period = call.period.tensors[i].shape;
    for (size_t axis = 0; axis < period.size(); ++axis) {
      int64_t& extent = growth.shape[axis];
      if (extent != period[axis]) extent = std::max(period[axis], medium_extent(extent));
    }
    growth.index_end = medium_extent(growth.index_end);
    elements += element_count(growth.shape);
  }
  if (elements > kMostElements) return std::nullopt;
  call.period.fill = "medium";
  return call;
}

// Only f32 has large calls at tier smoke. Other dtypes have medium ones there, and large ones at
// tier quick if `has_large`.
void add_for_other_dtype(std::vector<LargeCall> made, bool has_large,
                         std::vector<LargeCall>& calls) {
  for (LargeCall& call : made) {
    if (call.tier == Tier::kSmoke) {
      if (auto smaller = medium(call)) calls.push_back(*std::move(smaller));
      call.tier = Tier::kQuick;
    }
    if (has_large) calls.push_back(std::move(call));
  }
}

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
      std::vector<LargeCall> made;
      add_calls(rows, op, dtype, dtype == BP_F32 ? calls : made);
      add_for_other_dtype(std::move(made), true, calls);
    }
    for (const bp_dtype dtype : kMoreDtypes) {
      std::vector<LargeCall> made;
      add_calls(rows, op, dtype, made);
      add_for_other_dtype(std::move(made), false, calls);
    }
  }
  return calls;
}

}  // namespace bp::conformance
