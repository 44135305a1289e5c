// If, Loop and Scan run subgraphs, which see the values around them. A condition and a number of
// rounds are read on the host.
#include "runtime/io/onnx/composed.hpp"
#include "runtime/io/onnx/op_table.hpp"

namespace bp::onnx {
namespace {

using Inputs = std::map<std::string, Value>;

Values run_body(const Call& call, const Graph& body, const Values& inputs) {
  if (inputs.size() != body.inputs.size()) {
    call.refuse("the subgraph has " + std::to_string(body.inputs.size()) + " inputs; it is given " +
                std::to_string(inputs.size()));
  }
  Inputs named;
  for (size_t i = 0; i < inputs.size(); ++i) named[body.inputs[i].name] = inputs[i];
  return run_graph(body, std::move(named), call.device(), &call.scope());
}

bool is_true(const Value& value) {
  const std::vector<int64_t> flags = value.on_host()->to_ints("the condition");
  if (flags.size() == 1) return flags[0] != 0;
  throw Error(BP_INVALID_ARGUMENT,
              "the condition has " + std::to_string(flags.size()) + " elements; allowed: one");
}

Values choose_branch(const Call& call) {
  return run_body(call, call.graph(is_true(call.value(0)) ? "then_branch" : "else_branch"), {});
}

// Lays what each round made behind each other along a new axis.
Value stacked(const Call& call, std::vector<Tensor> parts, int64_t axis) {
  if (parts.empty()) {
    call.unsupported("a loop of no rounds has results of its rounds, whose shape nobody knows");
  }
  axis = call.axis(axis, parts[0].ndim() + 1);
  for (Tensor& part : parts) part = part.unsqueeze(axis);
  return concat(parts, axis);
}

Value flag_value(bool flag) { return HostTensor{BP_BOOL, {}, {static_cast<uint8_t>(flag)}}; }

// The inputs are the most rounds, the condition, and the values that each round takes over from the
// one before it.
Values loop(const Call& call) {
  const Graph& body = call.graph("body");
  const int64_t most = call.has(size_t{0}) ? call.integer(0) : INT64_MAX;
  bool goes_on = !call.has(1) || is_true(call.value(1));
  const size_t carried = call.input_count() < 2 ? 0 : call.input_count() - 2;
  if (body.outputs.size() < carried + 1) call.refuse("the body has too few outputs");
  Values state;
  for (size_t i = 0; i < carried; ++i) state.push_back(call.value(i + 2));
  std::vector<std::vector<Tensor>> scans(body.outputs.size() - 1 - carried);
  for (int64_t round = 0; round < most && goes_on; ++round) {
    Values inputs{host_ints({round}, {}), flag_value(goes_on)};
    inputs.insert(inputs.end(), state.begin(), state.end());
    const Values outputs = run_body(call, body, inputs);
    goes_on = is_true(outputs[0]);
    for (size_t i = 0; i < carried; ++i) state[i] = outputs[i + 1];
    for (size_t i = 0; i < scans.size(); ++i) {
      scans[i].push_back(outputs[i + 1 + carried].on(call.device()));
    }
  }
  Values results = state;
  for (const auto& scan : scans) results.push_back(stacked(call, scan, 0));
  return results;
}

// ---- Scan --------------------------------------------------------------------------------------

std::vector<int64_t> per_item(const Call& call, const char* name, size_t count) {
  std::vector<int64_t> numbers = call.integers(name, std::vector<int64_t>(count));
  if (numbers.size() == count) return numbers;
  call.refuse("attribute '" + std::string(name) + "' has " + std::to_string(numbers.size()) +
              " numbers; allowed: " + std::to_string(count));
}

// The last inputs are cut into slices, one for each round.
Values scan(const Call& call) {
  const Graph& body = call.graph("body");
  const auto sliced = static_cast<size_t>(call.required_integer("num_scan_inputs"));
  if (sliced < 1 || sliced > call.input_count()) call.refuse("num_scan_inputs is wrong");
  const size_t carried = call.input_count() - sliced;
  if (body.outputs.size() < carried) call.refuse("the body has too few outputs");
  const size_t made = body.outputs.size() - carried;
  const auto axes = per_item(call, "scan_input_axes", sliced);
  const auto directions = per_item(call, "scan_input_directions", sliced);
  const auto result_axes = per_item(call, "scan_output_axes", made);
  const auto result_directions = per_item(call, "scan_output_directions", made);
  Values state;
  for (size_t i = 0; i < carried; ++i) state.push_back(call.value(i));
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < sliced; ++i) inputs.push_back(call.input(carried + i));
  const int64_t rounds = inputs[0].shape(axes[0]);
  std::vector<std::vector<Tensor>> scans(made);
  for (int64_t round = 0; round < rounds; ++round) {
    Values given = state;
    for (size_t i = 0; i < sliced; ++i) {
      if (inputs[i].shape(axes[i]) != rounds) call.refuse("the inputs have different lengths");
      given.emplace_back(
          inputs[i].select(axes[i], directions[i] == 0 ? round : rounds - 1 - round));
    }
    const Values outputs = run_body(call, body, given);
    for (size_t i = 0; i < carried; ++i) state[i] = outputs[i];
    for (size_t i = 0; i < made; ++i) {
      auto& parts = scans[i];
      parts.insert(result_directions[i] == 0 ? parts.end() : parts.begin(),
                   outputs[carried + i].on(call.device()));
    }
  }
  Values results = state;
  for (size_t i = 0; i < made; ++i) results.push_back(stacked(call, scans[i], result_axes[i]));
  return results;
}

constexpr OpRow kRows[] = {
    {"If", 1, choose_branch, "else_branch then_branch"},
    {"Loop", 1, loop, "body"},
    {"Scan", 9, scan,
     "body num_scan_inputs scan_input_axes scan_input_directions scan_output_axes "
     "scan_output_directions"},
};

}  // namespace

std::span<const OpRow> control_ops() { return kRows; }

}  // namespace bp::onnx
