// Cases of recurrent sequences and their gradients. Cases of layouts follow by rule.
//
// A step passes the error of its state on, times the sum of a row of `recurrent` and the slope of a
// gate. The cases keep these sums near 3/4, so that bounds stay near those of one step however many
// steps there are. In one row they are near 2, where the errors of a right kernel may grow as well.
#include <algorithm>
#include <cmath>
#include <utility>

#include "conformance/cases/ops/op_families.hpp"
#include "conformance/cases/ops/op_oracles.hpp"
#include "conformance/reference/recurrent_backward.hpp"

namespace bp::conformance {
namespace {

using reference::Sequence;
using reference::SequenceGradient;
using reference::SequenceGradients;
using reference::SequenceResults;

struct Row {
  int64_t steps, rows, inputs, hidden;
  double reach = 0.75;  // The mean sum of the magnitudes in a row of `recurrent`.
};

const std::vector<Row>& all_rows() {
  static const std::vector<Row> rows = {
      {1, 1, 1, 1},  {3, 2, 5, 4},    {5, 3, 4, 7}, {4, 17, 9, 8}, {2, 4, 33, 31}, {20, 1, 3, 5},
      {2, 3, 3, 67}, {3, 5, 4, 8, 2}, {0, 2, 3, 4}, {3, 0, 3, 4},  {3, 2, 0, 4},   {2, 3, 5, 0},
  };
  return rows;
}

// What a call gives beside its inputs and weights.
struct Variant {
  const char* name;
  bool has_bias, has_lengths;
  bool has_all;  // Every optional output and gradient, and the second bias of a GRU.
  bool is_reverse = false;
};

constexpr Variant kVariants[] = {{"lengths", true, true, true},
                                 {"lengths_reverse", true, true, true, true},
                                 {"full", true, false, true},
                                 {"bare_reverse", false, false, false, true}};

// An op and its gradient. The choice is reset_after of a GRU or the activation of a simple net.
struct Family {
  uint32_t forward, backward;
  int64_t weights, gates;  // By units: the rows of the weights, and the width of `gates`.
  const char* attribute;
  int64_t choice;
  const char* choice_name;
};

constexpr Family kFamilies[] = {
    {BP_OP_LSTM, BP_OP_LSTM_BACKWARD, 4, 5, nullptr, 0, ""},
    {BP_OP_GRU, BP_OP_GRU_BACKWARD, 3, 4, "reset_after", 1, "_after"},
    {BP_OP_GRU, BP_OP_GRU_BACKWARD, 3, 3, "reset_after", 0, "_before"},
    {BP_OP_RNN, BP_OP_RNN_BACKWARD, 1, 0, "activation", BP_RNN_ACTIVATION_TANH, "_tanh"},
    {BP_OP_RNN, BP_OP_RNN_BACKWARD, 1, 0, "activation", BP_RNN_ACTIVATION_RELU, "_relu"}};

bool is_lstm(const CallData& data) {
  return data.op() == BP_OP_LSTM || data.op() == BP_OP_LSTM_BACKWARD;
}
bool is_gru(const CallData& data) {
  return data.op() == BP_OP_GRU || data.op() == BP_OP_GRU_BACKWARD;
}

// ---- Oracles --------------------------------------------------------------------------------- //

template <typename N>
Sequence<N> sequence_of(const CallData& data) {
  Sequence<N> s;
  s.x = data.array<N>("x");
  s.cell.h = data.array<N>("h");
  s.cell.weight = data.array<N>("weight");
  s.cell.recurrent = data.array<N>("recurrent");
  if (data.has("bias")) s.cell.bias = data.array<N>("bias");
  if (data.has("recurrent_bias")) s.cell.recurrent_bias = data.array<N>("recurrent_bias");
  if (data.has("lengths")) s.lengths = acting_indices(data, "lengths", s.steps() + 1);
  s.is_reverse = data.integer("is_reverse") != 0;
  const bp_dtype dtype = data.tensor("x").dtype;
  if (dtype == BP_F16 || dtype == BP_BF16) s.state_dtype = dtype;
  return s;
}

template <typename N>
SequenceResults<N> run_forward(const CallData& data, const Array<N>& c) {
  const Sequence<N> s = sequence_of<N>(data);
  if (is_lstm(data)) return reference::lstm(s, c);
  if (is_gru(data)) return reference::gru(s, data.integer("reset_after") != 0);
  return reference::rnn(s, data.integer("activation") == BP_RNN_ACTIVATION_RELU);
}

// Returns the outputs that the call has, in the order of its tensors.
template <typename N>
std::vector<Array<N>> chosen(const CallData& data,
                             std::vector<std::pair<std::string_view, Array<N>*>> named) {
  std::vector<Array<N>> outputs;
  for (auto& [name, array] : named) {
    if (data.has(name)) outputs.push_back(std::move(*array));
  }
  return outputs;
}

std::vector<Expected> expected_forward(const CallData& data, const Numerics&) {
  const auto run = [&]<typename N>(N) {
    auto results = run_forward(data, data.has("c") ? data.array<N>("c") : Array<N>());
    return chosen<N>(data, {{"y", &results.y},
                            {"h_next", &results.h_next},
                            {"c_next", &results.c_next},
                            {"gates", &results.gates}});
  };
  return judged_steps(data, data.tensor("x").dtype, run);
}

template <typename N>
SequenceGradients<N> run_backward(const CallData& data) {
  SequenceGradient<N> g{
      sequence_of<N>(data), data.array<N>("grad_y"), data.array<N>("y"), {}, {}, {}};
  if (data.has("gates")) g.gates = data.array<N>("gates");
  if (data.has("grad_h_next")) g.grad_h_next = data.array<N>("grad_h_next");
  if (data.has("grad_c_next")) g.grad_c_next = data.array<N>("grad_c_next");
  if (is_lstm(data)) return reference::lstm_backward(g);
  if (is_gru(data)) return reference::gru_backward(g, data.integer("reset_after") != 0);
  return reference::rnn_backward(g, data.integer("activation") == BP_RNN_ACTIVATION_RELU);
}

std::vector<Expected> expected_backward(const CallData& data, const Numerics&) {
  const auto run = [&]<typename N>(N) {
    SequenceGradients<N> out = run_backward<N>(data);
    return chosen<N>(data, {{"grad_h", &out.h},
                            {"grad_c", &out.c},
                            {"grad_x", &out.x},
                            {"grad_weight", &out.weight},
                            {"grad_recurrent", &out.recurrent},
                            {"grad_bias", &out.bias},
                            {"grad_recurrent_bias", &out.recurrent_bias}});
  };
  return judged_steps(data, data.tensor("x").dtype, run);
}

// ---- Data ------------------------------------------------------------------------------------ //

void store(CallData& data, std::string_view name, const Array<double>& values) {
  HostTensor& tensor = data.tensor(name);
  tensor.data.clear();
  for (const double value : values.data) tensor.data.emplace_back(round_to(tensor.dtype, value));
}

// Gives a gradient what a sequence without bias gives, whose first c is its first h.
void derive_results(CallData& data) {
  const SequenceResults<double> results = run_forward<double>(data, data.array<double>("h"));
  store(data, "y", results.y);
  if (data.has("gates")) store(data, "gates", results.gates);
}

// Makes what belongs to no step of a row NaN.
void spoil_unseen_steps(CallData& data) {
  const Sequence<double> s = sequence_of<double>(data);
  for (HostTensor& tensor : data.tensors()) {
    if (tensor.name != "x" && tensor.name != "grad_y") continue;
    const auto width = static_cast<size_t>(tensor.shape[2]);
    for (size_t i = 0; i < tensor.data.size(); ++i) {
      const auto place = static_cast<int64_t>(i / width);
      const bool is_seen = s.has(place / s.rows(), place % s.rows());
      if (!is_seen) tensor.data[i] = DoubleDouble(std::nan(""));
    }
  }
}

// ---- Rows ------------------------------------------------------------------------------------ //

OpCase start(uint32_t op, const Family& family, const Row& row, const Variant& variant,
             bp_dtype dtype) {
  const std::string shape = std::to_string(row.steps) + "x" + std::to_string(row.rows) + "x" +
                            std::to_string(row.inputs) + "x" + std::to_string(row.hidden);
  OpCase made =
      make_case(op, dtype, "random", shape + family.choice_name + "_" + variant.name, "dense");
  made.is_smoke = is_smoke_dtype(dtype);
  made.varies = !variant.has_lengths && row.steps * row.rows * row.hidden > 8 &&
                family.choice != BP_RNN_ACTIVATION_RELU;
  made.set("is_reverse", int64_t{variant.is_reverse});
  if (family.attribute != nullptr) made.set(family.attribute, family.choice);
  return made;
}

// Adds x, the state and the weights, and for a forward call the biases.
void add_inputs(OpCase& made, const Family& family, const Row& row, const Variant& variant,
                bp_dtype dtype) {
  const bool is_forward = made.op == family.forward;
  const int64_t width = family.weights * row.hidden;
  const double most =
      std::min(1.0, 2 * row.reach / static_cast<double>(std::max<int64_t>(row.hidden, 1)));
  made.input("x", dtype, {row.steps, row.rows, row.inputs}, kRandom);
  made.input("h", dtype, {row.rows, row.hidden}, kRandom);
  if (made.op == BP_OP_LSTM) made.input("c", dtype, {row.rows, row.hidden}, kRandom);
  made.input("weight", dtype, {width, row.inputs}, kRandom);
  made.input("recurrent", dtype, {width, row.hidden}, {FillKind::kUniform, -most, most});
  if (is_forward && variant.has_bias) made.input("bias", dtype, {width}, kRandom);
  if (made.op == BP_OP_GRU && variant.has_all) {
    made.input("recurrent_bias", dtype, {width}, kRandom);
  }
  if (variant.has_lengths) made.input("lengths", BP_I64, {row.rows}, index_fill(row.steps + 1));
}

OpCase make_forward(const Family& family, const Row& row, const Variant& variant, bp_dtype dtype) {
  OpCase made = start(family.forward, family, row, variant, dtype);
  add_inputs(made, family, row, variant, dtype);
  const Shape state = {row.rows, row.hidden};
  made.output("y", dtype, {row.steps, row.rows, row.hidden});
  if (variant.has_all) {
    made.output("h_next", dtype, state);
    if (made.op == BP_OP_LSTM) made.output("c_next", dtype, state);
    if (family.gates != 0) {
      made.output("gates", accumulator_of(dtype), {row.steps, row.rows, family.gates * row.hidden});
    }
  }
  made.reference = expected_forward;
  return made;
}

OpCase make_backward(const Family& family, const Row& row, const Variant& variant, bp_dtype dtype) {
  OpCase made = start(family.backward, family, row, variant, dtype);
  const bool is_of_lstm = made.op == BP_OP_LSTM_BACKWARD;
  const Shape state = {row.rows, row.hidden}, y = {row.steps, row.rows, row.hidden};
  const int64_t width = family.weights * row.hidden;
  made.input("grad_y", dtype, y, kRandom);
  if (variant.has_all) made.input("grad_h_next", dtype, state, kRandom);
  if (variant.has_all && is_of_lstm) made.input("grad_c_next", dtype, state, kRandom);
  add_inputs(made, family, row, variant, dtype);
  made.input("y", dtype, y, kRandom);
  if (family.gates != 0) {
    made.input("gates", accumulator_of(dtype), {row.steps, row.rows, family.gates * row.hidden},
               kRandom);
  }
  made.output("grad_h", dtype, state);
  if (variant.has_all && is_of_lstm) made.output("grad_c", dtype, state);
  if (variant.has_all) {
    made.output("grad_x", dtype, {row.steps, row.rows, row.inputs});
    made.output("grad_weight", dtype, {width, row.inputs});
    made.output("grad_recurrent", dtype, {width, row.hidden});
    made.output("grad_bias", dtype, {width});
    if (made.op == BP_OP_GRU_BACKWARD) made.output("grad_recurrent_bias", dtype, {width});
  }
  made.reference = expected_backward;
  made.derive = derive_results;
  return made;
}

void add_rows(OpCases& cases, const Family& family, bp_dtype dtype) {
  for (const Row& row : all_rows()) {
    for (const Variant& variant : kVariants) {
      cases.push_back(make_forward(family, row, variant, dtype));
      cases.push_back(make_backward(family, row, variant, dtype));
    }
  }
}

// What rows have no steps for may hold anything.
void add_unseen(OpCases& cases, const Family& family, bp_dtype dtype) {
  for (const Variant& variant : {kVariants[0], kVariants[1]}) {
    const Row row{5, 7, 3, 4};
    for (OpCase made :
         {make_forward(family, row, variant, dtype), make_backward(family, row, variant, dtype)}) {
      made.fill = "nan_unseen";
      for (TensorArgument& tensor : made.tensors) {
        if (tensor.name == "lengths") tensor.dtype = BP_I32;
      }
      made.derive = [then = made.derive](CallData& data) {
        if (then) then(data);
        spoil_unseen_steps(data);
      };
      cases.push_back(std::move(made));
    }
  }
}

// Lengths out of range.
void add_bounds(OpCases& cases, const Family& family) {
  const Row row{4, 6, 3, 5};
  const OpCase models[] = {make_forward(family, row, kVariants[0], BP_F32),
                           make_backward(family, row, kVariants[0], BP_F32)};
  for (const OpCase& model : models) {
    for (const OutOfRange rule : {OutOfRange::kClamp, OutOfRange::kUndefined}) {
      cases.push_back(with_bounds(model, rule, "lengths", row.steps + 1));
    }
    for (const int64_t wrong : {int64_t{-1}, row.steps + 1, int64_t{1} << 40}) {
      OpCase made = model;
      made.fill = "out_of_range";
      made.detail += "_length" + std::to_string(wrong);
      made.fails_on_device = true;
      made.derive = [then = model.derive, wrong](CallData& data) {
        if (then) then(data);
        data.tensor("lengths").data[2] = DoubleDouble::from_int64(wrong);
      };
      cases.push_back(std::move(made));
    }
  }
}

}  // namespace

void add_sequences(OpCases& cases) {
  for (const Family& family : kFamilies) {
    for (const bp_dtype dtype : kFloats) {
      add_rows(cases, family, dtype);
      add_unseen(cases, family, dtype);
    }
    add_bounds(cases, family);
  }
}

}  // namespace bp::conformance
