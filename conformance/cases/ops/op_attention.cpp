// Cases of sdpa and its gradients. Cases of layouts follow by rule.
#include <algorithm>

#include "conformance/cases/engine/op_judge.hpp"
#include "conformance/cases/ops/op_attention_bounds.hpp"
#include "conformance/cases/ops/op_attention_rows.hpp"
#include "conformance/cases/ops/op_families.hpp"
#include "conformance/cases/ops/op_oracles.hpp"
#include "conformance/numerics/product_errors.hpp"
#include "conformance/reference/attention.hpp"

namespace bp::conformance {
namespace {

using attention::all_rows;
using attention::detail_of;
using attention::has_later_terms;
using attention::Mask;
using attention::Row;
using reference::Attention;

double scale_of(const Row& row) {
  return row.scale != 0 ? row.scale : 1 / std::sqrt(static_cast<double>(row.width));
}

Shape queries_shape(const Row& row, int64_t last) {
  return {row.batch, row.heads, row.queries, last};
}
Shape keys_shape(const Row& row, int64_t last) {
  return {row.batch, row.key_heads, row.keys, last};
}

template <typename N>
Attention<N> attention_of(const CallData& data) {
  Attention<N> a{data.array<N>("q"), data.array<N>("k"), data.array<N>("v"), {}, {}};
  const auto integer = [&](std::string_view name) {
    return data.has_attribute(name) ? data.integer(name) : 0;
  };
  const auto number = [&](std::string_view name) {
    return data.has_attribute(name) ? data.number(name) : 0;
  };
  if (data.has("mask")) a.mask = data.indices("mask");
  if (data.has("bias")) a.bias = data.array<N>("bias");
  a.scale = data.number("scale");
  a.causal = static_cast<reference::Causal>(integer("causal"));
  a.window_left = integer("window_left");
  a.window_right = integer("window_right");
  a.softcap = number("softcap");
  if (data.has("sinks")) a.sinks = data.array<N>("sinks");
  a.dropout_p = number("dropout_p");
  if (a.dropout_p == 0) return a;
  a.random = {static_cast<uint64_t>(to_int64(data.value("seed"))),
              static_cast<uint64_t>(to_int64(data.value("offset")))};
  return a;
}

void derive_mask(CallData& data, const Row& row) {
  if (row.mask != Mask::kOneKey && row.mask != Mask::kRandomBlind) return;
  HostTensor& mask = data.tensor("mask");
  for (size_t i = 0; i < mask.data.size(); ++i) {
    const auto query = static_cast<int64_t>(i) / row.keys, key = static_cast<int64_t>(i) % row.keys;
    if (row.mask == Mask::kOneKey) {
      mask.data[i] = DoubleDouble(key == (query * 3 + 1) % row.keys ? 1 : 0);
    } else if (query % 4 == 1) {
      mask.data[i] = DoubleDouble(0);
    }
  }
}

void derive_bias(CallData& data, const Row& row) {
  if (!row.has_blocked_keys) return;
  HostTensor& bias = data.tensor("bias");
  for (size_t i = 0; i < bias.data.size(); ++i) {
    const auto query = static_cast<int64_t>(i) / row.keys, key = static_cast<int64_t>(i) % row.keys;
    const bool is_blocked = query % 4 == 1 || (query % 4 == 2 && key < row.keys / 2);
    if (is_blocked) bias.data[i] = DoubleDouble(-HUGE_VAL);
  }
}

// Makes the values infinite of every key that dropout drops for all queries that read it.
void derive_dropped_values(CallData& data) {
  const auto a = attention_of<double>(data);
  HostTensor& v = data.tensor("v");
  std::vector<bool> is_kept(v.data.size() / static_cast<size_t>(a.value_width()));
  for (int64_t row = 0; row < a.row_count(); ++row) {
    for (const int64_t j : a.seen_keys(row)) {
      if (a.kept(row, j) != 0) is_kept[static_cast<size_t>(a.key_row(row, j))] = true;
    }
  }
  for (size_t i = 0; i < v.data.size(); ++i) {
    if (!is_kept[i / static_cast<size_t>(a.value_width())]) v.data[i] = DoubleDouble(HUGE_VAL);
  }
}

// ---- Forward --------------------------------------------------------------------------------- //

// Returns whether a query may give NaN in place of nothing. A query whose scores are all -inf
// counts as a query that sees no key, but its products may cause that, and not the bias alone. A
// sink may be no number, and dropout may leave out scores that are none.
bool may_be_nothing(const Attention<double>& a, int64_t row) {
  const std::vector<int64_t> seen = a.seen_keys(row);
  const auto all_seen = [&](const auto& test) {
    return std::all_of(seen.begin(), seen.end(), test);
  };
  if (a.sinks && !std::isfinite((*a.sinks)[a.head_of(row)])) return true;
  if (a.dropout_p != 0 && !all_seen([&](int64_t j) { return a.score(row, j) < HUGE_VAL; })) {
    return true;
  }
  if (!a.bias) return false;
  const bool is_blocked =
      all_seen([&](int64_t j) { return (*a.bias)[row * a.keys() + j] == -HUGE_VAL; });
  const bool has_weights = !all_seen([&](int64_t j) { return a.score(row, j) == -HUGE_VAL; });
  return !has_weights && !is_blocked;
}

void allow_nothing(const CallData& data, std::vector<Expected>& expected) {
  const Attention<double> a = attention_of<double>(data);
  std::vector<bool> is_nothing;
  for (int64_t row = 0; row < a.row_count(); ++row) is_nothing.push_back(may_be_nothing(a, row));
  const int64_t width = a.value_width();
  expected[0].also_right = [is_nothing, width](int64_t element, DoubleDouble y) {
    return is_nothing[static_cast<size_t>(element / width)] && (isnan(y) || y.hi == 0);
  };
  if (expected.size() == 1) return;
  expected[1].also_right = [is_nothing](int64_t element, DoubleDouble lse) {
    return is_nothing[static_cast<size_t>(element)] && (isnan(lse) || lse.hi == -HUGE_VAL);
  };
}

std::vector<Expected> expected_sdpa(const CallData& data, const Numerics& numerics) {
  const auto run = [&]<typename N>(N) {
    const auto exact = reference::sdpa(attention_of<N>(data));
    std::vector<Array<N>> outputs = {exact.y};
    if (data.has("lse")) outputs.push_back(exact.lse);
    return outputs;
  };
  Known known = steps(data.tensor("q").dtype, run);
  known.formula = [&](BoundRule rule) {
    if (rule != BoundRule::kAttention) return Bounds();
    Bounds bounds =
        attention::bounds_of(attention_of<double>(data), data.tensor("q").dtype, numerics);
    if (!data.has("lse")) bounds.pop_back();
    return bounds;
  };
  std::vector<Expected> expected = judged(data, std::move(known));
  allow_nothing(data, expected);
  return expected;
}

struct Fills {
  Fill q = kRandom, k = kRandom, v = kRandom;
};

void add_inputs(OpCase& made, const Row& row, bp_dtype dtype, const Fills& fills) {
  made.input("q", dtype, queries_shape(row, row.width), fills.q);
  made.input("k", dtype, keys_shape(row, row.width), fills.k);
  made.input("v", dtype, keys_shape(row, row.value_width), fills.v);
  if (row.mask != Mask::kNone) {
    made.input("mask", BP_BOOL, queries_shape(row, row.keys), kExactDense);
  }
  if (row.has_bias) made.input("bias", dtype, queries_shape(row, row.keys), fills.q);
  if (row.has_sinks) made.input("sinks", accumulator_of(dtype), {row.heads}, fills.q);
  made.set("scale", scale_of(row)).set("causal", static_cast<int64_t>(row.causal));
  made.set("window_left", row.window_left).set("window_right", row.window_right);
  made.set("softcap", row.softcap).set("dropout_p", row.dropout_p);
  if (row.dropout_p != 0) {
    made.set("seed", unsigned_scalar(0x123456789abcdef0)).set("offset", unsigned_scalar(5));
  }
  made.is_smoke = is_smoke_dtype(dtype);
  made.varies = false;
}

OpCase make_forward(const Row& row, bp_dtype dtype, const std::string& fill, const Fills& fills) {
  OpCase made = make_case(BP_OP_SDPA, dtype, fill, detail_of(row), "dense");
  add_inputs(made, row, dtype, fills);
  made.output("y", dtype, queries_shape(row, row.value_width));
  if (row.has_lse) made.output("lse", accumulator_of(dtype), {row.batch, row.heads, row.queries});
  if (row.mask == Mask::kOneKey || row.mask == Mask::kRandomBlind || row.has_blocked_keys) {
    made.derive = [row](CallData& data) {
      derive_mask(data, row);
      derive_bias(data, row);
    };
  }
  made.reference = expected_sdpa;
  return made;
}

// Every query sees one key: y is a row of v, lse is a score, and both are exact.
void add_exact(OpCases& cases, bp_dtype dtype) {
  const Row rows[] = {
      {2, 4, 2, 5, 9, 8, 6, attention::kNoDiagonal, Mask::kOneKey, true, true, 0.5},
      {1, 3, 1, 17, 33, 5, 3, attention::kNoDiagonal, Mask::kOneKey, true, true, 1},
  };
  for (const Row& row : rows) {
    OpCase made = make_forward(row, dtype, "coord", {kExactNarrow, kExactNarrow, kCoord});
    made.is_exact = true;
    cases.push_back(std::move(made));
  }
}

// ---- Backward -------------------------------------------------------------------------------- //

std::vector<Expected> gradients(const CallData& data, bool skips_zeros) {
  return judged_steps(data, data.tensor("q").dtype, [&]<typename N>(N) {
    const auto grads =
        reference::sdpa_backward(attention_of<N>(data), data.array<N>("grad_y"), data.array<N>("y"),
                                 data.array<N>("lse"), skips_zeros);
    std::vector<Array<N>> wanted = {grads.q};
    if (data.has("grad_k")) wanted.push_back(grads.k);
    if (data.has("grad_v")) wanted.push_back(grads.v);
    if (data.has("grad_sinks")) wanted.push_back(grads.sinks);
    return wanted;
  });
}

// Where a key of weight 0 is infinite or NaN, both are right: its products with 0, which are NaN,
// and gradients in which it has no part.
std::vector<Expected> expected_sdpa_backward(const CallData& data, const Numerics& numerics) {
  const bp_dtype input = data.tensor("q").dtype;
  const ProductErrors errors(input_product(input, numerics), numerics.product);
  std::vector<Expected> expected = gradients(data, false);
  const auto has_nan = [](const Expected& each) {
    return std::ranges::any_of(each.value, [](const DoubleDouble& value) { return isnan(value); });
  };
  if (std::ranges::none_of(expected, has_nan)) return expected;
  const std::vector<Expected> others = gradients(data, true);
  for (size_t i = 0; i < expected.size(); ++i) {
    const bool is_of_sinks = data.has("grad_sinks") && i + 1 == expected.size();
    const bp_dtype dtype = is_of_sinks ? accumulator_of(input) : input;
    expected[i].also_right = [nan = expected[i].value, other = others[i], dtype, numerics](
                                 int64_t element, DoubleDouble y) {
      return isnan(nan[static_cast<size_t>(element)]) &&
             accept(dtype, y.hi, exact_at(other, element), numerics);
    };
  }
  return expected;
}

// Computes what the forward op would have saved, rounded to its dtype.
void derive_results(CallData& data) {
  const auto saved = reference::sdpa(attention_of<double>(data));
  const auto store = [&](std::string_view name, const Array<double>& values) {
    HostTensor& tensor = data.tensor(name);
    tensor.data.clear();
    for (const double value : values.data) tensor.data.emplace_back(round_to(tensor.dtype, value));
  };
  store("y", saved.y);
  store("lse", saved.lse);
}

// Without `has_lse`, the case asks only for the gradient of q.
OpCase make_backward(const Row& row, bp_dtype dtype, const std::string& fill, const Fills& fills) {
  OpCase made = make_case(BP_OP_SDPA_BACKWARD, dtype, fill, detail_of(row), "dense");
  made.input("grad_y", dtype, queries_shape(row, row.value_width), kRandom);
  add_inputs(made, row, dtype, fills);
  made.input("y", dtype, queries_shape(row, row.value_width), {});
  made.input("lse", accumulator_of(dtype), {row.batch, row.heads, row.queries}, {});
  made.output("grad_q", dtype, queries_shape(row, row.width));
  if (row.has_lse) {
    made.output("grad_k", dtype, keys_shape(row, row.width));
    made.output("grad_v", dtype, keys_shape(row, row.value_width));
    if (row.has_sinks) made.output("grad_sinks", accumulator_of(dtype), {row.heads});
  }
  made.derive = [row](CallData& data) {
    derive_mask(data, row);
    derive_bias(data, row);
    derive_results(data);
  };
  made.reference = expected_sdpa_backward;
  return made;
}

// Adds a case, and another one whose seed and offset are tensors if it drops some weights.
void add_case(OpCases& cases, OpCase made) {
  if (made.dtype == "f32" && made.detail.ends_with("_dropout")) {
    cases.push_back(with_scalars_as_tensors(made));
  }
  cases.push_back(std::move(made));
}

// Adds cases in which dropout drops values that are infinite: they have no part in any result.
void add_dropped_infinity(OpCases& cases, bp_dtype dtype) {
  Row row{2, 4, 2, 3, 19, 8, 6};
  row.dropout_p = 0.75;
  for (OpCase made :
       {make_forward(row, dtype, "random", {}), make_backward(row, dtype, "random", {})}) {
    made.detail += "_dropped_infinity";
    made.derive = [then = made.derive](CallData& data) {
      derive_dropped_values(data);
      if (then) then(data);
    };
    cases.push_back(std::move(made));
  }
}

// Adds a case for each of the two gradients of keys and values.
void add_partial_backward(OpCases& cases, bp_dtype dtype) {
  const Row row{2, 4, 2, 5, 9, 8, 6, attention::kBottomRight};
  for (const char* left_out : {"grad_k", "grad_v"}) {
    OpCase made = make_backward(row, dtype, "random", {});
    made.detail += std::string("_no") + left_out;
    std::erase_if(made.tensors, [&](const TensorArgument& each) { return each.name == left_out; });
    cases.push_back(std::move(made));
  }
}

}  // namespace

void add_attention(OpCases& cases) {
  // The scores lie far apart, so that single keys have all the weight.
  const Fill wide{FillKind::kUniform, -8, 8};
  for (const bp_dtype dtype : kFloats) {
    for (const Row& row : all_rows()) {
      // The terms act on numbers of the computing type, so most dtypes need one kind of data.
      const bool has_range = !has_later_terms(row) || dtype == BP_F32;
      add_case(cases, make_forward(row, dtype, "random", {}));
      if (has_range) cases.push_back(make_forward(row, dtype, "range", {wide, wide, kRandom}));
      if (row.queries * row.keys > 3000) continue;  // The oracle is slow.
      add_case(cases, make_backward(row, dtype, "random", {}));
      if (has_range) cases.push_back(make_backward(row, dtype, "range", {wide, wide, kRandom}));
    }
    add_exact(cases, dtype);
    add_partial_backward(cases, dtype);
    if (dtype == BP_F32 || dtype == BP_F16) add_dropped_infinity(cases, dtype);
  }
}

}  // namespace bp::conformance
