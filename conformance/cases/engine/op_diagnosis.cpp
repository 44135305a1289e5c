#include <algorithm>
#include <array>

#include "conformance/cases/engine/op_engine.hpp"

namespace bp::conformance {
namespace {

bool passes(Context& t, const OpCase& op_case, const CallData& data, const Variant& variant) {
  const Observation seen = observe(t, op_case, data, variant);
  return seen.launch_status == BP_OK && seen.stream_status == BP_OK &&
         judge(op_case, data, seen).is_right();
}

bool has_broadcast(const OpCase& op_case) {
  for (const TensorArgument& argument : op_case.tensors) {
    if (is_broadcast(argument.layout)) return true;
  }
  return false;
}

// Returns whether all rows can have the same distance. A matrix beside a much longer row would fill
// gigabytes.
bool takes_equal_rows(const OpCase& op_case) {
  constexpr int64_t kMaxElements = int64_t{1} << 22;
  int64_t longest = 1, rows = 0;
  for (const TensorArgument& argument : op_case.tensors) {
    if (argument.shape.empty()) continue;
    longest = std::max(longest, argument.shape.back());
    if (argument.shape.size() < 2 || argument.shape.back() == 0) continue;
    rows = std::max(rows, element_count(argument.shape) / argument.shape.back());
  }
  return rows > 0 && rows <= kMaxElements / longest;
}

// Returns `data` with zeros from `first` on along `axis` of one input.
CallData without_tail(CallData data, size_t tensor, size_t axis, int64_t first) {
  HostTensor& changed = data.tensors()[tensor];
  for (size_t i = 0; i < changed.data.size(); ++i) {
    if (coordinates(static_cast<int64_t>(i), changed.shape)[axis] >= first) changed.data[i] = 0.0;
  }
  return data;
}

// Calls test(data without the tail of one axis of one input) until it holds. With `takes_all`, the
// tail may be the whole of an axis below 16.
template <typename Test>
bool any_tail(const OpCase& op_case, const CallData& data, bool takes_all, Test test) {
  for (size_t i = 0; i < op_case.tensors.size(); ++i) {
    const TensorArgument& argument = op_case.tensors[i];
    const bool is_data = is_float(argument.dtype) && argument.fill.kind != FillKind::kIndex;
    if (argument.role == Role::kOutput || !is_data || is_broadcast(argument.layout)) continue;
    for (size_t axis = argument.shape.size(); axis-- > 0;) {
      for (const int64_t tile : {64, 32, 16, 8, 4}) {
        const int64_t extent = argument.shape[axis];
        if (extent % tile == 0 || (extent < tile && !(takes_all && tile == 16))) continue;
        if (test(without_tail(data, i, axis, extent - extent % tile))) return true;
      }
    }
  }
  return false;
}

// Each of up to forty tests for a tail computes the oracle again, so long cases would take minutes.
bool takes_tail_tests(const OpCase& op_case) {
  constexpr int64_t kMaxElements = int64_t{1} << 17;
  return std::ranges::all_of(op_case.tensors, [](const TensorArgument& argument) {
    return element_count(argument.shape) <= kMaxElements;
  });
}

// Returns whether the fault lies behind the last whole tile of an axis: the results are right if
// that part of an input counts as zero, or the failure is gone without that part.
bool is_tail(Context& t, const OpCase& op_case, const CallData& data, const Observation& seen,
             const Variant& variant) {
  const auto explains = [&](const CallData& zeroed) {
    return judge(op_case, zeroed, seen).is_right();
  };
  const auto heals = [&](const CallData& zeroed) { return passes(t, op_case, zeroed, variant); };
  if (any_tail(op_case, data, true, explains)) return true;
  return any_tail(op_case, data, false, heals);
}

}  // namespace

std::string diagnose(Context& t, const OpCase& op_case, const CallData& data,
                     const Observation& seen, const Verdict& verdict) {
  if (verdict.cause != "values" && verdict.cause != "nan" && verdict.cause != "misplaced") {
    return verdict.cause;
  }
  try {
    Variant variant;
    variant.has_offsets = false;
    if (passes(t, op_case, data, variant)) return "offset";
    variant.has_offsets = true;
    variant.has_broadcasts = false;
    if (has_broadcast(op_case) && passes(t, op_case, data, variant)) return "broadcast";
    variant.has_layouts = false;
    if (op_case.layout != "dense" && passes(t, op_case, data, variant)) return "stride";
    variant.has_equal_rows = true;
    if (takes_equal_rows(op_case) && passes(t, op_case, data, variant)) return "stride";
    variant.has_equal_rows = false;
    if (takes_tail_tests(op_case) && is_tail(t, op_case, data, seen, variant)) return "tail";
    variant.has_offsets = false;  // An offset can come from a view that begins at another element.
    if (passes(t, op_case, data, variant)) return "offset";
  } catch (const NoKernel&) {
    // A variant that no kernel takes gives no information.
  }
  return verdict.cause == "misplaced" ? "canary" : verdict.cause;
}

}  // namespace bp::conformance
