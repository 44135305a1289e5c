// Cases of sgd_step and adamw_step.
#include "conformance/cases/op_families.hpp"
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
      {{{4, 9}}, kNegative},
  };
  return all;
}

std::string detail_of(const List& list, const std::string& settings) {
  std::string text;
  for (const Shape& shape : list.shapes) text += (text.empty() ? "" : "_") + shape_text(shape);
  return text + "_" + settings;
}

// Runs `step` on each element of each parameter. It takes a number and the index of a parameter and
// gives the arrays of what the op updates, in the order of the frame.
template <typename Step>
std::vector<Expected> stepped(const CallData& data, size_t updated, Step step) {
  const size_t count = data.list_size("params");
  std::vector<Expected> expected(updated * count);
  const bp_dtype dtype = data.tensor("params").dtype;
  for (size_t i = 0; i < count; ++i) {
    with_float(dtype, [&](auto number) {
      const auto exact = step(number, i);
      with_bounded(dtype, [&](auto bounded_number) {
        const auto bounds = step(bounded_number, i);
        for (size_t k = 0; k < updated; ++k) {
          expected[k * count + i] = bounded_by(exact[k], bounds[k]);
        }
      });
    });
  }
  return expected;
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
        cases.push_back(std::move(made));
      }
    }
  }
}

}  // namespace

void add_optimizer(OpCases& cases) {
  for (const bp_dtype dtype : {BP_F32, BP_F64, BP_F16, BP_BF16}) {
    const bool is_smoke = dtype == BP_F32 || dtype == BP_F64;
    add_sgd(cases, dtype, is_smoke);
    add_adamw(cases, dtype, is_smoke);
  }
}

}  // namespace bp::conformance
