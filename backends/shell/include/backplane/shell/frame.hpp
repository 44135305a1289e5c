// Argument frames of any op as data: the places of their tensors, and copies that own what a frame
// points to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backplane/backend.h"
#include "backplane/compiler.h"
#include "backplane/operator.h"
#include "backplane/tensor.h"

namespace bp {

// Returns the spelling of an op, "program" for 0, or NULL if this build does not know the op.
const char* op_name(uint32_t op);

// Returns the size of the frame of an op, or of a bp_program_args for 0, in the headers of this
// build, or 0 if it does not know the op.
uint32_t frame_size_bytes(uint32_t op);

// One row of ops.def.
struct FrameMember {
  uint32_t op;
  size_t offset;
  const char* name;
  std::string_view kind, dtype_rule;

  bool is_tensor() const;                                   // A pointer to one tensor.
  bool is_list() const { return kind.ends_with("_list"); }  // Its count is the member before.
  bool is_numbers() const { return kind == "i64_list"; }

  // One tensor or a list of tensors, which has one number among the tensor arguments of the op.
  bool is_argument() const { return is_tensor() || (is_list() && !is_numbers()); }
  bool is_read() const { return !kind.starts_with("out"); }
  bool is_written() const { return kind.starts_with("out") || kind.starts_with("inout"); }
};

// Returns all rows. The rows of an op are in the order of its frame.
std::span<const FrameMember> frame_members();

// Returns the rows of an op; none of an op that this build does not know.
std::span<const FrameMember> frame_members(uint32_t op);

// Returns the same of an op that was described at run time. The rows have no number of an op.
std::vector<FrameMember> frame_members(const bp_op_desc& desc);

// Returns the description of an op that was described at run time. Throws StatusError with the
// status and the text of the host if nobody describes it.
const bp_op_desc& described_op(const bp_host& host, uint32_t op);
const bp_op_desc& described_op(const bp_host& host, const char* name);

// Returns whether `op` is the number of an op that was described at run time.
constexpr bool is_described(uint32_t op) { return op >= 1u << 16; }

// Returns the tensor that the frame `args` has as tensor argument `argument`; NULL if it is not
// given, or is a list. Throws StatusError of BP_INVALID_ARGUMENT, whose text begins with `call`, if
// the op has fewer tensor arguments.
const bp_tensor* tensor_argument(uint32_t op, const void* args, uint32_t argument,
                                 const char* call);

// What the op specification says about one tensor of a frame.
struct FrameArgument {
  const char* name;
  bool is_read, is_written;
  bool has_scalar;      // An inline scalar may stand for it.
  bool has_free_dtype;  // Claims list its dtype.
  bool is_first;        // It is the first of its list, or is not in a list.
  uint32_t index;       // Among the tensor arguments; a list counts as one, even if it is empty.
  size_t x;             // The place of the tensor that an operand is like; else its own place.
};

// A copy of a frame, and of the tensors, shapes, strides and lists that it points to, without the
// links of tensors. The host still owns buffers, layouts and names.
class OwnedFrame {
 public:
  OwnedFrame() = default;

  // `op` is a BP_OP_* id with `size_bytes` of its frame, or 0 for a bp_program_args. A tensor whose
  // shape names extents of a program may have no strides. With `fills_strides` no tensor needs
  // them: it becomes row-major. Throws
  // StatusError of BP_UNSUPPORTED for an op that this build does not know and for a link that must
  // be understood, and of BP_INVALID_ARGUMENT for a pointer that is NULL and may not be, or a rank
  // above BP_MAX_RANK.
  OwnedFrame(uint32_t op, const void* args, uint32_t size_bytes, bool fills_strides = false);

  // Copies a frame of an op that was described at run time. The host keeps `desc` for ever.
  OwnedFrame(const bp_op_desc& desc, const void* args, uint32_t size_bytes,
             bool fills_strides = false);

  OwnedFrame(OwnedFrame&&) = default;
  OwnedFrame& operator=(OwnedFrame&&) = default;

  OwnedFrame clone() const { return copy_of(data(), size_bytes_); }

  // Returns this frame for a build whose frame has `size_bytes`. Throws StatusError of
  // BP_INCOMPATIBLE if an argument is given that the shorter frame lacks.
  OwnedFrame fitted(uint32_t size_bytes) const;

  // Returns the frame of a launch whose extents have these numbers: in the shapes of its tensors
  // they stand for the entries that name them, and tensors without strides become row-major.
  OwnedFrame at(std::span<const int64_t> numbers) const;

  // Returns whether the shape of a tensor names an extent.
  bool names_extents() const;

  // Gives an integer attribute a number. check_binding() throws StatusError of BP_INVALID_ARGUMENT
  // if there is no such attribute, and bind() if the attribute cannot hold the number; their texts
  // begin with `subject`.
  void check_binding(const bp_extent_binding& binding, const std::string& subject) const;
  void bind(const bp_extent_binding& binding, int64_t number, const std::string& subject);

  uint32_t op() const { return op_; }
  // Returns whether a kernel is one of this frame's op. A kernel names an op that was described at
  // run time.
  bool is_op_of(const bp_kernel& kernel) const;
  const char* name() const { return desc_ == nullptr ? op_name(op_) : desc_->name; }
  const void* data() const { return words_.data(); }

  // Returns the tensors in the order of the frame; an absent tensor is NULL. The frame points to
  // these tensors, so a change of one of them changes the frame.
  const std::vector<bp_tensor*>& tensors() const { return tensors_; }

  // Returns what the op specification says about each of tensors().
  const std::vector<FrameArgument>& arguments() const { return arguments_; }

  // Appends the frame to `words`, with 1 in place of each pointer that is given, and then what the
  // pointers point to. An op that was described at run time is written as its name and members.
  void write_to(std::vector<uint64_t>& words) const;

  // Reads what write_to() wrote, from words[position] on, and moves `position` behind it. Throws
  // StatusError of BP_INCOMPATIBLE if write_to() cannot have written it. `host` knows the ops that
  // were described at run time, and has them with the members that were written; NULL: there are
  // none.
  static OwnedFrame read_from(const std::vector<uint64_t>& words, size_t& position,
                              const bp_host* host = nullptr);

 private:
  OwnedFrame copy_of(const void* args, uint32_t size_bytes) const;
  std::vector<FrameMember> members() const;
  [[noreturn]] void invalid(const std::string& text) const;
  void own_members(std::span<const FrameMember> members);
  bp_tensor* own(const bp_tensor* theirs);
  void own_program();
  void own_member(const FrameMember& member, uint32_t index);
  void own_numbers(size_t offset, uint64_t count);
  std::optional<FrameMember> integer_at(uint32_t offset) const;
  void add_argument(bp_tensor* tensor, const FrameMember& member, uint32_t index, bool is_first);

  template <typename T>
  T read(size_t offset) const {
    T value;
    // NOLINTNEXTLINE(bugprone-sizeof-expression): T may be a pointer.
    std::memcpy(&value, reinterpret_cast<const std::byte*>(words_.data()) + offset, sizeof(T));
    return value;
  }
  template <typename T>
  void write(size_t offset, const T& value) {
    // NOLINTNEXTLINE(bugprone-sizeof-expression): T may be a pointer.
    std::memcpy(reinterpret_cast<std::byte*>(words_.data()) + offset, &value, sizeof(T));
  }

  uint32_t op_ = 0, size_bytes_ = 0;
  bool fills_strides_ = false;
  const bp_op_desc* desc_ = nullptr;  // Of an op that was described at run time.
  std::vector<uint64_t> words_;
  std::deque<bp_tensor> storage_;
  std::vector<bp_tensor*> tensors_;
  std::vector<FrameArgument> arguments_;
  std::deque<std::vector<bp_tensor*>> lists_;
  std::deque<std::vector<bp_tensor>> arrays_;
  std::deque<std::vector<int64_t>> numbers_;
};

// The bytes from the first to behind the last element of a tensor, relative to its byte_offset.
// What 64 bits do not hold is the lowest or the highest number that they hold.
struct Extent {
  int64_t begin = 0, end = 0;
};
Extent extent_of(const bp_tensor& tensor);

// The same from the beginning of the tensor's buffer, which has buffer_bytes. Throws StatusError of
// BP_INVALID_ARGUMENT for elements that leave it; `subject` begins the sentence: "launch: argument
// x".
Extent extent_in_buffer(const bp_tensor& tensor, uint64_t buffer_bytes, const char* subject);

}  // namespace bp
