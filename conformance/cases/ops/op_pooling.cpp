// Cases of max_pool and avg_pool and of their gradients.
#include <algorithm>

#include "conformance/cases/ops/op_families.hpp"
#include "conformance/cases/ops/op_oracles.hpp"
#include "conformance/reference/pooling.hpp"

namespace bp::conformance {
namespace {

using enum Layout;
using reference::Window;

struct Row {
  Shape x;
  Window window;
  bool has_indices = true;
  Layout lies = kDense;
  Layout result = kDense;
};

const std::vector<Row>& all_rows() {
  static const std::vector<Row> rows = {
      {{1, 1, 4}, {{2}, {2}, {0, 0}, {1}}},
      {{2, 3, 17}, {{3}, {2}, {1, 1}, {1}}},
      {{1, 2, 9}, {{2}, {1}, {0, 2}, {3}}},
      {{1, 1, 1, 1}, {{1, 1}, {1, 1}, {0, 0, 0, 0}, {1, 1}}},
      {{2, 3, 8, 8}, {{2, 2}, {2, 2}, {0, 0, 0, 0}, {1, 1}}},
      {{2, 3, 8, 8}, {{2, 2}, {2, 2}, {0, 0, 0, 0}, {1, 1}}, false},
      {{1, 17, 7, 9}, {{3, 3}, {2, 2}, {1, 1, 1, 1}, {1, 1}}},
      {{1, 16, 7, 9}, {{3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}}},
      {{1, 2, 7, 9}, {{3, 2}, {1, 3}, {1, 0, 0, 1}, {2, 1}}},
      {{1, 2, 3, 3}, {{2, 2}, {2, 2}, {2, 2, 2, 2}, {1, 1}}},  // Some windows hold only padding.
      {{0, 2, 4, 4}, {{2, 2}, {2, 2}, {0, 0, 0, 0}, {1, 1}}},
      {{1, 0, 4, 4}, {{2, 2}, {2, 2}, {0, 0, 0, 0}, {1, 1}}},
      {{1, 2, 0, 4}, {{2, 2}, {1, 2}, {1, 0, 1, 0}, {1, 1}}},
      {{1, 2, 4, 5, 6}, {{2, 3, 2}, {2, 1, 2}, {0, 1, 0, 0, 1, 0}, {1, 1, 1}}},
      {{2, 3, 8, 8}, {{2, 2}, {2, 2}, {0, 0, 0, 0}, {1, 1}}, true, kPermuted},
      {{2, 3, 8, 8}, {{2, 2}, {2, 2}, {0, 0, 0, 0}, {1, 1}}, true, kTransposed, kSliced},
      {{2, 3, 8, 8}, {{3, 3}, {2, 2}, {1, 1, 1, 1}, {1, 1}}, true, kSliced},
      {{2, 3, 8, 8}, {{3, 3}, {2, 2}, {1, 1, 1, 1}, {1, 1}}, true, kOffset, kOffset},
      {{2, 3, 8, 8}, {{3, 3}, {2, 2}, {1, 1, 1, 1}, {1, 1}}, true, kStepped},
      {{2, 3, 8, 8}, {{3, 3}, {2, 2}, {1, 1, 1, 1}, {1, 1}}, true, kNegative},
      {{2, 3, 8, 8}, {{3, 3}, {2, 2}, {1, 1, 1, 1}, {1, 1}}, true, kBroadcastFirst},
  };
  return rows;
}

std::string detail_of(const Row& row) {
  return shape_text(row.x) + "_k" + shape_text(row.window.kernel_size) + "_s" +
         shape_text(row.window.stride) + "_p" + shape_text(row.window.padding) + "_d" +
         shape_text(row.window.dilation) + (row.has_indices ? "" : "_values");
}

std::string layout_of(const Row& row) {
  if (row.result == kDense) return layout_text(row.lies);
  return std::string(layout_text(row.lies)) + "_to_" + layout_text(row.result);
}

Shape pooled_shape(const Row& row) {
  Shape shape(row.x.begin(), row.x.begin() + 2);
  const Shape windows = row.window.output(std::span(row.x).subspan(2));
  shape.insert(shape.end(), windows.begin(), windows.end());
  return shape;
}

std::vector<Expected> expected_forward(const CallData& data, const Numerics&) {
  const Window window{data.list("kernel_size"), data.list("stride"), data.list("padding"),
                      data.list("dilation")};
  return with_float(data.tensor("x").dtype, [&]<typename N>(N) {
    const auto pooled = reference::max_pool(data.array<N>("x"), window);
    std::vector<Expected> expected = {exactly(pooled.values)};
    if (data.has("indices")) expected.push_back(exactly(pooled.indices));
    return judged_values(data, std::move(expected));
  });
}

std::vector<Expected> expected_backward(const CallData& data, const Numerics& numerics) {
  return with_float(data.tensor("grad_y").dtype, [&]<typename N>(N) {
    const Array<N> grad = data.array<N>("grad_y");
    const Shape& size = data.list("input_size");
    const Array<int64_t> indices =
        acting_indices(data, "indices", element_count(size), int64_t{-1});
    Array<N> ones = grad;
    for (N& value : ones.data) value = N(1);
    double most = 1;
    for (const N& count : reference::max_pool_backward(ones, indices, size).data) {
      most = std::fmax(most, exact_of(count).hi);
    }
    return judged_sum(data, reference::max_pool_backward(grad, indices, size),
                      reference::max_pool_backward(absolute(grad), indices, size), most, numerics);
  });
}

// Makes every other zero a -0. Zeros of both signs are tied, and the sign of y shows which one was
// chosen.
void flip_zeros(CallData& data) {
  bool is_flipped = false;
  for (DoubleDouble& value : data.tensor("x").data) {
    if (value.hi != 0) continue;
    is_flipped = !is_flipped;
    value = DoubleDouble(is_flipped ? -0.0 : 0.0);
  }
}

void add_forward(OpCases& cases, bp_dtype dtype, const std::string& fill, const Fill& data,
                 bool is_smoke) {
  for (const Row& row : all_rows()) {
    // Each row with indices is also tested without them below. Elements that share memory cannot
    // have zeros of two signs.
    if (fill == "zeros" && (!row.has_indices || row.lies == kBroadcastFirst)) continue;
    OpCase made = make_case(BP_OP_MAX_POOL, dtype, fill, detail_of(row), layout_of(row));
    made.input("x", dtype, row.x, data, row.lies);
    made.output("y", dtype, pooled_shape(row), row.result);
    if (row.has_indices) made.output("indices", BP_I64, pooled_shape(row), row.result);
    made.set("kernel_size", row.window.kernel_size).set("stride", row.window.stride);
    made.set("padding", row.window.padding).set("dilation", row.window.dilation);
    made.reference = expected_forward;
    made.is_smoke = is_smoke;
    made.varies = false;
    if (fill == "zeros") made.derive = flip_zeros;
    cases.push_back(std::move(made));
    if (fill != "zeros") continue;
    OpCase values = cases.back();
    values.detail += "_values";
    std::erase_if(values.tensors, [](const auto& tensor) { return tensor.name == "indices"; });
    cases.push_back(std::move(values));
  }
}

// Computes what the forward op would have found on some input of the call's shape.
void derive_indices(CallData& data, const Window& window) {
  const Shape &grad = data.tensor("grad_y").shape, &size = data.list("input_size");
  Shape shape(grad.begin(), grad.begin() + 2);
  shape.insert(shape.end(), size.begin(), size.end());
  Array<double> x(shape);
  for (int64_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(i * 7919 % 1009);
  data.tensor("indices").data = exactly(reference::max_pool(x, window).indices).value;
}

void add_backward(OpCases& cases, bp_dtype dtype, bool is_smoke) {
  for (const Row& row : all_rows()) {
    if (!row.has_indices) continue;
    OpCase made =
        make_case(BP_OP_MAX_POOL_BACKWARD, dtype, "exact_dense", detail_of(row), layout_of(row));
    const Shape pooled = pooled_shape(row);
    made.input("grad_y", dtype, pooled, kExactDense, row.lies).input("indices", BP_I64, pooled, {});
    made.output("grad_x", dtype, row.x, row.result);
    made.set("input_size", Shape(row.x.begin() + 2, row.x.end()));
    made.derive = [window = row.window](CallData& data) { derive_indices(data, window); };
    made.reference = expected_backward;
    made.is_exact = true;
    made.is_smoke = is_smoke;
    made.varies = false;  // Elements that were not chosen have no gradient.
    cases.push_back(std::move(made));
  }
}

// One index is out of range, and is not the -1 that names no element: the stream fails.
void add_out_of_range(OpCases& cases) {
  OpCases rows;
  add_backward(rows, BP_F32, true);
  for (const int64_t wrong : {int64_t{-2}, int64_t{64}, int64_t{1} << 40}) {
    OpCase made = *std::ranges::find(rows, Shape{2, 3, 8, 8},
                                     [](const OpCase& row) { return row.tensors.back().shape; });
    made.fill = "out_of_range";
    made.detail += "_index" + std::to_string(wrong);
    made.fails_on_device = true;
    made.derive = [derive = made.derive, wrong](CallData& data) {
      derive(data);
      data.tensor("indices").data[5] = DoubleDouble::from_int64(wrong);
    };
    cases.push_back(std::move(made));
  }
}

// ---- avg_pool: layouts come by rule ---------------------------------------------------------- //

struct AverageRow {
  Shape x;
  Window window;
};

const std::vector<AverageRow>& average_rows() {
  static const std::vector<AverageRow> rows = {
      {{1, 1, 4}, {{2}, {2}, {0, 0}, {1}}},
      {{2, 3, 17}, {{3}, {2}, {1, 1}, {1}}},
      {{1, 2, 9}, {{4}, {1}, {0, 3}, {1}}},
      {{1, 1, 1, 1}, {{1, 1}, {1, 1}, {0, 0, 0, 0}, {1, 1}}},
      {{2, 3, 8, 8}, {{2, 2}, {2, 2}, {0, 0, 0, 0}, {1, 1}}},
      {{2, 17, 7, 7}, {{7, 7}, {7, 7}, {0, 0, 0, 0}, {1, 1}}},  // The result is the mean of a
                                                                // plane.
      {{1, 17, 7, 9}, {{3, 3}, {2, 2}, {1, 1, 1, 1}, {1, 1}}},
      {{1, 2, 7, 9}, {{3, 2}, {1, 3}, {1, 0, 0, 1}, {1, 1}}},
      {{1, 2, 3, 3}, {{2, 2}, {2, 2}, {2, 2, 2, 2}, {1, 1}}},  // Some windows hold only padding.
      {{1, 2, 5, 5}, {{4, 4}, {1, 1}, {2, 1, 0, 2}, {1, 1}}},
      {{0, 2, 4, 4}, {{2, 2}, {2, 2}, {0, 0, 0, 0}, {1, 1}}},
      {{1, 0, 4, 4}, {{2, 2}, {2, 2}, {0, 0, 0, 0}, {1, 1}}},
      {{1, 2, 0, 4}, {{2, 2}, {1, 2}, {1, 0, 1, 0}, {1, 1}}},
      {{1, 2, 4, 5, 6}, {{2, 3, 2}, {2, 1, 2}, {0, 1, 0, 0, 1, 0}, {1, 1, 1}}},
  };
  return rows;
}

double taps_of(const Window& window) {
  return static_cast<double>(element_count(window.kernel_size));
}

// Averages have no dilation.
Window average_window(const CallData& data) {
  const Shape& kernel_size = data.list("kernel_size");
  return {kernel_size, data.list("stride"), data.list("padding"), Shape(kernel_size.size(), 1)};
}

std::vector<Expected> expected_average(const CallData& data, const Numerics& numerics) {
  const Window window = average_window(data);
  const bool counts_padding = data.integer("counts_padding") != 0;
  return with_float(data.tensor("x").dtype, [&]<typename N>(N) {
    const Array<N> x = data.array<N>("x");
    return judged_sum(data, reference::avg_pool(x, window, counts_padding),
                      reference::avg_pool(absolute(x), window, counts_padding), taps_of(window),
                      numerics);
  });
}

std::vector<Expected> expected_average_backward(const CallData& data, const Numerics& numerics) {
  const Window window = average_window(data);
  const bool counts_padding = data.integer("counts_padding") != 0;
  return with_float(data.tensor("grad_y").dtype, [&]<typename N>(N) {
    const Array<N> grad = data.array<N>("grad_y");
    const Shape& size = data.list("input_size");
    const Array<N> sums = reference::avg_pool_backward(grad, window, size, counts_padding);
    const Array<N> magnitudes =
        reference::avg_pool_backward(absolute(grad), window, size, counts_padding);
    Known known = summed(sums, magnitudes, taps_of(window), numerics);
    known.is_one_sided = true;  // The elements of a window are equal, and round alike.
    return judged(data, std::move(known));
  });
}

// Without padding, and with windows of a power of 2 elements, nothing is rounded.
bool is_exact_average(const Window& window, bool counts_padding) {
  const auto taps = static_cast<uint64_t>(taps_of(window));
  const bool is_padded = std::any_of(window.padding.begin(), window.padding.end(),
                                     [](int64_t extent) { return extent != 0; });
  return (taps & (taps - 1)) == 0 && (counts_padding || !is_padded);
}

void add_average(OpCases& cases, bp_dtype dtype, bool is_exact) {
  for (const AverageRow& row : average_rows()) {
    for (const bool counts_padding : {true, false}) {
      if (is_exact && !is_exact_average(row.window, counts_padding)) continue;
      const std::string detail = shape_text(row.x) + "_k" + shape_text(row.window.kernel_size) +
                                 "_s" + shape_text(row.window.stride) + "_p" +
                                 shape_text(row.window.padding) +
                                 (counts_padding ? "_counts" : "_skips");
      const std::string fill = is_exact ? "exact_dense" : "random";
      const Fill data = is_exact ? kExactDense : kRandom;
      const Shape pooled = pooled_shape({row.x, row.window});
      OpCase forward = make_case(BP_OP_AVG_POOL, dtype, fill, detail, "dense");
      forward.input("x", dtype, row.x, data).output("y", dtype, pooled);
      forward.reference = expected_average;
      OpCase backward = make_case(BP_OP_AVG_POOL_BACKWARD, dtype, fill, detail, "dense");
      backward.input("grad_y", dtype, pooled, data).output("grad_x", dtype, row.x);
      backward.set("input_size", Shape(row.x.begin() + 2, row.x.end()));
      backward.reference = expected_average_backward;
      for (OpCase* made : {&forward, &backward}) {
        made->set("kernel_size", row.window.kernel_size).set("stride", row.window.stride);
        made->set("padding", row.window.padding);
        made->set("counts_padding", int64_t{counts_padding});
        made->is_exact = is_exact;
        made->is_smoke = is_smoke_dtype(dtype);
        made->varies = false;  // The results of windows that hold only padding are zero.
        cases.push_back(std::move(*made));
      }
    }
  }
}

// The sum of a window overflows f16, and its mean does not.
void add_overflowing(OpCases& cases) {
  OpCases rows;
  add_average(rows, BP_F16, false);
  for (OpCase& row : rows) {
    if (row.op != BP_OP_AVG_POOL) continue;
    row.fill = "overflows";
    row.tensors.front().fill = {FillKind::kUniform, 30'000, 40'000};
    cases.push_back(std::move(row));
  }
}

// Indices out of range that do not fail.
void add_bounds(OpCases& cases, OutOfRange rule) {
  OpCases rows;
  add_backward(rows, BP_F32, true);
  const auto found = std::ranges::find(rows, Shape{2, 3, 8, 8},
                                       [](const OpCase& row) { return row.tensors.back().shape; });
  cases.push_back(with_bounds(*found, rule, "indices", 64, -1));
}

// Indices of i32.
void add_i32(OpCases& cases) {
  OpCases rows;
  add_forward(rows, BP_F32, "repeat", kRepeat, true);
  add_backward(rows, BP_F32, true);
  for (OpCase& row : rows) {
    const auto indices = std::ranges::find(row.tensors, std::string_view("indices"),
                                           [](const TensorArgument& t) { return t.name; });
    if (indices == row.tensors.end() || row.tensors.front().layout != kDense) continue;
    indices->dtype = BP_I32;
    row.detail += "_i32";
    cases.push_back(std::move(row));
  }
}

}  // namespace

void add_pooling(OpCases& cases) {
  for (const bp_dtype dtype : {BP_F32, BP_F64, BP_F16, BP_BF16}) {
    const bool is_smoke = dtype == BP_F32 || dtype == BP_F64;
    add_forward(cases, dtype, "random", kRandom, is_smoke);
    add_forward(cases, dtype, "repeat", kRepeat, is_smoke);  // The data have tied extremes.
    add_forward(cases, dtype, "special", kSpecial, is_smoke);
    add_forward(cases, dtype, "zeros", {FillKind::kIndex, -2, 1}, is_smoke);
    add_backward(cases, dtype, is_smoke);
    add_average(cases, dtype, true);
    add_average(cases, dtype, false);
  }
  add_overflowing(cases);
  add_out_of_range(cases);
  add_i32(cases);
  add_bounds(cases, OutOfRange::kClamp);
  add_bounds(cases, OutOfRange::kUndefined);
}

}  // namespace bp::conformance
