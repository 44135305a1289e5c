// Cases for attributes and strides in programs whose extents are decided by a launch, and for
// compilers without ranges.
#include <cstddef>
#include <string>
#include <vector>

#include "backplane/ops.h"
#include "conformance/cases/families.hpp"
#include "conformance/cases/fixtures/api_cases.hpp"
#include "conformance/cases/fixtures/ranged_fixtures.hpp"

namespace bp::conformance {
namespace {

// y has the k largest of 8 numbers.
struct Largest {
  RangedMaker maker;
  int64_t k = maker.add_range(1, 2, 8);
  uint32_t x = maker.add_value(BP_VALUE_INPUT, {8}), y = maker.add_value(BP_VALUE_OUTPUT, {k});

  Largest() {
    maker.add_node(BP_OP_TOPK,
                   bp_topk_args{.x = maker.whole(x), .y = maker.whole(y), .k = 1, .is_largest = 1},
                   {x, y, BP_NO_VALUE});
  }
};

void attribute_follows_its_extent(Context& t) {
  Largest largest;
  largest.maker.bind(offsetof(bp_topk_args, k), largest.k);
  const OwnedExecutable executable = compile_ranged(t, largest.maker);
  const std::vector<float> sorted = {8, 7, 6, 5, 4, 3, 2, 1};
  for (const int64_t k : {3, 1, 8, 2}) {
    std::vector<RangedTensor> tensors = {{{8}, {3, 1, 4, 8, 5, 2, 6, 7}}, {{k}, {}}};
    t.require_ok(run_ranged(t, executable, tensors), "launch");
    t.expect(tensors[1].elements == std::vector<float>(sorted.begin(), sorted.begin() + k),
             "the largest " + std::to_string(k));
  }
}

// y is the mean of all elements of an image of 2 rows.
void element_follows_its_extent(Context& t) {
  RangedMaker maker;
  const int64_t width = maker.add_range(1, 3, 16);
  const std::vector<int64_t> sizes = {2, 1}, ones = {1, 1}, zeros = {0, 0};
  const uint32_t x = maker.add_value(BP_VALUE_INPUT, {1, 1, 2, width}),
                 y = maker.add_value(BP_VALUE_OUTPUT, {1, 1, 1, 1});
  maker.add_node(BP_OP_AVG_POOL,
                 bp_avg_pool_args{.x = maker.whole(x),
                                  .y = maker.whole(y),
                                  .kernel_size_count = 2,
                                  .kernel_size = sizes.data(),
                                  .stride_count = 2,
                                  .stride = ones.data(),
                                  .padding_count = 2,
                                  .padding = zeros.data()},
                 {x, y});
  maker.bind(offsetof(bp_avg_pool_args, kernel_size), width, 1);
  const OwnedExecutable executable = compile_ranged(t, maker);
  for (const int64_t count : {1, 16, 4}) {
    std::vector<float> image;
    for (int64_t i = 0; i < 2 * count; ++i) image.push_back(static_cast<float>(2 * i));
    std::vector<RangedTensor> tensors = {{{1, 1, 2, count}, image}, {{1, 1, 1, 1}, {}}};
    t.require_ok(run_ranged(t, executable, tensors), "launch");
    t.expect_eq(tensors[1].elements[0], static_cast<float>(2 * count - 1), "the mean of all");
  }
}

void bindings_to_nothing_are_refused(Context& t) {
  Largest good;
  good.maker.bind(offsetof(bp_topk_args, k), good.k);
  compile_ranged(t, good.maker);
  const struct {
    size_t offset;
    int64_t entry;
    uint64_t element;
    const char* what;
  } wrong[] = {
      {offsetof(bp_topk_args, x), good.k, 0, "a binding to a tensor"},
      {offsetof(bp_topk_args, k) + 4, good.k, 0, "a binding to half of an attribute"},
      {sizeof(bp_topk_args), good.k, 0, "a binding behind the frame"},
      {offsetof(bp_topk_args, k), good.k, 1, "a binding to the second of one element"},
      {offsetof(bp_topk_args, k), good.k - 1, 0, "a binding to an extent that is not there"},
  };
  for (const auto& each : wrong) {
    Largest broken;
    broken.maker.bind(each.offset, each.entry, each.element);
    expect_not_compiled(t, broken.maker, BP_INVALID_ARGUMENT, each.what);
  }
  Largest wide;
  const int64_t huge = wide.maker.add_range(0, 1, int64_t{1} << 31);
  wide.maker.add_value(BP_VALUE_INPUT, {0, huge});
  wide.maker.bind(offsetof(bp_topk_args, axis), huge);
  expect_not_compiled(t, wide.maker, BP_INVALID_ARGUMENT, "an extent that 32 bits do not hold");
}

// y = -x, where the rows of x lie 8 elements apart in each launch.
void fixed_strides_stay(Context& t) {
  RangedMaker maker;
  const int64_t n = maker.add_range(1, 4, 8);
  const int64_t strides[] = {8, 1};
  const uint32_t x = maker.add_value(BP_VALUE_INPUT, {2, n}),
                 y = maker.add_value(BP_VALUE_OUTPUT, {2, n});
  maker.value(x).strides = strides;
  bp_tensor* const strided = maker.whole(x);
  strided->strides = strides;
  maker.add_node(BP_OP_NEG, bp_neg_args{.x = strided, .y = maker.whole(y)}, {x, y});
  const OwnedExecutable executable = compile_ranged(t, maker);
  for (const int64_t count : {3, 8, 1}) {
    std::vector<float> rows, negated;
    for (int64_t i = 0; i < 2 * count; ++i) rows.push_back(static_cast<float>(i + 1));
    for (const float each : rows) negated.push_back(-each);
    std::vector<RangedTensor> tensors = {{{2, count}, rows, {8, 1}}, {{2, count}, {}}};
    t.require_ok(run_ranged(t, executable, tensors), "launch");
    t.expect(tensors[1].elements == negated, "rows of " + std::to_string(count));
    if (count == 1) continue;  // A row of one element is row-major too.
    std::vector<RangedTensor> dense = {{{2, count - 1}, rows}, {{2, count - 1}, {}}};
    t.expect_refused(run_ranged(t, executable, dense), BP_INVALID_ARGUMENT, "other strides");
  }
}

void fixed_strides_over_changing_ones_are_refused(Context& t) {
  const auto make = [](RangedMaker& maker, bool is_fixed) {
    static constexpr int64_t kStrides[] = {4, 1};
    const int64_t n = maker.add_range(1, 4, 8);
    const uint32_t x = maker.add_value(BP_VALUE_INPUT, {2, n}),
                   y = maker.add_value(BP_VALUE_OUTPUT, {2, n});
    bp_tensor* const view = maker.whole(x);
    if (is_fixed) view->strides = kStrides;
    maker.add_node(BP_OP_NEG, bp_neg_args{.x = view, .y = maker.whole(y)}, {x, y});
  };
  RangedMaker good, fixed;
  make(good, false);
  const OwnedExecutable executable = compile_ranged(t, good);
  for (const int64_t count : {4, 1, 7}) {
    std::vector<float> rows, negated;
    for (int64_t i = 0; i < 2 * count; ++i) rows.push_back(static_cast<float>(i + 1));
    for (const float each : rows) negated.push_back(-each);
    std::vector<RangedTensor> tensors = {{{2, count}, rows}, {{2, count}, {}}};
    t.require_ok(run_ranged(t, executable, tensors), "launch");
    t.expect(tensors[1].elements == negated, "rows of " + std::to_string(count));
  }
  make(fixed, true);
  expect_not_compiled(t, fixed, BP_UNSUPPORTED, "fixed strides over strides that change");
}

// A compiler that takes the program with one length takes it with a range too, or says why not.
void refusal_of_ranges_has_a_reason(Context& t) {
  const bp_compiler_ops& compiler = compiler_table(t);
  const auto make = [](RangedMaker& maker, int64_t n) {
    const uint32_t x = maker.add_value(BP_VALUE_INPUT, {n}),
                   y = maker.add_value(BP_VALUE_OUTPUT, {n});
    maker.add_neg(x, y);
  };
  RangedMaker fixed, ranged;
  make(fixed, 5);
  compile_ranged(t, fixed);
  make(ranged, ranged.add_range(1, 5, 9));
  uint32_t partition = 7;
  bp_reason reason = nullptr;
  uint64_t count = 7;
  t.require_ok(compiler.query(compiler.self, t.target().device, &ranged.desc(), 1, &partition,
                              &reason, &count),
               "query");
  if (reason == nullptr) {
    t.expect_eq(partition, 0u, "the partition of the only node");
    t.expect_eq(count, uint64_t{1}, "the count of partitions");
    compile_ranged(t, ranged);
    return;
  }
  t.expect(*reason != '\0', "a reason in words");
  t.expect_eq(partition, BP_NO_PARTITION, "the partition of a node with a reason");
  t.expect_eq(count, uint64_t{0}, "the count of partitions");
  expect_not_compiled(t, ranged, BP_UNSUPPORTED, "a program that query() refuses");
}

}  // namespace

void add_binding_cases(std::vector<Case>& cases) {
  add_api_cases(
      cases, "compiler",
      {
          {"attribute_follows_its_extent", {"COMPILER-19"}, attribute_follows_its_extent},
          {"element_follows_its_extent", {"COMPILER-19"}, element_follows_its_extent},
          {"bindings_to_nothing_are_refused", {"COMPILER-19"}, bindings_to_nothing_are_refused},
          {"fixed_strides_stay", {"COMPILER-17"}, fixed_strides_stay},
          {"fixed_strides_over_changing_ones_are_refused",
           {"COMPILER-18"},
           fixed_strides_over_changing_ones_are_refused},
          {"refusal_of_ranges_has_a_reason", {"COMPILER-21"}, refusal_of_ranges_has_a_reason},
      });
}

}  // namespace bp::conformance
