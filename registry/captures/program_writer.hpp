// Turns recorded launches into a program: finds what each value is for, and its shape.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "backplane/compiler.h"
#include "registry/calls/call.hpp"
#include "registry/programs/node_place.hpp"
#include "registry/tensors/strides.hpp"

namespace bp::core {

// Bytes of a buffer, from `begin` to before `end`.
struct ByteRange {
  const bp_buffer* buffer = nullptr;
  uint64_t begin = 0, end = 0;

  bool contains(const ByteRange& other) const {
    return buffer == other.buffer && begin <= other.begin && other.end <= end;
  }
  bool overlaps(const ByteRange& other) const {
    return buffer == other.buffer && begin < other.end && other.begin < end;
  }
};

// A program, and the memory that its inputs and outputs had in the capture.
struct RecordedProgram {
  RecordedProgram() = default;
  RecordedProgram(const RecordedProgram&) = delete;

  bp_compile_desc desc() const;

  std::vector<bp_program_value> values;
  std::vector<bp_program_node> nodes;
  std::vector<bp_program_alias> aliases;
  // The inputs, then the outputs. Shapes and strides lie in `numbers`.
  std::vector<bp_tensor> arguments;
  bp_launch_flags flags = 0;

  bp_program program{};
  std::deque<std::vector<int64_t>> numbers;
  std::deque<MadeNode> made;
};

// The value of a tensor without elements, before the program is written.
inline constexpr uint32_t kEmpty = BP_NO_VALUE - 1;
// Returns what the elements of a tensor reach. It has elements, and its strides are those of
// memory.
inline ByteRange range_of(const bp_tensor& tensor) {
  const tensors::Reach reach = tensors::reach_of(tensor);
  const auto bits = static_cast<int64_t>(bp_dtype_bits(tensor.dtype));
  const auto begin =
      static_cast<int64_t>(tensor.byte_offset) + static_cast<int64_t>(reach.lowest) * bits / 8;
  const auto end = static_cast<int64_t>(tensor.byte_offset) +
                   (static_cast<int64_t>(reach.highest) + 1) * bits / 8;
  const int64_t rest = (static_cast<int64_t>(reach.highest) + 1) * bits % 8 != 0 ? 1 : 0;
  return {tensor.buffer, static_cast<uint64_t>(begin), static_cast<uint64_t>(end + rest)};
}

enum class Access { read, written, both };

inline Access access_of(Kind kind) {
  switch (kind) {
    case Kind::out:
    case Kind::out_opt:
    case Kind::out_list:
      return Access::written;
    case Kind::inout:
    case Kind::inout_list:
      return Access::both;
    default:
      return Access::read;
  }
}

// Calls visit(k, access) for each tensor of a node, in the order of its values: k is its index.
template <typename Visit>
void for_tensors(const MadeNode& node, Visit&& visit) {
  size_t k = 0;
  const OpRow& row = node.frame->row();
  for (uint32_t i = 0; i < row.tensor_count; ++i) {
    const TensorArgument& argument = row.tensors[i];
    const uint64_t count = argument.is_list() ? list_at(node.frame->data(), argument).count : 1;
    for (uint64_t n = 0; n < count; ++n, ++k) {
      if (node.frame->tensors()[k] != nullptr) visit(k, access_of(argument.kind));
    }
  }
}

// The memory whose tensors are one value. Its index is what a node has as its value until the
// program is written.
struct Source {
  ByteRange range;
  bool is_outside = false;  // From before the capture.
  bool is_held = false;     // A block that the caller has at the end of the capture.
};

// Writes a program of the nodes out.made, whose values are indices of `sources`. Returns a status
// with its text if they are no program.
bp_status write_program(RecordedProgram& out, const std::vector<Source>& sources);

}  // namespace bp::core
