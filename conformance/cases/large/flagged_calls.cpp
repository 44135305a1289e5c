// Calls with launch flags, made from plain rows.
#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "conformance/cases/engine/op_facts.hpp"
#include "conformance/cases/large/large_rows.hpp"
#include "conformance/cases/rules/rules.hpp"
#include "conformance/numerics/narrow_format.hpp"

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

// Returns whether a tensor has floats of 8 bits.
bool is_narrow(const OpCase& row) {
  return std::ranges::any_of(row.tensors, [](const TensorArgument& tensor) {
    return narrow_format(tensor.dtype) != nullptr;
  });
}

size_t elements_of(const OpCase& row) {
  size_t count = 0;
  for (const TensorArgument& tensor : row.tensors) {
    count += static_cast<size_t>(element_count(tensor.shape));
  }
  return count;
}

// Returns the largest plain row for each op and dtype.
std::map<std::pair<uint32_t, std::string>, const OpCase*> largest_rows(const OpCases& rows) {
  std::map<std::pair<uint32_t, std::string>, const OpCase*> largest;
  for (const OpCase& row : rows) {
    const bool is_random = row.fill == "random" || row.dtype != "f32";
    if (!is_random || !is_plain(row) || shares_memory(row) || is_narrow(row)) continue;
    const OpCase*& own = largest[{row.op, row.dtype}];
    if (own == nullptr || elements_of(row) > elements_of(*own)) own = &row;
  }
  return largest;
}

}  // namespace

std::vector<LargeCall> flagged_calls(const OpCases& rows) {
  std::vector<LargeCall> calls;
  for (const auto& [op_and_dtype, row] : largest_rows(rows)) {
    calls.push_back(flagged(*row, "deterministic", BP_LAUNCH_DETERMINISTIC));
    if (row->dtype != "f32" || !has_class(*row, {"R1", "R6"})) continue;
    calls.push_back(flagged(*row, "strict_f32", BP_LAUNCH_STRICT_F32));
  }
  return calls;
}

}  // namespace bp::conformance
