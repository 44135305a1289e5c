// Cases of argmax and argmin, and of the reductions whose formula is in the spec. Data follow from
// the parts of the formula, and values and bounds from the formula itself.
#include <array>
#include <functional>
#include <tuple>
#include <type_traits>

#include "conformance/cases/ops/op_families.hpp"
#include "conformance/cases/ops/op_oracles.hpp"
#include "conformance/reference/reduction.hpp"
#include "conformance/reference/reductions.hpp"

namespace bp::conformance {
namespace {

using enum Layout;
using reductions::Dtypes;

struct Row {
  Shape shape;
  Shape axes;
  bool keepdims = false;
  Layout x = kDense;
  Layout y = kDense;
};

const std::vector<Row>& all_rows() {
  static const std::vector<Row> rows = {
      {{}, {}},
      {{}, {0}},
      {{}, {0}, true},
      {{1}, {0}},
      {{7}, {0}},
      {{8}, {0}},
      {{17}, {0}, true},
      {{67}, {0}},
      {{1031}, {0}},
      {{5, 7}, {0}},
      {{5, 7}, {1}},
      {{5, 7}, {0, 1}},
      {{5, 7}, {}},
      {{5, 7}, {1}, true},
      {{300, 9}, {1}},
      {{9, 300}, {0}},
      {{3, 4, 5}, {1}},
      {{3, 4, 5}, {0, 2}, true},
      {{3, 4, 5}, {2, 0}},
      {{2, 3, 4, 5}, {1, 2}},
      {{2, 3, 4, 5}, {0, 2, 3}},
      {{2, 3, 2, 3, 2}, {1, 3}},
      {{2, 1, 2, 1, 2, 1, 2, 3}, {0, 6}},
      {{2, 1, 2, 1, 2, 3, 2, 1}, {5}, false, kOffset, kOffset},
      {{65, 33}, {0}},
      {{65, 33}, {1}},
      {{5, 7}, {1}, false, kTransposed},
      {{5, 7}, {0}, false, kTransposed},
      {{3, 4, 5}, {1}, false, kPermuted},
      {{5, 19}, {1}, false, kSliced},
      {{5, 19}, {0}, false, kSliced},
      {{19}, {0}, false, kStepped},
      {{5, 19}, {1}, false, kStepped},
      {{5, 19}, {1}, false, kNegative},
      {{5, 19}, {1}, false, kOffset, kOffset},
      {{5, 19}, {0}, false, kBroadcastFirst},
      {{5, 19}, {0}, false, kBroadcastLast},
      {{5, 19}, {1}, false, kBroadcastLast},
      {{4, 5, 7}, {1}, false, kDense, kSliced},
      {{4, 5, 7}, {0}, false, kDense, kTransposed},
      {{2, 3, 2, 3, 2}, {2, 4}, false, kTransposed, kStepped},
  };
  return rows;
}

// Returns rows of size zero, for the ops that have an identity.
const std::vector<Row>& empty_rows() {
  static const std::vector<Row> rows = {
      {{0}, {0}}, {{3, 0}, {1}}, {{3, 0}, {0}}, {{3, 0, 2}, {1}, true}};
  return rows;
}

std::string detail_of(const Row& row) {
  std::string text = shape_text(row.shape) + "_axes";
  for (const int64_t axis : row.axes) text += std::to_string(axis);
  if (row.axes.empty()) text += "none";
  return text + (row.keepdims ? "_keep" : "");
}

std::string layout_of(const Row& row) {
  if (row.y == kDense) return layout_text(row.x);
  return std::string(layout_text(row.x)) + "_to_" + layout_text(row.y);
}

// ---- Oracles --------------------------------------------------------------------------------- //

// Returns the bounds of a formula that adds. The errors of functions such as exp may have one sign,
// so the bias of the sum is not checked for them.
template <typename F, typename N>
Sums added(const CallData& data, const Array<N>& x, const Numerics& numerics) {
  return with_bounded(data.tensor("x").dtype, [&]<typename B>(B) {
    auto found = reference::added_bounds<F, B>(x, data.list("axes"), numerics);
    if (F::kRow.is_long) found.magnitude.clear();
    return Sums{{std::move(found.bounds)}, {std::move(found.magnitude)}};
  });
}

// The oracle captures nothing and depends only on the call, so that it can judge recorded launches
// and smaller versions of failing calls.
template <typename F>
std::vector<Expected> expected_of(const CallData& data, const Numerics& numerics) {
  const auto make = [&]<typename N>(N) {
    const Array<N> x = data.array<N>("x");
    const Shape& axes = data.list("axes");
    const bool keepdims = data.integer("keepdims") != 0;
    Known known{{exactly(reference::reduced_by<F>(x, axes, keepdims))}};
    if constexpr (F::kRow.adds && !std::is_same_v<N, Integer>) {
      known.sums = [&] { return added<F>(data, x, numerics); };
      known.is_one_sided = F::kRow.is_long;
    }
    if constexpr (F::kRow.multiplies && !std::is_same_v<N, Integer>) {
      const reference::ProductBounds found = reference::product_bounds<F>(x, axes, numerics);
      known.sums = [found] { return Sums{{found.bounds}, {found.magnitude}}; };
      known.outputs[0].also_right = [lost = found.is_lost](int64_t element, DoubleDouble) {
        return static_cast<bool>(lost[static_cast<size_t>(element)]);
      };
    }
    if constexpr (F::kRow.is_largest || F::kRow.is_smallest) {
      // Zeros of both signs are equal, and either may be the most extreme one.
      known.outputs[0].free_zero_sign.assign(known.outputs[0].value.size(), true);
    }
    std::vector<Expected> expected = judged(data, std::move(known));
    // Without axes the result is x, and no zero changes its sign.
    const bool rounds = F::kRow.adds || F::kRow.multiplies;
    if (rounds && F::kRow.copies_one && axes.empty()) expected[0].sign_of_zero = true;
    return expected;
  };
  if constexpr (F::kRow.dtypes == Dtypes::kFloats) {
    return with_float(data.tensor("x").dtype, make);
  } else {
    return with_number(data.tensor("x").dtype, make);
  }
}

// Makes the ops in the order of kRows.
template <typename... F>
constexpr auto make_oracles(std::type_identity<std::tuple<F...>>) {
  return std::array{&expected_of<F>...};
}
constexpr auto kOracles = make_oracles(std::type_identity<reductions::Formulas>());

// Returns the indices of the largest elements, or else of the smallest ones.
template <bool kWantsLargest>
std::vector<Expected> expected_index(const CallData& data, const Numerics& numerics) {
  const int64_t axis = data.integer("axis");
  const bool keepdims = data.integer("keepdims") != 0;
  return with_number(data.tensor("x").dtype, [&]<typename N>(N) {
    const Array<N> x = data.array<N>("x");
    const Array<int64_t> best =
        kWantsLargest ? reference::argmax(x, axis, keepdims) : reference::argmin(x, axis, keepdims);
    Known known{{exactly(best)}};
    if (!numerics.any_tie) return judged(data, std::move(known));
    known.is_tied = [x, best, axis](int64_t element, DoubleDouble y) {
      const AxisView view(x.shape, static_cast<size_t>(axis));
      const int64_t i = to_int64(y), outer = element / view.inner_size;
      const int64_t inner = element % view.inner_size;
      if (i < 0 || i >= view.extent) return false;
      const N chosen = x[view.at(outer, i, inner)];
      const N extreme = x[view.at(outer, best[element], inner)];
      return kWantsLargest ? !reference::is_larger(extreme, chosen)
                           : !reference::is_smaller(extreme, chosen);
    };
    return judged(data, std::move(known));
  });
}

// ---- Cases ----------------------------------------------------------------------------------- //

// The rows of argmax and argmin, which have no formula, with the properties that they share with
// the others.
constexpr reductions::Row kArgmax{
    .op = BP_OP_ARGMAX, .dtypes = Dtypes::kOrdered, .is_largest = true};
constexpr reductions::Row kArgmin{
    .op = BP_OP_ARGMIN, .dtypes = Dtypes::kOrdered, .is_smallest = true};
// Numbers near 1, whose products neither overflow nor vanish.
constexpr Fill kFactors{FillKind::kLogUniform, -0.25, 0.25};

// Masks every other element, and all elements of the first row.
void mask(CallData& data) {
  HostTensor& x = data.tensor("x");
  for (size_t i = 0; i < x.data.size(); ++i) {
    if (i % 2 == 0 || i < static_cast<size_t>(x.shape.back())) x.data[i] = -HUGE_VAL;
  }
}

// Puts one NaN into each row of a square, and into each column: each place of a line has it once.
void put_nan_in_each_lane(CallData& data) {
  HostTensor& x = data.tensor("x");
  for (int64_t i = 0; i < x.shape[0]; ++i) {
    x.data[static_cast<size_t>(i * x.shape[1] + i)] = std::nan("");
  }
}

// Gives the rows sums that are small, on the way to which f16 overflows. The second half of a row
// takes the first half away.
void overflow_on_the_way(CallData& data) {
  HostTensor& x = data.tensor("x");
  const int64_t width = x.shape[1], half = width / 2;
  for (int64_t i = 0; i < static_cast<int64_t>(x.data.size()); ++i) {
    const int64_t at = i % width;
    const double value = 30'000 + 16 * static_cast<double>(at % half);
    x.data[static_cast<size_t>(i)] = at < half ? value : at < 2 * half ? -value : 3;
  }
}

// Makes integers odd, so that their product does not become 0 when it wraps.
void make_odd(CallData& data) {
  for (DoubleDouble& x : data.tensor("x").data) {
    if (to_int64(x) % 2 == 0) x = DoubleDouble(1.0);
  }
}

// Makes elements 0: those of about one value of 11, of ten of 11, or all. Equal elements stay
// equal, because they may share their memory, so a bool becomes 0 only with all others.
template <size_t kFewest, size_t kOf>
void put_zeros(CallData& data) {
  HostTensor& x = data.tensor("x");
  for (DoubleDouble& value : x.data) {
    const bool is_chosen = std::hash<double>()(value.hi) % kOf < kFewest;
    if (kFewest == kOf || (is_chosen && x.dtype != BP_BOOL)) value = DoubleDouble(0.0);
  }
}

class Rows {
 public:
  Rows(OpCases& cases, const reductions::Row& op, Reference reference, bp_dtype dtype)
      : cases_(cases), op_(op), reference_(std::move(reference)), dtype_(dtype) {
    specials_ = static_cast<int64_t>(special_values(dtype).size());
  }

  void add_all() {
    if (op_.counts) return add_counts();
    if (op_.multiplies) return add_products();
    for (const Row& row : all_rows()) {
      if (!can_take(row)) continue;
      add("exact_dense", kExactDense, row);
      if (gives_index()) add_i32(row);
      if (op_.adds && is_float(dtype_)) add("random", kRandom, row);
      // The data have tied extremes.
      if (!op_.adds && dtype_ != BP_I64) add("repeat", kRepeat, row);
    }
    if (is_float(dtype_)) add_lanes();
    if (!op_.adds) {
      add_extremes();
      add("tail", kExactDense, {{3, 0}, {0}, false, kDense, kDense});
      return;
    }
    for (const Row& row : empty_rows()) add("tail", kExactDense, row);
    if (dtype_ == BP_I64) add("wraps", {FillKind::kUniform, 0x1p61, 0x1p62}, {{5, 67}, {1}});
    if (!is_float(dtype_)) return;
    if (!op_.has_map) {
      for (const Row& row : {Row{{5, 67}, {1}}, Row{{3, 1031}, {1}}}) {
        add("overflows", kRandom, row).derive = overflow_on_the_way;
      }
    }
    add("positive", kPositive, {{5, 1031}, {1}});
    add("special", kSpecial, {{3, specials_}, {}});
    add("special", kSpecial, {{specials_, 3}, {}, true, kTransposed});
    if (op_.has_shift) add_shifted();
  }

 private:
  bool gives_index() const { return op_.op == BP_OP_ARGMAX || op_.op == BP_OP_ARGMIN; }
  bool can_take(const Row& row) const { return !gives_index() || row.axes.size() == 1; }

  // Returns the dtype of y that the cases ask for.
  bp_dtype result_dtype() const {
    if (op_.is_any || op_.is_all) return BP_BOOL;
    const bool gives_i64 = gives_index() || op_.counts || (op_.gives_i64 && !is_float(dtype_));
    return gives_i64 ? bp_dtype{BP_I64} : dtype_;
  }

  OpCase& add(const std::string& fill, const Fill& data, const Row& row) {
    const bool is_sum = (op_.adds || op_.multiplies) && !op_.has_map && !op_.has_finish;
    OpCase made = make_case(op_.op, dtype_, fill, detail_of(row), layout_of(row));
    made.input("x", dtype_, row.shape, data, row.x);
    made.output("y", result_dtype(), reference::reduced(row.shape, row.axes, row.keepdims), row.y);
    made.set("keepdims", int64_t{row.keepdims}).reference = reference_;
    if (gives_index()) {
      made.set("axis", row.axes.front());
    } else {
      made.set("axes", row.axes);
    }
    made.varies = false;  // A reduction may have one output, or equal outputs.
    made.is_smoke = is_smoke_dtype(dtype_) || dtype_ == BP_I64 || dtype_ == BP_BOOL;
    const bool sums_bools = op_.gives_i64 && dtype_ == BP_BOOL;
    if (!sums_bools && !op_.counts) made.optional_part = small_part(dtype_);
    made.is_exact = (row.axes.empty() && op_.copies_one) || (is_sum && fill == "exact_dense");
    cases_.push_back(std::move(made));
    return cases_.back();
  }

  void add_lanes() {
    for (const int64_t axis : {0, 1}) {
      add("nan_lanes", kRandom, {{67, 67}, {axis}}).derive = put_nan_in_each_lane;
    }
  }

  void add_products() {
    for (const Row& row : all_rows()) {
      if (is_float(dtype_)) {
        add("random", kFactors, row);
      } else if (dtype_ == BP_BOOL) {
        add("repeat", kRepeat, row);
      } else {
        add("odd", kExactDense, row).derive = make_odd;
      }
    }
    // Products of up to seven of these integers are exact.
    for (const Row& row : {Row{{5, 7}, {1}}, Row{{4, 300}, {0}}, Row{{3, 2, 5}, {1}}}) {
      add("exact_dense", kExactDense, row);
      if (dtype_ != BP_BOOL) add("repeat", kRepeat, row);  // It has zeros.
    }
    for (const Row& row : empty_rows()) add("tail", kExactDense, row);
    if (!is_float(dtype_)) return;
    add_lanes();
    add("special", kSpecial, {{3, specials_}, {}});
    add("special", kSpecial, {{specials_, 3}, {}, true, kTransposed});
    add_extremes();
  }

  void add_counts() {
    for (const Row& row : all_rows()) {
      if (dtype_ != BP_BOOL) add("exact_dense", kExactDense, row);  // No element is 0.
      add("few_zeros", kExactDense, row).derive = put_zeros<1, 11>;
      add("many_zeros", kExactDense, row).derive = put_zeros<10, 11>;
    }
    add("all_zeros", kExactDense, {{5, 1031}, {1}}).derive = put_zeros<1, 1>;
    add("all_zeros", kExactDense, {{67, 33}, {0}}).derive = put_zeros<1, 1>;
    for (const Row& row : empty_rows()) add("tail", kExactDense, row);
    if (!is_float(dtype_)) return;
    add_lanes();
    add("special", kSpecial, {{3, specials_}, {}});
    add_extremes();
  }

  // Adds the row with indices of i32.
  void add_i32(const Row& row) {
    OpCase& made = add("exact_dense", kExactDense, row);
    made.tensors.back().dtype = BP_I32;
    made.detail += "_i32";
  }

  // Adds special values whose effect on the result does not depend on the order.
  void add_extremes() {
    add("special", kSpecial, {{specials_, 3}, {1}});
    add("special", kSpecialSlow, {{specials_, specials_}, {1}});
  }

  // Adds elements that overflow or vanish without the shift, and infinities that must not meet the
  // shift.
  void add_shifted() {
    add("special", kSpecial, {{specials_, 3}, {1}});
    add("special", kSpecialSlow, {{specials_, specials_}, {1}});
    for (const Row& row : {Row{{5, 19}, {1}}, Row{{65, 33}, {0}}, Row{{3, 4, 5}, {0, 2}, true}}) {
      add("above", {FillKind::kUniform, 800, 810}, row);
      add("below", {FillKind::kUniform, -810, -800}, row);
      add("apart", {FillKind::kUniform, -400, 400}, row);
      add("masked", kRandom, row).derive = mask;
    }
    for (const Row& row : {Row{{4099}, {0}}, Row{{4099, 3}, {0}}, Row{{3, 4099}, {1}}}) {
      add("equal", {FillKind::kUniform, 0.5, 0.5}, row);
    }
  }

  OpCases& cases_;
  const reductions::Row& op_;
  Reference reference_;
  bp_dtype dtype_;
  int64_t specials_;
};

void add_dtypes(OpCases& cases, const reductions::Row& op, const Reference& reference) {
  for (const bp_dtype dtype : kFloats) Rows(cases, op, reference, dtype).add_all();
  if (op.dtypes == Dtypes::kFloats) return;
  for (const bp_dtype dtype : {BP_I32, BP_I64}) Rows(cases, op, reference, dtype).add_all();
  if (op.dtypes == Dtypes::kNumbers) return;
  for (const bp_dtype dtype : {BP_U8, BP_I8, BP_I16}) Rows(cases, op, reference, dtype).add_all();
  if (op.dtypes != Dtypes::kSmall) Rows(cases, op, reference, BP_BOOL).add_all();
}

}  // namespace

void add_reduction(OpCases& cases) {
  for (size_t i = 0; i < kOracles.size(); ++i) {
    add_dtypes(cases, reductions::kRows[i], kOracles[i]);
  }
  add_dtypes(cases, kArgmax, expected_index<true>);
  add_dtypes(cases, kArgmin, expected_index<false>);
}

}  // namespace bp::conformance
