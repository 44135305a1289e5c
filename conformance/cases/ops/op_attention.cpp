// Cases of sdpa and its gradients. Cases of layouts follow by rule.
#include <algorithm>

#include "conformance/cases/ops/op_families.hpp"
#include "conformance/cases/ops/op_oracles.hpp"
#include "conformance/numerics/bounds.hpp"
#include "conformance/reference/attention.hpp"

namespace bp::conformance {
namespace {

using reference::Attention;

enum class Mask {
  kNone,
  kRandom,
  kRandomBlind,  // Some queries see no key.
  kOneKey,       // Every query sees one key.
};

struct Row {
  int64_t batch, heads, key_heads, queries, keys, width, value_width;
  bool is_causal = false;
  Mask mask = Mask::kNone;
  bool has_bias = false;
  bool has_lse = true;
  double scale = 0;  // 0 means 1 / sqrt(width).
  bool has_blocked_keys =
      false;  // A bias of -inf hides all keys of some queries, and some keys of others.
};

const std::vector<Row>& all_rows() {
  using enum Mask;
  static const std::vector<Row> rows = {
      {1, 1, 1, 1, 1, 1, 1},
      {1, 1, 1, 1, 17, 8, 8},
      {2, 2, 2, 5, 5, 4, 4},
      {2, 2, 2, 5, 5, 4, 4, true},
      {1, 2, 1, 7, 9, 16, 16},
      {2, 6, 2, 3, 5, 8, 8, false, kNone, false, false},
      {2, 6, 2, 3, 5, 8, 8, true, kRandom, true},
      {1, 1, 1, 17, 33, 17, 9},
      {1, 1, 1, 17, 33, 9, 17, true},
      {1, 2, 2, 33, 65, 16, 24, false, kRandom},
      {1, 2, 2, 33, 65, 16, 24, false, kNone, true, false},
      {1, 1, 1, 67, 129, 32, 32, true},
      {1, 1, 1, 130, 70, 16, 16, true},  // The first queries come before every key.
      {1, 2, 1, 6, 3, 8, 8, true, kNone, false, false},
      {1, 1, 1, 1, 300, 16, 16, true},
      {1, 2, 1, 19, 83, 64, 64, true},  // Widths of networks, for kernels of such widths.
      {1, 1, 1, 5, 70, 80, 80},
      {1, 1, 1, 130, 150, 128, 128, true},
      {2, 3, 1, 5, 7, 8, 5, false, kRandomBlind, true},
      {2, 2, 1, 9, 5, 7, 3, true, kRandomBlind, true, false},
      {1, 1, 1, 5, 7, 8, 8, false, kNone, false, true, 1.5},
      {1, 1, 1, 5, 7, 8, 8, false, kNone, false, true, -0.5},
      {1, 1, 1, 9, 5, 8, 8, false, kNone, true, true, 0, true},
      {2, 4, 2, 9, 5, 7, 3, false, kRandom, true, true, 0, true},
      {1, 2, 2, 9, 7, 8, 8, true, kNone, true, true, 0, true},
      {1, 1, 1, 17, 150, 16, 8, false, kNone, true, true, 0, true},
      {1, 1, 1, 0, 5, 4, 4},
      {1, 1, 1, 5, 0, 4, 4},
      {0, 2, 1, 5, 3, 4, 4},
      {1, 0, 1, 5, 3, 4, 4},
      {1, 1, 1, 5, 3, 0, 4, false, kNone, false, true, 1},
      {1, 1, 1, 5, 3, 4, 0},
  };
  return rows;
}

std::string detail_of(const Row& row) {
  const auto number = [](const char* name, int64_t value) { return name + std::to_string(value); };
  std::string text = number("b", row.batch) + number("h", row.heads) + number("g", row.key_heads) +
                     number("q", row.queries) + number("k", row.keys) + number("d", row.width) +
                     number("v", row.value_width);
  constexpr const char* kMasks[] = {"", "_mask", "_blindmask", "_onekey"};
  text += (row.is_causal ? "_causal" : "") + std::string(kMasks[static_cast<int>(row.mask)]);
  text += std::string(row.has_bias ? "_bias" : "") + (row.has_blocked_keys ? "_blocked" : "");
  text += row.has_lse ? "" : "_nolse";
  if (row.scale != 0) text += row.scale < 0 ? "_negative" : "_scaled";
  return text;
}

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
  if (data.has("mask")) a.mask = data.indices("mask");
  if (data.has("bias")) a.bias = data.array<N>("bias");
  a.scale = data.number("scale");
  a.is_causal = data.integer("is_causal") != 0;
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

// ---- Forward --------------------------------------------------------------------------------- //

// The bounds of one query, from the exact scores of the keys that it sees.
struct QueryBounds {
  std::vector<int64_t> seen;
  std::vector<double> weights;  // The exact weights.
  AttentionBounds bounds;
};

QueryBounds bounds_of_query(const Attention<double>& a, const Attention<double>& magnitudes,
                            int64_t row, bp_dtype dtype, const Numerics& numerics) {
  QueryBounds query{a.seen_keys(row), {}, {}};
  std::vector<double> scores, score_bounds;
  for (const int64_t j : query.seen) {
    scores.push_back(a.score(row, j));
    const double magnitude = magnitudes.score(row, j);
    const double bound = sum_bound(magnitude, static_cast<double>(a.width() + 1), numerics) +
                         2 * numerics.unit * magnitude;
    score_bounds.push_back(scores.back() == -HUGE_VAL ? 0 : bound);
  }
  // y is 0 if there are no weights.
  if (std::ranges::count(scores, -HUGE_VAL) == std::ssize(scores)) return {};
  query.bounds = attention_bounds(scores, score_bounds, dtype);
  double peak = -HUGE_VAL, total = 0;
  for (const double score : scores) peak = std::fmax(peak, score);
  for (const double score : scores) total += std::exp(score - peak);
  for (const double score : scores) query.weights.push_back(std::exp(score - peak) / total);
  return query;
}

// The bounds of y, and of lse where the call has it.
Bounds bounds_of(const CallData& data, const Numerics& numerics) {
  Bounds bounds(data.has("lse") ? 2 : 1);
  const bp_dtype dtype = data.tensor("q").dtype;
  const Attention<double> a = attention_of<double>(data);
  Attention<double> magnitudes = a;
  magnitudes.q = absolute(a.q);
  magnitudes.k = absolute(a.k);
  if (a.bias) magnitudes.bias = absolute(*a.bias);
  magnitudes.scale = std::fabs(a.scale);
  const double smallest = float_format(dtype)->smallest_normal();
  for (int64_t row = 0; row < a.row_count(); ++row) {
    const QueryBounds query = bounds_of_query(a, magnitudes, row, dtype, numerics);
    for (int64_t c = 0; c < a.value_width(); ++c) {
      double bound = 0;
      for (size_t i = 0; i < query.seen.size(); ++i) {
        const double v = std::fabs(a.v[a.key_row(row, query.seen[i]) * a.value_width() + c]);
        bound += query.weights[i] * v * query.bounds.relative[i] + smallest * v;
      }
      bounds[0].push_back(bound);
    }
    if (bounds.size() > 1) bounds[1].push_back(query.bounds.lse);
  }
  return bounds;
}

// A query whose scores are all -inf counts as a query that sees no key. It may give NaN if its
// products cause that, and not the bias alone.
void allow_nothing(const CallData& data, std::vector<Expected>& expected) {
  const Attention<double> a = attention_of<double>(data);
  std::vector<bool> is_nothing;
  for (int64_t row = 0; row < a.row_count(); ++row) {
    const std::vector<int64_t> seen = a.seen_keys(row);
    const auto all_seen = [&](const auto& test) {
      return std::all_of(seen.begin(), seen.end(), test);
    };
    const bool is_blocked =
        all_seen([&](int64_t j) { return (*a.bias)[row * a.keys() + j] == -HUGE_VAL; });
    const bool has_weights = !all_seen([&](int64_t j) { return a.score(row, j) == -HUGE_VAL; });
    is_nothing.push_back(!has_weights && !is_blocked);
  }
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
    return rule == BoundRule::kAttention ? bounds_of(data, numerics) : Bounds();
  };
  std::vector<Expected> expected = judged(data, std::move(known));
  if (data.has("bias")) allow_nothing(data, expected);
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
  made.set("scale", scale_of(row)).set("is_causal", int64_t{row.is_causal});
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
      {2, 4, 2, 5, 9, 8, 6, false, Mask::kOneKey, true, true, 0.5},
      {1, 3, 1, 17, 33, 5, 3, false, Mask::kOneKey, true, true, 1},
  };
  for (const Row& row : rows) {
    OpCase made = make_forward(row, dtype, "coord", {kExactNarrow, kExactNarrow, kCoord});
    made.is_exact = true;
    cases.push_back(std::move(made));
  }
}

// ---- Backward -------------------------------------------------------------------------------- //

std::vector<Expected> expected_sdpa_backward(const CallData& data, const Numerics&) {
  return judged_steps(data, data.tensor("q").dtype, [&]<typename N>(N) {
    const auto grads = reference::sdpa_backward(attention_of<N>(data), data.array<N>("grad_y"),
                                                data.array<N>("y"), data.array<N>("lse"));
    std::vector<Array<N>> wanted = {grads.q};
    if (data.has("grad_k")) wanted.push_back(grads.k);
    if (data.has("grad_v")) wanted.push_back(grads.v);
    return wanted;
  });
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
  }
  made.derive = [row](CallData& data) {
    derive_mask(data, row);
    derive_bias(data, row);
    derive_results(data);
  };
  made.reference = expected_sdpa_backward;
  return made;
}

// Adds a case for each of the two gradients of keys and values.
void add_partial_backward(OpCases& cases, bp_dtype dtype) {
  const Row row{2, 4, 2, 5, 9, 8, 6, true};
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
      cases.push_back(make_forward(row, dtype, "random", {}));
      cases.push_back(make_forward(row, dtype, "range", {wide, wide, kRandom}));
      if (row.queries * row.keys > 3000) continue;  // The oracle is slow.
      cases.push_back(make_backward(row, dtype, "random", {}));
      cases.push_back(make_backward(row, dtype, "range", {wide, wide, kRandom}));
    }
    add_exact(cases, dtype);
    add_partial_backward(cases, dtype);
  }
}

}  // namespace bp::conformance
