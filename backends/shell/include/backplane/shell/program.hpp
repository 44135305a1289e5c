// A program of format "backplane.graph" that owns all its parts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backplane/compiler.h"
#include "backplane/shell/frame.hpp"
#include "backplane/shell/program_extents.hpp"

namespace bp {

class Layouts;

// What the description of a layout says beside a dtype and a shape.
struct LayoutWords {
  bp_layout_kind kind = 0;
  bp_dtype scale_dtype = 0;
  std::vector<int64_t> block_shape;  // Empty: that of the format.
  std::string format_name;           // Empty: none.

  bool operator==(const LayoutWords&) const = default;
};

// Entries of shapes that are negative name extents, as in bp_program_extent. Where they do, the
// strides may be missing: the tensor is row-major then in each launch.
struct ProgramValue {
  bp_value_role role = 0;
  bp_dtype dtype = 0;
  std::vector<int64_t> shape, strides;
  std::vector<std::byte> data;   // The bytes of a constant that has neither a key nor a buffer.
  std::string key;               // Of a constant, or empty.
  bp_buffer_ref buffer{};        // The caller's, in which a constant lies.
  const void* source = nullptr;  // The caller's bytes of a constant with a key, during one call.
  std::optional<LayoutWords> layout_words;  // None: the elements lie by strides.
  std::shared_ptr<const bp_layout> layout;  // What lay_out() made of the words; NULL before.

  bool names_extents() const;
  // Returns whether other extents give other strides.
  bool has_changing_strides() const;

  // Returns whether a constant with the key of the other value can be this one.
  bool is_like(const ProgramValue& other) const;

  // These are for a value that names no extents.
  bp_tensor tensor() const;            // A view without a buffer.
  uint64_t size_bytes() const;         // From its first element to the end of its last.
  uint64_t data_size_bytes() const;    // The size of the bytes that a host gives of a constant.
  bp_layout_desc layout_desc() const;  // Points to this value, which has layout_words.
  bool is_constant() const { return role == BP_VALUE_CONSTANT; }
  bool has_own_data() const { return is_constant() && key.empty() && buffer.buffer == nullptr; }
  bool is_argument() const { return role == BP_VALUE_INPUT || role == BP_VALUE_OUTPUT; }
};

struct ProgramNode {
  // Returns whether the node writes a value that it also reads as another argument.
  bool is_in_place() const;

  OwnedFrame frame;              // Byte offsets count from the beginning of the value.
  std::vector<uint32_t> values;  // One for each of frame.tensors(), or BP_NO_VALUE.
  std::vector<bp_extent_binding> bindings;
};

struct Program {
  // Reads a program of the host. Throws StatusError if it is not valid. `host` knows the ops that
  // were described at run time; NULL: there are none.
  explicit Program(const bp_program* theirs, const bp_host* host = nullptr);

  // Reads what write() wrote. Throws StatusError of BP_INCOMPATIBLE if write() cannot have written
  // it.
  Program(const std::vector<uint64_t>& words, size_t& position, const bp_host* host = nullptr);

  // Writes the keys of constants in place of their bytes. Throws StatusError of BP_UNSUPPORTED,
  // whose text begins with `call`, for a constant in a buffer that has no key.
  void write_to(std::vector<uint64_t>& words, const std::string& call) const;

  // Makes the layouts of all values, and gives them to the tensors of the nodes. `layouts` is NULL
  // for a device without layouts. Throws StatusError, whose text begins with `call`, if the device
  // does not have a layout.
  void lay_out(Layouts* layouts, const std::string& call);

  // The same for one value, without the tensors; lay_out_nodes() gives the nodes what is there.
  void lay_out_value(size_t value, Layouts* layouts, const std::string& call);
  void lay_out_nodes();
  bool has_layouts() const;

  // Gives the constants with keys the bytes and buffers that the values of `theirs` have under
  // their keys. NULL gives none.
  void give_constants(const bp_program* theirs, const char* call);

  // Returns the program of a launch whose extents have these numbers. It names no extents, and it
  // has no content of constants. Throws StatusError of BP_INVALID_ARGUMENT if an attribute cannot
  // hold its number.
  Program at(const ExtentNumbers& numbers) const;

  // Throws StatusError if a value is too large, or if a node leaves its values. The program names
  // no extents.
  void check_places() const;

  // Returns whether a launch decides something of the node.
  bool names_extents(size_t node) const;

  std::vector<ProgramValue> values;
  std::vector<ProgramNode> nodes;
  ProgramExtents extents;
  std::vector<bp_program_alias> aliases;

 private:
  Program() = default;
  void read_values(const bp_program& theirs, const char* call);
  void read_words(const std::vector<uint64_t>& words, size_t& position, const bp_host* host);
  void read_value(const bp_program_value* theirs, size_t index, const char* call);
  void read_node(const bp_program_node* theirs, size_t index, const bp_host* host);
  void read_layout(const bp_program_value& theirs, size_t index);
  void check_whole(const bp_tensor& tensor, size_t value, const std::string& name) const;
  void check_value(size_t index) const;
  void check_node(size_t index, std::vector<bool>& is_written) const;
  void check_aliases() const;
  void check_names() const;
  void check_names(size_t node) const;
  void check() const;
};

}  // namespace bp
