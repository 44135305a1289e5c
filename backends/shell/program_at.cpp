// Programs whose launches decide extents: what names the extents, and the program of one launch.
#include <algorithm>
#include <string>

#include "backplane/shell/boundary.hpp"
#include "backplane/shell/program.hpp"
#include "backplane/shell/shape.hpp"

namespace bp {
namespace {

std::string name_of_node(size_t index) { return "program: node " + std::to_string(index) + ": "; }

bool is_name(int64_t entry) { return entry < 0; }

}  // namespace

bool ProgramValue::names_extents() const { return std::ranges::any_of(shape, is_name); }

bool ProgramValue::has_changing_strides() const {
  if (!strides.empty()) return false;
  const auto last = std::find_if(shape.rbegin(), shape.rend(), is_name);
  // Each axis before it has a stride that it changes; that of an axis of extent 1 is ignored.
  return std::any_of(last == shape.rend() ? last : last + 1, shape.rend(),
                     [](int64_t entry) { return entry != 1; });
}

bp_tensor ProgramValue::tensor() const {
  bp_tensor tensor{};
  tensor.shape = shape.data();
  tensor.strides = strides.data();
  tensor.ndim = static_cast<uint32_t>(shape.size());
  tensor.dtype = dtype;
  tensor.layout = layout.get();
  return tensor;
}

uint64_t ProgramValue::size_bytes() const { return static_cast<uint64_t>(extent_of(tensor()).end); }

bool Program::names_extents(size_t node) const {
  const ProgramNode& its = nodes[node];
  return !its.bindings.empty() || its.frame.names_extents() ||
         std::ranges::any_of(its.values, [&](uint32_t value) {
           return value < values.size() && values[value].names_extents();
         });
}

Program Program::at(const ExtentNumbers& numbers) const {
  Program result;
  result.aliases = aliases;
  for (const ProgramValue& value : values) {
    ProgramValue& copy = result.values.emplace_back();
    copy.role = value.role;
    copy.dtype = value.dtype;
    copy.layout_words = value.layout_words;
    copy.layout = value.layout;
    for (const int64_t entry : value.shape) copy.shape.push_back(number_of(entry, numbers));
    copy.strides = value.strides.empty() ? row_major_strides(copy.shape) : value.strides;
  }
  for (size_t i = 0; i < nodes.size(); ++i) {
    ProgramNode& copy = result.nodes.emplace_back();
    copy.values = nodes[i].values;
    copy.frame = nodes[i].frame.at(numbers);
    for (const bp_extent_binding& binding : nodes[i].bindings) {
      copy.frame.bind(binding, numbers[binding.extent], name_of_node(i));
    }
  }
  return result;
}

// Checks what a node says about extents.
void Program::check_names(size_t node) const {
  const ProgramNode& its = nodes[node];
  for (size_t i = 0; i < its.bindings.size(); ++i) {
    const std::string subject = name_of_node(node) + "binding " + std::to_string(i) + ": ";
    const uint32_t extent = its.bindings[i].extent;
    if (extent >= extents.size()) {
      throw StatusError(BP_INVALID_ARGUMENT, subject + "extent is " + std::to_string(extent) +
                                                 ", and the program has " +
                                                 std::to_string(extents.size()) + " extents");
    }
    its.frame.check_binding(its.bindings[i], subject);
  }
  for (size_t i = 0; i < its.values.size(); ++i) {
    const bp_tensor* const tensor = its.frame.tensors()[i];
    if (tensor == nullptr) continue;
    const std::string subject = name_of_node(node) + its.frame.arguments()[i].name + ": ";
    const auto unknown = std::find_if(tensor->shape, tensor->shape + tensor->ndim,
                                      [&](int64_t entry) { return !extents.knows(entry); });
    if (unknown != tensor->shape + tensor->ndim) {
      throw StatusError(BP_INVALID_ARGUMENT,
                        subject + "an extent is negative: " + std::to_string(*unknown) +
                            " stands for an extent of the program, which has " +
                            std::to_string(extents.size()));
    }
    const bool is_fixed = tensor->ndim != 0 && tensor->strides != nullptr;
    if (is_fixed && its.values[i] < values.size() && values[its.values[i]].has_changing_strides()) {
      throw StatusError(BP_UNSUPPORTED,
                        subject + "its strides are fixed, and those of value " +
                            std::to_string(its.values[i]) +
                            " follow the extents of a launch; give NULL for row-major");
    }
  }
}

void Program::check_names() const {
  for (size_t i = 0; i < nodes.size(); ++i) check_names(i);
  for (size_t i = 0; i < extents.size(); ++i) {
    const auto has_it = [&](const ProgramValue& value) {
      return value.is_argument() && std::ranges::count(value.shape, -static_cast<int64_t>(i) - 1);
    };
    if (!extents.is_range(i) || std::ranges::any_of(values, has_it)) continue;
    throw StatusError(BP_INVALID_ARGUMENT,
                      "program: extent " + std::to_string(i) +
                          " is a range, and no input or output has it in its shape");
  }
}

}  // namespace bp
