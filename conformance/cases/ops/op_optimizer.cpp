// Cases of sgd_step, adam_step, adamw_step and lion_step.
#include "conformance/cases/ops/op_families.hpp"
#include "conformance/cases/ops/op_lists.hpp"
#include "conformance/reference/optimizer.hpp"

namespace bp::conformance {
namespace {

using reference::AdamSettings;
using reference::LionSettings;
using reference::SgdSettings;

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

std::vector<Expected> expected_adam(const CallData& data, const Numerics&) {
  AdamSettings s;
  s.is_decoupled = data.op() == BP_OP_ADAMW_STEP;
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
      const auto next = reference::adam_step<N>({param[i], average[i], squares[i]}, grad[i], s);
      param[i] = next.param;
      average[i] = next.average;
      squares[i] = next.average_of_squares;
    }
    return std::vector{param, average, squares};
  });
}

std::vector<Expected> expected_lion(const CallData& data, const Numerics&) {
  LionSettings s;
  s.lr = data.value("lr").hi;
  s.beta1 = data.number("beta1");
  s.beta2 = data.number("beta2");
  s.weight_decay = data.number("weight_decay");
  return stepped(data, 2, [&]<typename N>(N, size_t position) {
    Array<N> param = data.array<N>("params", position);
    const Array<N> grad = data.array<N>("grads", position);
    Array<N> average = data.array<N>("exp_avg", position);
    for (int64_t i = 0; i < param.size(); ++i) {
      const auto next = reference::lion_step<N>({param[i], average[i]}, grad[i], s);
      param[i] = next.param;
      average[i] = next.average;
    }
    return std::vector{param, average};
  });
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
    for (const TensorList& list : tensor_lists()) {
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

void add_adam(OpCases& cases, uint32_t op, bp_dtype dtype, bool is_smoke) {
  for (const int64_t step : {1, 2, 10}) {
    for (const double decay : {0.0, 0.01}) {
      for (const TensorList& list : tensor_lists()) {
        const std::string name =
            "step" + std::to_string(step) + (decay == 0 ? "" : std::string("_decay"));
        OpCase made = make_case(op, dtype, "random", detail_of(list, name), layout_text(list.lies));
        add_tensors(made, dtype, list, "params", Role::kInOut, kRandom);
        add_tensors(made, dtype, list, "exp_avg", Role::kInOut, kRandom);
        add_tensors(made, dtype, list, "exp_avg_sq", Role::kInOut, kPositive);
        add_tensors(made, dtype, list, "grads", Role::kInput, kRandom);
        made.set("lr", float_scalar(0.01)).set("step", integer_scalar(step));
        made.set("beta1", 0.9).set("beta2", 0.999).set("eps", 1e-8).set("weight_decay", decay);
        made.reference = expected_adam;
        made.is_smoke = is_smoke;
        made.varies = false;
        if (list.shapes.size() == 2) add_with_rates(cases, made);
        cases.push_back(std::move(made));
      }
    }
  }
}

void add_lion(OpCases& cases, bp_dtype dtype, bool is_smoke) {
  struct LionRow {
    const char* name;
    double weight_decay;
    Fill data;  // Of the gradients and averages.
  };
  const LionRow rows[] = {{"plain", 0, kRandom},
                          {"decay", 0.125, kRandom},
                          {"zero", 0.125, {FillKind::kUniform, 0, 0}}};
  for (const LionRow& row : rows) {
    for (const TensorList& list : tensor_lists()) {
      OpCase made = make_case(BP_OP_LION_STEP, dtype, "random", detail_of(list, row.name),
                              layout_text(list.lies));
      add_tensors(made, dtype, list, "params", Role::kInOut, kRandom);
      add_tensors(made, dtype, list, "exp_avg", Role::kInOut, row.data);
      add_tensors(made, dtype, list, "grads", Role::kInput, row.data);
      made.set("lr", float_scalar(0.01)).set("beta1", 0.9).set("beta2", 0.99);
      made.set("weight_decay", row.weight_decay).reference = expected_lion;
      made.is_smoke = is_smoke;
      made.varies = false;
      if (list.shapes.size() == 2) add_with_rates(cases, made);
      cases.push_back(std::move(made));
    }
  }
}

}  // namespace

void add_optimizer(OpCases& cases) {
  for (const bp_dtype dtype : kFloats) {
    const bool is_smoke = is_smoke_dtype(dtype);
    add_sgd(cases, dtype, is_smoke);
    add_adam(cases, BP_OP_ADAM_STEP, dtype, is_smoke);
    add_adam(cases, BP_OP_ADAMW_STEP, dtype, is_smoke);
    add_lion(cases, dtype, is_smoke);
  }
}

}  // namespace bp::conformance
