// Cases of mixtures of experts: moe_route, moe_permute, moe_unpermute, grouped_matmul and its
// gradient. Cases of layouts follow by rule.
#include <cmath>

#include "conformance/cases/ops/op_families.hpp"
#include "conformance/cases/ops/op_oracles.hpp"
#include "conformance/numerics/narrow_format.hpp"
#include "conformance/reference/moe.hpp"

namespace bp::conformance {
namespace {

using reference::RouteRule;

// ---- moe_route ------------------------------------------------------------------------------- //

struct RouteRow {
  int64_t tokens, experts;
  RouteRule rule;
  bool has_choice = false, has_all = true;
};

const std::vector<RouteRow>& route_rows() {
  static const std::vector<RouteRow> rows = {
      {1, 1, {1}},
      {5, 3, {2}},
      {17, 8, {2, false, true}},
      {17, 8, {2, true, false}},
      {33, 9, {4, true, true}},
      {33, 9, {9, false, true}},
      {9, 67, {6, false, true}},
      {64, 4, {1, false, false, 10}},
      {40, 5, {3, false, true, 17}},
      {40, 5, {3, true, true, 1}},  // Many tokens lose all experts.
      {12, 16, {3, false, true}, true},
      {40, 5, {2, true, true, 11}, true},
      {7, 6, {2}, false, false},
      {0, 4, {2}},
  };
  return rows;
}

RouteRule rule_of(const CallData& data) {
  return {data.integer("k"), data.integer("scoring") == BP_MOE_ROUTE_SCORING_SIGMOID,
          data.integer("renormalize") != 0, data.integer("capacity")};
}

template <typename N>
Array<N> as_numbers(const Array<int64_t>& from) {
  Array<N> to(from.shape);
  for (int64_t i = 0; i < from.size(); ++i) to[i] = N(static_cast<double>(from[i]));
  return to;
}

std::vector<Expected> expected_route(const CallData& data, const Numerics&) {
  const RouteRule rule = rule_of(data);
  const auto routed =
      reference::choose_experts(data.array<double>(data.has("choice") ? "choice" : "x"), rule);
  const auto run = [&]<typename N>(N) {
    std::vector<Array<N>> outputs = {
        reference::route_weights(data.array<N>("x"), routed.experts, rule)};
    if (!data.has("experts")) return outputs;
    outputs.push_back(as_numbers<N>(routed.experts));
    outputs.push_back(as_numbers<N>(routed.counts));
    Array<N> dropped((Shape()));
    dropped[0] = N(static_cast<double>(routed.dropped));
    outputs.push_back(dropped);
    return outputs;
  };
  return judged_steps(data, data.tensor("x").dtype, run);
}

void add_route(OpCases& cases, bp_dtype dtype, const RouteRow& row, const std::string& name,
               const Fill& fill) {
  const RouteRule& rule = row.rule;
  std::string detail = shape_text({row.tokens, row.experts}) + "_k" + std::to_string(rule.k);
  detail += rule.is_sigmoid ? "_sigmoid" : "_softmax";
  if (rule.renormalizes) detail += "_shares";
  if (rule.capacity != 0) detail += "_capacity" + std::to_string(rule.capacity);
  if (row.has_choice) detail += "_choice";
  if (!row.has_all) detail += "_weights";
  OpCase made = make_case(BP_OP_MOE_ROUTE, dtype, name, detail, "dense");
  const bp_dtype wide = accumulator_of(dtype);
  made.input("x", dtype, {row.tokens, row.experts}, fill);
  if (row.has_choice) made.input("choice", wide, {row.tokens, row.experts}, fill);
  made.output("weights", wide, {row.tokens, rule.k});
  if (row.has_all) {
    made.output("experts", BP_I64, {row.tokens, rule.k});
    made.output("counts", BP_I64, {row.experts}).output("dropped", BP_I64, {});
  }
  made.set("k", rule.k).set("renormalize", int64_t{rule.renormalizes});
  made.set("scoring", rule.is_sigmoid ? int64_t{BP_MOE_ROUTE_SCORING_SIGMOID}
                                      : int64_t{BP_MOE_ROUTE_SCORING_SOFTMAX});
  made.set("capacity", rule.capacity).reference = expected_route;
  made.is_smoke = is_smoke_dtype(dtype);
  made.varies = false;
  cases.push_back(std::move(made));
}

// ---- moe_permute and moe_unpermute ----------------------------------------------------------- //

struct PermuteRow {
  int64_t tokens, k, width, experts;
};

const std::vector<PermuteRow>& permute_rows() {
  static const std::vector<PermuteRow> rows = {
      {1, 1, 1, 1},   {5, 2, 3, 4}, {17, 2, 33, 3}, {40, 4, 16, 7}, {9, 1, 65, 12},
      {3, 2, 600, 2}, {0, 2, 5, 3}, {5, 0, 3, 4},   {5, 2, 0, 4},   {257, 2, 4, 64},
  };
  return rows;
}

std::string detail_of(const PermuteRow& row) {
  return "t" + std::to_string(row.tokens) + "k" + std::to_string(row.k) + "d" +
         std::to_string(row.width) + "e" + std::to_string(row.experts);
}

std::vector<Expected> expected_permute(const CallData& data, const Numerics&) {
  const bp_dtype dtype = data.tensor("x").dtype;
  const auto permute = [&]<typename N>(N) {
    auto permuted = reference::moe_permute(data.array<N>("x"), data.indices("experts"),
                                           data.integer("num_experts"));
    if constexpr (std::is_same_v<N, double>) {  // f8e8m0fnu has no 0 for the rows that are left.
      for (double& value : permuted.y.data) {
        if (dtype == BP_F8E8M0FNU) value = narrow_values(dtype)[narrow_code(dtype, value)];
      }
    }
    std::vector<Expected> outputs = {exactly(permuted.y)};
    if (data.has("offsets")) outputs.push_back(exactly(permuted.offsets));
    if (data.has("places")) outputs.push_back(exactly(permuted.places));
    return judged_values(data, std::move(outputs));
  };
  return is_coded(dtype) ? permute(double()) : with_number(dtype, permute);
}

// Some experts are out of range on both sides.
void add_permute(OpCases& cases, const PermuteRow& row, bp_dtype dtype, bp_dtype index,
                 bool has_all) {
  const std::string detail =
      detail_of(row) + (index == BP_I64 ? "" : "_i32") + (has_all ? "" : "_rows");
  OpCase made = make_case(BP_OP_MOE_PERMUTE, dtype, "coord", detail, "dense");
  made.input("x", dtype, {row.tokens, row.width}, kCoord);
  made.input("experts", index, {row.tokens, row.k},
             {FillKind::kIndex, -1, static_cast<double>(row.experts + 1)});
  made.output("y", dtype, {row.tokens * row.k, row.width});
  if (has_all) {
    made.output("offsets", BP_I64, {row.experts + 1}).output("places", BP_I64, {row.tokens, row.k});
  }
  made.set("num_experts", row.experts).reference = expected_permute;
  made.is_smoke = is_moved_smoke_dtype(dtype);
  made.varies = false;
  made.optional_part = moved_part(dtype);
  cases.push_back(std::move(made));
}

std::vector<Expected> expected_unpermute(const CallData& data, const Numerics& numerics) {
  return with_float(data.tensor("x").dtype, [&]<typename N>(N) {
    const Array<int64_t> places = data.indices("places");
    Array<N> weights, sizes;
    const bool has_weights = data.has("weights");
    if (has_weights) weights = data.array<N>("weights"), sizes = absolute(weights);
    const Array<N> x = data.array<N>("x");
    return judged_sum(data, reference::moe_unpermute(x, places, has_weights ? &weights : nullptr),
                      reference::moe_unpermute(absolute(x), places, has_weights ? &sizes : nullptr),
                      static_cast<double>(places.shape[1]), numerics);
  });
}

void add_unpermute(OpCases& cases, const PermuteRow& row, bp_dtype dtype, bp_dtype index,
                   bool has_weights) {
  const std::string detail =
      detail_of(row) + (index == BP_I64 ? "" : "_i32") + (has_weights ? "_weights" : "");
  OpCase made = make_case(BP_OP_MOE_UNPERMUTE, dtype, "random", detail, "dense");
  const int64_t rows = row.tokens * row.k;
  made.input("x", dtype, {rows, row.width}, kRandom);
  made.input("places", index, {row.tokens, row.k},
             {FillKind::kIndex, -2, static_cast<double>(rows + 2)});
  if (has_weights) {
    made.input("weights", accumulator_of(dtype), {row.tokens, row.k}, kRandom);
    // The weight of a place that has no row is never used.
    made.derive = [rows](CallData& data) {
      const Array<int64_t> places = data.indices("places");
      for (int64_t i = 0; i < places.size(); ++i) {
        const bool has_row = places[i] >= 0 && places[i] < rows;
        if (!has_row) data.tensor("weights").data[static_cast<size_t>(i)] = std::nan("");
      }
    };
  }
  made.output("y", dtype, {row.tokens, row.width}).reference = expected_unpermute;
  made.is_smoke = is_smoke_dtype(dtype);
  made.varies = false;
  cases.push_back(std::move(made));
}

// ---- grouped_matmul -------------------------------------------------------------------------- //

struct GroupRow {
  std::vector<int64_t> offsets;
  int64_t rows, depth, cols;

  int64_t groups() const { return static_cast<int64_t>(offsets.size()) - 1; }
};

const std::vector<GroupRow>& group_rows() {
  static const std::vector<GroupRow> rows = {
      {{0, 1}, 1, 1, 1},
      {{0, 5, 5, 9}, 9, 7, 3},  // An empty group.
      {{2, 19, 36, 40}, 43, 33, 17},
      {{0, 17, 18, 65, 66}, 66, 16, 48},
      {{-3, 4, 30}, 20, 9, 5},  // Offsets that act as 0 and as the number of rows.
      {{0, 3, 6, 7, 8, 9, 10, 12, 12, 16}, 16, 65, 8},
      {{0, 40, 41}, 41, 129, 1},  // Products by a vector.
      {{0, 1, 2, 3}, 3, 300, 70},
      {{0, 300, 310}, 310, 20, 40},
      {{0, 0, 0}, 0, 4, 5},
      {{0}, 4, 3, 5},
      {{0, 2, 4}, 4, 0, 5},
      {{0, 2, 4}, 4, 3, 0},
  };
  return rows;
}

std::string detail_of(const GroupRow& row) {
  std::string text = "g" + std::to_string(row.groups()) + "r" + std::to_string(row.rows) + "k" +
                     std::to_string(row.depth) + "n" + std::to_string(row.cols);
  return row.groups() > 0 ? text + "_from" + std::to_string(row.offsets.front()) : text;
}

std::vector<Expected> expected_grouped(const CallData& data, const Numerics& numerics) {
  return with_float(data.tensor("a").dtype, [&]<typename N>(N) {
    const Array<N> a = data.array<N>("a"), b = data.array<N>("b");
    const Array<int64_t> offsets = data.indices("offsets");
    return judged_sum(data, reference::grouped_matmul(a, b, offsets),
                      reference::grouped_matmul(absolute(a), absolute(b), offsets),
                      static_cast<double>(a.shape[1]), numerics);
  });
}

std::vector<Expected> expected_grouped_backward(const CallData& data, const Numerics& numerics) {
  return with_float(data.tensor("a").dtype, [&]<typename N>(N) {
    const Array<N> a = data.array<N>("a"), grad_y = data.array<N>("grad_y");
    const Array<int64_t> offsets = data.indices("offsets");
    return judged_sum(data, reference::grouped_matmul_backward_b(grad_y, a, offsets),
                      reference::grouped_matmul_backward_b(absolute(grad_y), absolute(a), offsets),
                      static_cast<double>(a.shape[0]), numerics);
  });
}

void add_grouped(OpCases& cases, const GroupRow& row, bp_dtype dtype, bp_dtype index,
                 bool is_exact) {
  const std::string detail = detail_of(row) + (index == BP_I64 ? "" : "_i32");
  const std::string fill = is_exact ? "exact_dense" : "random";
  const Fill left = is_exact ? kExactDense : kRandom, right = is_exact ? kExactNarrow : kRandom;
  OpCase forward = make_case(BP_OP_GROUPED_MATMUL, dtype, fill, detail, "dense");
  forward.input("a", dtype, {row.rows, row.depth}, left);
  forward.input("b", dtype, {row.groups(), row.depth, row.cols}, right);
  forward.input("offsets", index, {row.groups() + 1}, index_fill(1));
  forward.output("y", dtype, {row.rows, row.cols}).reference = expected_grouped;
  OpCase backward = make_case(BP_OP_GROUPED_MATMUL_BACKWARD_B, dtype, fill, detail, "dense");
  backward.input("grad_y", dtype, {row.rows, row.cols}, right);
  backward.input("a", dtype, {row.rows, row.depth}, left);
  backward.input("offsets", index, {row.groups() + 1}, index_fill(1));
  backward.output("grad_b", dtype, {row.groups(), row.depth, row.cols});
  backward.reference = expected_grouped_backward;
  for (OpCase* made : {&forward, &backward}) {
    made->derive = [offsets = row.offsets](CallData& data) {
      std::vector<DoubleDouble>& to = data.tensor("offsets").data;
      for (size_t i = 0; i < to.size(); ++i) to[i] = DoubleDouble::from_int64(offsets[i]);
    };
    made->is_smoke = is_smoke_dtype(dtype);
    made->is_exact = is_exact;
    made->varies = false;
    cases.push_back(std::move(*made));
  }
}

}  // namespace

void add_moe(OpCases& cases) {
  const auto add_permutes = [&](bp_dtype dtype) {
    for (const PermuteRow& row : permute_rows()) add_permute(cases, row, dtype, BP_I64, true);
    add_permute(cases, permute_rows()[2], dtype, BP_I32, false);
  };
  for (const bp_dtype dtype : kMovedDtypes) add_permutes(dtype);
  for (const bp_dtype dtype : kRareMovedDtypes) add_permutes(dtype);
  for (const bp_dtype dtype : kFloats) {
    for (const RouteRow& row : route_rows()) {
      add_route(cases, dtype, row, "random", {FillKind::kUniform, -4, 4});
    }
    for (const size_t tied : {4u, 8u, 10u}) {
      add_route(cases, dtype, route_rows()[tied], "repeat", kRepeat);
    }
    for (const PermuteRow& row : permute_rows()) {
      for (const bool has_weights : {false, true}) {
        add_unpermute(cases, row, dtype, BP_I64, has_weights);
      }
    }
    add_unpermute(cases, permute_rows()[3], dtype, BP_I32, true);
    for (const GroupRow& row : group_rows()) {
      for (const bool is_exact : {false, true}) add_grouped(cases, row, dtype, BP_I64, is_exact);
    }
    add_grouped(cases, group_rows()[2], dtype, BP_I32, false);
  }
}

}  // namespace bp::conformance
