// The judge judged: an oracle that is wrong, bounds that are too wide and a comparison that leaves
// elements out are found by results whose rightness does not come from them.
//
// For a row of each op, right results are those of the true oracle, and wrong ones differ from them
// by an error that no right kernel has (conformance/faults/severity.hpp). A mutant of the judge is
// found if it refuses a right result or takes a wrong one.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <set>

#include "conformance/cases/engine/op_judge.hpp"
#include "conformance/cases/ops/op_families.hpp"
#include "conformance/faults/severity.hpp"

namespace bp::conformance {
namespace {

constexpr size_t kMostElements = 4096;
constexpr bp_kernel kStrictest{.struct_size = sizeof(bp_kernel)};

// A row, its data, and what the true oracle gives for it.
struct Subject {
  explicit Subject(const OpCase& its_row) : row(its_row), data(row, case_seed(row.id(), 1)) {
    if (row.derive) row.derive(data);
    expected = expectation(row, data, nullptr).outputs;
  }
  Subject(const Subject&) = delete;  // The data refer to the row.

  const OpCase row;
  CallData data;
  std::vector<Expected> expected;

  size_t float_output() const {
    size_t output = 0;
    for (const TensorArgument& a : row.tensors) {
      if (a.role == Role::kInput) continue;
      if (a.dtype == BP_F32) return output;
      ++output;
    }
    return SIZE_MAX;
  }
};

OutputView view_of(const TensorArgument& argument, const Expected& expected) {
  OutputView view{argument.name, argument.dtype, argument.shape, {}, {}, true, {}, true};
  view.is_poisoned = argument.role == Role::kOutput;
  for (const DoubleDouble& value : expected.value) {
    std::byte bytes[8] = {};
    store_element(argument.dtype, value, bytes);
    view.value.push_back(load_element(argument.dtype, bytes));
    view.bits.push_back(element_bits_at(argument.dtype, bytes));
  }
  view.is_unwritten.resize(view.value.size());
  return view;
}

// Returns what a kernel gives that rounds the exact results once.
Observation right_results(const Subject& subject) {
  Observation seen;
  seen.kernel = &kStrictest;
  size_t output = 0;
  for (const TensorArgument& argument : subject.row.tensors) {
    if (argument.role == Role::kInput) continue;
    seen.outputs.push_back(view_of(argument, subject.expected[output++]));
  }
  return seen;
}

void set(Observation& seen, size_t output, size_t element, double value) {
  OutputView& view = seen.outputs[output];
  std::byte bytes[8] = {};
  store_element(view.dtype, DoubleDouble(value), bytes);
  view.value[element] = load_element(view.dtype, bytes);
  view.bits[element] = element_bits_at(view.dtype, bytes);
}

double largest(const OutputView& view) {
  double most = 0;
  for (const DoubleDouble& value : view.value) {
    if (std::isfinite(value.hi)) most = std::max(most, std::fabs(value.hi));
  }
  return most;
}

// Returns results of which the last element is wrong: by the smallest error that is certainly
// wrong, by a tenth of the largest result, or a NaN.
std::vector<Observation> wrong_results(const Subject& subject) {
  const size_t output = subject.float_output();
  const Observation right = right_results(subject);
  const OutputView& view = right.outputs[output];
  const size_t last = view.value.size() - 1;
  const double value = view.value[last].hi, scale = largest(view);
  const double error =
      faults::largest_honest_error(op_info(subject.row.op).numerics, BP_F32, value, scale);
  std::vector<Observation> wrong;
  for (const double other : {value + 1.5 * error, value + 0.1 * scale + error,
                             std::numeric_limits<double>::quiet_NaN()}) {
    set(wrong.emplace_back(right), output, last, other);
  }
  return wrong;
}

// Returns whether the judge of `row`, which may be a mutant, takes right results and refuses wrong
// ones.
bool is_good_judge(const Subject& subject, const OpCase& row) {
  if (!judge(row, subject.data, right_results(subject)).is_right()) return false;
  return std::ranges::none_of(wrong_results(subject), [&](const Observation& seen) {
    return judge(row, subject.data, seen).is_right();
  });
}

using Change = void (*)(const Subject&, Expected&);

OpCase with_mutant(const Subject& subject, Change change) {
  OpCase row = subject.row;
  row.is_exact = false;  // Else the bounds are 0, and no mutant of a bound is one.
  row.reference = [&subject, change](const CallData& data, const Numerics& numerics) {
    std::vector<Expected> outputs = subject.row.reference(data, numerics);
    change(subject, outputs[subject.float_output()]);
    return outputs;
  };
  return row;
}

double largest_value(const Expected& expected) {
  double most = 0;
  for (const DoubleDouble& value : expected.value) {
    if (std::isfinite(value.hi)) most = std::max(most, std::fabs(value.hi));
  }
  return most;
}

void scale_values(const Subject&, Expected& expected) {
  for (DoubleDouble& value : expected.value) value = value * DoubleDouble(1 + std::ldexp(1, -9));
}
void shift_values(const Subject&, Expected& expected) {
  // clang 14 cannot compile std::ranges::rotate() of the library of g++ 12.
  std::rotate(expected.value.begin(), expected.value.begin() + 1, expected.value.end());
}
void negate_values(const Subject&, Expected& expected) {
  for (DoubleDouble& value : expected.value) value = -value;
}
// 2^-6 of the largest result: a hundred times the bounds of most classes, and more.
void widen_bounds(const Subject&, Expected& expected) {
  expected.bound.resize(expected.value.size());
  for (double& bound : expected.bound) bound += std::ldexp(largest_value(expected), -6);
}
void compare_first_alone(const Subject&, Expected& expected) {
  expected.also_right = [](int64_t element, DoubleDouble) { return element > 0; };
}
void take_nan(const Subject&, Expected& expected) {
  expected.also_right = [](int64_t, DoubleDouble y) { return std::isnan(y.hi); };
}
void take_all(const Subject&, Expected& expected) {
  expected.also_right = [](int64_t, DoubleDouble) { return true; };
}

constexpr struct {
  const char* name;
  Change change;
} kMutants[] = {{"an oracle that is wrong by 2^-9", scale_values},
                {"an oracle that is off by one element", shift_values},
                {"an oracle of the other sign", negate_values},
                {"bounds that are too wide", widen_bounds},
                {"a comparison of the first element alone", compare_first_alone},
                {"a comparison that takes every NaN", take_nan},
                {"a comparison that takes everything", take_all}};

bool is_useful(const OpCase& row) {
  if (row.dtype != "f32" || !row.is_smoke || row.fails_on_device || row.fill == "special") {
    return false;
  }
  return std::ranges::all_of(row.tensors, [](const TensorArgument& a) {
    return static_cast<size_t>(element_count(a.shape)) <= kMostElements;
  });
}

// Results that differ from each other, because equal ones hide a mutant that moves them. The last
// one, which wrong_results() changes, is not 0: a small number in its place may be underflow.
bool has_different_results(const Subject& subject) {
  if (subject.float_output() == SIZE_MAX) return false;
  std::set<double> values;
  for (const DoubleDouble& value : subject.expected[subject.float_output()].value) {
    if (!std::isfinite(value.hi)) return false;
    values.insert(value.hi);
  }
  return values.size() >= 3 && !values.contains(0);
}

// Returns a row of each op that has results of f32.
std::deque<Subject> subjects() {
  std::deque<Subject> found;
  std::set<uint32_t> ops;
  for (const OpFamily& family : op_families()) {
    OpCases rows;
    family.add(rows);
    for (const OpCase& row : rows) {
      if (ops.contains(row.op) || !is_useful(row)) continue;
      if (has_different_results(found.emplace_back(row))) {
        ops.insert(row.op);
      } else {
        found.pop_back();
      }
    }
  }
  return found;
}

TEST(JudgeMutants, AreFoundInEveryOp) {
  const std::deque<Subject> all = subjects();
  EXPECT_GE(all.size(), 70u) << "few ops have a row that this test can use";
  for (const Subject& subject : all) {
    ASSERT_TRUE(is_good_judge(subject, subject.row)) << subject.row.id();
    for (const auto& [name, change] : kMutants) {
      const OpCase mutant = with_mutant(subject, change);
      EXPECT_FALSE(is_good_judge(subject, mutant)) << name << ", " << subject.row.id();
    }
  }
}

}  // namespace
}  // namespace bp::conformance
