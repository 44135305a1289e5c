// Values of programs that lie in layouts.
#include <algorithm>
#include <string>

#include "backplane/shell/block_layout.hpp"
#include "backplane/shell/boundary.hpp"
#include "backplane/shell/program.hpp"
#include "backplane/shell/shape.hpp"
#include "backplane/shell/workspace.hpp"

namespace bp {
namespace {

std::string name_of(size_t value) { return "value " + std::to_string(value); }

[[noreturn]] void invalid(const std::string& text) {
  throw StatusError(BP_INVALID_ARGUMENT, "program: " + text);
}

}  // namespace

bool ProgramValue::is_like(const ProgramValue& other) const {
  return dtype == other.dtype && shape == other.shape && layout_words == other.layout_words;
}

uint64_t ProgramValue::data_size_bytes() const {
  if (!layout_words) return size_bytes();
  if (layout_words->kind == BP_LAYOUT_KIND_QUANTIZED) {
    return block_facts(block_form(layout_desc())).physical_size_bytes;
  }
  return static_cast<uint64_t>(
      dense_size_bytes(static_cast<uint32_t>(shape.size()), shape.data(), dtype_size_bytes(dtype)));
}

bp_layout_desc ProgramValue::layout_desc() const {
  const LayoutWords& words = *layout_words;
  return {.struct_size = sizeof(bp_layout_desc),
          .struct_type = BP_STRUCT_LAYOUT_DESC,
          .next = nullptr,
          .shape = shape.data(),
          .block_shape = words.block_shape.empty() ? nullptr : words.block_shape.data(),
          .ndim = static_cast<uint32_t>(shape.size()),
          .kind = words.kind,
          .dtype = dtype,
          .scale_dtype = words.scale_dtype,
          .format_name = words.format_name.empty() ? nullptr : words.format_name.c_str()};
}

// Reads the layout of the value that was read last, which has its shape already.
void Program::read_layout(const bp_program_value& theirs, size_t index) {
  ProgramValue& value = values[index];
  const std::string name = name_of(index);
  if (value.names_extents()) {
    invalid(name + ": it has a layout, and its shape names an extent; give strides or numbers");
  }
  if (theirs.strides != nullptr) invalid(name + ": it has strides and a layout; give one");
  int64_t block_shape[BP_MAX_RANK];
  const bp_layout_desc desc =
      read_layout_desc(theirs.layout, block_shape, "program: " + name + ": layout");
  if (desc.dtype != value.dtype || desc.ndim != value.shape.size() ||
      !std::equal(value.shape.begin(), value.shape.end(), desc.shape)) {
    invalid(name + ": layout: it describes shape " + shape_text(desc.ndim, desc.shape) +
            " of dtype " + std::to_string(desc.dtype) + ", and the value has " +
            shape_text(static_cast<uint32_t>(value.shape.size()), value.shape.data()) +
            " of dtype " + std::to_string(value.dtype));
  }
  LayoutWords& words = value.layout_words.emplace();
  words.kind = desc.kind;
  words.scale_dtype = desc.scale_dtype;
  if (desc.ndim != 0) words.block_shape.assign(desc.block_shape, desc.block_shape + desc.ndim);
  if (desc.format_name != nullptr) words.format_name = desc.format_name;
}

// Checks a tensor of a node whose value has a layout.
void Program::check_whole(const bp_tensor& tensor, size_t value, const std::string& name) const {
  const ProgramValue& its = values[value];
  const bool is_whole = tensor.byte_offset == 0 && tensor.dtype == its.dtype &&
                        tensor.ndim == its.shape.size() &&
                        std::equal(its.shape.begin(), its.shape.end(), tensor.shape);
  if (is_whole) return;
  throw StatusError(BP_UNSUPPORTED, "program: " + name + ": it is not the whole " + name_of(value) +
                                        ", and a value with a layout has no other views");
}

void Program::lay_out_value(size_t index, Layouts* layouts, const std::string& call) {
  ProgramValue& value = values[index];
  if (!value.layout_words) return;
  const std::string name = call + ": " + name_of(index);
  if (layouts == nullptr) {
    throw StatusError(BP_UNSUPPORTED, name + ": layout: the device has no layouts");
  }
  const bp_layout_desc desc = value.layout_desc();
  value.layout = std::shared_ptr<const bp_layout>(
      layouts->from_desc(&desc, name + ": layout"),
      [layouts](const bp_layout* layout) { static_cast<void>(layouts->release(layout)); });
  if (value.layout->alignment_bytes > kWorkspaceAlignmentBytes && !value.is_argument()) {
    throw StatusError(BP_UNSUPPORTED,
                      name +
                          ": layout: a temporary or constant in it would have to begin at a "
                          "multiple of " +
                          std::to_string(value.layout->alignment_bytes) + " bytes");
  }
  if (value.buffer.buffer == nullptr || value.buffer.size_bytes >= value.size_bytes()) return;
  throw StatusError(BP_INVALID_ARGUMENT, name + ": buffer has " +
                                             std::to_string(value.buffer.size_bytes) +
                                             " bytes, and the constant needs " +
                                             std::to_string(value.size_bytes()) + " in its layout");
}

void Program::lay_out_nodes() {
  for (ProgramNode& node : nodes) {
    for (size_t i = 0; i < node.values.size(); ++i) {
      if (node.values[i] == BP_NO_VALUE) continue;
      node.frame.tensors()[i]->layout = values[node.values[i]].layout.get();
    }
  }
}

void Program::lay_out(Layouts* layouts, const std::string& call) {
  if (!has_layouts()) return;
  for (size_t i = 0; i < values.size(); ++i) lay_out_value(i, layouts, call);
  lay_out_nodes();
}

bool Program::has_layouts() const {
  return std::ranges::any_of(
      values, [](const ProgramValue& value) { return value.layout_words.has_value(); });
}

}  // namespace bp
