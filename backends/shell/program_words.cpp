// Writes programs as words that another process can read, and reads them.
#include <algorithm>
#include <span>
#include <string>

#include "backplane/shell/block_layout.hpp"
#include "backplane/shell/boundary.hpp"
#include "backplane/shell/program.hpp"
#include "backplane/shell/program_bytes.hpp"
#include "backplane/shell/shape.hpp"

namespace bp {
namespace {

// Returns whether read_layout() could have made the layout of the value.
bool has_sound_layout(const ProgramValue& value) {
  if (!value.layout_words) return true;
  if (value.names_extents()) return false;
  const LayoutWords& words = *value.layout_words;
  const bool has_blocks = words.block_shape.size() == value.shape.size();
  if (!has_blocks && !words.block_shape.empty()) return false;
  try {
    const bp_layout_desc desc = value.layout_desc();
    int64_t block_shape[BP_MAX_RANK];
    static_cast<void>(read_layout_desc(&desc, block_shape, ""));
    return true;
  } catch (const StatusError&) {
    return false;
  }
}

// Returns whether read_value() could have made the value.
bool is_sound(const ProgramValue& value, const ProgramExtents& extents) {
  if (value.role < BP_VALUE_INPUT || value.role > BP_VALUE_CONSTANT) return false;
  if (value.shape.size() > BP_MAX_RANK || dtype_size_bytes(value.dtype) == 0) return false;
  if (!std::ranges::all_of(value.shape, [&](int64_t n) { return extents.knows(n); })) return false;
  const size_t rank = value.shape.size();
  if (!has_sound_layout(value)) return false;
  const bool may_lack_strides = value.names_extents() && value.strides.empty();
  if (value.strides.size() != rank && !may_lack_strides) return false;
  if (value.names_extents()) {
    return !value.is_constant() && value.key.empty() && value.data.empty();
  }
  if (extent_of(value.tensor()).end == INT64_MAX) return false;
  if (!value.is_argument() && !is_contiguous(value.tensor())) return false;
  if (!value.is_constant() && !value.key.empty()) return false;
  return value.data.size() == (value.has_own_data() ? value.data_size_bytes() : 0);
}

void write_layout(const ProgramValue& value, std::vector<uint64_t>& words) {
  words.push_back(value.layout_words.has_value() ? 1 : 0);
  if (!value.layout_words) return;
  const LayoutWords& layout = *value.layout_words;
  words.insert(words.end(), {layout.kind, layout.scale_dtype, layout.block_shape.size()});
  words.insert(words.end(), layout.block_shape.begin(), layout.block_shape.end());
  write_bytes(std::as_bytes(std::span(layout.format_name)), words);
}

std::optional<LayoutWords> read_layout_words(const std::vector<uint64_t>& words, size_t& position) {
  const uint64_t has_layout = next_word(words, position);
  if (has_layout > 1) throw StatusError(BP_INCOMPATIBLE, "deserialize: a layout is damaged");
  if (has_layout == 0) return std::nullopt;
  LayoutWords layout;
  layout.kind = static_cast<bp_layout_kind>(next_word(words, position));
  layout.scale_dtype = static_cast<bp_dtype>(next_word(words, position));
  layout.block_shape.resize(next_count(words, position));
  for (int64_t& extent : layout.block_shape) {
    extent = static_cast<int64_t>(next_word(words, position));
  }
  layout.format_name = read_text(words, position);
  return layout;
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
    write_layout(value, words);
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
  words.push_back(aliases.size());
  for (const bp_program_alias& alias : aliases) {
    words.insert(words.end(), {alias.input, alias.output});
  }
}

Program::Program(const std::vector<uint64_t>& words, size_t& position, const bp_host* host) {
  try {
    read_words(words, position, host);
    check();
  } catch (const StatusError& e) {
    if (e.status() == BP_INCOMPATIBLE) throw;
    throw StatusError(BP_INCOMPATIBLE, "deserialize: " + std::string(e.what()));
  }
}

void Program::read_words(const std::vector<uint64_t>& words, size_t& position,
                         const bp_host* host) {
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
    value.layout_words = read_layout_words(words, position);
    value.key = read_text(words, position);
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
    node.frame = OwnedFrame::read_from(words, position, host);
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
  for (uint64_t left = next_count(words, position); left > 0; --left) {
    bp_program_alias& alias = aliases.emplace_back();
    alias.input = static_cast<uint32_t>(next_word(words, position));
    alias.output = static_cast<uint32_t>(next_word(words, position));
  }
}

}  // namespace bp
