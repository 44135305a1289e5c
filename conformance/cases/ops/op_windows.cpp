// Cases of adaptive_max_pool, unfold and fold. Cases of layouts follow by rule.
#include <algorithm>

#include "conformance/cases/ops/op_families.hpp"
#include "conformance/cases/ops/op_oracles.hpp"
#include "conformance/reference/pooling.hpp"

namespace bp::conformance {
namespace {

// ---- adaptive_max_pool ----------------------------------------------------------------------- //

struct PoolRow {
  Shape x, output_size;
};

const std::vector<PoolRow>& pool_rows() {
  static const std::vector<PoolRow> rows = {
      {{1, 1, 4}, {2}},         {{2, 3, 17}, {5}},
      {{1, 2, 5}, {7}},  // Windows overlap, and some have one element.
      {{1, 1, 1}, {3}},         {{2, 3, 8, 8}, {4, 2}},
      {{2, 17, 7, 7}, {1, 1}},  {{1, 17, 7, 9}, {3, 4}},
      {{1, 2, 3, 70}, {2, 33}}, {{1, 2, 4, 5, 6}, {2, 3, 4}},
      {{0, 2, 4, 4}, {2, 2}},   {{1, 2, 4, 4}, {0, 3}},
  };
  return rows;
}

std::vector<Expected> expected_adaptive(const CallData& data, const Numerics&) {
  return with_float(data.tensor("x").dtype, [&]<typename N>(N) {
    const auto pooled = reference::adaptive_max_pool(data.array<N>("x"), data.list("output_size"));
    std::vector<Expected> expected = {exactly(pooled.values)};
    if (data.has("indices")) expected.push_back(exactly(pooled.indices));
    return judged_values(data, std::move(expected));
  });
}

void add_adaptive(OpCases& cases, const PoolRow& row, bp_dtype dtype, const std::string& fill,
                  const Fill& numbers, bp_dtype index) {
  std::string detail = shape_text(row.x) + "_to" + shape_text(row.output_size);
  if (index != BP_I64) detail += index == BP_I32 ? "_i32" : "_values";
  Shape y(row.x.begin(), row.x.begin() + 2);
  y.insert(y.end(), row.output_size.begin(), row.output_size.end());
  OpCase made = make_case(BP_OP_ADAPTIVE_MAX_POOL, dtype, fill, detail, "dense");
  made.input("x", dtype, row.x, numbers).output("y", dtype, y);
  if (index != BP_BOOL) made.output("indices", index, y);
  made.set("output_size", row.output_size).reference = expected_adaptive;
  made.is_smoke = dtype == BP_F32 || (dtype == BP_F64 && fill == "repeat");
  made.varies = false;
  cases.push_back(std::move(made));
}

void add_adaptive_rows(OpCases& cases, bp_dtype dtype) {
  constexpr bp_dtype kNoIndices = BP_BOOL;
  for (const PoolRow& row : pool_rows()) {
    add_adaptive(cases, row, dtype, "random", kRandom, BP_I64);
    add_adaptive(cases, row, dtype, "repeat", kRepeat, BP_I64);
    if (row.x.size() == 4) add_adaptive(cases, row, dtype, "repeat", kRepeat, BP_I32);
    if (row.x.size() == 4) add_adaptive(cases, row, dtype, "special", kSpecial, kNoIndices);
  }
  add_adaptive(cases, {{1, 17, 7, 9}, {3, 4}}, dtype, "special", kSpecial, BP_I64);
  add_adaptive(cases, {{1, 17, 7, 9}, {3, 4}}, dtype, "sparse", kSparse, BP_I64);
}

// ---- unfold and fold ------------------------------------------------------------------------- //

struct FoldRow {
  Shape image;
  reference::Window window;
};

const std::vector<FoldRow>& fold_rows() {
  static const std::vector<FoldRow> rows = {
      {{1, 1, 2, 2}, {{1, 1}, {1, 1}, {0, 0, 0, 0}, {1, 1}}},
      {{2, 3, 7, 9}, {{3, 2}, {1, 1}, {0, 0, 0, 0}, {1, 1}}},
      {{2, 3, 7, 9}, {{3, 3}, {2, 1}, {1, 1, 1, 1}, {1, 1}}},
      {{1, 17, 8, 5}, {{2, 2}, {2, 2}, {0, 1, 1, 0}, {1, 1}}},
      {{1, 2, 9, 33}, {{3, 4}, {1, 3}, {2, 0, 0, 3}, {2, 3}}},
      {{1, 2, 4, 4}, {{2, 2}, {3, 3}, {0, 0, 0, 0}, {1, 1}}},  // Some elements are in no window.
      {{0, 2, 4, 4}, {{2, 2}, {1, 1}, {0, 0, 0, 0}, {1, 1}}},
      {{1, 2, 0, 4}, {{2, 2}, {1, 1}, {1, 1, 1, 1}, {1, 1}}},  // All windows lie in the padding.
  };
  return rows;
}

reference::Window window_of(const CallData& data) {
  return {data.list("kernel_size"), data.list("stride"), data.list("padding"),
          data.list("dilation")};
}

std::vector<Expected> expected_unfold(const CallData& data, const Numerics&) {
  return with_float(data.tensor("x").dtype, [&]<typename N>(N) {
    return judged_values(data, {exactly(reference::unfold(data.array<N>("x"), window_of(data)))});
  });
}

std::vector<Expected> expected_fold(const CallData& data, const Numerics& numerics) {
  const Shape& size = data.list("output_size");
  const reference::Window window = window_of(data);
  return with_float(data.tensor("x").dtype, [&]<typename N>(N) {
    const Array<N> x = data.array<N>("x");
    const auto taps = static_cast<double>(element_count(window.kernel_size));
    return judged_sum(data, reference::fold(x, size, window),
                      reference::fold(absolute(x), size, window), taps, numerics);
  });
}

void add_fold_row(OpCases& cases, const FoldRow& row, bp_dtype dtype, const std::string& fill,
                  const Fill& numbers) {
  const reference::Window& window = row.window;
  const std::string detail = shape_text(row.image) + "_k" + shape_text(window.kernel_size) + "_s" +
                             shape_text(window.stride) + "_p" + shape_text(window.padding) + "_d" +
                             shape_text(window.dilation);
  const Shape columns = {row.image[0], row.image[1] * element_count(window.kernel_size),
                         element_count(window.output(std::span(row.image).subspan(2)))};
  OpCase unfold = make_case(BP_OP_UNFOLD, dtype, fill, detail, "dense");
  unfold.input("x", dtype, row.image, numbers).output("y", dtype, columns);
  unfold.reference = expected_unfold;
  OpCase fold = make_case(BP_OP_FOLD, dtype, fill, detail, "dense");
  fold.input("x", dtype, columns, numbers).output("y", dtype, row.image);
  fold.set("output_size", Shape(row.image.begin() + 2, row.image.end()));
  fold.reference = expected_fold;
  fold.is_exact = fill == "exact_dense";
  for (OpCase* made : {&unfold, &fold}) {
    made->set("kernel_size", window.kernel_size).set("stride", window.stride);
    made->set("padding", window.padding).set("dilation", window.dilation);
    made->is_smoke = is_smoke_dtype(dtype);
    made->varies = false;  // There may be more padding than elements.
    cases.push_back(std::move(*made));
  }
}

}  // namespace

void add_windows(OpCases& cases) {
  for (const bp_dtype dtype : kFloats) {
    add_adaptive_rows(cases, dtype);
    for (const FoldRow& row : fold_rows()) {
      add_fold_row(cases, row, dtype, "exact_dense", kExactDense);
      add_fold_row(cases, row, dtype, "random", kRandom);
    }
    add_fold_row(cases, fold_rows()[2], dtype, "special", kSpecial);
  }
}

}  // namespace bp::conformance
