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

std::vector<int64_t> row_major(const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size());
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = stride;
    if (__builtin_mul_overflow(stride, std::max<int64_t>(shape[i], 1), &stride)) stride = INT64_MAX;
  }
  return strides;
}

uint64_t next(const std::vector<uint64_t>& words, size_t& position) {
  if (position >= words.size()) {
    throw StatusError(BP_INCOMPATIBLE, "deserialize: the end is damaged");
  }
  return words[position++];
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

// Returns whether read_value() could have made the value.
bool is_sound(const ProgramValue& value) {
  if (value.role < BP_VALUE_INPUT || value.role > BP_VALUE_CONSTANT) return false;
  if (value.shape.size() > BP_MAX_RANK || dtype_size_bytes(value.dtype) == 0) return false;
  if (std::ranges::any_of(value.shape, [](int64_t extent) { return extent < 0; })) return false;
  if (extent_of(value.tensor()).end == INT64_MAX) return false;
  if (!value.is_argument() && !is_contiguous(value.tensor())) return false;
  if (!value.is_constant() && !value.key.empty()) return false;
  return value.data.size() == (value.has_own_data() ? value.size_bytes() : 0);
}

// Reads a count of items that have at least one word each.
uint64_t next_count(const std::vector<uint64_t>& words, size_t& position) {
  const uint64_t count = next(words, position);
  if (count > words.size()) throw StatusError(BP_INCOMPATIBLE, "deserialize: a count is damaged");
  return count;
}

}  // namespace

bp_tensor ProgramValue::tensor() const {
  bp_tensor tensor{};
  tensor.shape = shape.data();
  tensor.strides = strides.data();
  tensor.ndim = static_cast<uint32_t>(shape.size());
  tensor.dtype = dtype;
  return tensor;
}

uint64_t ProgramValue::size_bytes() const { return static_cast<uint64_t>(extent_of(tensor()).end); }

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

// Returns what this build knows of a frame of `size_bytes`, if its further bytes are zero. Else it
// returns the whole frame, which no kernel takes.
OwnedFrame known_part(uint32_t op, const void* args, uint32_t size_bytes) {
  const uint32_t known_bytes = frame_size_bytes(op);
  const auto* const bytes = static_cast<const std::byte*>(args);
  if (size_bytes <= known_bytes ||
      std::any_of(bytes + known_bytes, bytes + size_bytes,
                  [](std::byte byte) { return byte != std::byte{0}; })) {
    return OwnedFrame(op, args, size_bytes);
  }
  std::vector<uint64_t> words(known_bytes / sizeof(uint64_t));
  std::memcpy(words.data(), args, known_bytes);
  std::memcpy(words.data(), &known_bytes, sizeof(known_bytes));
  return OwnedFrame(op, words.data(), known_bytes);
}

// Reads where the elements of a constant are.
void read_content(const bp_program_value& theirs, const std::string& name, ProgramValue& value) {
  const uint64_t size_bytes = value.size_bytes();
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
  if (has_buffer && theirs.buffer.size_bytes < size_bytes) {
    invalid(name + ": buffer has " + std::to_string(theirs.buffer.size_bytes) +
            " bytes, and the constant needs " + std::to_string(size_bytes));
  }
  if (theirs.key != nullptr) value.key = theirs.key;
  value.buffer = theirs.buffer;
  value.source = theirs.data;
  if (!value.has_own_data()) return;
  const auto* const bytes = static_cast<const std::byte*>(theirs.data);
  value.data.assign(bytes, bytes + size_bytes);
}

// Appends the count of the bytes, and then the bytes as words.
void write_bytes(std::span<const std::byte> bytes, std::vector<uint64_t>& words) {
  words.push_back(bytes.size());
  const size_t begin = words.size();
  words.resize(begin + (bytes.size() + 7) / 8);
  std::ranges::copy(bytes, reinterpret_cast<std::byte*>(words.data() + begin));
}

std::vector<std::byte> read_bytes(const std::vector<uint64_t>& words, size_t& position) {
  const uint64_t size_bytes = next(words, position);
  if (size_bytes / 8 > words.size() - position) {
    throw StatusError(BP_INCOMPATIBLE, "deserialize: a constant is damaged");
  }
  std::vector<uint64_t> data;
  for (uint64_t i = 0; i < (size_bytes + 7) / 8; ++i) data.push_back(next(words, position));
  const auto* const bytes = reinterpret_cast<const std::byte*>(data.data());
  return {bytes, bytes + size_bytes};
}

}  // namespace

Program::Program(const bp_program* theirs) {
  if (theirs == nullptr) invalid("data is NULL");
  const auto ours = read_desc(theirs, kFirstSize<bp_program>, BP_STRUCT_PROGRAM, "compile");
  if (ours.values == nullptr || ours.nodes == nullptr || ours.node_count == 0) {
    invalid("it has no values or no nodes");
  }
  read_values(ours);
  if (ours.node_stride_bytes < kFirstSize<bp_program_node>) {
    invalid("node_stride_bytes is smaller than the struct of a node");
  }
  for (size_t i = 0; i < ours.node_count; ++i) {
    const bp_program_node* const node = element(ours.nodes, ours.node_stride_bytes, i);
    check_stride(node, ours.node_stride_bytes, "program: node_stride_bytes");
    read_node(node, i);
  }
  check();
}

void Program::read_values(const bp_program& theirs) {
  if (theirs.value_stride_bytes < kFirstSize<bp_program_value>) {
    invalid("value_stride_bytes is smaller than the struct of a value");
  }
  for (size_t i = 0; i < theirs.value_count; ++i) {
    const bp_program_value* const value = element(theirs.values, theirs.value_stride_bytes, i);
    check_stride(value, theirs.value_stride_bytes, "program: value_stride_bytes");
    read_value(value, i);
  }
}

void Program::give_constants(const bp_program* theirs) {
  if (theirs == nullptr) return;
  const auto ours = read_desc(theirs, kFirstSize<bp_program>, BP_STRUCT_PROGRAM, "deserialize");
  if (ours.values == nullptr && ours.value_count != 0) invalid("values is NULL");
  Program given;
  if (ours.value_count != 0) given.read_values(ours);
  for (ProgramValue& value : values) {
    if (value.key.empty()) continue;
    const auto found = std::ranges::find(given.values, value.key, &ProgramValue::key);
    if (found == given.values.end()) continue;
    if (found->dtype != value.dtype || found->shape != value.shape) {
      invalid("key \"" + value.key + "\" is given with another dtype or shape");
    }
    value.source = found->source;
    value.buffer = found->buffer;
  }
}

void Program::read_value(const bp_program_value* theirs, size_t index) {
  const auto ours =
      read_desc(theirs, kFirstSize<bp_program_value>, BP_STRUCT_PROGRAM_VALUE, "compile");
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
  if (std::ranges::any_of(value.shape, [](int64_t extent) { return extent < 0; })) {
    invalid(name + ": an extent is negative");
  }
  value.strides = row_major(value.shape);
  if (ours.strides != nullptr) value.strides.assign(ours.strides, ours.strides + ours.ndim);
  const Extent whole = extent_of(value.tensor());
  if (whole.end == INT64_MAX || whole.begin == INT64_MIN) invalid(name + ": it is too large");
  if (!value.is_argument() && !is_contiguous(value.tensor())) {
    invalid(name + ": a temporary or constant must be row-major");
  }
  if (value.is_constant()) {
    read_content(ours, name, value);
  } else if (ours.key != nullptr || ours.buffer.buffer != nullptr) {
    invalid(name + ": only constants have a key or a buffer");
  }
}

void Program::read_node(const bp_program_node* theirs, size_t index) {
  const auto ours =
      read_desc(theirs, kFirstSize<bp_program_node>, BP_STRUCT_PROGRAM_NODE, "compile");
  const std::string name = numbered("node", index);
  if (ours.args == nullptr) invalid(name + ": args is NULL");
  if (ours.op == 0 || op_name(ours.op) == nullptr) {
    constexpr uint32_t kFirstRuntimeOp = 1u << 16;
    const char* const why = ours.op < kFirstRuntimeOp
                                ? " is not known to this build"
                                : " was described at run time, and programs do not take such ops";
    throw StatusError(BP_UNSUPPORTED, "program: " + name + ": op " + std::to_string(ours.op) + why);
  }
  if (ours.reserved != 0) invalid(name + ": reserved is not 0");
  uint32_t size_bytes = 0;
  std::memcpy(&size_bytes, ours.args, sizeof(size_bytes));
  if (size_bytes < sizeof(uint64_t) || size_bytes > kMaxFrameBytes) {
    throw StatusError(BP_INCOMPATIBLE, "program: " + name + ": the frame has " +
                                           std::to_string(size_bytes) + " bytes; 8 to " +
                                           std::to_string(kMaxFrameBytes) + " are allowed");
  }
  ProgramNode& node = nodes.emplace_back();
  node.frame = known_part(ours.op, ours.args, size_bytes);
  if (ours.values == nullptr) invalid(name + ": values is NULL");
  // A host whose frame has fewer or more tensors names fewer or more values.
  const std::span<const uint32_t> given(ours.values, ours.value_count);
  const size_t count = node.frame.tensors().size();
  const auto unknown = given.subspan(std::min(count, given.size()));
  const bool is_known =
      *static_cast<const uint32_t*>(node.frame.data()) <= frame_size_bytes(ours.op);
  if (is_known && std::ranges::any_of(unknown, [](uint32_t v) { return v != BP_NO_VALUE; })) {
    invalid(name + ": it names " + std::to_string(ours.value_count) +
            " values, and the frame has " + std::to_string(count) + " tensors");
  }
  const auto named = given.first(std::min(count, given.size()));
  node.values.assign(named.begin(), named.end());
  node.values.resize(count, BP_NO_VALUE);
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
    if (std::any_of(tensor->shape, tensor->shape + tensor->ndim, [](int64_t n) { return n < 0; })) {
      invalid(name + ": an extent is negative");
    }
    const ProgramValue& value = values[node.values[i]];
    if (!is_within(*tensor, extent_of(value.tensor()))) {
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

void Program::check() const {
  std::vector<bool> is_written(values.size(), false);
  for (size_t i = 0; i < nodes.size(); ++i) check_node(i, is_written);
}

void Program::write_to(std::vector<uint64_t>& words, const std::string& call) const {
  words.push_back(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const ProgramValue& value = values[i];
    if (value.buffer.buffer != nullptr && value.key.empty()) {
      throw StatusError(BP_UNSUPPORTED,
                        call + ": " + numbered("value", i) + ": a constant in a buffer has no key");
    }
    words.insert(words.end(), {value.role, value.dtype, value.shape.size()});
    words.insert(words.end(), value.shape.begin(), value.shape.end());
    words.insert(words.end(), value.strides.begin(), value.strides.end());
    write_bytes(std::as_bytes(std::span(value.key)), words);
    write_bytes(value.data, words);
  }
  words.push_back(nodes.size());
  for (const ProgramNode& node : nodes) {
    words.push_back(node.values.size());
    words.insert(words.end(), node.values.begin(), node.values.end());
    node.frame.write_to(words);
  }
}

Program::Program(const std::vector<uint64_t>& words, size_t& position) {
  try {
    read_words(words, position);
    check();
  } catch (const StatusError& e) {
    if (e.status() == BP_INCOMPATIBLE) throw;
    throw StatusError(BP_INCOMPATIBLE, "deserialize: " + std::string(e.what()));
  }
}

void Program::read_words(const std::vector<uint64_t>& words, size_t& position) {
  for (uint64_t left = next_count(words, position); left > 0; --left) {
    ProgramValue& value = values.emplace_back();
    value.role = static_cast<bp_value_role>(next(words, position));
    value.dtype = static_cast<bp_dtype>(next(words, position));
    const uint64_t ndim = next_count(words, position);
    for (std::vector<int64_t>* const axes : {&value.shape, &value.strides}) {
      for (uint64_t i = 0; i < ndim; ++i) {
        axes->push_back(static_cast<int64_t>(next(words, position)));
      }
    }
    const std::vector<std::byte> key = read_bytes(words, position);
    for (const std::byte byte : key) value.key.push_back(static_cast<char>(byte));
    value.data = read_bytes(words, position);
    if (!is_sound(value)) throw StatusError(BP_INCOMPATIBLE, "deserialize: a value is damaged");
  }
  for (uint64_t left = next_count(words, position); left > 0; --left) {
    ProgramNode& node = nodes.emplace_back();
    const uint64_t count = next_count(words, position);
    for (uint64_t i = 0; i < count; ++i) {
      node.values.push_back(static_cast<uint32_t>(next(words, position)));
    }
    node.frame = OwnedFrame::read_from(words, position);
    if (node.values.size() != node.frame.tensors().size()) {
      throw StatusError(BP_INCOMPATIBLE, "deserialize: a node is damaged");
    }
  }
}

}  // namespace bp
