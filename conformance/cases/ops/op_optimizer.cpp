// Cases of sgd_step, adamw_step and scale_and_check_finite.
#include "conformance/cases/ops/op_families.hpp"
#include "conformance/cases/ops/op_oracles.hpp"
#include "conformance/reference/optimizer.hpp"

namespace bp::conformance {
namespace {

using enum Layout;
using reference::AdamwSettings;
using reference::SgdSettings;

struct List {
  std::vector<Shape> shapes;
  Layout lies = kDense;
};

const std::vector<List>& lists() {
  static const std::vector<List> all = {
      {{{1}}},
      {{{17}}},
      {{{67}, {5, 7}}},
      {{{}, {2, 3, 4}, {0}, {1031}}},
      {{{5, 7}}, kTransposed},
      {{{5, 7}, {17}}, kSliced},
      {{{17}}, kStepped},
      {{{17}}, kOffset},
      {{{2, 1, 2, 1, 2, 1, 2, 3}, {}}, kOffset},
      {{{4, 9}}, kNegative},
  };
  return all;
}

std::string detail_of(const List& list, const std::string& settings) {
  std::string text;
  for (const Shape& shape : list.shapes) text += (text.empty() ? "" : "_") + shape_text(shape);
  return text + "_" + settings;
}

// Runs `step` on each element of each parameter. It takes a number and the index of a parameter,
// and gives the arrays that the op updates, in the order of the frame.
template <typename Step>
std::vector<Expected> stepped(const CallData& data, size_t updated, Step step) {
  const size_t count = data.list_size("params");
  return judged_steps(data, data.tensor("params").dtype, [&]<typename N>(N number) {
    std::vector<Array<N>> all(updated * count);
    for (size_t i = 0; i < count; ++i) {
      const std::vector<Array<N>> own = step(number, i);
      for (size_t k = 0; k < updated; ++k) all[k * count + i] = own[k];
    }
    return all;
  });
}

std::vector<Expected> expected_sgd(const CallData& data, const Numerics&) {
  SgdSettings s;
  s.lr = data.value("lr").hi;
  s.step = to_int64(data.value("step"));
  s.momentum = data.number("momentum");
  s.dampening = data.number("dampening");
  s.weight_decay = data.number("weight_decay");
  s.nesterov = data.integer("nesterov") != 0;
  s.has_buffers = data.has("momentum_buffers");
  return stepped(data, s.has_buffers ? 2 : 1, [&]<typename N>(N, size_t position) {
    Array<N> param = data.array<N>("params", position);
    const Array<N> grad = data.array<N>("grads", position);
    Array<N> buffer = s.has_buffers ? data.array<N>("momentum_buffers", position) : param;
    for (int64_t i = 0; i < param.size(); ++i) {
      const auto next = reference::sgd_step<N>({param[i], buffer[i]}, grad[i], s);
      param[i] = next.param;
      buffer[i] = next.buffer;
    }
    return std::vector{param, buffer};
  });
}

std::vector<Expected> expected_adamw(const CallData& data, const Numerics&) {
  AdamwSettings s;
  s.lr = data.value("lr").hi;
  s.step = to_int64(data.value("step"));
  s.beta1 = data.number("beta1");
  s.beta2 = data.number("beta2");
  s.eps = data.number("eps");
  s.weight_decay = data.number("weight_decay");
  return stepped(data, 3, [&]<typename N>(N, size_t position) {
    Array<N> param = data.array<N>("params", position);
    const Array<N> grad = data.array<N>("grads", position);
    Array<N> average = data.array<N>("exp_avg", position);
    Array<N> squares = data.array<N>("exp_avg_sq", position);
    for (int64_t i = 0; i < param.size(); ++i) {
      const auto next = reference::adamw_step<N>({param[i], average[i], squares[i]}, grad[i], s);
      param[i] = next.param;
      average[i] = next.average;
      squares[i] = next.average_of_squares;
    }
    return std::vector{param, average, squares};
  });
}

void add_tensors(OpCase& made, bp_dtype dtype, const List& list, std::string_view name, Role role,
                 const Fill& fill) {
  for (const Shape& shape : list.shapes) {
    made.tensors.push_back({name, role, dtype, shape, list.lies, fill, ""});
  }
}

// Adds the row with its rate in tensors of f64 and of f32. The step is an integer in both.
void add_with_rates(OpCases& cases, const OpCase& row) {
  for (const bp_dtype rate : {BP_F64, BP_F32}) {
    cases.push_back(with_scalars_as_tensors(row, rate));
    if (rate == BP_F32) cases.back().optional_part = "rates in f32";
  }
}

struct SgdRow {
  const char* name;
  double momentum, dampening, weight_decay;
  bool nesterov;
  int64_t step;
};
constexpr SgdRow kSgdRows[] = {
    {"plain", 0, 0, 0, false, 1},
    {"decay", 0, 0, 0.01, false, 3},
    {"momentum_first", 0.9, 0, 0, false, 1},
    {"momentum", 0.9, 0, 0, false, 2},
    {"dampened", 0.9, 0.5, 0, false, 5},
    {"nesterov", 0.9, 0, 0.01, true, 2},
    {"dampened_first", 0.9, 0.5, 0, false, 1},  // At the first step nothing is dampened.
    {"nesterov_first", 0.9, 0, 0.01, true, 1},
};

void add_sgd(OpCases& cases, bp_dtype dtype, bool is_smoke) {
  for (const SgdRow& row : kSgdRows) {
    for (const List& list : lists()) {
      OpCase made = make_case(BP_OP_SGD_STEP, dtype, "random", detail_of(list, row.name),
                              layout_text(list.lies));
      add_tensors(made, dtype, list, "params", Role::kInOut, kRandom);
      if (row.momentum != 0) {
        add_tensors(made, dtype, list, "momentum_buffers", Role::kInOut, kRandom);
      }
      add_tensors(made, dtype, list, "grads", Role::kInput, kRandom);
      made.set("lr", float_scalar(0.1)).set("step", integer_scalar(row.step));
      made.set("momentum", row.momentum).set("dampening", row.dampening);
      made.set("weight_decay", row.weight_decay).set("nesterov", int64_t{row.nesterov});
      made.reference = expected_sgd;
      made.is_smoke = is_smoke;
      made.varies = false;  // A parameter may have one element, or none.
      if (list.shapes.size() == 2) add_with_rates(cases, made);
      cases.push_back(std::move(made));
    }
  }
}

void add_adamw(OpCases& cases, bp_dtype dtype, bool is_smoke) {
  for (const int64_t step : {1, 2, 10}) {
    for (const double decay : {0.0, 0.01}) {
      for (const List& list : lists()) {
        const std::string name =
            "step" + std::to_string(step) + (decay == 0 ? "" : std::string("_decay"));
        OpCase made = make_case(BP_OP_ADAMW_STEP, dtype, "random", detail_of(list, name),
                                layout_text(list.lies));
        add_tensors(made, dtype, list, "params", Role::kInOut, kRandom);
        add_tensors(made, dtype, list, "exp_avg", Role::kInOut, kRandom);
        add_tensors(made, dtype, list, "exp_avg_sq", Role::kInOut, kPositive);
        add_tensors(made, dtype, list, "grads", Role::kInput, kRandom);
        made.set("lr", float_scalar(0.01)).set("step", integer_scalar(step));
        made.set("beta1", 0.9).set("beta2", 0.999).set("eps", 1e-8).set("weight_decay", decay);
        made.reference = expected_adamw;
        made.is_smoke = is_smoke;
        made.varies = false;
        if (list.shapes.size() == 2) add_with_rates(cases, made);
        cases.push_back(std::move(made));
      }
    }
  }
}

// ---- scale_and_check_finite ------------------------------------------------------------------ //

// The op checks the products as memory holds them, rounded to the dtype.
std::vector<Expected> expected_scaled(const CallData& data, const Numerics& numerics) {
  const double scale = data.value("scale").hi;
  const bool rounds_scale = round_to(BP_F32, scale) != scale;  // A kernel may compute in f32.
  Known known;
  bool is_found = false;
  for (size_t i = 0; i < data.list_size("xs"); ++i) {
    const HostTensor& x = data.tensor("xs", i);
    Expected& each = known.outputs.emplace_back();
    std::vector<double>& carried = known.carried.emplace_back();
    for (const DoubleDouble& value : x.data) {
      const DoubleDouble scaled = value * DoubleDouble(scale);
      const double slack = rounds_scale && x.dtype != BP_F64 ? 2 * numerics.unit : 0;
      each.value.push_back(scaled);
      carried.push_back(slack == 0 ? 0 : std::fabs(scaled.hi) * slack);
      const bool is_finite = std::isfinite(value.hi) && std::isfinite(round_to(x.dtype, scaled));
      is_found = is_found || !is_finite;
    }
  }
  Expected& found = known.outputs.emplace_back();
  found.value.push_back(is_found ? DoubleDouble(1) : data.tensor("found").data.at(0));
  known.carried.emplace_back();
  return judged(data, std::move(known));
}

struct ScaleRow {
  const char* name;
  Fill data;
  double scale;
  bool was_found = false;
};

const std::vector<ScaleRow>& scale_rows() {
  static const std::vector<ScaleRow> rows = {
      {"random", kRandom, 0.25},
      {"found", kRandom, 3, true},  // `found` must stay as it was.
      {"third", kRandom, 1.0 / 3},
      {"special", kSpecial, 1},
      {"sparse", kSparse, -0.75},
      {"overflow", {FillKind::kUniform, 1, 2}, 0x1p1023},
      {"infinite", kPositive, HUGE_VAL},
      {"last", kRandom, 0x1p-3},  // Only one element is not finite.
      {"early", kRandom, 0x1p-3},
  };
  return rows;
}

void spoil_one(CallData& data, bool is_last) {
  for (size_t i = data.list_size("xs"); i-- > 0;) {
    std::vector<DoubleDouble>& values = data.tensor("xs", i).data;
    if (values.empty()) continue;
    (is_last ? values.back() : values.front()) = DoubleDouble(is_last ? HUGE_VAL : std::nan(""));
    return;
  }
}

void add_scale(OpCases& cases, bp_dtype dtype) {
  for (const ScaleRow& row : scale_rows()) {
    const std::string_view name = row.name;
    for (const List& list : lists()) {
      OpCase made = make_case(BP_OP_SCALE_AND_CHECK_FINITE, dtype, row.name,
                              detail_of(list, "scaled"), layout_text(list.lies));
      add_tensors(made, dtype, list, "xs", Role::kInOut, row.data);
      const double start = row.was_found ? 1 : 0;
      made.inout("found", BP_F32, {}, {FillKind::kUniform, start, start});
      made.set("scale", float_scalar(row.scale)).reference = expected_scaled;
      if (name == "last") made.derive = [](CallData& data) { spoil_one(data, true); };
      if (name == "early") made.derive = [](CallData& data) { spoil_one(data, false); };
      made.is_smoke = is_smoke_dtype(dtype);
      made.varies = false;
      if (name == "random") add_with_rates(cases, made);
      cases.push_back(std::move(made));
    }
  }
  // Large numbers overflow in the dtype, but not in the type that they are computed in.
  OpCase made = make_case(BP_OP_SCALE_AND_CHECK_FINITE, dtype, "limit", "17_scaled", "dense");
  made.inout("xs", dtype, {17}, kRandom).inout("found", BP_F32, {}, {FillKind::kUniform, 0, 0});
  made.derive = [](CallData& data) {
    data.tensor("xs").data[11] = float_format(data.tensor("xs").dtype)->largest();
  };
  made.set("scale", float_scalar(1.5)).reference = expected_scaled;
  made.varies = false;
  cases.push_back(std::move(made));
}

}  // namespace

void add_optimizer(OpCases& cases) {
  for (const bp_dtype dtype : {BP_F32, BP_F64, BP_F16, BP_BF16}) {
    const bool is_smoke = dtype == BP_F32 || dtype == BP_F64;
    add_sgd(cases, dtype, is_smoke);
    add_adamw(cases, dtype, is_smoke);
    add_scale(cases, dtype);
  }
}

}  // namespace bp::conformance
