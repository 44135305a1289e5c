// What the selection of kernels knows about each op: where its tensors are in the frame, and which
// of their dtypes are free. The compiler computes it from backplane/ops.def.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

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

inline constexpr uint32_t kMaxTensors = 12;       // No op has more tensor arguments.
inline constexpr uint32_t kMaxFrameBytes = 1024;  // The largest frame that the host can fit.
inline constexpr uint8_t kNoArgument = 0xFF;

// An argument that is a tensor, a list of them, or a tensor or scalar.
struct TensorArgument {
  const char* name = nullptr;
  // The place of the pointer. The count of a list is 8 bytes before it, and a scalar is 8 bytes
  // after it.
  uint16_t offset = 0;
  Kind kind = Kind::tensor;
  bool is_free = false;        // If true, claims list its dtype.
  uint8_t like = kNoArgument;  // The tensor argument that has the same dtype.
  bp_dtype dtype = 0;          // The dtype if it is always the same, else 0.

  constexpr bool is_list() const {
    return kind == Kind::tensor_list || kind == Kind::out_list || kind == Kind::inout_list;
  }
  constexpr bool is_required() const {
    return kind == Kind::tensor || kind == Kind::out || kind == Kind::inout;
  }
  constexpr bool has_scalar() const { return kind == Kind::operand || kind == Kind::scalar_tensor; }
  constexpr bool is_output() const { return kind == Kind::out || kind == Kind::out_opt; }
};

struct OpRow {
  uint32_t op = 0;
  uint32_t version = 0;
  const char* name = nullptr;
  const char* numerics = nullptr;  // The class of its errors, such as "E0".
  // The size of the frame in this build. In the first release it was the same: no frame has grown.
  uint32_t frame_size_bytes = 0;
  uint32_t index = 0;  // The index in op_rows().
  uint32_t tensor_count = 0;
  uint32_t free_count = 0;
  // Bit i of these masks tells whether tensors[i] is a list, must be given, or is an output that is
  // not a list.
  uint32_t list_mask = 0;
  uint32_t required_mask = 0;
  uint32_t output_mask = 0;
  std::array<TensorArgument, kMaxTensors> tensors;
};

inline constexpr uint32_t kOpIdCount = 1024;  // All ids of this spec are smaller.

// The row of each id, or NULL if there is none.
extern const std::array<const OpRow*, kOpIdCount> kOpRowById;

// Returns the row of an op, or NULL if this build does not know the op.
inline const OpRow* find_op(uint32_t op) { return op < kOpIdCount ? kOpRowById[op] : nullptr; }

std::span<const OpRow> op_rows();

}  // namespace bp::core
