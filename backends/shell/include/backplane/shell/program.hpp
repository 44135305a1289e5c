// A program of format "backplane.graph" that owns all its parts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "backplane/compiler.h"
#include "backplane/shell/frame.hpp"

namespace bp {

struct ProgramValue {
  bp_value_role role = 0;
  bp_dtype dtype = 0;
  std::vector<int64_t> shape, strides;
  std::vector<std::byte> data;   // The bytes of a constant that has neither a key nor a buffer.
  std::string key;               // Of a constant, or empty.
  bp_buffer_ref buffer{};        // The caller's, in which a constant lies.
  const void* source = nullptr;  // The caller's bytes of a constant with a key, during one call.

  bp_tensor tensor() const;     // A view without a buffer.
  uint64_t size_bytes() const;  // From its first element to the end of its last.
  bool is_constant() const { return role == BP_VALUE_CONSTANT; }
  bool has_own_data() const { return is_constant() && key.empty() && buffer.buffer == nullptr; }
  bool is_argument() const { return role == BP_VALUE_INPUT || role == BP_VALUE_OUTPUT; }
};

struct ProgramNode {
  // Returns whether the node writes a value that it also reads as another argument.
  bool is_in_place() const;

  OwnedFrame frame;              // Byte offsets count from the beginning of the value.
  std::vector<uint32_t> values;  // One for each of frame.tensors(), or BP_NO_VALUE.
};

struct Program {
  // Reads a program of the host. Throws StatusError if it is not valid.
  explicit Program(const bp_program* theirs);

  // Reads what write() wrote. Throws StatusError of BP_INCOMPATIBLE if write() cannot have written
  // it.
  Program(const std::vector<uint64_t>& words, size_t& position);

  // Writes the keys of constants in place of their bytes. Throws StatusError of BP_UNSUPPORTED,
  // whose text begins with `call`, for a constant in a buffer that has no key.
  void write_to(std::vector<uint64_t>& words, const std::string& call) const;

  // Gives the constants with keys the bytes and buffers that the values of `theirs` have under
  // their keys. NULL gives none.
  void give_constants(const bp_program* theirs);

  std::vector<ProgramValue> values;
  std::vector<ProgramNode> nodes;

 private:
  Program() = default;
  void read_values(const bp_program& theirs);
  void read_words(const std::vector<uint64_t>& words, size_t& position);
  void read_value(const bp_program_value* theirs, size_t index);
  void read_node(const bp_program_node* theirs, size_t index);
  void check_node(size_t index, std::vector<bool>& is_written) const;
  void check() const;
};

}  // namespace bp
