#include "conformance/cases/engine/op_judge.hpp"

#include <algorithm>
#include <cmath>

#include "conformance/cases/engine/op_mistakes.hpp"
#include "conformance/cases/engine/op_words.hpp"
#include "conformance/numerics/narrow_format.hpp"
#include "conformance/numerics/whole_tensor.hpp"

namespace bp::conformance {
namespace {

// Returns the value as an integer type holds it: wrapped to its width.
DoubleDouble wrapped(bp_dtype dtype, DoubleDouble value) {
  std::byte bytes[8] = {};
  store_element(dtype, value, bytes);
  return load_element(dtype, bytes);
}

// Returns whether a number of a narrow format is the exact one. The signs of zeros count.
bool is_same_number(DoubleDouble y, DoubleDouble exact) {
  if (isnan(exact)) return isnan(y);
  return y == exact && std::signbit(y.hi) == std::signbit(exact.hi);
}

// The bad elements of one output.
struct BadElements {
  std::vector<int64_t> indices;
  bool are_nan = true;        // All bad elements are NaN and should not be.
  bool are_unwritten = true;  // All bad elements still have their values from before the launch.
};

BadElements find_bad(const OutputView& output, const Expected& expected, const Numerics& numerics) {
  BadElements bad;
  for (int64_t i = 0; i < static_cast<int64_t>(output.value.size()); ++i) {
    const auto at = static_cast<size_t>(i);
    const bool holds_poison = output.is_poisoned && output.is_unwritten[at];
    if (!holds_poison && is_right(output, expected, i, numerics)) continue;
    bad.indices.push_back(i);
    bad.are_unwritten = bad.are_unwritten && output.is_unwritten[at];
    bad.are_nan = bad.are_nan && isnan(output.value[at]) && !isnan(expected.value[at]);
  }
  return bad;
}

// Returns which element was read, according to the value of the `coord` fill.
std::string read_from(const OpCase& op_case, const CallData& data, DoubleDouble y) {
  for (const TensorArgument& argument : op_case.tensors) {
    if (argument.fill.kind != FillKind::kCoord || argument.role == Role::kOutput) continue;
    const HostTensor& source = data.tensor(argument.name);
    const auto found =
        std::ranges::find_if(source.data, [&](const DoubleDouble& value) { return value == y; });
    if (found == source.data.end()) continue;
    return "; that is element " + place_text(found - source.data.begin(), source.shape) + " of " +
           std::string(source.name);
  }
  return "";
}

std::string describe(const OpCase& op_case, const CallData& data, const OutputView& output,
                     const Expected& expected, int64_t index, const Numerics& numerics) {
  const auto i = static_cast<size_t>(index);
  const Exact exact = exact_at(expected, index);
  std::string text = std::string(output.name) + place_text(index, output.shape) + " is " +
                     element_text(output.dtype, output.value[i]) + " (" +
                     bits_text(output.dtype, output.bits[i]) + "), not " +
                     element_text(output.dtype, exact.value) + " (" +
                     bits_of(output.dtype, exact.value) + ")";
  if (is_float(output.dtype) && !isnan(exact.value) && exact.bound != 0) {
    const Interval interval = accepted_interval(output.dtype, exact, numerics);
    text += " within [" + element_text(output.dtype, interval.low) + ", " +
            element_text(output.dtype, interval.high) + "]";
  }
  return text + read_from(op_case, data, output.value[i]);
}

void explain_bad(const OpCase& op_case, const CallData& data, const OutputView& output,
                 size_t output_number, const Expected& expected, const Numerics& numerics,
                 Verdict& verdict) {
  const BadElements bad = find_bad(output, expected, numerics);
  if (bad.indices.empty()) return;
  int64_t worst = bad.indices.front();
  double worst_margin = 0;
  for (const int64_t i : bad.indices) {
    if (!is_float(output.dtype)) break;
    const double m =
        margin(output.dtype, output.value[static_cast<size_t>(i)].hi, exact_at(expected, i));
    if (m > worst_margin) worst = i, worst_margin = m;
  }
  verdict.cause = bad.are_unwritten ? "unwritten" : bad.are_nan ? "nan" : "values";
  verdict.tag = bad.are_unwritten ? "KERNEL-9" : "KERNEL-8";
  verdict.message = describe(op_case, data, output, expected, bad.indices.front(), numerics);
  if (worst != bad.indices.front()) {
    verdict.message += "; worst: " + describe(op_case, data, output, expected, worst, numerics);
  }
  const Mistakes mistakes{output, expected, bad.indices};
  verdict.wrong_output = output_number;
  verdict.wrong_element = worst;
  verdict.value = value_of(mistakes);
  verdict.place = place_of(mistakes);
  verdict.fills_a_tail = fill_a_tail(mistakes);
  verdict.has_nonzero_mistake = std::ranges::any_of(bad.indices, [&](int64_t i) {
    return output.value[static_cast<size_t>(i)] != DoubleDouble(0.0);
  });
  verdict.message += "; " + std::to_string(bad.indices.size()) + " of " +
                     std::to_string(output.value.size()) + " elements are wrong: " + verdict.value +
                     "; place: " + verdict.place;
  if (bad.are_unwritten) verdict.message += ", still hold their values from before the launch";
}

void measure(const OutputView& output, const Expected& expected, const Numerics& numerics,
             Verdict& verdict) {
  SignedBias bias;
  Trust trust;
  for (int64_t i = 0; i < static_cast<int64_t>(output.value.size()); ++i) {
    const auto at = static_cast<size_t>(i);
    trust.add(expected.value[at]);
    if (!is_float(output.dtype)) continue;
    const double y = output.value[at].hi;
    const double m = margin(output.dtype, y, exact_at(expected, i));
    if (m > verdict.margin) {
      verdict.margin = m;
      verdict.worst = std::string(output.name) + place_text(i, output.shape);
    }
    const double magnitude = expected.magnitude.empty() ? 0 : expected.magnitude[at];
    if (expected.checks_bias) bias.add(output.dtype, y, expected.value[at], magnitude, numerics);
  }
  verdict.outputs += output.value.size();
  verdict.zero_share = std::max(verdict.zero_share, trust.zero_share());
  verdict.is_mistrusted = verdict.is_mistrusted || trust.is_mistrusted();
  if (bias.is_suspicious()) verdict.is_biased = true;
  if (std::fabs(bias.mean()) > std::fabs(verdict.bias)) verdict.bias = bias.mean();
}

bp_dtype first_dtype(const Observation& seen) {
  return seen.outputs.empty() ? bp_dtype{BP_F32} : seen.outputs.front().dtype;
}

// Returns whether the data need no rounding in the declared arithmetic. Reduced products hold small
// integers exactly, and narrow accumulators only some sums.
bool stays_exact(const OpCase& op_case, const Numerics& numerics) {
  const bool has_whole_inputs = numerics.product == 0 || op_case.fill == "exact_dense";
  return op_case.is_exact && has_whole_inputs && numerics.accumulator <= 0x1p-24;
}

// Rounding errors of terms of one sign add up, so such results and relaxed math have the bound
// without statistics. Results beyond the statistical bound are suspicious.
bool has_wide_bound(const OpCase& op_case, const Numerics& numerics) {
  return !numerics.linear_growth && (numerics.relaxed || op_case.fill == "positive");
}

void find_suspicious(const OpCase& op_case, const CallData& data, const Observation& seen,
                     const Numerics& numerics, Verdict& verdict) {
  const std::vector<Expected> all = op_case.expected(data, numerics);
  for (size_t i = 0; i < seen.outputs.size() && verdict.suspicion.empty(); ++i) {
    const BadElements bad = find_bad(seen.outputs[i], all[i], numerics);
    if (bad.indices.empty()) continue;
    verdict.suspicion =
        "beyond the statistical bound: " +
        describe(op_case, data, seen.outputs[i], all[i], bad.indices.front(), numerics) + "; " +
        std::to_string(bad.indices.size()) + " elements";
  }
}

// Says whether an element is the right value, or close enough to it.
bool matches(bp_dtype dtype, const Expected& expected, int64_t index, DoubleDouble y,
             const Numerics& numerics) {
  const Exact exact = exact_at(expected, index);
  const bool is_close = is_float(dtype)        ? accept(dtype, y.hi, exact, numerics)
                        : narrow_format(dtype) ? is_same_number(y, exact.value)
                                               : y == wrapped(dtype, exact.value);
  return is_close || (expected.also_right && expected.also_right(index, y));
}

// A kernel that flushes subnormal inputs may do so in some of its steps and keep bits in others, so
// each element may be that of the data as they are, or of the flushed data.
void accept_flushed(const OpCase& op_case, const CallData& data, const Observation& seen,
                    std::vector<Expected>& all) {
  Expectation other = expectation(op_case, flushed(data), seen.numerics());
  for (size_t i = 0; i < seen.outputs.size(); ++i) {
    all.at(i).also_right =
        [before = all.at(i).also_right, expected = std::move(other.outputs.at(i)),
         dtype = seen.outputs[i].dtype, numerics = other.numerics](int64_t index, DoubleDouble y) {
          return (before && before(index, y)) || matches(dtype, expected, index, y, numerics);
        };
  }
}

Verdict judge_with(const OpCase& op_case, const CallData& data, const Observation& seen,
                   bool accepts_flushed) {
  Verdict verdict;
  auto [numerics, all] = expectation(op_case, data, seen.numerics());
  if (accepts_flushed) accept_flushed(op_case, data, seen, all);
  for (size_t i = 0; i < seen.outputs.size(); ++i) {
    const OutputView& output = seen.outputs[i];
    const Expected& expected = all.at(i);
    if (verdict.is_right()) explain_bad(op_case, data, output, i, expected, numerics, verdict);
    if (verdict.is_right() && !output.first_value.empty()) {
      OutputView first = output;
      first.value.swap(first.first_value);
      explain_bad(op_case, data, first, i, expected, numerics, verdict);
      if (!verdict.is_right()) verdict.message += ", in the first of two launches alone";
    }
    measure(output, expected, numerics, verdict);
    const bool promises = (seen.kernel->flags & BP_KERNEL_DETERMINISTIC) != 0;
    if (verdict.is_right() && promises && !output.is_repeatable) {
      verdict.cause = "nondeterministic";
      verdict.tag = "KERNEL-6";
      verdict.message = std::string(output.name) + " differs between two launches of one call";
    }
  }
  const Numerics declared = resolve_numerics(seen.numerics(), first_dtype(seen));
  if (verdict.is_right() && has_wide_bound(op_case, declared)) {
    find_suspicious(op_case, data, seen, declared, verdict);
  }
  return verdict;
}

}  // namespace

Exact exact_at(const Expected& expected, int64_t index) {
  const auto i = static_cast<size_t>(index);
  Exact exact{expected.value[i]};
  if (!expected.bound.empty()) exact.bound = expected.bound[i];
  const bool is_free = !expected.free_zero_sign.empty() && expected.free_zero_sign[i];
  exact.sign_of_zero = expected.sign_of_zero && !is_free;
  return exact;
}

CallData flushed(CallData data) {
  for (HostTensor& tensor : data.tensors()) {
    const FloatFormat* format = float_format(tensor.dtype);
    if (format == nullptr) continue;
    for (DoubleDouble& value : tensor.data) {
      if (std::fabs(value.hi) < format->smallest_normal()) value = std::copysign(0.0, value.hi);
    }
  }
  return data;
}

Expectation expectation(const OpCase& op_case, const CallData& data, const bp_numerics* declared) {
  const auto output = std::ranges::find_if(
      op_case.tensors, [](const TensorArgument& a) { return a.role != Role::kInput; });
  Expectation made;
  made.numerics = resolve_numerics(declared, output->dtype);
  const bool is_exact = stays_exact(op_case, made.numerics);
  if (has_wide_bound(op_case, made.numerics)) made.numerics.linear_growth = true;
  made.outputs = op_case.expected(data, made.numerics);
  for (Expected& expected : made.outputs) {
    if (is_exact) expected.bound.clear();
  }
  return made;
}

bool is_right(const OutputView& output, const Expected& expected, int64_t index,
              const Numerics& numerics) {
  return matches(output.dtype, expected, index, output.value[static_cast<size_t>(index)], numerics);
}

Verdict judge(const OpCase& op_case, const CallData& data, const Observation& seen) {
  Verdict verdict = judge_with(op_case, data, seen, false);
  const Numerics numerics = resolve_numerics(seen.numerics(), first_dtype(seen));
  if (!verdict.is_right() && numerics.flush_inputs) {
    const Verdict other = judge_with(op_case, data, seen, true);
    if (other.is_right()) verdict = other;
  }
  if (!seen.modified_input.empty()) {
    verdict.cause = "input_modified";
    verdict.tag = "KERNEL-9";
    verdict.message = seen.modified_input;
  } else if (!seen.damage.empty()) {
    verdict.message = seen.damage + (verdict.is_right() ? "" : "; " + verdict.message);
    // If values are wrong and a canary is damaged, the work went to the wrong place; diagnosis
    // finds the cause.
    verdict.cause = verdict.is_right() ? "canary" : "misplaced";
    verdict.tag = "KERNEL-9";
  }
  return verdict;
}

}  // namespace bp::conformance
