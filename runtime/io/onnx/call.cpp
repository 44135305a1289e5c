#include "runtime/io/onnx/call.hpp"

#include <algorithm>

namespace bp::onnx {

const Value* Scope::find(const std::string& name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->outer) {
    const auto found = scope->values.find(name);
    if (found != scope->values.end()) return &found->second;
  }
  return nullptr;
}

void Call::refuse(const std::string& why) const { throw Error(BP_INVALID_ARGUMENT, why); }

void Call::unsupported(const std::string& why) const { throw Error(BP_UNSUPPORTED, why); }

// ---- Inputs ------------------------------------------------------------------------------------

bool Call::wants(size_t i) const { return i < node_.outputs.size() && !node_.outputs[i].empty(); }

const Value& Call::value(size_t i) const {
  if (!has(i)) refuse("input " + std::to_string(i) + " is not given");
  return inputs_[i];
}

std::vector<Tensor> Call::all_inputs() const {
  std::vector<Tensor> tensors{input(0)};
  for (size_t i = 1; i < inputs_.size(); ++i) tensors.push_back(input(i));
  return tensors;
}

std::vector<int64_t> Call::ints(size_t i) const {
  return value(i).on_host()->to_ints("input " + std::to_string(i));
}

std::vector<double> Call::doubles(size_t i) const {
  return value(i).on_host()->to_doubles("input " + std::to_string(i));
}

int64_t Call::integer(size_t i) const {
  const std::vector<int64_t> numbers = ints(i);
  if (numbers.size() == 1) return numbers[0];
  refuse("input " + std::to_string(i) + " has " + std::to_string(numbers.size()) +
         " elements; allowed: one");
}

double Call::number(size_t i) const {
  const std::vector<double> numbers = doubles(i);
  if (numbers.size() == 1) return numbers[0];
  refuse("input " + std::to_string(i) + " has " + std::to_string(numbers.size()) +
         " elements; allowed: one");
}

// ---- Attributes --------------------------------------------------------------------------------

const Attribute* Call::find(const char* name, Attribute::Kind kind) const {
  const Attribute* const attribute = node_.find(name);
  if (attribute == nullptr || attribute->kind == kind) return attribute;
  const std::string given =
      attribute->defect.empty() ? to_string(attribute->kind) : attribute->defect;
  refuse("attribute '" + std::string(name) + "' is " + given + "; allowed: " + to_string(kind));
}

int64_t Call::integer(const char* name, int64_t otherwise) const {
  const Attribute* const attribute = find(name, Attribute::Kind::kInt);
  return attribute == nullptr ? otherwise : attribute->integer;
}

int64_t Call::required_integer(const char* name) const {
  if (!has(name)) refuse("attribute '" + std::string(name) + "' is not given");
  return integer(name, 0);
}

double Call::number(const char* name, double otherwise) const {
  const Attribute* const attribute = find(name, Attribute::Kind::kFloat);
  return attribute == nullptr ? otherwise : attribute->number;
}

std::string Call::text(const char* name, const std::string& otherwise) const {
  const Attribute* const attribute = find(name, Attribute::Kind::kString);
  return attribute == nullptr ? otherwise : attribute->text;
}

std::vector<int64_t> Call::integers(const char* name, const std::vector<int64_t>& otherwise) const {
  const Attribute* const attribute = find(name, Attribute::Kind::kInts);
  return attribute == nullptr ? otherwise : attribute->integers;
}

std::vector<double> Call::numbers(const char* name, const std::vector<double>& otherwise) const {
  const Attribute* const attribute = find(name, Attribute::Kind::kFloats);
  return attribute == nullptr ? otherwise : attribute->numbers;
}

std::vector<std::string> Call::texts(const char* name,
                                     const std::vector<std::string>& otherwise) const {
  const Attribute* const attribute = find(name, Attribute::Kind::kStrings);
  return attribute == nullptr ? otherwise : attribute->texts;
}

const HostTensor& Call::tensor(const char* name) const {
  const Attribute* const attribute = find(name, Attribute::Kind::kTensor);
  if (attribute == nullptr) refuse("attribute '" + std::string(name) + "' is not given");
  return *attribute->tensor;
}

const Graph& Call::graph(const char* name) const {
  const Attribute* const attribute = find(name, Attribute::Kind::kGraph);
  if (attribute == nullptr) refuse("attribute '" + std::string(name) + "' is not given");
  return *attribute->graph;
}

bool Call::flag(const char* name, bool otherwise) const {
  const int64_t value = integer(name, otherwise ? 1 : 0);
  if (value == 0 || value == 1) return value == 1;
  refuse("attribute '" + std::string(name) + "' is " + std::to_string(value) +
         "; allowed: 0 and 1");
}

bp_dtype Call::dtype(const char* name, bp_dtype otherwise) const {
  if (!has(name)) return otherwise;
  const int64_t number = integer(name, 0);
  const bp_dtype dtype =
      number > 0 && number < INT32_MAX ? onnx_dtype(static_cast<int32_t>(number)) : 0;
  if (dtype != 0) return dtype;
  unsupported("attribute '" + std::string(name) + "' is the data type " + std::to_string(number) +
              (number == 8 ? " (STRING)" : "") + ", for which there is no dtype");
}

std::vector<int64_t> Call::attribute_or_input(const char* name, size_t i,
                                              const std::vector<int64_t>& otherwise) const {
  if (has(name)) return integers(name, {});
  return has(i) ? ints(i) : otherwise;
}

// ---- Axes --------------------------------------------------------------------------------------

int64_t Call::axis(int64_t given, int64_t ndim) const {
  if (given >= -ndim && given < ndim) return given < 0 ? given + ndim : given;
  refuse("axis " + std::to_string(given) + " of " + std::to_string(ndim) +
         " axes; allowed: " + std::to_string(-ndim) + " to " + std::to_string(ndim - 1));
}

std::vector<int64_t> Call::axes(std::vector<int64_t> given, int64_t ndim) const {
  for (int64_t& one : given) one = axis(one, ndim);
  std::vector<int64_t> sorted = given;
  std::ranges::sort(sorted);
  if (std::ranges::adjacent_find(sorted) != sorted.end()) {
    refuse("the axes " + bp::to_string(IntList(given)) + " have one twice");
  }
  return given;
}

}  // namespace bp::onnx
