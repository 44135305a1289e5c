// Cases for programs whose extents are decided by a launch: what their launches give, and which
// launches and programs are refused.
#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "backplane/ops.h"
#include "conformance/cases/families.hpp"
#include "conformance/cases/fixtures/api_cases.hpp"
#include "conformance/cases/fixtures/ranged_fixtures.hpp"

namespace bp::conformance {
namespace {

// Returns small numbers that begin with `first`.
std::vector<float> numbers(int64_t count, int64_t first = 1) {
  std::vector<float> all;
  for (int64_t i = 0; i < count; ++i) all.push_back(static_cast<float>((first + i) % 1000));
  return all;
}

std::vector<float> scaled(std::vector<float> values, float factor) {
  for (float& value : values) value *= factor;
  return values;
}

void expect_names(Context& t, const std::string& text, const std::string& name) {
  t.expect(text.find(name) != std::string::npos, "the text names " + name + ": " + text);
}

// t = x + x; y = t + x, over n elements.
struct Sums {
  RangedMaker maker;
  int64_t n = maker.add_range(1, 64, 4096);
  uint32_t x = maker.add_value(BP_VALUE_INPUT, {n}), sum = maker.add_value(BP_VALUE_TEMPORARY, {n}),
           y = maker.add_value(BP_VALUE_OUTPUT, {n});

  Sums() {
    maker.add_add(x, x, sum);
    maker.add_add(sum, x, y);
  }
};

void expect_sums(Context& t, const OwnedExecutable& executable, int64_t length) {
  std::vector<RangedTensor> tensors = {{{length}, numbers(length, length)}, {{length}, {}}};
  const std::string what = "with " + std::to_string(length) + " elements: ";
  t.expect_eq(run_ranged(t, executable, tensors), BP_OK, (what + "launch").c_str());
  t.expect(tensors[1].elements == scaled(numbers(length, length), 3), what + "y = 3 x");
}

void program_runs_with_each_length(Context& t) {
  Sums sums;
  const OwnedExecutable executable = compile_ranged(t, sums.maker);
  for (const int64_t length : {3, 4096, 64, 1, 1000, 3, 4095}) expect_sums(t, executable, length);
}

void ranges_outlive_serialization(Context& t) {
  Sums sums;
  const OwnedExecutable executable = compile_ranged(t, sums.maker);
  const std::vector<uint8_t> bytes = serialized(t, executable);
  const bp_compiler_ops& compiler = compiler_table(t);
  bp_executable* again = nullptr;
  t.require_ok(compiler.deserialize(compiler.self, t.target().device, bytes.data(), bytes.size(),
                                    nullptr, &again),
               "deserialize");
  const OwnedExecutable read(again, {&compiler});
  for (const int64_t length : {5, 2000}) expect_sums(t, read, length);
  std::vector<RangedTensor> outside = {{{4097}, numbers(4097)}, {{4097}, {}}};
  t.expect_refused(run_ranged(t, read, outside), BP_INVALID_ARGUMENT, "4097 of at most 4096");

  uint64_t small[2] = {}, large[2] = {};
  Sums other;
  RangedMaker larger;
  const int64_t m = larger.add_range(1, 64, 4095);
  const uint32_t in = larger.add_value(BP_VALUE_INPUT, {m}),
                 middle = larger.add_value(BP_VALUE_TEMPORARY, {m}),
                 out = larger.add_value(BP_VALUE_OUTPUT, {m});
  larger.add_add(in, in, middle);
  larger.add_add(middle, in, out);
  const bp_status status =
      compiler.fingerprint(compiler.self, t.target().device, &other.maker.desc(), small);
  if (status == BP_UNSUPPORTED) return;
  t.require_ok(status, "fingerprint");
  t.require_ok(compiler.fingerprint(compiler.self, t.target().device, &larger.desc(), large),
               "fingerprint");
  t.expect(!std::ranges::equal(small, large), "another range gives another fingerprint");
}

// y = -a and z = -b, where a has n elements and b twice as many.
void launches_with_other_extents_are_refused(Context& t) {
  RangedMaker maker;
  const int64_t n = maker.add_range(2, 4, 9), twice = maker.add_formula(BP_EXTENT_PRODUCT, {n, 2});
  const uint32_t a = maker.add_value(BP_VALUE_INPUT, {n}),
                 b = maker.add_value(BP_VALUE_INPUT, {twice}),
                 y = maker.add_value(BP_VALUE_OUTPUT, {n}),
                 z = maker.add_value(BP_VALUE_OUTPUT, {twice});
  maker.add_neg(a, y);
  maker.add_neg(b, z);
  const OwnedExecutable executable = compile_ranged(t, maker);
  const auto launch = [&](int64_t of_a, int64_t of_b, int64_t of_y) {
    std::vector<RangedTensor> tensors = {
        {{of_a}, numbers(of_a)}, {{of_b}, numbers(of_b)}, {{of_y}, {}}, {{of_b}, {}}};
    const bp_status status = run_ranged(t, executable, tensors);
    return std::pair(status, std::string(bp_error_text()));
  };
  t.expect_eq(launch(9, 18, 9).first, BP_OK, "the launch that is right");
  const struct {
    int64_t a, b, y;
    const char *extent, *number, *what;
  } wrong[] = {
      {10, 20, 10, "extent 0", "10", "an extent above its range"},
      {1, 2, 1, "extent 0", "1", "an extent below its range"},
      {4, 8, 5, "extent 0", "5", "two numbers for one extent"},
      {4, 9, 4, "extent 1", "9", "another number than that of the formula"},
  };
  for (const auto& each : wrong) {
    const auto [status, text] = launch(each.a, each.b, each.y);
    t.expect_refused(status, BP_INVALID_ARGUMENT, each.what);
    expect_names(t, text, each.extent);
    expect_names(t, text, each.number);
  }
  t.expect_eq(launch(2, 4, 2).first, BP_OK, "a launch after refusals");
}

// Each formula is the length of a result: the sum that of a and 3 numbers behind each other, the
// product and the quotient those of the elements of c and of half of them, the maximum that of d.
void formulas_follow_the_ranges(Context& t) {
  RangedMaker maker;
  const int64_t n = maker.add_range(1, 4, 50);
  const int64_t longer = maker.add_formula(BP_EXTENT_SUM, {n, 3}),
                all = maker.add_formula(BP_EXTENT_PRODUCT, {n, 4}),
                half = maker.add_formula(BP_EXTENT_QUOTIENT, {all, 2}),
                most = maker.add_formula(BP_EXTENT_MAXIMUM, {n, 8});
  const std::vector<float> three = {7, 8, 9};
  const uint32_t a = maker.add_value(BP_VALUE_INPUT, {n}),
                 c = maker.add_value(BP_VALUE_INPUT, {n, 4}),
                 d = maker.add_value(BP_VALUE_INPUT, {most}),
                 end = maker.add_value(BP_VALUE_CONSTANT, {3}),
                 y = maker.add_value(BP_VALUE_OUTPUT, {longer}),
                 flat = maker.add_value(BP_VALUE_OUTPUT, {all}),
                 rows = maker.add_value(BP_VALUE_OUTPUT, {half, 2}),
                 z = maker.add_value(BP_VALUE_OUTPUT, {most});
  maker.value(end).data = three.data();
  const bp_tensor* const parts[] = {maker.whole(a), maker.whole(end)};
  maker.add_node(BP_OP_CAT, bp_cat_args{.xs_count = 2, .xs = parts, .y = maker.whole(y)},
                 {a, end, y});
  maker.add_node(BP_OP_NEG, bp_neg_args{.x = maker.view({all}), .y = maker.whole(flat)}, {c, flat});
  maker.add_node(BP_OP_NEG, bp_neg_args{.x = maker.view({half, 2}), .y = maker.whole(rows)},
                 {c, rows});
  maker.add_neg(d, z);
  const OwnedExecutable executable = compile_ranged(t, maker);
  for (const int64_t count : {1, 50, 4, 9}) {
    const int64_t largest = std::max<int64_t>(count, 8);
    std::vector<RangedTensor> tensors = {{{count}, numbers(count)},
                                         {{count, 4}, numbers(4 * count)},
                                         {{largest}, numbers(largest)},
                                         {{count + 3}, {}},
                                         {{4 * count}, {}},
                                         {{2 * count, 2}, {}},
                                         {{largest}, {}}};
    std::vector<float> joined = numbers(count);
    joined.insert(joined.end(), three.begin(), three.end());
    const std::vector<float> negated = scaled(numbers(4 * count), -1);
    const std::string what = "with " + std::to_string(count) + ": ";
    t.require_ok(run_ranged(t, executable, tensors), "launch");
    t.expect(tensors[3].elements == joined, what + "a sum");
    t.expect(tensors[4].elements == negated, what + "a product");
    t.expect(tensors[5].elements == negated, what + "a quotient");
    t.expect(tensors[6].elements == scaled(numbers(largest), -1), what + "a maximum");
  }
}

void extents_that_cannot_be_are_refused(Context& t) {
  Sums sums;
  compile_ranged(t, sums.maker);
  const struct {
    bp_extent_kind kind;
    std::vector<int64_t> terms;
    const char* what;
  } wrong[] = {
      {BP_EXTENT_SUM, {1, -2}, "a formula over itself"},
      {BP_EXTENT_MAXIMUM, {-3, 4}, "a formula over a later extent"},
      {BP_EXTENT_QUOTIENT, {-1, 3}, "a quotient with a remainder at an end of the range"},
      {BP_EXTENT_QUOTIENT, {-1, 0}, "a division by 0"},
      {BP_EXTENT_PRODUCT, {-1, INT64_MAX}, "a product of more than 63 bits"},
      {BP_EXTENT_QUOTIENT, {-1}, "a quotient of one term"},
      {BP_EXTENT_SUM, {}, "a sum of nothing"},
  };
  for (const auto& each : wrong) {
    Sums broken;
    broken.maker.add_formula(each.kind, each.terms);
    broken.maker.add_formula(BP_EXTENT_SUM, {1});
    expect_names(t, expect_not_compiled(t, broken.maker, BP_INVALID_ARGUMENT, each.what),
                 "extent 1");
  }
  Sums unused;
  unused.maker.add_range(1, 2, 3);
  expect_names(t,
               expect_not_compiled(t, unused.maker, BP_INVALID_ARGUMENT,
                                   "a range that no input or output has"),
               "extent 1");
  for (const auto& [min, preferred, max] :
       {std::array<int64_t, 3>{5, 4, 9}, {1, 10, 9}, {-1, 4, 9}}) {
    Sums broken;
    const int64_t m = broken.maker.add_range(min, preferred, max);
    broken.maker.add_value(BP_VALUE_INPUT, {m});
    expect_names(t,
                 expect_not_compiled(t, broken.maker, BP_INVALID_ARGUMENT,
                                     "a range whose numbers fall or are negative"),
                 "extent 1");
  }
  Sums unknown;
  unknown.maker.add_value(BP_VALUE_INPUT, {-2});
  expect_not_compiled(t, unknown.maker, BP_INVALID_ARGUMENT, "an extent that is not there");
}

}  // namespace

void add_ranged_cases(std::vector<Case>& cases) {
  add_api_cases(cases, "compiler",
                {
                    {"program_runs_with_each_length",
                     {"COMPILER-20", "COMPILER-15", "COMPILER-17"},
                     program_runs_with_each_length},
                    {"ranges_outlive_serialization",
                     {"COMPILER-5", "COMPILER-10", "COMPILER-15"},
                     ranges_outlive_serialization},
                    {"launches_with_other_extents_are_refused",
                     {"COMPILER-15"},
                     launches_with_other_extents_are_refused},
                    {"formulas_follow_the_ranges", {"COMPILER-15"}, formulas_follow_the_ranges},
                    {"extents_that_cannot_be_are_refused",
                     {"COMPILER-16"},
                     extents_that_cannot_be_are_refused},
                });
}

}  // namespace bp::conformance
