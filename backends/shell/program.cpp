#include "backplane/shell/program.hpp"

#include <algorithm>
#include <cstring>
#include <span>
#include <string>

#include "backplane/shell/boundary.hpp"
#include "backplane/shell/first_size.hpp"
#include "backplane/shell/shape.hpp"
#include "backplane/shell/workspace.hpp"

namespace bp {
namespace {

constexpr uint32_t kMaxFrameBytes = 4096;

[[noreturn]] void invalid(const std::string& text) {
  throw StatusError(BP_INVALID_ARGUMENT, "program: " + text);
}

std::string numbered(const char* what, size_t index) {
  return std::string(what) + " " + std::to_string(index);
}

template <typename T>
const T* element(const T* first, uint64_t stride_bytes, size_t index) {
  return reinterpret_cast<const T*>(reinterpret_cast<const std::byte*>(first) +
                                    index * stride_bytes);
}

// Returns whether the elements of a view lie in `whole`. A view without elements lies in any
// extent.
bool is_within(const bp_tensor& view, Extent whole) {
  const Extent extent = extent_of(view);
  if (extent.begin == extent.end) return true;
  const auto offset = static_cast<int64_t>(view.byte_offset);
  int64_t begin = 0, end = 0;
  if (__builtin_add_overflow(offset, extent.begin, &begin)) return false;
  if (__builtin_add_overflow(offset, extent.end, &end)) return false;
  return begin >= whole.begin && end <= whole.end;
}

}  // namespace

bool ProgramNode::is_in_place() const {
  const std::vector<FrameArgument>& arguments = frame.arguments();
  for (size_t i = 0; i < values.size(); ++i) {
    if (!arguments[i].is_written || values[i] == BP_NO_VALUE) continue;
    for (size_t j = 0; j < values.size(); ++j) {
      if (i != j && values[i] == values[j]) return true;
    }
  }
  return false;
}

namespace {

// The op of a node, as this build or the host knows it.
struct NodeOp {
  uint32_t op;
  const bp_op_desc* desc;  // NULL unless it was described at run time.

  uint32_t size_bytes() const {
    return desc == nullptr ? frame_size_bytes(op) : desc->frame_size_bytes;
  }
  OwnedFrame frame(const void* args, uint32_t size_bytes) const {
    return desc == nullptr ? OwnedFrame(op, args, size_bytes, true)
                           : OwnedFrame(*desc, args, size_bytes, true);
  }
};

// Returns the op with this number. `name` is that of the node, for the text of a failure.
NodeOp find_op(uint32_t op, const bp_host* host, const std::string& name) {
  const std::string subject = "program: " + name + ": ";
  if (!is_described(op) || host == nullptr) {
    if (op != 0 && op_name(op) != nullptr) return {op, nullptr};
    throw StatusError(BP_UNSUPPORTED,
                      subject + "op " + std::to_string(op) + " is not known to this build");
  }
  try {
    return {op, &described_op(*host, op)};
  } catch (const StatusError& e) {
    throw StatusError(e.status(), subject + e.what());
  }
}

// Returns what this build knows of a frame of `size_bytes`: a shorter one of an older caller with
// zeros behind its end, and of a longer one the part that is known, if its further bytes are zero.
// Else it returns the whole frame, which no kernel takes.
OwnedFrame known_part(const NodeOp& op, const void* args, uint32_t size_bytes) {
  const uint32_t known_bytes = op.size_bytes();
  const auto* const bytes = static_cast<const std::byte*>(args);
  if (size_bytes == known_bytes ||
      (size_bytes > known_bytes &&
       std::any_of(bytes + known_bytes, bytes + size_bytes,
                   [](std::byte byte) { return byte != std::byte{0}; }))) {
    return op.frame(args, size_bytes);
  }
  std::vector<uint64_t> words(known_bytes / sizeof(uint64_t));
  std::memcpy(words.data(), args, std::min(size_bytes, known_bytes));
  std::memcpy(words.data(), &known_bytes, sizeof(known_bytes));
  return op.frame(words.data(), known_bytes);
}

void check_buffer_size(const bp_buffer_ref& buffer, uint64_t size_bytes, const std::string& name) {
  if (buffer.size_bytes >= size_bytes) return;
  invalid(name + ": buffer has " + std::to_string(buffer.size_bytes) +
          " bytes, and the constant needs " + std::to_string(size_bytes));
}

// Reads where the elements of a constant are.
void read_content(const bp_program_value& theirs, const std::string& name, ProgramValue& value) {
  // The backend checks the size of a buffer beside a layout when it knows the layout.
  const uint64_t size_bytes = value.data_size_bytes();
  const bool has_buffer = theirs.buffer.buffer != nullptr;
  if (theirs.key != nullptr && *theirs.key == '\0') invalid(name + ": key is empty");
  if (theirs.data != nullptr && has_buffer) invalid(name + ": it has data and a buffer; give one");
  if (theirs.key == nullptr && theirs.data == nullptr && !has_buffer && size_bytes != 0) {
    invalid(name + ": a constant has no data, no buffer and no key");
  }
  if (has_buffer && theirs.buffer.byte_offset % kWorkspaceAlignmentBytes != 0) {
    invalid(name + ": the constant begins at byte " + std::to_string(theirs.buffer.byte_offset) +
            " of its buffer; multiples of " + std::to_string(kWorkspaceAlignmentBytes) +
            " are allowed");
  }
  if (has_buffer && !value.layout_words) check_buffer_size(theirs.buffer, size_bytes, name);
  if (theirs.key != nullptr) value.key = theirs.key;
  value.buffer = theirs.buffer;
  value.source = theirs.data;
  if (!value.has_own_data()) return;
  const auto* const bytes = static_cast<const std::byte*>(theirs.data);
  value.data.assign(bytes, bytes + size_bytes);
}

}  // namespace

Program::Program(const bp_program* theirs, const bp_host* host) {
  if (theirs == nullptr) invalid("data is NULL");
  const auto ours = read_desc(theirs, kFirstSize<bp_program>, BP_STRUCT_PROGRAM, "compile");
  if (ours.values == nullptr || ours.nodes == nullptr || ours.node_count == 0) {
    invalid("it has no values or no nodes");
  }
  extents = ProgramExtents(ours);
  read_values(ours, "compile");
  if (ours.node_stride_bytes < kFirstSize<bp_program_node>) {
    invalid("node_stride_bytes is smaller than the struct of a node");
  }
  for (size_t i = 0; i < ours.node_count; ++i) {
    const bp_program_node* const node = element(ours.nodes, ours.node_stride_bytes, i);
    check_stride(node, ours.node_stride_bytes, "program: node_stride_bytes");
    read_node(node, i, host);
  }
  if (ours.alias_count != 0 && ours.aliases == nullptr) invalid("aliases is NULL");
  aliases.assign(ours.aliases, ours.aliases + ours.alias_count);
  check();
}

void Program::read_values(const bp_program& theirs, const char* call) {
  if (theirs.value_stride_bytes < kFirstSize<bp_program_value>) {
    invalid("value_stride_bytes is smaller than the struct of a value");
  }
  for (size_t i = 0; i < theirs.value_count; ++i) {
    const bp_program_value* const value = element(theirs.values, theirs.value_stride_bytes, i);
    check_stride(value, theirs.value_stride_bytes, "program: value_stride_bytes");
    read_value(value, i, call);
  }
}

void Program::give_constants(const bp_program* theirs, const char* call) {
  if (theirs == nullptr) return;
  const auto ours = read_desc(theirs, kFirstSize<bp_program>, BP_STRUCT_PROGRAM, call);
  const std::string name = std::string(call) + ": constants: ";
  if (ours.values == nullptr && ours.value_count != 0) {
    throw StatusError(BP_INVALID_ARGUMENT, name + "values is NULL");
  }
  Program given;
  if (ours.value_count != 0) given.read_values(ours, call);
  for (ProgramValue& value : values) {
    if (value.key.empty()) continue;
    const auto found = std::ranges::find(given.values, value.key, &ProgramValue::key);
    if (found == given.values.end()) continue;
    if (!found->is_like(value)) {
      throw StatusError(BP_INVALID_ARGUMENT, name + "key \"" + value.key +
                                                 "\" is given with another dtype, shape or layout");
    }
    value.source = found->source;
    value.buffer = found->buffer;
  }
}

void Program::read_value(const bp_program_value* theirs, size_t index, const char* call) {
  const auto ours = read_desc(theirs, kFirstSize<bp_program_value>, BP_STRUCT_PROGRAM_VALUE, call);
  const std::string name = numbered("value", index);
  if (ours.role < BP_VALUE_INPUT || ours.role > BP_VALUE_CONSTANT || ours.reserved != 0) {
    invalid(name + ": role is " + std::to_string(ours.role) + ", or reserved is not 0");
  }
  if (ours.ndim > BP_MAX_RANK || (ours.ndim != 0 && ours.shape == nullptr)) {
    invalid(name + ": ndim is " + std::to_string(ours.ndim) + ", or shape is NULL");
  }
  if (dtype_size_bytes(ours.dtype) == 0) {
    throw StatusError(BP_UNSUPPORTED, "program: " + name + ": dtype " + std::to_string(ours.dtype) +
                                          " is not served");
  }
  ProgramValue& value = values.emplace_back();
  value.role = ours.role;
  value.dtype = ours.dtype;
  value.shape.assign(ours.shape, ours.shape + ours.ndim);
  for (const int64_t entry : value.shape) {
    if (extents.knows(entry)) continue;
    invalid(name + ": an extent is negative: " + std::to_string(entry) +
            " stands for an extent of the program, which has " + std::to_string(extents.size()));
  }
  if (ours.layout != nullptr) read_layout(ours, index);
  if (ours.strides != nullptr) {
    value.strides.assign(ours.strides, ours.strides + ours.ndim);
  } else if (!value.names_extents()) {
    value.strides = row_major_strides(value.shape);
  }
  if (value.is_constant() && value.names_extents()) {
    invalid(name + ": the shape of a constant names an extent");
  }
  if (!value.names_extents()) check_value(index);
  if (value.is_constant()) {
    read_content(ours, name, value);
  } else if (ours.key != nullptr || ours.buffer.buffer != nullptr) {
    invalid(name + ": only constants have a key or a buffer");
  }
}

void Program::read_node(const bp_program_node* theirs, size_t index, const bp_host* host) {
  const auto ours =
      read_desc(theirs, kFirstSize<bp_program_node>, BP_STRUCT_PROGRAM_NODE, "compile");
  const std::string name = numbered("node", index);
  if (ours.args == nullptr) invalid(name + ": args is NULL");
  const NodeOp op = find_op(ours.op, host, name);
  if (ours.reserved != 0) invalid(name + ": reserved is not 0");
  uint32_t size_bytes = 0;
  std::memcpy(&size_bytes, ours.args, sizeof(size_bytes));
  if (size_bytes < sizeof(uint64_t) || size_bytes > kMaxFrameBytes) {
    throw StatusError(BP_INCOMPATIBLE, "program: " + name + ": the frame has " +
                                           std::to_string(size_bytes) + " bytes; 8 to " +
                                           std::to_string(kMaxFrameBytes) + " are allowed");
  }
  ProgramNode& node = nodes.emplace_back();
  node.frame = known_part(op, ours.args, size_bytes);
  const auto has_layout = [](const bp_tensor* t) { return t != nullptr && t->layout != nullptr; };
  if (std::ranges::any_of(node.frame.tensors(), has_layout)) {
    invalid(name + ": a tensor has a layout; give NULL, since it has the layout of its value");
  }
  if (ours.values == nullptr) invalid(name + ": values is NULL");
  // A host whose frame has fewer or more tensors names fewer or more values.
  const std::span<const uint32_t> given(ours.values, ours.value_count);
  const size_t count = node.frame.tensors().size();
  const auto unknown = given.subspan(std::min(count, given.size()));
  const bool is_known = *static_cast<const uint32_t*>(node.frame.data()) <= op.size_bytes();
  if (is_known && std::ranges::any_of(unknown, [](uint32_t v) { return v != BP_NO_VALUE; })) {
    invalid(name + ": it names " + std::to_string(ours.value_count) +
            " values, and the frame has " + std::to_string(count) + " tensors");
  }
  const auto named = given.first(std::min(count, given.size()));
  node.values.assign(named.begin(), named.end());
  node.values.resize(count, BP_NO_VALUE);
  if (ours.binding_count != 0 && ours.bindings == nullptr) invalid(name + ": bindings is NULL");
  node.bindings.assign(ours.bindings, ours.bindings + ours.binding_count);
}

void Program::check_value(size_t index) const {
  const ProgramValue& value = values[index];
  if (value.layout_words) {
    static_cast<void>(value.data_size_bytes());  // It throws if the value is too large.
    return;
  }
  const Extent whole = extent_of(value.tensor());
  if (whole.end == INT64_MAX || whole.begin == INT64_MIN) {
    invalid(numbered("value", index) + ": it is too large");
  }
  if (!value.is_argument() && !is_contiguous(value.tensor())) {
    invalid(numbered("value", index) + ": a temporary or constant must be row-major");
  }
}

// Checks that the node reads only values that are already written, and that its views lie inside of
// their values.
void Program::check_node(size_t index, std::vector<bool>& is_written) const {
  const ProgramNode& node = nodes[index];
  for (size_t i = 0; i < node.values.size(); ++i) {
    const FrameArgument& argument = node.frame.arguments()[i];
    const bp_tensor* const tensor = node.frame.tensors()[i];
    const std::string name = numbered("node", index) + ": " + argument.name;
    if ((tensor == nullptr) != (node.values[i] == BP_NO_VALUE)) {
      invalid(name + ": a tensor and its value are given together; give both or neither");
    }
    if (tensor == nullptr) continue;
    if (node.values[i] >= values.size()) invalid(name + ": there is no such value");
    if (dtype_size_bytes(tensor->dtype) == 0) {
      throw StatusError(BP_UNSUPPORTED, "program: " + name + ": dtype " +
                                            std::to_string(tensor->dtype) + " is not served");
    }
    if (tensor->flags != 0) {
      throw StatusError(BP_UNSUPPORTED, "program: " + name + ": it has the flags " +
                                            std::to_string(tensor->flags) +
                                            ", and tensors of programs have none");
    }
    const ProgramValue& value = values[node.values[i]];
    if (value.layout_words) {
      check_whole(*tensor, node.values[i], name);
    } else if (!is_within(*tensor, extent_of(value.tensor()))) {
      invalid(name + ": it leaves value " + std::to_string(node.values[i]));
    }
    const bool is_source = value.role == BP_VALUE_INPUT || value.is_constant();
    if (argument.is_written && is_source) {
      invalid(name + ": it is written, and value " + std::to_string(node.values[i]) +
              " is an input or a constant");
    }
    const bool is_temporary = value.role == BP_VALUE_TEMPORARY;
    if (argument.is_read && is_temporary && !is_written[node.values[i]]) {
      invalid(name + ": value " + std::to_string(node.values[i]) + " is read before it is written");
    }
  }
  for (size_t i = 0; i < node.values.size(); ++i) {
    if (node.frame.arguments()[i].is_written && node.values[i] != BP_NO_VALUE) {
      is_written[node.values[i]] = true;
    }
  }
}

void Program::check_places() const {
  for (size_t i = 0; i < values.size(); ++i) check_value(i);
  std::vector<bool> is_written(values.size(), false);
  for (size_t i = 0; i < nodes.size(); ++i) check_node(i, is_written);
}

void Program::check() const {
  check_names();
  check_aliases();
  at(extents.preferred()).check_places();
  if (extents.empty()) return;
  at(extents.smallest()).check_places();
  at(extents.largest()).check_places();
}

}  // namespace bp
