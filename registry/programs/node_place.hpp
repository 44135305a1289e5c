// Where a decomposition becomes nodes of a program: its tensors are values, and its launches nodes.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "backplane/compiler.h"
#include "registry/calls/op_rows.hpp"
#include "registry/services/decompose.hpp"

namespace bp::core {

// The values of a program, as far as the host makes some. A tensor of a frame names its value by
// its buffer, and its byte_offset counts from the beginning of the value.
class ProgramValues {
 public:
  std::vector<bp_program_value> all;

  // Adds a row-major temporary.
  uint32_t add_temporary(const bp_tensor& like);

  // Returns what stands for the memory of a value.
  static bp_buffer* buffer_of(uint32_t value) {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): nobody reads through it.
    return reinterpret_cast<bp_buffer*>(uintptr_t{value} + 1);
  }
  static uint32_t value_of(const bp_buffer* buffer) {
    return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(buffer) - 1);
  }

 private:
  std::deque<std::vector<int64_t>> shapes_;
};

// A copy of the frame of a node, and of all that it points to. It is a frame of this build.
class NodeFrame {
 public:
  NodeFrame(const OpRow& row, const void* args);
  NodeFrame(const NodeFrame&) = delete;

  const void* data() const { return words_.data(); }
  const OpRow& row() const { return row_; }

  // Returns the tensors in the order of the frame. A tensor that is absent counts too, and is NULL.
  const std::vector<bp_tensor*>& tensors() const { return tensors_; }

  // Gives an integer attribute a number. Returns false if there is no such attribute or element, or
  // if it cannot hold the number.
  bool bind(const bp_extent_binding& binding, int64_t number);

 private:
  const bp_tensor* own(const bp_tensor* theirs);

  template <typename T>
  void set(uint32_t offset, T value) {
    // NOLINTNEXTLINE(bugprone-sizeof-expression): T may be a pointer.
    std::memcpy(reinterpret_cast<std::byte*>(words_.data()) + offset, &value, sizeof(value));
  }

  const OpRow& row_;
  std::vector<uint64_t> words_;
  std::vector<bp_tensor*> tensors_;
  std::deque<bp_tensor> storage_;
  std::deque<std::vector<int64_t>> numbers_;
  std::deque<std::vector<const bp_tensor*>> lists_;
};

// One node that the host made.
struct MadeNode {
  std::unique_ptr<NodeFrame> frame;
  std::vector<uint32_t> values;
  std::vector<bp_extent_binding> bindings;
};

class NodePlace final : public services::DecompositionPlace {
 public:
  explicit NodePlace(ProgramValues& values) : values_(values) {}
  void place(bp_tensor& tensor) override;
  void launch(uint32_t op, const void* args) override;

  std::vector<MadeNode> nodes;

 private:
  ProgramValues& values_;
};

}  // namespace bp::core
