// What the selection of kernels knows about each op: where its tensors are in the frame, and which
// of their dtypes are free. The compiler computes it from backplane/ops.def.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "backplane/ops.h"

namespace bp::core {

// The kinds of arguments in ops.def.
enum class Kind : uint8_t {
  tensor,
  tensor_opt,
  tensor_list,
  out,
  out_opt,
  out_list,
  inout,
  inout_list,
  operand,
  scalar_tensor,
  i32,
  i64,
  u64,
  f64,
  i64_list,
  dtype,
  enumeration,
};

inline constexpr uint32_t kFirstRuntimeOp = 1u << 16;  // Ids from here on are given at run time.
inline constexpr uint32_t kMaxRuntimeOps = 1024;
inline constexpr uint32_t kMaxTensors = 16;         // No op has more tensor arguments.
inline constexpr uint32_t kMaxRuntimeTensors = 12;  // No op that is described at run time has more.
inline constexpr uint32_t kMaxIntegerLists = 8;     // No op has more lists of integers.
inline constexpr uint32_t kMaxEnumerations = 4;     // No op has more attributes of this kind.
inline constexpr uint32_t kMaxFrameBytes = 1024;    // The largest frame that the host can fit.
inline constexpr uint8_t kNoArgument = 0xFF;

// What an op moves that never looks at the values of its elements. An op that moves rows takes
// packed elements too.
enum class Moves : uint8_t { none, elements, rows };

// An argument that is a tensor, a list of them, or a tensor or scalar.
struct TensorArgument {
  const char* name = nullptr;
  // The place of the pointer. The count of a list is 8 bytes before it, and a scalar is 8 bytes
  // after it.
  uint16_t offset = 0;
  Kind kind = Kind::tensor;
  bool is_free = false;  // If true, claims list its dtype.
  // If true, a later revision than that of the op brought it, or the spec says that a call may give
  // neither a tensor nor a scalar.
  bool may_be_absent = false;
  uint8_t like = kNoArgument;  // The tensor argument that has the same dtype.
  // The dtype if it is always the same, or if an inline scalar has it, else 0.
  bp_dtype dtype = 0;

  constexpr bool is_list() const {
    return kind == Kind::tensor_list || kind == Kind::out_list || kind == Kind::inout_list;
  }
  constexpr bool is_required() const {
    return kind == Kind::tensor || kind == Kind::out || kind == Kind::inout;
  }
  constexpr bool has_scalar() const { return kind == Kind::operand || kind == Kind::scalar_tensor; }
  constexpr bool is_output() const { return kind == Kind::out || kind == Kind::out_opt; }
};

// The size of a frame since a revision that changed it.
struct FrameSize {
  uint32_t revision = 0;
  uint32_t size_bytes = 0;
};

// An enumeration of a frame, and its last value in this build. Values count without gaps.
struct Enumeration {
  uint32_t offset = 0;
  uint32_t last_value = 0;
};

// A value of an enumeration that came in a later revision than its member.
struct LaterValue {
  uint32_t offset = 0;
  uint32_t value = 0;
  uint32_t revision = 0;
  const char* member = nullptr;
  const char* name = nullptr;
};

inline constexpr uint32_t kMaxFrameSizes = 8;  // No frame has grown more often.

struct OpRow {
  uint32_t op = 0;
  Moves moves = Moves::none;
  const char* name = nullptr;
  const char* numerics = nullptr;  // The class of its errors, such as "E0".
  uint32_t frame_size_bytes = 0;   // In this build.
  uint32_t revision = 0;           // The newest revision that the row has.
  // The sizes of the frame so far, the first one first.
  std::array<FrameSize, kMaxFrameSizes> sizes;
  uint32_t size_count = 0;
  // The index in op_rows(); ops that were described at run time follow those.
  uint32_t index = 0;
  uint32_t tensor_count = 0;
  uint32_t free_count = 0;
  // Bit i of these masks tells whether tensors[i] is a list, must be given, or is an output that is
  // not a list.
  uint32_t list_mask = 0;
  uint32_t required_mask = 0;
  uint32_t output_mask = 0;
  std::array<TensorArgument, kMaxTensors> tensors;
  // The places of the pointers of i64_list arguments. The count of each is 8 bytes before it.
  uint32_t integer_list_count = 0;
  std::array<uint16_t, kMaxIntegerLists> integer_lists{};
  uint32_t enumeration_count = 0;
  std::array<Enumeration, kMaxEnumerations> enumerations{};
  std::span<const LaterValue> later_values;

  // Returns whether a call has attributes that are read before a kernel sees them.
  constexpr bool has_read_attributes() const {
    return (integer_list_count | enumeration_count) != 0;
  }

  constexpr uint32_t first_size_bytes() const { return sizes[0].size_bytes; }

  // Returns the size of the frame in a revision, or 0 if it has no such op.
  constexpr uint32_t size_in(uint32_t wanted) const {
    uint32_t size_bytes = 0;
    for (uint32_t i = 0; i < size_count && sizes[i].revision <= wanted; ++i) {
      size_bytes = sizes[i].size_bytes;
    }
    return size_bytes;
  }
};

inline constexpr uint32_t kOpIdCount = 1024;  // All ids of this spec are smaller.

// The row of each id, or NULL if there is none.
extern const std::array<const OpRow*, kOpIdCount> kOpRowById;

// Returns the dtypes of a set of the spec, such as "f32, f64, f16, bf16" for "float", or "" if
// there is no such set.
std::string_view dtypes_of_set(std::string_view name);

// Returns the row of an op that was described at run time (runtime_ops.hpp), or NULL.
const OpRow* find_runtime_op(uint32_t op);

// Returns the row of an op, or NULL if nobody has described the op.
inline const OpRow* find_op(uint32_t op) {
  if (op < kOpIdCount) [[likely]] {
    return kOpRowById[op];
  }
  return find_runtime_op(op);
}

std::span<const OpRow> op_rows();

}  // namespace bp::core
