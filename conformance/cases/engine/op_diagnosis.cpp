#include <algorithm>
#include <array>
#include <cmath>

#include "conformance/cases/engine/op_engine.hpp"

namespace bp::conformance {
namespace {

bool has_run(const Observation& seen) {
  return seen.launch_status == BP_OK && seen.stream_status == BP_OK;
}

bool passes(const OpCase& op_case, const CallData& data, const Observation& seen) {
  return has_run(seen) && judge(op_case, data, seen).is_right();
}

bool passes(Context& t, const OpCase& op_case, const CallData& data, const Variant& variant) {
  return passes(op_case, data, observe(t, op_case, data, variant));
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

// A part of one axis of one input: the coordinates in [first, last).
struct Part {
  size_t tensor, axis;
  int64_t first, last;
};

// Returns `data` with other numbers in a part: value(tensor, place) gives them.
template <typename Value>
CallData changed(CallData data, const Part& part, Value value) {
  HostTensor& tensor = data.tensors()[part.tensor];
  const std::vector<DoubleDouble> before = tensor.data;
  for (size_t i = 0; i < before.size(); ++i) {
    Shape place = coordinates(static_cast<int64_t>(i), tensor.shape);
    const int64_t at = place[part.axis];
    if (at >= part.first && at < part.last) tensor.data[i] = value(before, place);
  }
  return data;
}

CallData without(const CallData& data, const Part& part) {
  return changed(data, part, [](const auto&, const Shape&) { return DoubleDouble(0.0); });
}

// Returns `data` with the numbers of the beginning of the axis in a part.
CallData as_at_beginning(const CallData& data, const Part& part) {
  const Shape& shape = data.tensors()[part.tensor].shape;
  return changed(data, part, [&](const std::vector<DoubleDouble>& before, Shape place) {
    place[part.axis] -= part.first;
    int64_t index = 0;
    for (size_t axis = 0; axis < shape.size(); ++axis) index = index * shape[axis] + place[axis];
    return before[static_cast<size_t>(index)];
  });
}

// Calls test(part) for the tail of each axis of each input, until it holds.
template <typename Test>
bool any_tail(const OpCase& op_case, Test test) {
  for (size_t i = 0; i < op_case.tensors.size(); ++i) {
    const TensorArgument& argument = op_case.tensors[i];
    const bool is_data = is_float(argument.dtype) && argument.fill.kind != FillKind::kIndex;
    if (argument.role == Role::kOutput || !is_data || is_broadcast(argument.layout)) continue;
    for (size_t axis = argument.shape.size(); axis-- > 0;) {
      for (const int64_t tile : {64, 32, 16, 8, 4}) {
        const int64_t extent = argument.shape[axis];
        if (extent % tile == 0 || extent < tile) continue;
        if (test(Part{i, axis, extent - extent % tile, extent})) return true;
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

// Returns whether the fault lies behind the last whole tile of an axis: the wrong elements are just
// those, or the results are right if that part of an input counts as zero, or the failure is gone
// without that part. A failure that is also gone without a part of the same size at the beginning,
// or with the numbers of the beginning in that part, comes from the numbers and not from the place.
bool is_tail(Context& t, const OpCase& op_case, const CallData& data, const Observation& seen,
             const Variant& variant) {
  const Verdict verdict = judge(op_case, data, seen);
  if (verdict.fills_a_tail) return true;
  const auto explains = [&](const Part& part) {
    return judge(op_case, without(data, part), seen).is_right();
  };
  const auto heals = [&](const Part& part) {
    if (!passes(t, op_case, without(data, part), variant)) return false;
    const Part beginning{part.tensor, part.axis, 0, part.last - part.first};
    return !passes(t, op_case, without(data, beginning), variant) &&
           !passes(t, op_case, as_at_beginning(data, part), variant);
  };
  // Zeros in place of the right values prove nothing, because no input gives zeros too.
  if (verdict.has_nonzero_mistake && any_tail(op_case, explains)) return true;
  return any_tail(op_case, heals);
}

// One number in all elements is what a shrunk call has.
bool is_of_special_values(const Fill& fill) {
  using enum FillKind;
  if (fill.kind == kUniform && (fill.low == fill.high || std::isnan(fill.low))) return true;
  return fill.kind == kSpecial || fill.kind == kSpecialSlow || fill.kind == kSpecialNth ||
         fill.kind == kSparse || fill.kind == kAllBits;
}

// Returns the call with ordinary numbers in place of special ones. `out_has_changed` says whether
// it had any.
OpCase with_ordinary_values(OpCase op_case, bool& out_has_changed) {
  out_has_changed = false;
  for (TensorArgument& argument : op_case.tensors) {
    if (argument.role == Role::kOutput || !is_of_special_values(argument.fill)) continue;
    argument.fill = is_float(argument.dtype) ? Fill{FillKind::kUniform, 0.5, 1.5} : kExactNarrow;
    out_has_changed = true;
  }
  return op_case;
}

// Only then can the thread be the cause, because the second launch alone has its own.
bool differs_between_launches(const Observation& seen) {
  return std::ranges::any_of(seen.outputs, [](const OutputView& o) { return !o.is_repeatable; });
}

// Returns the cause if it is a place, which variants of the call without one property show; else
// "".
std::string place_cause(Context& t, const OpCase& op_case, const CallData& data,
                        const Observation& seen) {
  Variant variant;
  variant.has_threads = false;
  if (differs_between_launches(seen) && passes(t, op_case, data, variant)) return "thread";
  variant.has_threads = true;
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
  return passes(t, op_case, data, variant) ? "offset" : "";
}

// Returns whether the wrong elements of the first launch on `data` have the values of a launch
// before it.
bool holds_old_results(const OpCase& op_case, const CallData& data, const Observation& seen,
                       const Observation& before) {
  const auto [numerics, all] = expectation(op_case, data, seen.numerics());
  bool is_wrong = false;
  for (size_t i = 0; i < seen.outputs.size(); ++i) {
    OutputView first = seen.outputs[i];
    if (first.first_value.empty()) continue;
    first.value.swap(first.first_value);
    for (size_t at = 0; at < first.value.size(); ++at) {
      if (is_right(first, all[i], static_cast<int64_t>(at), numerics)) continue;
      if (first.value[at] != before.outputs[i].value[at]) return false;
      is_wrong = true;
    }
  }
  return is_wrong;
}

// Returns the cause where launching the call again gives right results.
std::string passing_cause(Context& t, const OpCase& op_case, const Observation& before) {
  const CallData other(op_case, t.seed() + 1);
  const Observation seen = observe(t, op_case, other, {});
  const bool is_old = has_run(seen) && holds_old_results(op_case, other, seen, before);
  return is_old ? "stale" : "intermittent";
}

}  // namespace

std::string diagnose(Context& t, const OpCase& op_case, const CallData& data,
                     const Observation& seen, const Verdict& verdict) {
  if (verdict.cause != "values" && verdict.cause != "nan" && verdict.cause != "misplaced") {
    return verdict.cause;
  }
  std::string otherwise = verdict.cause == "misplaced" ? "canary" : verdict.cause;
  try {
    const Observation same = observe(t, op_case, data, {});
    if (passes(op_case, data, same)) return passing_cause(t, op_case, same);
    bool has_changed = false;
    const OpCase ordinary = with_ordinary_values(op_case, has_changed);
    std::string place;
    if (has_changed && verdict.cause != "misplaced") {
      const CallData numbers(ordinary, t.seed());
      const Observation again = observe(t, ordinary, numbers, {});
      if (judge(ordinary, numbers, again).is_right()) return otherwise;
      place = place_cause(t, ordinary, numbers, again);
    } else {
      place = place_cause(t, op_case, data, seen);
    }
    if (!place.empty()) return place;
  } catch (const NoKernel&) {
    // A variant that no kernel takes gives no information.
  }
  return otherwise;
}

}  // namespace bp::conformance
