// RNN, GRU and LSTM. The ops of sequences run those that have the usual activations, no peepholes
// and no clip. Others run step by step: the products of all inputs with the weights come first, in
// one matmul; a step then needs one product with the state.
#include <algorithm>
#include <functional>

#include "runtime/io/onnx/composed.hpp"
#include "runtime/io/onnx/op_table.hpp"

namespace bp::onnx {
namespace {

// A function of an activation by its name. It is no op when it has parameters of its own.
struct Squash {
  std::string name;
  double alpha, beta;
};

Tensor activate(const Call& call, const Squash& f, const Tensor& x) {
  if (f.name == "Sigmoid") return sigmoid(x);
  if (f.name == "Tanh") return tanh(x);
  if (f.name == "Relu") return relu(x);
  if (f.name == "Softsign") return softsign(x);
  if (f.name == "Softplus") return softplus(x);
  if (f.name == "Affine") return x * f.alpha + f.beta;
  if (f.name == "LeakyRelu") return leaky_relu(x, f.alpha);
  if (f.name == "ThresholdedRelu") return keep_where(gt(x, f.alpha), x);
  if (f.name == "ScaledTanh") return tanh(x * f.beta) * f.alpha;
  if (f.name == "HardSigmoid") return minimum(maximum(x * f.alpha + f.beta, 0), 1);
  if (f.name == "Elu") return elu(x, f.alpha);
  call.refuse("there is no activation '" + f.name + "'");
}

// The defaults of alpha and beta are those of the operators of the same names.
Squash with_defaults(const std::string& name) {
  if (name == "LeakyRelu") return {name, 0.01, 0};
  if (name == "HardSigmoid") return {name, 0.2, 0.5};
  return {name, 1, name == "ScaledTanh" ? 1.0 : 0.0};
}

bool takes_alpha(const std::string& name) {
  return name == "Affine" || name == "LeakyRelu" || name == "ThresholdedRelu" ||
         name == "ScaledTanh" || name == "HardSigmoid" || name == "Elu";
}

bool takes_beta(const std::string& name) {
  return name == "Affine" || name == "ScaledTanh" || name == "HardSigmoid";
}

// Returns the activations of all directions. Alphas and betas are given to those that take them, in
// order.
std::vector<Squash> read_activations(const Call& call, std::vector<std::string> names,
                                     size_t directions) {
  const std::vector<std::string> defaults = names;
  for (size_t i = 1; i < directions; ++i) {
    names.insert(names.end(), defaults.begin(), defaults.end());
  }
  const size_t expected = names.size();
  names = call.texts("activations", names);
  // The default in ONNX's schema of RNN is that of two directions, also where there is one.
  if (directions == 1 && names.size() == 2 * expected) names.resize(expected);
  if (names.size() != defaults.size() * directions) {
    call.refuse("there are " + std::to_string(names.size()) +
                " activations; allowed: " + std::to_string(defaults.size() * directions));
  }
  const std::vector<double> alphas = call.numbers("activation_alpha", {});
  const std::vector<double> betas = call.numbers("activation_beta", {});
  size_t alpha = 0, beta = 0;
  std::vector<Squash> activations;
  for (const std::string& name : names) {
    Squash f = with_defaults(name);
    if (takes_alpha(name) && alpha < alphas.size()) f.alpha = alphas[alpha++];
    if (takes_beta(name) && beta < betas.size()) f.beta = betas[beta++];
    activations.push_back(f);
  }
  return activations;
}

// ---- One direction -----------------------------------------------------------------------------

// What a step of one direction uses.
struct Cell {
  const Call& call;
  int64_t gates, hidden;
  Tensor weight, recurrent;       // (gates * hidden, inputs) and (gates * hidden, hidden)
  Tensor input_bias, state_bias;  // (gates * hidden)
  Tensor peepholes;               // (3 * hidden) of an LSTM, or empty.
  std::vector<Squash> functions;

  Tensor gate(const Tensor& all, int64_t i) const { return all.narrow(-1, i * hidden, hidden); }
  Tensor apply(size_t function, Tensor x) const {
    if (call.has("clip")) {
      const double clip = call.number("clip", 0);
      x = minimum(maximum(x, -clip), clip);
    }
    return activate(call, functions[function], x);
  }
};

struct State {
  Tensor h, c;  // (batch, hidden); an LSTM alone has c.
};

// Takes the products (batch, gates * hidden) of one input, its bias included.
using Step = State (*)(const Cell& cell, const Tensor& products, const State& state);

State rnn_step(const Cell& cell, const Tensor& products, const State& state) {
  const Tensor sums = products + matmul(state.h, cell.recurrent.transpose()) + cell.state_bias;
  return {cell.apply(0, sums), Tensor()};
}

// The gates are update, reset and hidden.
State gru_step(const Cell& cell, const Tensor& products, const State& state) {
  const Tensor& h = state.h;
  const Tensor from_state = matmul(h, cell.recurrent.transpose()) + cell.state_bias;
  const Tensor z = cell.apply(0, cell.gate(products, 0) + cell.gate(from_state, 0));
  const Tensor r = cell.apply(0, cell.gate(products, 1) + cell.gate(from_state, 1));
  Tensor memory;
  if (cell.call.flag("linear_before_reset", false)) {
    memory = r * cell.gate(from_state, 2);
  } else {
    const Tensor weight = cell.recurrent.narrow(0, 2 * cell.hidden, cell.hidden);
    memory = matmul(r * h, weight.transpose()) + cell.gate(cell.state_bias, 2);
  }
  const Tensor candidate = cell.apply(1, cell.gate(products, 2) + memory);
  return {(1 - z) * candidate + z * h, Tensor()};
}

// The gates are input, output, forget and cell; the peepholes are those of the first three.
State lstm_step(const Cell& cell, const Tensor& products, const State& state) {
  const Tensor sums = products + matmul(state.h, cell.recurrent.transpose()) + cell.state_bias;
  const auto peep = [&](int64_t i, const Tensor& c) {
    const Tensor sum = cell.gate(sums, i);
    return cell.peepholes ? sum + cell.gate(cell.peepholes, i) * c : sum;
  };
  const Tensor input = cell.apply(0, peep(0, state.c));
  const Tensor forget =
      cell.call.flag("input_forget", false) ? 1 - input : cell.apply(0, peep(2, state.c));
  const Tensor c = forget * state.c + input * cell.apply(1, cell.gate(sums, 3));
  const Tensor output = cell.apply(0, peep(1, c));
  return {output * cell.apply(2, c), c};
}

// ---- All directions ----------------------------------------------------------------------------

struct Sequence {
  Tensor x;        // (time, batch, inputs)
  Tensor lengths;  // (batch), or empty: all are of full length.
};

// Runs one direction with the op of the sequence. `state` becomes the last one.
using Whole = Tensor (*)(const Cell& cell, const Sequence& sequence, bool is_reverse, State& state);

Tensor rnn_whole(const Cell& cell, const Sequence& s, bool is_reverse, State& state) {
  const bool is_relu = cell.functions[0].name == "Relu";
  const auto activation = is_relu ? CellActivation::kRelu : CellActivation::kTanh;
  return bp::rnn(s.x, state.h, cell.weight, cell.recurrent, cell.input_bias + cell.state_bias,
                 s.lengths, activation, is_reverse, &state.h);
}

Tensor gru_whole(const Cell& cell, const Sequence& s, bool is_reverse, State& state) {
  return bp::gru(s.x, state.h, cell.weight, cell.recurrent, cell.input_bias, cell.state_bias,
                 s.lengths, cell.call.flag("linear_before_reset", false), is_reverse, &state.h);
}

Tensor lstm_whole(const Cell& cell, const Sequence& s, bool is_reverse, State& state) {
  return bp::lstm(s.x, state.h, state.c, cell.weight, cell.recurrent,
                  cell.input_bias + cell.state_bias, s.lengths, is_reverse, &state.h, &state.c);
}

// Returns whether the op of the sequence computes what the node says.
bool is_plain(const Cell& cell, const std::vector<std::string>& usual) {
  if (cell.call.has("clip") || cell.peepholes || cell.call.flag("input_forget", false)) {
    return false;
  }
  const bool is_relu = usual.size() == 1 && cell.functions[0].name == "Relu";
  return is_relu || std::ranges::equal(cell.functions, usual, {}, &Squash::name);
}

// Runs one direction step by step, and returns (time, batch, hidden). `state` becomes the last one.
Tensor run_steps(const Cell& cell, Step step, const Sequence& sequence, bool is_reverse,
                 State& state) {
  const int64_t length = sequence.x.shape(0), batch = sequence.x.shape(1);
  const Tensor flat = sequence.x.reshape({length * batch, sequence.x.shape(2)});
  const Tensor products = (matmul(flat, cell.weight.transpose()) + cell.input_bias)
                              .reshape({length, batch, cell.gates * cell.hidden});
  const Tensor lengths = sequence.lengths ? sequence.lengths.unsqueeze(1) : Tensor();
  std::vector<Tensor> results(static_cast<size_t>(length));
  for (int64_t i = 0; i < length; ++i) {
    const int64_t t = is_reverse ? length - 1 - i : i;
    State next = step(cell, products.select(0, t), state);
    Tensor y = next.h;
    if (lengths) {
      const Tensor is_there = gt(lengths, t).expand(y.shape());
      y = keep_where(is_there, y);
      next.h = where(is_there, next.h, state.h);
      if (next.c) next.c = where(is_there, next.c, state.c);
    }
    results[static_cast<size_t>(t)] = y.unsqueeze(0);
    state = next;
  }
  return concat(results, 0);
}

struct Kind {
  int64_t gates;
  Step step;
  Whole whole;
  std::vector<std::string> activations;
  bool has_cell_state;
};

Cell make_cell(const Call& call, const Kind& kind, int64_t direction,
               const std::vector<Squash>& activations) {
  const Tensor recurrent = call.input(2).select(0, direction);
  const int64_t hidden = recurrent.shape(-1), size = kind.gates * hidden;
  Tensor bias = zeros({2 * size}, recurrent.dtype(), recurrent.device());
  if (call.has(3)) bias = call.input(3).select(0, direction);
  const size_t functions = kind.activations.size();
  const auto first = activations.begin() + static_cast<std::ptrdiff_t>(functions) * direction;
  return {call,
          kind.gates,
          hidden,
          call.input(1).select(0, direction),
          recurrent,
          bias.narrow(0, 0, size),
          bias.narrow(0, size, size),
          call.has(7) ? call.input(7).select(0, direction) : Tensor(),
          {first, first + static_cast<std::ptrdiff_t>(functions)}};
}

// The results of one direction after the other lie along a new axis 1.
Values run_recurrent(const Call& call, const Kind& kind) {
  const bool is_batch_first = call.flag("layout", false);
  const std::string direction = call.text("direction", "forward");
  if (direction != "forward" && direction != "reverse" && direction != "bidirectional") {
    call.refuse("attribute 'direction' is '" + direction + "'");
  }
  const int64_t directions = direction == "bidirectional" ? 2 : 1;
  const auto swapped = [&](const Tensor& x) { return is_batch_first ? x.transpose(0, 1) : x; };
  Sequence sequence{swapped(call.input(0)), Tensor()};
  if (call.has(4)) sequence.lengths = call.input(4).to(BP_I64);
  const auto activations =
      read_activations(call, kind.activations, static_cast<size_t>(directions));
  std::vector<Tensor> results, last_h, last_c;
  for (int64_t i = 0; i < directions; ++i) {
    const Cell cell = make_cell(call, kind, i, activations);
    const auto initial = [&](size_t input) {
      if (call.has(input)) return swapped(call.input(input)).select(0, i);
      return zeros({sequence.x.shape(1), cell.hidden}, sequence.x.dtype(), call.device());
    };
    State state{initial(5), kind.has_cell_state ? initial(6) : Tensor()};
    const bool is_reverse = direction == "reverse" || i == 1;
    const Tensor result = is_plain(cell, kind.activations)
                              ? kind.whole(cell, sequence, is_reverse, state)
                              : run_steps(cell, kind.step, sequence, is_reverse, state);
    results.push_back(result.unsqueeze(1));
    last_h.push_back(state.h.unsqueeze(0));
    if (state.c) last_c.push_back(state.c.unsqueeze(0));
  }
  const Tensor y = concat(results, 1);  // (time, directions, batch, hidden)
  Values values{is_batch_first ? y.permute({2, 0, 1, 3}) : y, swapped(concat(last_h, 0))};
  if (!last_c.empty()) values.emplace_back(swapped(concat(last_c, 0)));
  return values;
}

Values rnn(const Call& call) {
  return run_recurrent(call, {1, rnn_step, rnn_whole, {"Tanh"}, false});
}

Values gru(const Call& call) {
  return run_recurrent(call, {3, gru_step, gru_whole, {"Sigmoid", "Tanh"}, false});
}

Values lstm(const Call& call) {
  return run_recurrent(call, {4, lstm_step, lstm_whole, {"Sigmoid", "Tanh", "Tanh"}, true});
}

constexpr OpRow kRows[] = {
    {"GRU", 7, gru,
     "activation_alpha activation_beta activations clip direction hidden_size layout "
     "linear_before_reset"},
    {"LSTM", 7, lstm,
     "activation_alpha activation_beta activations clip direction hidden_size input_forget "
     "layout"},
    {"RNN", 7, rnn,
     "activation_alpha activation_beta activations clip direction hidden_size layout"},
};

}  // namespace

std::span<const OpRow> recurrent_ops() { return kRows; }

}  // namespace bp::onnx
