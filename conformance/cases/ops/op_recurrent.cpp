// Cases of the recurrent cells. Cases of layouts follow by rule.
#include "conformance/cases/ops/op_families.hpp"
#include "conformance/cases/ops/op_oracles.hpp"
#include "conformance/reference/recurrent.hpp"

namespace bp::conformance {
namespace {

using reference::Cell;

struct Row {
  int64_t rows, inputs, hidden;
};

const std::vector<Row>& all_rows() {
  static const std::vector<Row> rows = {
      {1, 1, 1}, {3, 5, 4}, {2, 7, 3}, {17, 9, 8}, {4, 33, 31}, {0, 3, 4},
  };
  return rows;
}

// What a call gives beside its inputs and weights.
struct Variant {
  const char* name;
  bool has_bias = true, has_more = true;  // The second bias of a GRU, the next c of an LSTM.
  int64_t choice = 0;                     // reset_after of a GRU, activation of a simple cell.
};

const std::vector<Variant>& variants_of(uint32_t op) {
  static const std::vector<Variant> lstm = {
      {"full"}, {"nobias", false}, {"hidden_only", true, false}};
  static const std::vector<Variant> gru = {{"after", true, true, 1},
                                           {"before", true, true, 0},
                                           {"after_nobias", false, false, 1},
                                           {"before_onebias", true, false, 0}};
  static const std::vector<Variant> rnn = {{"tanh", true, false, BP_RNN_CELL_ACTIVATION_TANH},
                                           {"relu", true, false, BP_RNN_CELL_ACTIVATION_RELU},
                                           {"nobias", false, false, BP_RNN_CELL_ACTIVATION_TANH}};
  return op == BP_OP_LSTM_CELL ? lstm : op == BP_OP_GRU_CELL ? gru : rnn;
}

template <typename N>
Cell<N> cell_of(const CallData& data) {
  Cell<N> cell{data.array<N>("x"),
               data.array<N>("h"),
               data.array<N>("weight"),
               data.array<N>("recurrent"),
               {},
               {}};
  if (data.has("bias")) cell.bias = data.array<N>("bias");
  if (data.has("recurrent_bias")) cell.recurrent_bias = data.array<N>("recurrent_bias");
  return cell;
}

std::vector<Expected> expected_cell(const CallData& data, const Numerics&) {
  return judged_steps(data, data.tensor("x").dtype, [&]<typename N>(N) {
    const Cell<N> cell = cell_of<N>(data);
    if (data.op() == BP_OP_GRU_CELL) {
      return std::vector{reference::gru_step(cell, data.integer("reset_after") != 0).y};
    }
    if (data.op() == BP_OP_RNN_CELL) {
      const bool is_relu = data.integer("activation") == BP_RNN_CELL_ACTIVATION_RELU;
      return std::vector{reference::rnn_step(cell, is_relu)};
    }
    auto next = reference::lstm_step(cell, data.array<N>("c"));
    std::vector outputs{std::move(next.y)};
    if (data.has("c_next")) outputs.push_back(std::move(next.c));
    return outputs;
  });
}

int64_t gates_of(uint32_t op) { return op == BP_OP_LSTM_CELL ? 4 : op == BP_OP_GRU_CELL ? 3 : 1; }

OpCase make_row(uint32_t op, const Row& row, const Variant& variant, bp_dtype dtype) {
  const std::string shape = std::to_string(row.rows) + "x" + std::to_string(row.inputs) + "x" +
                            std::to_string(row.hidden);
  OpCase made = make_case(op, dtype, "random", shape + "_" + variant.name, "dense");
  const Shape state = {row.rows, row.hidden};
  const int64_t gates = gates_of(op) * row.hidden;
  made.input("x", dtype, {row.rows, row.inputs}, kRandom).input("h", dtype, state, kRandom);
  if (op == BP_OP_LSTM_CELL) made.input("c", dtype, state, kRandom);
  made.input("weight", dtype, {gates, row.inputs}, kRandom);
  made.input("recurrent", dtype, {gates, row.hidden}, kRandom);
  if (variant.has_bias) made.input("bias", dtype, {gates}, kRandom);
  if (op == BP_OP_GRU_CELL && variant.has_more) {
    made.input("recurrent_bias", dtype, {gates}, kRandom);
  }
  made.output("y", dtype, state);
  if (op == BP_OP_LSTM_CELL && variant.has_more) made.output("c_next", dtype, state);
  if (op == BP_OP_GRU_CELL) made.set("reset_after", variant.choice);
  if (op == BP_OP_RNN_CELL) made.set("activation", variant.choice);
  made.reference = expected_cell;
  made.is_smoke = is_smoke_dtype(dtype);
  made.varies = row.rows * row.hidden > 8 && variant.choice != BP_RNN_CELL_ACTIVATION_RELU;
  return made;
}

}  // namespace

void add_recurrent(OpCases& cases) {
  for (const uint32_t op :
       {uint32_t{BP_OP_LSTM_CELL}, uint32_t{BP_OP_GRU_CELL}, uint32_t{BP_OP_RNN_CELL}}) {
    for (const bp_dtype dtype : kFloats) {
      for (const Variant& variant : variants_of(op)) {
        for (const Row& row : all_rows()) cases.push_back(make_row(op, row, variant, dtype));
      }
    }
  }
}

}  // namespace bp::conformance
