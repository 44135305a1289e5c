// Argument frames of any op as data: where their tensors stand, and copies that own what a frame
// points to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string_view>
#include <vector>

#include "backplane/compiler.h"
#include "backplane/tensor.h"

namespace bp {

// The spelling of an op, "program" for 0, NULL for an op that this build does not know.
const char* op_name(uint32_t op);

// One row of ops.def.
struct FrameMember {
  uint32_t op;
  size_t offset;
  const char* name;
  std::string_view kind, dtype_rule;

  bool is_tensor() const;                                   // A pointer to one tensor.
  bool is_list() const { return kind.ends_with("_list"); }  // Its count stands in front of it.
  bool is_numbers() const { return kind == "i64_list"; }
};

// All rows; those of an op are in the order of its frame.
std::span<const FrameMember> frame_members();

// What the spec says of one tensor of a frame.
struct FrameArgument {
  const char* name;
  bool is_read, is_written;
  bool has_scalar;      // An inline scalar may stand for it.
  bool has_free_dtype;  // Claims list its dtype.
  bool is_first;        // Of its list; 1 for what is no list.
  uint32_t index;       // Among the tensor arguments; a list counts as one, also an empty one.
};

// A copy of a frame, and of the tensors, shapes, strides and lists behind it. Buffers, layouts and
// names stay the host's.
class OwnedFrame {
 public:
  OwnedFrame() = default;

  // `op` is a BP_OP_* id with `size_bytes` of its frame, or 0 for a bp_program_args. Throws
  // StatusError of BP_UNSUPPORTED for an op that this build does not know, and of
  // BP_INVALID_ARGUMENT for a pointer that is NULL and may not be, or a rank above BP_MAX_RANK.
  OwnedFrame(uint32_t op, const void* args, uint32_t size_bytes);
  OwnedFrame(OwnedFrame&&) = default;
  OwnedFrame& operator=(OwnedFrame&&) = default;

  OwnedFrame clone() const { return OwnedFrame(op_, data(), size_bytes_); }

  // The same for a build whose frame has `size_bytes`. Throws StatusError of BP_INCOMPATIBLE if
  // what that lacks is given.
  OwnedFrame fitted(uint32_t size_bytes) const;

  uint32_t op() const { return op_; }
  const void* data() const { return words_.data(); }

  // In the order of the frame, those of a list behind each other; NULL for an absent one. What is
  // written there is what the frame points to.
  const std::vector<bp_tensor*>& tensors() const { return tensors_; }

  // What the spec says of each of them.
  const std::vector<FrameArgument>& arguments() const { return arguments_; }

  // The frame, with 1 in the place of each pointer that is given, and what they point to behind it.
  void write_to(std::vector<uint64_t>& words) const;

  // Reads what write_to() wrote, from words[position] on, and moves `position` behind it. Throws
  // StatusError of BP_INCOMPATIBLE where it cannot be that.
  static OwnedFrame read_from(const std::vector<uint64_t>& words, size_t& position);

 private:
  bp_tensor* own(const bp_tensor* theirs);
  void own_program();
  void own_member(const FrameMember& member, uint32_t index);
  void own_numbers(size_t offset, uint64_t count);
  void add_argument(bp_tensor* tensor, const FrameMember& member, uint32_t index, bool is_first);

  template <typename T>
  T read(size_t offset) const;
  template <typename T>
  void write(size_t offset, const T& value);

  uint32_t op_ = 0, size_bytes_ = 0;
  std::vector<uint64_t> words_;
  std::deque<bp_tensor> storage_;
  std::vector<bp_tensor*> tensors_;
  std::vector<FrameArgument> arguments_;
  std::deque<std::vector<bp_tensor*>> lists_;
  std::deque<std::vector<bp_tensor>> arrays_;
  std::deque<std::vector<int64_t>> numbers_;
};

// The bytes from the first to behind the last element of a tensor, relative to its byte_offset.
struct Extent {
  int64_t begin = 0, end = 0;
};
Extent extent_of(const bp_tensor& tensor);

}  // namespace bp
