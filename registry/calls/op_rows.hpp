// What selection needs to know of each op: where its tensors stand in the frame, and which of their
// dtypes are free. Computed from backplane/ops.def by the compiler.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "backplane/ops.h"

namespace bp::core {

// The kinds of ops.def.
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

inline constexpr uint32_t kMaxTensors = 12;       // Tensor arguments of one op.
inline constexpr uint32_t kMaxFrameBytes = 1024;  // Of a frame that the host can fit.
inline constexpr uint8_t kNoArgument = 0xFF;

// An argument that is a tensor, a list of them, or a tensor or scalar.
struct TensorArgument {
  const char* name = nullptr;
  uint16_t offset = 0;  // Of the pointer. A list's count stands 8 bytes before, a scalar 8 behind.
  Kind kind = Kind::tensor;
  bool is_free = false;        // Claims list its dtype.
  uint8_t like = kNoArgument;  // The tensor argument whose dtype it has.
  bp_dtype dtype = 0;          // If it is always the same.

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
  uint32_t frame_size_bytes = 0;   // In this build, and in the first release: none has grown yet.
  uint32_t index = 0;              // Among op_rows().
  uint32_t tensor_count = 0;
  uint32_t free_count = 0;
  uint32_t list_mask = 0;      // Bit i: tensors[i] is a list,
  uint32_t required_mask = 0;  // must be given,
  uint32_t output_mask = 0;    // is an output, and no list.
  std::array<TensorArgument, kMaxTensors> tensors;
};

inline constexpr uint32_t kOpIdCount = 1024;  // Ids of this spec are below.

// The row of each id; NULL where there is none.
extern const std::array<const OpRow*, kOpIdCount> kOpRowById;

// NULL if the op is not known here.
inline const OpRow* find_op(uint32_t op) { return op < kOpIdCount ? kOpRowById[op] : nullptr; }

std::span<const OpRow> op_rows();

}  // namespace bp::core
