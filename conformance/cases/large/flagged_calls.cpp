// Calls with launch flags, made from plain rows.
#include <map>

#include "conformance/cases/engine/op_facts.hpp"
#include "conformance/cases/large/large_rows.hpp"
#include "conformance/cases/rules/rules.hpp"

namespace bp::conformance {
namespace {

LargeCall flagged(const OpCase& row, const char* name, bp_launch_flags flags) {
  LargeCall call{row, {}, Tier::kSmoke, flags};
  call.period.fill = name;
  for (const TensorArgument& tensor : row.tensors) call.growths.push_back({tensor.shape});
  return call;
}

bool shares_memory(const OpCase& row) {
  for (const TensorArgument& tensor : row.tensors) {
    if (!tensor.alias.empty() || is_packed(tensor.dtype)) return true;
  }
  return false;
}

size_t elements_of(const OpCase& row) {
  size_t count = 0;
  for (const TensorArgument& tensor : row.tensors) {
    count += static_cast<size_t>(element_count(tensor.shape));
  }
  return count;
}

// Returns the largest plain row of f32 for each op.
std::map<uint32_t, const OpCase*> largest_rows(const OpCases& rows) {
  std::map<uint32_t, const OpCase*> largest;
  for (const OpCase& row : rows) {
    if (row.dtype != "f32" || row.fill != "random" || !is_plain(row) || shares_memory(row)) {
      continue;
    }
    const OpCase*& own = largest[row.op];
    if (own == nullptr || elements_of(row) > elements_of(*own)) own = &row;
  }
  return largest;
}

}  // namespace

std::vector<LargeCall> flagged_calls(const OpCases& rows) {
  std::vector<LargeCall> calls;
  for (const auto& [op, row] : largest_rows(rows)) {
    calls.push_back(flagged(*row, "deterministic", BP_LAUNCH_DETERMINISTIC));
    if (!has_class(*row, {"R1", "R6"})) continue;
    calls.push_back(flagged(*row, "strict_f32", BP_LAUNCH_STRICT_F32));
  }
  return calls;
}

}  // namespace bp::conformance
