// Writes programs as words that another process can read, and reads them.
#include <algorithm>
#include <span>
#include <string>

#include "backplane/shell/boundary.hpp"
#include "backplane/shell/program.hpp"
#include "backplane/shell/program_bytes.hpp"
#include "backplane/shell/shape.hpp"

namespace bp {
namespace {

// Returns whether read_value() could have made the value.
bool is_sound(const ProgramValue& value, const ProgramExtents& extents) {
  if (value.role < BP_VALUE_INPUT || value.role > BP_VALUE_CONSTANT) return false;
  if (value.shape.size() > BP_MAX_RANK || dtype_size_bytes(value.dtype) == 0) return false;
  if (!std::ranges::all_of(value.shape, [&](int64_t n) { return extents.knows(n); })) return false;
  const size_t rank = value.shape.size();
  const bool may_lack_strides = value.names_extents() && value.strides.empty();
  if (value.strides.size() != rank && !may_lack_strides) return false;
  if (value.names_extents()) {
    return !value.is_constant() && value.key.empty() && value.data.empty();
  }
  if (extent_of(value.tensor()).end == INT64_MAX) return false;
  if (!value.is_argument() && !is_contiguous(value.tensor())) return false;
  if (!value.is_constant() && !value.key.empty()) return false;
  return value.data.size() == (value.has_own_data() ? value.size_bytes() : 0);
}

// Appends the count of the bytes, and then the bytes as words.
void write_bytes(std::span<const std::byte> bytes, std::vector<uint64_t>& words) {
  words.push_back(bytes.size());
  const size_t begin = words.size();
  words.resize(begin + (bytes.size() + 7) / 8);
  std::ranges::copy(bytes, reinterpret_cast<std::byte*>(words.data() + begin));
}

std::vector<std::byte> read_bytes(const std::vector<uint64_t>& words, size_t& position) {
  const uint64_t size_bytes = next_word(words, position);
  if (size_bytes / 8 > words.size() - position) {
    throw StatusError(BP_INCOMPATIBLE, "deserialize: a constant is damaged");
  }
  std::vector<uint64_t> data;
  for (uint64_t i = 0; i < (size_bytes + 7) / 8; ++i) data.push_back(next_word(words, position));
  const auto* const bytes = reinterpret_cast<const std::byte*>(data.data());
  return {bytes, bytes + size_bytes};
}

}  // namespace

void Program::write_to(std::vector<uint64_t>& words, const std::string& call) const {
  extents.write_to(words);
  words.push_back(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const ProgramValue& value = values[i];
    if (value.buffer.buffer != nullptr && value.key.empty()) {
      throw StatusError(BP_UNSUPPORTED, call + ": value " + std::to_string(i) +
                                            ": a constant in a buffer has no key");
    }
    words.insert(words.end(), {value.role, value.dtype, value.shape.size(), value.strides.size()});
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
    words.push_back(node.bindings.size());
    for (const bp_extent_binding& binding : node.bindings) {
      words.insert(words.end(), {binding.member_offset, binding.extent, binding.element});
    }
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
  extents = ProgramExtents(words, position);
  for (uint64_t left = next_count(words, position); left > 0; --left) {
    ProgramValue& value = values.emplace_back();
    value.role = static_cast<bp_value_role>(next_word(words, position));
    value.dtype = static_cast<bp_dtype>(next_word(words, position));
    value.shape.resize(next_count(words, position));
    value.strides.resize(next_count(words, position));
    for (std::vector<int64_t>* const axes : {&value.shape, &value.strides}) {
      for (int64_t& axis : *axes) axis = static_cast<int64_t>(next_word(words, position));
    }
    const std::vector<std::byte> key = read_bytes(words, position);
    for (const std::byte byte : key) value.key.push_back(static_cast<char>(byte));
    value.data = read_bytes(words, position);
    if (!is_sound(value, extents))
      throw StatusError(BP_INCOMPATIBLE, "deserialize: a value is damaged");
  }
  for (uint64_t left = next_count(words, position); left > 0; --left) {
    ProgramNode& node = nodes.emplace_back();
    const uint64_t count = next_count(words, position);
    for (uint64_t i = 0; i < count; ++i) {
      node.values.push_back(static_cast<uint32_t>(next_word(words, position)));
    }
    node.frame = OwnedFrame::read_from(words, position);
    if (node.values.size() != node.frame.tensors().size()) {
      throw StatusError(BP_INCOMPATIBLE, "deserialize: a node is damaged");
    }
    for (uint64_t left_bindings = next_count(words, position); left_bindings > 0; --left_bindings) {
      bp_extent_binding& binding = node.bindings.emplace_back();
      binding.member_offset = static_cast<uint32_t>(next_word(words, position));
      binding.extent = static_cast<uint32_t>(next_word(words, position));
      binding.element = next_word(words, position);
    }
  }
}

}  // namespace bp
