// Argument frames of any op, written at run time by the member names that backplane/ops.def lists.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "backplane/ops.h"

namespace bp::conformance {

struct FrameMember {
  std::string_view name;
  std::string_view kind;   // The kind as in ops.def: tensor, operand, scalar_tensor, i64_list, ...
  std::string_view dtype;  // The dtype rule of the member.
  size_t offset;
  bool may_be_absent =
      false;  // If true, neither the tensor nor the scalar is given for a value of 0.

  bool is_list() const { return kind.ends_with("_list"); }
  bool has_scalar() const { return kind == "operand" || kind == "scalar_tensor"; }
};

struct OpInfo {
  uint32_t id;
  std::string_view name;
  std::string_view profile;
  bool is_decomposable;
  std::string_view numerics;
  size_t frame_size_bytes;
  std::vector<FrameMember> members;

  const FrameMember& member(std::string_view member_name) const;
};

// Returns all ops of this build, in the order of their ids. op_info() throws std::out_of_range for
// an unknown id.
const std::vector<OpInfo>& all_ops();
const OpInfo& op_info(uint32_t op);

// The frame of one call. Setters throw std::invalid_argument if the op has no such member.
class Frame {
 public:
  explicit Frame(uint32_t op);

  const void* data() const { return words_.data(); }

  void set_tensor(std::string_view name, const bp_tensor* tensor);
  void add_tensor(std::string_view name, const bp_tensor* tensor);  // Appends to a list.
  void set_scalar(std::string_view name, const bp_scalar& scalar);
  void set_integer(std::string_view name, int64_t value);
  void set_number(std::string_view name, double value);
  void set_list(std::string_view name, const std::vector<int64_t>& values);  // Borrows the list.
  void set_list(std::string_view name, const int64_t* values, uint64_t count);

  // Returns the frame for a kernel whose build has frames of `size_bytes`.
  std::vector<uint64_t> fitted(uint32_t size_bytes) const;

 private:
  struct TensorList {
    std::string_view name;
    std::vector<const bp_tensor*> tensors;
  };

  template <typename T>
  void write(size_t offset, const T& value);
  void write_list(const FrameMember& member, const void* values, uint64_t count);

  const OpInfo* info_;
  std::vector<uint64_t> words_;
  std::vector<TensorList> lists_;
};

}  // namespace bp::conformance
