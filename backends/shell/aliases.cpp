#include "backplane/shell/aliases.hpp"

#include <algorithm>
#include <string>

#include "backplane/ops.h"
#include "backplane/shell/boundary.hpp"

namespace bp {
namespace {

bool is_same_view(const bp_tensor& a, const bp_tensor& b) {
  return a.byte_offset == b.byte_offset && a.dtype == b.dtype && a.ndim == b.ndim &&
         a.layout == b.layout && std::equal(a.shape, a.shape + a.ndim, b.shape) &&
         std::equal(a.strides, a.strides + a.ndim, b.strides);
}

bool reads(const ProgramNode& node, uint32_t value) {
  for (size_t i = 0; i < node.values.size(); ++i) {
    if (node.values[i] == value && node.frame.arguments()[i].is_read) return true;
  }
  return false;
}

bool writes(const ProgramNode& node, uint32_t value) {
  for (size_t i = 0; i < node.values.size(); ++i) {
    if (node.values[i] == value && node.frame.arguments()[i].is_written) return true;
  }
  return false;
}

// Returns whether each tensor of the input is the same view as each tensor of the output.
bool has_equal_views(const ProgramNode& node, const bp_program_alias& alias) {
  for (size_t i = 0; i < node.values.size(); ++i) {
    for (size_t k = 0; k < node.values.size(); ++k) {
      if (node.values[i] != alias.input || node.values[k] != alias.output) continue;
      if (!is_same_view(*node.frame.tensors()[i], *node.frame.tensors()[k])) return false;
    }
  }
  return true;
}

// Returns whether the node does nothing if the input and the output are one memory.
bool is_idle(const ProgramNode& node, const bp_program_alias& alias) {
  return node.frame.op() == BP_OP_COPY && reads(node, alias.input) && writes(node, alias.output) &&
         has_equal_views(node, alias);
}

}  // namespace

AliasUse use_of_alias(const Program& program, std::span<const bp_kernel* const> kernels,
                      const bp_program_alias& alias) {
  AliasUse use;
  bool is_overwritten = false;
  for (size_t i = 0; i < program.nodes.size(); ++i) {
    const ProgramNode& node = program.nodes[i];
    const bool reads_input = reads(node, alias.input);
    if (is_overwritten && reads_input) return {.copies_input = true, .idle_nodes = {}};
    if (is_idle(node, alias)) {
      use.idle_nodes.push_back(i);
      continue;
    }
    if (!writes(node, alias.output)) continue;
    is_overwritten = true;
    const bool works_in_place = i < kernels.size() &&
                                (kernels[i]->flags & BP_KERNEL_IN_PLACE) != 0 &&
                                has_equal_views(node, alias);
    if (reads_input && !works_in_place) return {.copies_input = true, .idle_nodes = {}};
  }
  return use;
}

void Program::check_aliases() const {
  std::vector<bool> is_named(values.size());
  for (size_t i = 0; i < aliases.size(); ++i) {
    const auto refuse = [&](const std::string& why) {
      throw StatusError(BP_INVALID_ARGUMENT, "program: alias " + std::to_string(i) + ": " + why);
    };
    const auto [input, output] = aliases[i];
    const auto has_role = [&](uint32_t value, bp_value_role role) {
      return value < values.size() && values[value].role == role;
    };
    if (!has_role(input, BP_VALUE_INPUT)) {
      refuse("value " + std::to_string(input) + " is not an input");
    }
    if (!has_role(output, BP_VALUE_OUTPUT)) {
      refuse("value " + std::to_string(output) + " is not an output");
    }
    if (!values[input].is_like(values[output]) || values[input].strides != values[output].strides) {
      refuse("values " + std::to_string(input) + " and " + std::to_string(output) +
             " have not one dtype, shape, layout and strides");
    }
    for (const uint32_t value : {input, output}) {
      if (is_named[value]) refuse("another alias names value " + std::to_string(value) + " too");
      is_named[value] = true;
    }
  }
}

}  // namespace bp
