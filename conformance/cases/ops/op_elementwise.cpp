// Cases of the element-wise ops whose formula is in the spec. Shapes, layouts and data follow from
// the kind of the op and its `samples`; values and bounds follow from the formula.
#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <utility>

#include "conformance/cases/ops/op_families.hpp"
#include "conformance/cases/ops/op_oracles.hpp"
#include "conformance/numerics/bounds.hpp"
#include "conformance/reference/elementwise.hpp"
#include "conformance/reference/library.hpp"

namespace bp::conformance {
namespace {

using elementwise::Dtypes;
using elementwise::kMostInputs;
using Op = elementwise::Row;

// ---- Oracles --------------------------------------------------------------------------------- //

// Returns the inputs as the op sees them: an inline scalar is a number of acc(x).
template <typename N>
std::vector<Array<N>> inputs_of(const Op& op, const CallData& data) {
  std::vector<Array<N>> inputs;
  for (uint32_t i = 0; i < op.input_count; ++i) {
    if (data.has(op.inputs[i])) {
      inputs.push_back(data.array<N>(op.inputs[i]));
      continue;
    }
    const DoubleDouble value = data.operand(op.inputs[i], data.tensor(op.inputs[0]).dtype);
    Array<N>& repeated = inputs.emplace_back(data.tensor(op.inputs[0]).shape);
    for (N& element : repeated.data) {
      if constexpr (std::is_same_v<N, Integer>) {
        element = Integer(to_int64(value));
      } else if constexpr (std::is_same_v<N, DoubleDouble>) {
        element = value;
      } else {
        element = N(value.hi);
      }
    }
  }
  return inputs;
}

template <typename N>
Array<N> computed(const Op& op, const std::vector<Array<N>>& inputs) {
  Array<N> y(inputs[0].shape);
  for (int64_t i = 0; i < y.size(); ++i) {
    std::array<N, kMostInputs> x;
    for (size_t k = 0; k < inputs.size(); ++k) x[k] = inputs[k][i];
    y[i] = elementwise::value_of(op.op, x.data());
  }
  return y;
}

// Returns the elements for which `is_it` holds for an input.
template <typename N, typename Is>
std::vector<bool> where_an_input(const std::vector<Array<N>>& inputs, Is is_it) {
  std::vector<bool> found(inputs[0].data.size());
  for (const Array<N>& input : inputs) {
    for (size_t i = 0; i < found.size(); ++i) {
      if (is_it(exact_of(input.data[i]).hi)) found[i] = true;
    }
  }
  return found;
}

double primitive_bound(std::string_view primitive, bp_dtype dtype, double x, double r,
                       const Numerics& numerics) {
  if (primitive == "div") return divide_bound(dtype, r, numerics);
  if (primitive == "sqrt") return sqrt_bound(dtype, r, numerics);
  if (primitive == "exp") return exp_bound(dtype, x, r, numerics);
  if (primitive == "log") return log_bound(dtype, x, r, numerics);
  if (primitive == "tanh") return tanh_bound(dtype, r);
  if (primitive == "erfinv") return erfinv_bound(dtype, r);
  const double ulps = library_ulps(primitive);
  if (ulps != 0) return function_bound(dtype, r, ulps);
  throw std::out_of_range("no bound of the primitive " + std::string(primitive));
}

// The elements of a formula with several steps.
struct Propagated {
  std::vector<double> bounds;        // B of each element.
  std::vector<bool> is_lost;         // A step before the last one may overflow.
  std::vector<bool> is_lost_beside;  // The same where infinite arguments are 0 instead.
};

// If an argument is infinite and the formula takes 0 times infinity, it gives NaN in place of its
// limit. The limit, which is found at the largest number, is also right, and for gradients NaN is
// right too. If finite arguments let a step before the last one overflow, any result is right;
// beside an infinite argument, which that step may cancel, NaN is.
template <typename N>
void allow_limits(Expected& expected, const Op& op, bp_dtype dtype, std::vector<Array<N>> inputs,
                  const Propagated& found) {
  const auto is_infinite = where_an_input(inputs, [](double x) { return std::isinf(x); });
  for (Array<N>& input : inputs) {
    for (N& x : input.data) {
      const double value = exact_of(x).hi;
      if (std::isinf(value)) x = N(std::copysign(std::numeric_limits<double>::max(), value));
    }
  }
  std::vector<double> limits;
  for (const N& limit : computed(op, inputs).data)
    limits.push_back(round_to(dtype, exact_of(limit)));
  const bool may_be_nan = judgement_of(op.op).bound == BoundRule::kPropagated;
  const auto is_no_number = where_an_input(inputs, [](double x) { return std::isnan(x); });
  expected.also_right = [=](int64_t element, DoubleDouble y) {
    const auto i = static_cast<size_t>(element);
    if (!is_infinite[i]) return found.is_lost[i] && !is_no_number[i];
    return isnan(y) ? may_be_nan || found.is_lost_beside[i] : y.hi == limits[i];
  };
}

Propagated propagated(const Op& op, const CallData& data, bp_dtype dtype) {
  return with_bounded(dtype, [&]<typename N>(N) {
    Propagated found;
    std::vector<Array<N>> inputs = inputs_of<N>(op, data);
    for (const N& y : computed(op, inputs).data) {
      found.bounds.push_back(y.error);
      found.is_lost.push_back(y.is_lost);
    }
    for (Array<N>& input : inputs) {
      for (N& x : input.data) x = std::isinf(x.value) ? N(0) : x;
    }
    for (const N& y : computed(op, inputs).data) found.is_lost_beside.push_back(y.is_lost);
    return found;
  });
}

// Returns what rounding to f32 brings to the one step of an op that computes x of 16 bits and an
// inline operand of 24 bits. The result is rounded to the dtype of x from there, and two roundings
// are not one here. Returns nothing if no step rounds to f32, or if the bound of the op has it.
std::vector<double> rounding_to_f32(const Op& op, const CallData& data, const Expected& exact) {
  const bp_dtype dtype = data.tensor(op.inputs[0]).dtype;
  const bool is_scalar = *op.operand != '\0' && !data.has(op.operand);
  if (!is_scalar || accumulator_of(dtype) == dtype || op.is_either) return {};
  if (judgement_of(op.op).bound == BoundRule::kPropagated ||
      judgement_of(op.op).bound == BoundRule::kFunction) {
    return {};
  }
  std::vector<double> brought;
  for (const DoubleDouble& r : exact.value) {
    const double least = 0x1p-150;  // Half of the smallest f32.
    const bool is_rounded = r.hi != 0 && std::isfinite(r.hi);
    brought.push_back(is_rounded ? std::max(0x1p-24 * std::fabs(r.hi), least) : 0);
  }
  return brought;
}

template <typename N>
std::vector<Expected> judged_floats(const Op& op, const CallData& data, const Numerics& numerics,
                                    const std::vector<Array<N>>& inputs, Known known) {
  const bp_dtype dtype = data.tensor(op.inputs[0]).dtype;
  const Expected exact = known.outputs[0];
  Propagated found;
  bool is_propagated = false;
  known.formula = [&](BoundRule rule) {
    if (rule != BoundRule::kPrimitive) return Bounds();
    Bounds bounds(1);
    for (size_t i = 0; i < exact.value.size(); ++i) {
      bounds[0].push_back(primitive_bound(op.primitive, dtype, exact_of(inputs[0].data[i]).hi,
                                          exact.value[i].hi, numerics));
    }
    return bounds;
  };
  known.propagated = [&] {
    found = propagated(op, data, dtype);
    is_propagated = true;
    return Bounds{found.bounds};
  };
  std::vector<double> brought = rounding_to_f32(op, data, exact);
  if (!brought.empty()) known.carried = {std::move(brought)};
  std::vector<Expected> expected = judged(data, std::move(known));
  if (is_propagated) allow_limits(expected[0], op, dtype, inputs, found);
  return expected;
}

std::vector<Expected> expected_of(const Op& op, const CallData& data, const Numerics& numerics) {
  return with_number(data.tensor(op.inputs[0]).dtype, [&]<typename N>(N) {
    const std::vector<Array<N>> inputs = inputs_of<N>(op, data);
    Known known{{exactly(computed(op, inputs))}};
    if (op.is_either) {
      known.outputs[0].free_zero_sign = where_an_input(inputs, [](double x) { return x == 0; });
    }
    if constexpr (std::is_same_v<N, Integer>) {
      return judged(data, std::move(known));
    } else {
      return judged_floats(op, data, numerics, inputs, std::move(known));
    }
  });
}

// Makes a function for each row that captures nothing. Such an oracle depends only on the call, so
// that it can judge recorded launches and smaller versions of failing calls.
template <size_t kIndex>
std::vector<Expected> expected_of_row(const CallData& data, const Numerics& numerics) {
  return expected_of(elementwise::kRows[kIndex], data, numerics);
}

template <size_t... kIndex>
constexpr auto make_oracles(std::index_sequence<kIndex...>) {
  return std::array{&expected_of_row<kIndex>...};
}

constexpr auto kOracles = make_oracles(std::make_index_sequence<std::size(elementwise::kRows)>());

// ---- Data ------------------------------------------------------------------------------------ //

struct Samples {
  Fill data[kMostInputs];
  const char* text = "random";
};

constexpr Fill kWide{FillKind::kUniform, -20, 20};

// Returns the samples by their name in the spec. Less than half of the results are 0, so that the
// cases are not mistrusted.
const std::map<std::string_view, Samples>& samples() {
  static const std::map<std::string_view, Samples> all = {
      {"unary", {{kRandom}}},
      {"unary_positive", {{{FillKind::kUniform, 0.001, 100}}}},
      {"unary_moderate", {{{FillKind::kUniform, -6, 6}}}},
      {"unary_wide", {{kWide}}},
      {"unary_rectified", {{{FillKind::kUniform, -1, 2}}}},
      {"unary_unit", {{{FillKind::kUniform, -1, 1}}}},
      {"unary_six", {{{FillKind::kUniform, -4.5, 8}}}},
      {"unary_to_six", {{{FillKind::kUniform, -3, 8}}}},
      {"unary_above_one", {{{FillKind::kUniform, 1, 100}}}},
      {"unary_above_minus_one", {{{FillKind::kUniform, -0.99, 100}}}},
      {"gradient_six", {{kRandom, {FillKind::kUniform, -4.5, 4.5}}}},
      {"gradient_to_six", {{kRandom, {FillKind::kUniform, -2, 7}}}},
      {"celu", {{kRandom, {FillKind::kUniform, 0.5, 2}}}},
      {"power", {{{FillKind::kUniform, 0.01, 10}, {FillKind::kUniform, -5, 5}}}},
      {"binary", {{kRandom, kRandom}}},
      {"binary_repeat", {{kRepeat, kRepeat}, "repeat"}},
      {"gradient_mask", {{kRandom, kRandom}}},
      {"gradient_of_result", {{kRandom, kRandom}}},
      {"gradient_wide", {{kRandom, kWide}}},
      {"gate", {{kWide, kRandom}}},
      {"gate_gradient", {{kRandom, kWide, kRandom}}},
      {"shift", {{kRandom, {FillKind::kUniform, 0, 3}}}},
      {"ternary", {{kRandom, kRandom, {FillKind::kUniform, -0.5, 1.5}}}},
  };
  return all;
}

// Limits results of tanh and sigmoid to [-1, 1].
void limit_results(CallData& data) {
  for (DoubleDouble& y : data.tensor("y").data) {
    if (std::fabs(y.hi) > 1) y = std::copysign(1.0, y.hi);
  }
}

// Returns shapes around vector widths, and of each rank.
const std::vector<Shape>& dense_shapes() {
  static const std::vector<Shape> shapes = {{},
                                            {1},
                                            {3},
                                            {4},
                                            {7},
                                            {8},
                                            {9},
                                            {15},
                                            {16},
                                            {17},
                                            {31},
                                            {33},
                                            {65},
                                            {67},
                                            {257},
                                            {1031},
                                            {5, 7},
                                            {1, 257},
                                            {0},
                                            {4, 0},
                                            {3, 0, 5},
                                            {2, 3, 4, 5},
                                            {2, 1, 2, 1, 2, 1, 2, 3}};
  return shapes;
}

// The layouts of the first input, the last input and the output.
struct Lies {
  Shape shape;
  Layout first = Layout::kDense;
  Layout last = Layout::kDense;
  Layout output = Layout::kDense;
};

const std::vector<Lies>& layouts_of_one() {
  using enum Layout;
  static const std::vector<Lies> all = {
      {{5, 7}, kTransposed, kTransposed},
      {{3, 4, 5}, kPermuted, kPermuted},
      {{5, 7}, kSliced, kSliced},
      {{17}, kStepped, kStepped},
      {{3, 9}, kStepped, kStepped},
      {{17}, kNegative, kNegative},
      {{4, 9}, kNegative, kNegative},
      {{17}, kOffset, kOffset},
      {{5, 7}, kOffset, kOffset},
      {{5, 7}, kBroadcastFirst, kBroadcastFirst},
      {{5, 7}, kBroadcastLast, kBroadcastLast},
      {{5, 7}, kBroadcastAll, kBroadcastAll},
      {{5, 7}, kDense, kDense, kSliced},
      {{5, 7}, kDense, kDense, kTransposed},
      {{17}, kDense, kDense, kStepped},
      {{17}, kDense, kDense, kNegative},
      {{17}, kDense, kDense, kOffset},
      {{5, 7}, kTransposed, kTransposed, kSliced},
      {{5, 7}, kTransposed, kTransposed, kTransposed},
      {{6, 5, 4}, kPermuted, kPermuted, kPermuted},
      {{2, 3, 2, 3, 2}, kTransposed, kTransposed, kSliced},
  };
  return all;
}

const std::vector<Lies>& layouts_of_more() {
  using enum Layout;
  static const std::vector<Lies> all = {
      {{5, 7}, kDense, kBroadcastFirst},
      {{5, 7}, kDense, kBroadcastLast},
      {{5, 7}, kDense, kBroadcastAll},
      {{5, 7}, kBroadcastFirst, kDense},
      {{5, 7}, kBroadcastLast, kBroadcastFirst},
      {{3, 4, 5}, kDense, kBroadcastFirst},
      {{3, 4, 5}, kBroadcastLast, kDense},
      {{5, 7}, kTransposed, kDense},
      {{5, 7}, kDense, kTransposed},
      {{5, 7}, kTransposed, kTransposed, kTransposed},
      {{3, 4, 5}, kPermuted, kTransposed},
      {{5, 7}, kSliced, kDense},
      {{5, 7}, kDense, kSliced, kSliced},
      {{19}, kStepped, kDense},
      {{19}, kDense, kStepped, kStepped},
      {{19}, kNegative, kDense},
      {{4, 9}, kDense, kNegative},
      {{19}, kOffset, kDense},
      {{19}, kDense, kOffset},
      {{5, 7}, kOffset, kOffset, kOffset},
      {{2, 3, 2, 3, 2}, kSliced, kTransposed, kPermuted},
  };
  return all;
}

// Returns a text such as "transposed_dense_to_sliced": the inputs, only one if there is one, and
// the output unless it is dense.
std::string layouts_text(const Op& op, const Lies& lies) {
  std::string text = layout_text(lies.first);
  const bool are_dense = lies.first == Layout::kDense && lies.last == Layout::kDense;
  if (op.input_count > 1 && !are_dense) text += std::string("_") + layout_text(lies.last);
  if (lies.output != Layout::kDense) text += std::string("_to_") + layout_text(lies.output);
  return text;
}

bool is_of_integers(const Op& op) {
  return op.dtypes == Dtypes::kIntegers || op.dtypes == Dtypes::kBits;
}

// ---- Cases ----------------------------------------------------------------------------------- //

class Rows {
 public:
  Rows(OpCases& cases, const Op& op, bp_dtype dtype)
      : cases_(cases), op_(op), dtype_(dtype), samples_(samples().at(op.samples)) {
    gives_bool_ = op.dtypes == Dtypes::kAny;
    first_dtype_ = is_of_integers(op) ? BP_I32 : BP_F32;
    is_gradient_ = std::string_view(op.samples).starts_with("gradient");
    if (is_float(dtype) || gives_bool_) return;
    samples_.text = "exact_dense";
    const Fill distances = samples_.data[1];
    std::ranges::fill(samples_.data, kExactDense);
    if (is_shift()) samples_.data[1] = distances;
  }

  void add_all() {
    for (const Shape& shape : dense_shapes()) add(samples_, {shape}, "dense");
    add_layouts();
    add_specials();
    if (op_.may_alias) add_in_place();
    if (*op_.operand != '\0') add_operand();
    if (op_.input_count == 1) add_ranges();
    if (std::string_view(op_.samples) == "gradient_wide") add_ends();
    if (is_shift()) {
      add({{kExactDense, {FillKind::kUniform, -3, 70}}, "distances"}, {{33, 17}}, "dense");
    }
  }

 private:
  OpCase& add(const Samples& data, const Lies& lies, const std::string& layout) {
    OpCase made = make_case(op_.op, dtype_, data.text, shape_text(lies.shape), layout);
    for (uint32_t i = 0; i < op_.input_count; ++i) {
      const bool is_last = i + 1 == op_.input_count;
      made.input(op_.inputs[i], dtype_, lies.shape, data.data[i], is_last ? lies.last : lies.first);
    }
    if (op_.input_count == 1) made.tensors[0].layout = lies.first;
    made.output(op_.output, gives_bool_ ? bp_dtype{BP_BOOL} : dtype_, lies.shape, lies.output);
    made.reference = kOracles[static_cast<size_t>(&op_ - std::data(elementwise::kRows))];
    // The other dtypes have the rows that show most (rules/smoke_sample.cpp), and these.
    made.is_smoke = dtype_ == first_dtype_ || std::string_view(data.text) == "special";
    made.varies = varies(lies) && std::string_view(data.text) != "special" &&
                  std::string_view(data.text) != "distances";
    if (std::string_view(op_.samples) == "gradient_of_result") made.derive = limit_results;
    if (!gives_bool_) made.optional_part = small_part(dtype_);
    cases_.push_back(std::move(made));
    return cases_.back();
  }

  bool is_shift() const { return std::string_view(op_.samples) == "shift"; }

  // A third of the results of relu are zero, and more of its gradients.
  bool varies(const Lies& lies) const {
    const std::string_view name = op_.samples;
    if (gives_bool_ || dtype_ == BP_BOOL || name == "gradient_mask") return false;
    if (op_.input_count == 1 && is_broadcast(lies.first)) return false;
    if (lies.first == Layout::kBroadcastAll || lies.last == Layout::kBroadcastAll) return false;
    return element_count(lies.shape) > (is_gradient_ || name == "unary_rectified" ? 64 : 8);
  }

  // The data are coordinates, which show the element that was read instead of the right one.
  void add_layouts() {
    if (op_.input_count == 1) {
      for (const Lies& lies : layouts_of_one()) add(samples_, lies, layouts_text(op_, lies));
      return;
    }
    Samples data = samples_;
    if (!gives_bool_) {
      data.text = "coord";
      data.data[0] = kCoord;
      for (uint32_t i = 1; i < kMostInputs && !is_gradient_ && !is_shift(); ++i) {
        data.data[i] = kExactDense;
      }
    }
    for (const Lies& lies : layouts_of_more()) add(data, lies, layouts_text(op_, lies));
  }

  // Ops with more inputs get special values by rule.
  void add_specials() {
    const auto count = static_cast<int64_t>(special_values(dtype_).size());
    const Samples data{{kSpecial, kSpecialSlow}, "special"};
    using enum Layout;
    if (op_.input_count == 1) {
      add(data, {{2 * count + 1}}, "dense");
      add(data, {{17 * count}}, "dense");  // Each value lies in each lane of 16.
      add(data, {{3, count}, kSliced, kSliced}, "sliced");
    } else if (op_.input_count == 2) {
      add(data, {{count, count}}, "dense");
      add(data, {{count, count}, kSliced, kDense}, "sliced_dense");
    }
  }

  void add_in_place() {
    for (uint32_t i = 0; i < op_.input_count; ++i) {
      const std::string name = op_.input_count == 1 ? "" : std::string(op_.inputs[i]) + "_";
      for (const Layout layout : {Layout::kDense, Layout::kSliced, Layout::kTransposed}) {
        const Lies lies{{6, 11}, layout, layout, layout};
        add(samples_, lies, "inplace_" + name + layout_text(layout)).tensors.back().alias =
            op_.inputs[i];
      }
    }
  }

  // Adds cases with the inline scalar, and with one tensor as both operands. A float of 16 bits
  // does not hold 0.1.
  void add_operand() {
    OpCase& twice = add(samples_, {{6, 11}}, "twice");
    twice.tensors[1].alias = op_.inputs[0];
    twice.varies = false;  // a - a and a == a are constant.
    twice.derive = [&op = op_](CallData& call) {
      call.tensor(op.inputs[1]).data = call.tensor(op.inputs[0]).data;
    };
    for (const Layout layout : {Layout::kDense, Layout::kSliced}) {
      const std::string text = std::string("scalar_") + op_.operand + "_" + layout_text(layout);
      OpCase& made = add(samples_, {{3, 11}, layout}, text);
      std::erase_if(made.tensors, [&](const TensorArgument& t) { return t.name == op_.operand; });
      made.set(op_.operand, is_float(dtype_) ? float_scalar(gives_bool_ ? 1.0 : 0.1)
                                             : integer_scalar(dtype_ == BP_BOOL ? 1 : 3));
      if (dtype_ == BP_BOOL) made.attributes.back().value = bp_scalar{BP_BOOL, 0, 1};
    }
    if (gives_bool_ && is_float(dtype_)) add_near_operand();
    add_extreme_operands();
  }

  // Adds inline scalars that a float of another width does not hold, or that a test for zero or for
  // a finite number treats in another way.
  void add_extreme_operands() {
    const bool is_wide = dtype_ == BP_I64;
    const auto add_one = [&](const std::string& text, const bp_scalar& value) {
      const auto count = static_cast<int64_t>(special_values(dtype_).size());
      const std::string layout = std::string("scalar_") + op_.operand + "_" + text;
      OpCase& made = add({{kSpecial, kSpecialSlow}, "special"}, {{2 * count + 1}}, layout);
      std::erase_if(made.tensors, [&](const TensorArgument& t) { return t.name == op_.operand; });
      made.set(op_.operand, value);
      if (is_wide) made.derive = [&op = op_](CallData& call) { move_above_53(call, op); };
    };
    if (is_wide) return add_one("above53", integer_scalar((int64_t{1} << 53) + 1));
    if (!is_float(dtype_) || judgement_of(op_.op).bound == BoundRule::kPropagated) return;
    add_one("minus_zero", float_scalar(-0.0));
    add_one("zero", float_scalar(0.0));
    add_one("infinity", float_scalar(HUGE_VAL));
    add_one("minus_infinity", float_scalar(-HUGE_VAL));
    add_one("nan", float_scalar(std::numeric_limits<double>::quiet_NaN()));
  }

  // Elements around 2^53 + 1, which a double does not tell apart.
  static void move_above_53(CallData& call, const Op& op) {
    int64_t next = (int64_t{1} << 53) - 2;
    for (DoubleDouble& value : call.tensor(op.inputs[0]).data) {
      value = DoubleDouble::from_int64(next++);
    }
  }

  // Compares the element that is nearest to 0.1 with 0.1.
  void add_near_operand() {
    const std::string layout = std::string("scalar_") + op_.operand + "_near";
    OpCase& made = add({{{FillKind::kUniform, 0.1, 0.1}}, "tenth"}, {{17}}, layout);
    std::erase_if(made.tensors, [&](const TensorArgument& t) { return t.name == op_.operand; });
    made.set(op_.operand, float_scalar(0.1));
  }

  void add_ranges() {
    // The tensor has more elements than 16 bits count. A test of an index of 32 bits would need
    // 2^31 elements.
    Samples data = samples_;
    data.text = "tail";
    add(data, {{65549}}, "dense").is_smoke = false;
    if (judgement_of(op_.op).bound == BoundRule::kExact) return;
    const double low = dtype_ == BP_F16 ? -14 : -40, high = dtype_ == BP_F16 ? 15 : 20;
    add({{{FillKind::kLogUniform, low, high}}, "range"}, {{5, 257}}, "dense").varies = false;
    add_ends();
  }

  // Adds data where exponentials end.
  void add_ends() {
    const double end = dtype_ == BP_F64 ? 760 : 110;
    Samples data{{kRandom, kRandom}, "ends"};
    data.data[op_.input_count - 1] = {FillKind::kUniform, -end, end};
    add(data, {{1031}}, "dense").varies = false;
  }

  OpCases& cases_;
  const Op& op_;
  bp_dtype dtype_;
  bp_dtype first_dtype_;
  Samples samples_;
  bool gives_bool_, is_gradient_;
};

void add_family(OpCases& cases, bool has_operand) {
  for (const Op& op : elementwise::kRows) {
    if ((*op.operand != '\0') != has_operand) continue;
    if (!is_of_integers(op)) {
      for (const bp_dtype dtype : kFloats) Rows(cases, op, dtype).add_all();
    }
    if (op.dtypes == Dtypes::kFloats) continue;
    for (const bp_dtype dtype : {BP_I32, BP_I64}) Rows(cases, op, dtype).add_all();
    if (op.dtypes == Dtypes::kNumbers) continue;
    for (const bp_dtype dtype : {BP_U8, BP_I8, BP_I16}) Rows(cases, op, dtype).add_all();
    if (op.dtypes == Dtypes::kSmall || op.dtypes == Dtypes::kIntegers) continue;
    Rows(cases, op, BP_BOOL).add_all();
  }
}

}  // namespace

// Functions of one number, and their gradients.
void add_unary(OpCases& cases) { add_family(cases, false); }
// Functions whose last input may be a number of the call.
void add_binary(OpCases& cases) { add_family(cases, true); }

}  // namespace bp::conformance
