// Probes of rounding, overflow, subnormals and functions, through the element-wise ops.
//
// The oracle of an op decides which probes it has: data are made for every op, and the op has a
// probe if they give enough ties, overflows or subnormals.
#include <algorithm>
#include <cmath>

#include "conformance/cases/rules/declarations.hpp"
#include "registry/boundary/number_text.hpp"

namespace bp::conformance {
namespace {

constexpr size_t kCount = 131;  // Some whole vectors, and a tail.
using Columns = std::vector<std::vector<double>>;

std::string value_text(double value) { return short_text(value, 17); }

// Returns evidence such as "a = 1, b = 2 gives 3, not 4".
std::string evidence_at(const CallData& data, const OutputView& output, DoubleDouble right,
                        size_t i) {
  std::string text;
  for (const HostTensor& tensor : data.tensors()) {
    if (tensor.role == Role::kOutput || i >= tensor.data.size()) continue;
    text += (text.empty() ? "" : ", ") + std::string(tensor.name) + " = " +
            value_text(tensor.data[i].hi);
  }
  return text + " gives " + value_text(output.value[i].hi) + ", not " + value_text(right.hi);
}

bp_dtype output_dtype(const OpCase& row) {
  const auto found = std::ranges::find_if(
      row.tensors, [](const TensorArgument& argument) { return argument.role != Role::kInput; });
  return found->dtype;
}

// Returns the dtype of the first input that holds numbers.
bp_dtype input_dtype(const OpCase& row) {
  return std::ranges::find_if(row.tensors, holds_numbers)->dtype;
}

std::vector<DoubleDouble> exact_results(const OpCase& row) {
  return row.reference(CallData(row, 0), Numerics{}).front().value;
}

// Returns whether enough of the first results are what a probe looks for. It checks only a few,
// because lists of cases are made often.
template <typename Test>
bool shows(const OpCase& base, Columns columns, Test test) {
  constexpr size_t kSample = 24;
  for (std::vector<double>& column : columns) column.resize(kSample);
  const auto results = exact_results(with_columns(base, std::move(columns)));
  return static_cast<size_t>(std::ranges::count_if(results, test)) >= kSample / 8;
}

// ---- round ------------------------------------------------------------------------------------

bool is_tie(bp_dtype dtype, DoubleDouble r) {
  if (!std::isfinite(r.hi)) return false;
  const DoubleDouble gap = r - DoubleDouble(round_to(dtype, r));
  return gap.hi != 0 && gap.lo == 0 && 2 * std::fabs(gap.hi) == ulp(dtype, r.hi);
}

// Returns numbers of p + 1 bits, which lie in the middle between two numbers of p bits; or factors
// of about half as many bits, whose products are such numbers.
Columns ties(bp_dtype dtype, bool are_factors) {
  const int p = float_format(dtype)->precision;
  const double top = std::ldexp(1.0, p);
  const double first = std::ldexp(1.0, p / 2), second = std::ldexp(1.0, (p + 1) / 2);
  Columns columns(2);
  for (size_t i = 0; i < kCount; ++i) {
    const auto step = static_cast<double>(i);
    const double sign = i % 2 == 0 ? 1 : -1;
    // The data are a tie, and numbers just above and just below a tie.
    const double offsets[] = {0, std::ldexp(1.0, -p / 2), -std::ldexp(1.0, -p / 2)};
    if (are_factors) {
      // Each factor lies below 1.25 times a power of 2, so that the product has p + 1 bits.
      columns[0].push_back(sign * (first + 2 * std::fmod(step, first / 8) + 1));
      columns[1].push_back(second + 2 * std::fmod(step * 7, second / 8) + 1);
    } else {
      columns[0].push_back(sign * (top + 2 * std::fmod(step * 37, top / 4)));
      columns[1].push_back(sign * (1 + offsets[i % 3]));
    }
  }
  return columns;
}

// If an op has one argument, the argument itself is the tie.
Columns sums_of(const Columns& columns) {
  Columns one(1);
  for (size_t i = 0; i < kCount; ++i) one[0].push_back(columns[0][i] + columns[1][i]);
  return one;
}

void probe_round(Context& t, const OpCase& row) {
  const CallData data(row, t.seed());
  const Observation seen = observe_native(t, row, data);
  const Numerics declared = declared_numerics(seen);
  const OutputView& output = seen.outputs.front();
  const std::vector<DoubleDouble> exact = exact_results(row);
  size_t wrong = 0, unfaithful = 0, toward_zero = 0, first = kCount;
  for (size_t i = 0; i < kCount; ++i) {
    const double y = output.value[i].hi, nearest = round_to(output.dtype, exact[i]);
    if (!std::isfinite(nearest) || y == nearest) continue;
    if (first == kCount) first = i;
    ++wrong;
    toward_zero += std::fabs(y) < std::fabs(nearest);
    const bool is_neighbor = y == next_after(output.dtype, nearest, HUGE_VAL) ||
                             y == next_after(output.dtype, nearest, -HUGE_VAL);
    unfaithful += !is_neighbor;
  }
  const std::string says = declared.faithful ? "faithful" : "nearest_even";
  std::string probed = "nearest_even";
  if (wrong > 0) probed = toward_zero == wrong ? "toward zero" : "faithful";
  if (unfaithful > 0) probed = "neither";
  if (unfaithful > 0 || (wrong > 0 && !declared.faithful)) {
    const DoubleDouble right = round_to(output.dtype, exact[first]);
    return report_false(t, "rounding", says, probed, evidence_at(data, output, right, first));
  }
  report_true(t, says, probed);
}

void add_round_probe(Probings& probes, const OpCase& base) {
  const bp_dtype dtype = output_dtype(base);
  const size_t inputs = static_cast<size_t>(std::ranges::count_if(base.tensors, holds_numbers));
  if (!is_float(dtype) || inputs > 2) return;
  for (const bool are_factors : {false, true}) {
    const Columns columns = ties(dtype, are_factors);
    OpCase row = with_columns(base, inputs == 1 ? sums_of(columns) : columns);
    const auto count =
        std::ranges::count_if(exact_results(row), [&](DoubleDouble r) { return is_tie(dtype, r); });
    if (count < 16) continue;
    probes.push_back({"round", std::move(row), probe_round});
    return;
  }
}

// ---- overflow ---------------------------------------------------------------------------------

// Returns numbers just below, at and above the point from which results round beyond the largest
// number.
Columns limits(bp_dtype dtype) {
  const FloatFormat& format = *float_format(dtype);
  const double largest = format.largest(), half = 0.5 * ulp(dtype, largest);
  const double addends[] = {0,
                            0.5 * half,
                            half * (1 - format.unit_roundoff()),
                            half,
                            half * (1 + 2 * format.unit_roundoff()),
                            2 * half,
                            largest};
  Columns columns(2);
  for (size_t i = 0; i < kCount; ++i) {
    const double sign = i % 2 == 0 ? 1 : -1;
    columns[0].push_back(sign * largest);
    columns[1].push_back(sign * addends[i % std::size(addends)]);
  }
  return columns;
}

Columns products_at_the_limit(bp_dtype dtype) {
  const FloatFormat& format = *float_format(dtype);
  const double largest = format.largest(), eps = 2 * format.unit_roundoff();
  const double factors[] = {1, 1 + eps, 1 - 0.5 * eps, 2, 0.5, 3, -1, -1 - eps};
  Columns columns(2);
  for (size_t i = 0; i < kCount; ++i) {
    columns[0].push_back(i % 3 == 0 ? -largest : largest);
    columns[1].push_back(factors[i % std::size(factors)]);
  }
  return columns;
}

bool overflows(bp_dtype dtype, DoubleDouble r) {
  return std::isfinite(r.hi) && std::isinf(round_to(dtype, r));
}

const char* overflow_text(uint32_t mode) {
  constexpr const char* kNames[] = {"ieee", "saturate", "nan"};
  return mode < std::size(kNames) ? kNames[mode] : "unknown";
}

void probe_overflow(Context& t, const OpCase& row) {
  const CallData data(row, t.seed());
  const Observation seen = observe_native(t, row, data);
  const bp_numerics* numerics = seen.kernel->numerics;
  const uint32_t declared = numerics == nullptr ? uint32_t{BP_OVERFLOW_IEEE} : numerics->overflow;
  const OutputView& output = seen.outputs.front();
  const double largest = float_format(output.dtype)->largest();
  const std::vector<DoubleDouble> exact = exact_results(row);
  for (size_t i = 0; i < kCount; ++i) {
    if (std::isnan(exact[i].hi)) continue;
    const double y = output.value[i].hi;
    double right = round_to(output.dtype, exact[i]);
    const bool is_beyond = overflows(output.dtype, exact[i]);
    if (is_beyond && declared == BP_OVERFLOW_SATURATE) right = std::copysign(largest, right);
    if (is_beyond && declared == BP_OVERFLOW_NAN) right = std::nan("");
    if (y == right || (std::isnan(y) && std::isnan(right))) continue;
    const std::string probed = std::isnan(y)             ? "nan"
                               : std::fabs(y) == largest ? "saturate"
                               : std::isinf(y)           ? "ieee"
                                                         : "none of the modes";
    return report_false(t, "overflow", overflow_text(declared), probed,
                        evidence_at(data, output, DoubleDouble(right), i));
  }
  report_true(t, overflow_text(declared), overflow_text(declared));
}

void add_overflow_probe(Probings& probes, const OpCase& base) {
  const bp_dtype dtype = output_dtype(base);
  const size_t inputs = static_cast<size_t>(std::ranges::count_if(base.tensors, holds_numbers));
  if (!is_float(dtype) || inputs > 2) return;
  for (const Columns& both : {limits(dtype), products_at_the_limit(dtype)}) {
    const Columns columns = inputs == 1 ? sums_of(both) : both;
    if (!shows(base, columns, [&](DoubleDouble r) { return overflows(dtype, r); })) continue;
    probes.push_back({"overflow", with_columns(base, columns), probe_overflow});
    return;
  }
}

// ---- ftz --------------------------------------------------------------------------------------

// Returns subnormal numbers at every place of a vector and of its tail. The second argument has
// partners that make the results of other numbers subnormal.
Columns subnormals(bp_dtype dtype) {
  const FloatFormat& format = *float_format(dtype);
  const double tiny = format.smallest_subnormal(), normal = format.smallest_normal();
  const double firsts[] = {tiny, normal - tiny, normal, 3 * tiny, normal / 2, 1.5 * normal};
  const double seconds[] = {1, 0.5, -0.5, tiny, 0, -normal, 4, normal / 4};
  Columns columns(2);
  for (size_t i = 0; i < kCount; ++i) {
    columns[0].push_back((i % 5 == 0 ? -1 : 1) * firsts[i % std::size(firsts)]);
    columns[1].push_back(seconds[i % std::size(seconds)]);
  }
  return columns;
}

CallData without_subnormals(CallData data) {
  for (HostTensor& tensor : data.tensors()) {
    const FloatFormat* format = float_format(tensor.dtype);
    if (format == nullptr) continue;
    for (DoubleDouble& value : tensor.data) {
      if (std::fabs(value.hi) < format->smallest_normal()) value = std::copysign(0.0, value.hi);
    }
  }
  return data;
}

// Returns -1 if all results are those of a kernel that flushes as asked, and is else as exact as it
// declares; or else the first result that is not.
int64_t first_unlike(const OpCase& row, const CallData& data, const OutputView& output,
                     Numerics numerics, bool flushes_inputs, bool flushes_outputs) {
  numerics.flush_inputs = numerics.flush_outputs = false;
  const Expected expected =
      row.expected(flushes_inputs ? without_subnormals(data) : data, numerics).front();
  const FloatFormat* format = float_format(output.dtype);
  for (int64_t i = 0; i < static_cast<int64_t>(output.value.size()); ++i) {
    const auto at = static_cast<size_t>(i);
    const double r = expected.value[at].hi;
    if (flushes_outputs && format != nullptr && std::fabs(r) < format->smallest_normal()) {
      if (output.value[at].hi != 0) return i;
      continue;
    }
    if (!is_right(output, expected, i, numerics)) return i;
  }
  return -1;
}

std::string flush_text(bool inputs, bool outputs) {
  if (inputs && outputs) return "inputs and outputs";
  if (inputs) return "inputs";
  return outputs ? "outputs" : "none";
}

void probe_ftz(Context& t, const OpCase& row) {
  const CallData data(row, t.seed());
  const Observation seen = observe_native(t, row, data);
  const Numerics declared = declared_numerics(seen);
  const OutputView& output = seen.outputs.front();
  std::string probed;
  for (const bool inputs : {false, true}) {
    for (const bool outputs : {false, true}) {
      if (first_unlike(row, data, output, declared, inputs, outputs) >= 0) continue;
      if (probed.empty()) probed = flush_text(inputs, outputs);
    }
  }
  if (probed.empty()) probed = "some and not others";
  const std::string says = flush_text(declared.flush_inputs, declared.flush_outputs);
  const int64_t wrong =
      first_unlike(row, data, output, declared, declared.flush_inputs, declared.flush_outputs);
  if (wrong < 0) return report_true(t, says, probed);
  const auto at = static_cast<size_t>(wrong);
  report_false(t, "flush", says, probed,
               evidence_at(data, output, row.reference(data, {}).front().value[at], at));
}

void add_ftz_probe(Probings& probes, const OpCase& base) {
  const size_t inputs = static_cast<size_t>(std::ranges::count_if(base.tensors, holds_numbers));
  if (inputs > 2) return;
  const Columns columns = subnormals(input_dtype(base));
  // The declaration shows only if it changes a result.
  Columns first = columns;
  for (std::vector<double>& column : first) column.resize(24);
  const OpCase sample = with_columns(base, std::move(first));
  const CallData data(sample, 0);
  const std::vector<DoubleDouble> kept = sample.reference(data, {}).front().value;
  const std::vector<DoubleDouble> lost =
      sample.reference(without_subnormals(data), {}).front().value;
  size_t differ = 0;
  for (size_t i = 0; i < kept.size(); ++i) {
    differ += round_to(BP_F64, kept[i]) != round_to(BP_F64, lost[i]);
  }
  if (differ >= 3) probes.push_back({"ftz", with_columns(base, columns), probe_ftz});
}

// ---- math -------------------------------------------------------------------------------------

// Returns the points where approximations are worst: near the ends of the range of exp, near 1,
// near multiples of pi/2 from small to large, and for division numbers close to powers of 2.
Columns worst_points(bp_dtype dtype) {
  constexpr double kHalfPi = 1.57079632679489661923;
  const double eps = 2 * float_format(dtype)->unit_roundoff();
  std::vector<double> points = {88.7, -87.3, -103.9, 709.7, -708.3, -745.1, 11.08, -9.7,
                                1e-5, -1e-5, 0.5,    2,     1.1,    0.9,    30,    -30};
  for (const double k : {1.0, 2.0, 3.0, 22.0, 355.0, 710.0, 1e4, 1e5, 6e5}) {
    points.push_back(k * kHalfPi);
    points.push_back(-k * kHalfPi * (1 + eps));
  }
  for (const double k : {1.0, 2.0, 3.0, 16.0, 1000.0}) {
    points.push_back(1 + k * eps);
    points.push_back(1 - k * eps);
  }
  for (int exponent = -20; exponent <= 15; exponent += 5) {
    points.push_back(std::ldexp(1 + eps, exponent));
    points.push_back(-std::ldexp(1 - eps / 2, exponent));
  }
  const double largest = float_format(dtype)->largest();
  std::erase_if(points, [=](double point) { return std::fabs(point) > largest; });
  Columns columns(2);
  for (size_t i = 0; i < kCount; ++i) {
    columns[0].push_back(points[i % points.size()]);
    columns[1].push_back(points[(i * 7 + i / points.size() + 3) % points.size()]);
  }
  return columns;
}

void probe_math(Context& t, const OpCase& row) {
  const CallData data(row, t.seed());
  const Observation seen = observe_native(t, row, data);
  const bool is_relaxed = declared_numerics(seen).relaxed;
  Numerics strict = declared_numerics(seen);
  strict.relaxed = false;
  const Expected expected = row.reference(data, strict).front();
  const Verdict verdict = judge(row, data, seen);
  std::string evidence = verdict.is_right() ? "" : verdict.message;
  bool is_strict = true;
  for (int64_t i = 0; i < static_cast<int64_t>(kCount); ++i) {
    is_strict = is_strict && is_right(seen.outputs.front(), expected, i, strict);
  }
  const std::string declared = is_relaxed ? "relaxed" : "strict";
  const std::string probed = is_strict ? "strict" : evidence.empty() ? "relaxed" : "neither";
  if (!evidence.empty()) return report_false(t, "math", declared, probed, evidence);
  report_true(t, declared, probed);
}

}  // namespace

void add_element_probes(Probings& probes, const Group& group) {
  const OpCase* base = widest(group);
  if (base == nullptr || base->derive || !is_elementwise(*base)) return;
  if (!std::ranges::any_of(base->tensors, holds_numbers)) return;
  if (has_class(*base, {"X"})) return;
  add_ftz_probe(probes, *base);
  // Other classes may err by more than one rounding, and so end on the other side of the limit.
  if (has_class(*base, {"E1"})) add_overflow_probe(probes, *base);
  if (op_info(base->op).numerics == "E1") add_round_probe(probes, *base);
  if (!has_class(*base, {"E1d", "E2"})) return;
  probes.push_back({"math", with_columns(*base, worst_points(input_dtype(*base))), probe_math});
}

}  // namespace bp::conformance
