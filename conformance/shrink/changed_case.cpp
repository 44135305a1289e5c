#include "conformance/shrink/changed_case.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "conformance/cases/engine/host_call.hpp"
#include "conformance/cases/engine/op_engine.hpp"
#include "conformance/json_file.hpp"
#include "conformance/shrink/program.hpp"
#include "conformance/usage_error.hpp"

namespace bp::conformance {
namespace {

using nlohmann::json;

json attribute_json(const Attribute& attribute) {
  if (const auto* integer = std::get_if<int64_t>(&attribute.value)) return *integer;
  if (const auto* number = std::get_if<double>(&attribute.value)) return *number;
  if (const auto* list = std::get_if<Shape>(&attribute.value)) return *list;
  const auto& scalar = std::get<bp_scalar>(attribute.value);
  return {{"dtype", dtype_text(scalar.dtype)}, {"bits", scalar.bits}};
}

// A number with a fraction, or above 2^63 - 1, is refused, because a conversion would change it.
int64_t integer_of(const json& value) {
  if (!value.is_number_integer()) {
    throw UsageError(kind_text(value) + " stands where an integer is expected");
  }
  if (value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{INT64_MAX}) {
    throw UsageError(kind_text(value) + " stands where an integer up to 2^63 - 1 is expected");
  }
  return value.get<int64_t>();
}

Shape integers_of(const json& value) {
  if (!value.is_array()) {
    throw UsageError(kind_text(value) + " stands where a list of integers is expected");
  }
  Shape integers;
  for (const json& integer : value) integers.push_back(integer_of(integer));
  return integers;
}

void read_attribute(const json& value, Attribute& attribute) {
  if (auto* integer = std::get_if<int64_t>(&attribute.value)) {
    *integer = integer_of(value);
  } else if (auto* number = std::get_if<double>(&attribute.value)) {
    value.get_to(*number);
  } else if (auto* list = std::get_if<Shape>(&attribute.value)) {
    *list = integers_of(value);
  } else {
    auto& scalar = std::get<bp_scalar>(attribute.value);
    const JsonObject told(value, "attribute \"" + std::string(attribute.name) + "\"");
    scalar.dtype = bp_dtype_from_name(told.text("dtype").c_str());
    scalar.bits = told.count("bits", UINT64_MAX);
  }
}

Layout layout_from_name(const std::string& name) {
  for (int i = 0; i <= static_cast<int>(Layout::kOffset); ++i) {
    if (name == layout_text(static_cast<Layout>(i))) return static_cast<Layout>(i);
  }
  throw UsageError("\"" + name + "\" is no layout");
}

// JSON has no infinities and no NaN.
json number_json(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  return value;
}

double number_of(const json& value) {
  if (value == "nan") return std::nan("");
  if (value == "inf" || value == "-inf") return value == "inf" ? HUGE_VAL : -HUGE_VAL;
  return value.get<double>();
}

json tensor_json(const TensorArgument& argument) {
  json tensor = {
      {"name", argument.name}, {"shape", argument.shape}, {"layout", layout_text(argument.layout)}};
  if (argument.role != Role::kOutput) {
    tensor["fill"] = {static_cast<int>(argument.fill.kind), number_json(argument.fill.low),
                      number_json(argument.fill.high)};
  }
  return tensor;
}

// Refuses a shape of so many elements that strides and sizes in bytes could overflow.
void check_shape(const Shape& shape) {
  constexpr int64_t kMostElements = int64_t{1} << 40;
  int64_t count = 1;
  for (const int64_t extent : shape) {
    if (extent < 0 || extent > kMostElements / count) {
      throw UsageError("shape " + shape_text(shape) +
                       " is not allowed: extents are at least 0, and a tensor has at most 2^40 "
                       "elements");
    }
    count *= std::max<int64_t>(extent, 1);
  }
}

bool is_same_fill(const Fill& a, const Fill& b) {
  return a.kind == b.kind && a.low == b.low && a.high == b.high;
}

void read_tensor(const json& tensor, TensorArgument& argument) {
  if (tensor.at("name").get<std::string>() != argument.name) {
    throw UsageError("tensor \"" + tensor.at("name").get<std::string>() + "\" stands where \"" +
                     std::string(argument.name) + "\" is expected");
  }
  argument.shape = integers_of(tensor.at("shape"));
  check_shape(argument.shape);
  argument.layout = layout_from_name(tensor.at("layout").get<std::string>());
  if (!tensor.contains("fill")) return;
  const json& fill = tensor.at("fill");
  const int64_t kind = integer_of(fill.at(0));
  if (kind < 0 || kind > static_cast<int64_t>(FillKind::kRepeat)) {
    throw UsageError("fill " + std::to_string(kind) + " is not known");
  }
  argument.fill = {static_cast<FillKind>(kind), number_of(fill.at(1)), number_of(fill.at(2))};
}

// A changed call shows nothing about the backend if the oracle cannot follow it.
void require_oracle(Context& t, const OpCase& op_case) {
  t.progress("oracle");
  const CallData data(op_case, t.seed());
  const Expectation expected = expectation(op_case, data, nullptr);
  size_t output = 0;
  for (const TensorArgument& argument : op_case.tensors) {
    if (argument.role == Role::kInput) continue;
    const auto count = static_cast<size_t>(element_count(argument.shape));
    if (output >= expected.outputs.size() || expected.outputs[output].value.size() != count) {
      throw std::logic_error("the oracle does not follow the changed shapes");
    }
    ++output;
  }
}

}  // namespace

json describe_call(const OpCase& op_case) {
  json tensors = json::array(), attributes = json::object();
  for (const TensorArgument& argument : op_case.tensors) tensors.push_back(tensor_json(argument));
  for (const Attribute& attribute : op_case.attributes) {
    attributes[std::string(attribute.name)] = attribute_json(attribute);
  }
  return {{"tensors", std::move(tensors)}, {"attributes", std::move(attributes)}};
}

OpCase changed_case(const OpCase& base, const json& description) try {
  OpCase changed = base;
  const json& tensors = description.at("tensors");
  if (tensors.size() != changed.tensors.size()) {
    throw UsageError("has " + std::to_string(tensors.size()) + " tensors; the case has " +
                     std::to_string(changed.tensors.size()));
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    read_tensor(tensors[i], changed.tensors[i]);
    // A result may need rounding with other data.
    if (!is_same_fill(changed.tensors[i].fill, base.tensors[i].fill)) changed.is_exact = false;
  }
  for (Attribute& attribute : changed.attributes) {
    read_attribute(description.at("attributes").at(std::string(attribute.name)), attribute);
  }
  std::string text;
  if (HostCall(changed).check(&text) != BP_OK) throw UsageError("makes no legal call: " + text);
  return changed;
} catch (const json::exception& e) {
  throw UsageError(e.what());
}

void infer_outputs(OpCase& op_case) {
  std::vector<TensorArgument*> outputs;  // NULL for an output that the call does not ask for.
  for (const FrameMember& member : op_info(op_case.op).members) {
    const size_t before = outputs.size();
    for (TensorArgument& argument : op_case.tensors) {
      if (argument.name == member.name && argument.role == Role::kOutput) {
        outputs.push_back(&argument);
      }
    }
    if (member.kind == "out_opt" && outputs.size() == before) outputs.push_back(nullptr);
  }
  HostCall call(op_case);
  std::vector<bp_op_output> inferred(outputs.size() + 8);
  uint32_t count = 0;
  const bp_status status =
      bp_op_infer(op_case.op, call.frame().data(), static_cast<uint32_t>(inferred.size()),
                  inferred.data(), &count);
  bp_error_clear();
  if (status != BP_OK || count != outputs.size()) return;
  for (size_t i = 0; i < count; ++i) {
    if (outputs[i] == nullptr) continue;
    outputs[i]->shape.assign(inferred[i].shape, inferred[i].shape + inferred[i].ndim);
  }
}

Case make_changed_case(const CaseList& suite, const json& description) try {
  const std::string id = description.is_object() ? description.value("case", "") : "";
  const Case* base = suite.find(id);
  if (base == nullptr || base->op_case == nullptr) {
    throw UsageError("names \"" + id + "\", which is no op case of this suite");
  }
  const auto changed = std::make_shared<const OpCase>(changed_case(*base->op_case, description));
  Case made = *base;
  made.tier = Tier::kSmoke;
  made.change = json_text(description);
  made.op_case = changed;
  const bool wants_program = description.value("wants_program", false);
  made.run = [changed, wants_program](Context& t) {
    require_oracle(t, *changed);
    if (wants_program) {
      t.detail("program", standalone_program(t, *changed));
    } else {
      run_op_case(t, *changed);
    }
  };
  return made;
} catch (const json::exception& e) {
  throw UsageError(e.what());
}

}  // namespace bp::conformance
