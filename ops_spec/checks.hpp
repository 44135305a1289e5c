// Parts of the generated op_infer.cpp: each checks one argument cheaply, or builds the text of a
// refusal.
//
// The predicates are inline and allocate nothing. The bad_*() functions build the text and are only
// called on the way out. Each of them names op and argument, what was given and what is allowed,
// and returns BP_INVALID_ARGUMENT.
#pragma once

#include <cstdint>

#include "backplane/host.h"
#include "backplane/ops.h"
#include "ops_spec/dims.hpp"

namespace bp::ops {

// The kinds of arguments in ops.def, those of tensors first.
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

struct Argument {
  const char* name;
  const char* values;  // For an enumeration: "none, relu".
  uint32_t aliases;    // For an out: bit i is set if it may be the memory of argument i.
  uint16_t offset;     // The place in the frame. The count of a list stands in the 8 bytes before.
  uint16_t first;      // The number of the first value of an enumeration.
  Kind kind;
};

struct Row;
using Infer = bp_status (*)(const Row& row, const void* frame, bp_op_output* out_outputs);

// The row of one op. Rows are generated.
struct Row {
  const char* name;
  const Argument* arguments;
  Infer infer;
  uint32_t op;
  uint32_t first_bytes;  // The size of the frame in the first revision of the op.
  uint32_t frame_bytes;  // The size in this build.
  uint32_t argument_count;
  uint32_t output_count;  // How many of the arguments are out or out_opt.
};

inline constexpr uint32_t kMaxOutputs = 8;
inline constexpr uint32_t kMaxFrameBytes = 512;
// With this limit the bytes of elements of 16 bytes can still be counted.
inline constexpr int64_t kMaxElements = int64_t{1} << 58;

// Returns the row of `op`, or NULL. The function is generated.
const Row* find_row(uint32_t op);

// Returns the row of an op that was described at run time, or NULL. The registry has these rows.
const Row* find_runtime_row(uint32_t op);

// Returns whether no extent is negative and the elements can be counted, also with 1 in place of
// each extent 0.
inline bool is_shape(const int64_t* shape, int64_t count) {
  int64_t elements = 1;
  for (int64_t i = 0; i < count; ++i) {
    if (shape[i] < 0 || __builtin_mul_overflow(elements, shape[i] == 0 ? 1 : shape[i], &elements)) {
      return false;
    }
  }
  return elements <= kMaxElements;
}

inline bool is_sound(const bp_tensor* tensor) {
  return tensor != nullptr && tensor->ndim <= BP_MAX_RANK &&
         (tensor->ndim == 0 || (tensor->shape != nullptr && tensor->strides != nullptr)) &&
         is_shape(tensor->shape, tensor->ndim);
}

// Returns whether `set` has the dtype: bit 1 << d stands for dtype d.
inline bool is_in(bp_dtype dtype, uint32_t set) { return dtype < 32 && (set >> dtype & 1u) != 0; }

using dims::is_integer;

inline bool is_complex(bp_dtype dtype) { return dtype == BP_C64 || dtype == BP_C128; }

// Returns whether a value may be converted to `target`. A floating-point value is refused for an
// integer, and a complex one for what is not complex; every other conversion is what the caller
// asked for.
inline bool is_scalar(const bp_scalar& scalar, bp_dtype target) {
  if (scalar.dtype == BP_C128) return is_complex(target);
  return scalar.imaginary_bits == 0 &&
         ((scalar.dtype == BP_F64 && !is_integer(target)) || scalar.dtype == BP_I64 ||
          scalar.dtype == BP_U64 || (scalar.dtype == BP_BOOL && scalar.bits <= 1));
}

inline bool is_list(const void* items, uint64_t count) { return count == 0 || items != nullptr; }

inline bool are_distinct(const int64_t* values, uint64_t count) {
  for (uint64_t i = 1; i < count; ++i) {
    for (uint64_t j = 0; j < i; ++j) {
      if (values[i] == values[j]) return false;
    }
  }
  return true;
}

// Returns the dtype of an output if the caller chose it, else `otherwise`.
inline bp_dtype chosen_dtype(const bp_tensor* output, bp_dtype otherwise) {
  return output != nullptr && output->dtype != 0 ? output->dtype : otherwise;
}

inline dims::View shape(const bp_op_output& output) {
  return {output.shape, static_cast<int64_t>(output.ndim)};
}

// Sets the output, or returns false if there is no such shape.
inline bool set_output(bp_op_output& output, bp_dtype dtype, dims::View shape) {
  if (!shape.exists() || shape.count > BP_MAX_RANK || !is_shape(shape.data, shape.count)) {
    return false;
  }
  output.dtype = dtype;
  output.ndim = static_cast<uint32_t>(shape.count);
  dims::copy(shape, output.shape);
  return true;
}

// In the functions below, `index` is the place of the argument in its row. `item` is the place of
// an element in a list, or kNoItem.
inline constexpr int64_t kNoItem = -1;

bp_status bad_tensor(const Row& row, uint32_t index, int64_t item, const bp_tensor* tensor);
bp_status bad_dtype(const Row& row, uint32_t index, int64_t item, bp_dtype given, uint32_t allowed);
bp_status bad_scalar(const Row& row, uint32_t index, const bp_scalar& given, bp_dtype target);
bp_status bad_element_count(const Row& row, uint32_t index, const bp_tensor& given);
bp_status bad_list(const Row& row, uint32_t index, uint64_t count);

// `expression` says what is allowed in the words of the spec. It is NULL if `low` and `high` say
// so.
bp_status bad_count(const Row& row, uint32_t index, uint64_t given, int64_t allowed,
                    const char* expression, bool may_be_empty);
bp_status bad_rank(const Row& row, uint32_t index, int64_t item, int64_t given, int64_t low,
                   int64_t high, const char* expression);
bp_status bad_shape(const Row& row, uint32_t index, int64_t item, dims::View given,
                    dims::View allowed, const char* expression);
// Refuses an input for which no shape is allowed. `names` has bit i for each argument that the
// expression reads.
bp_status no_shape(const Row& row, uint32_t index, int64_t item, const void* frame,
                   const char* expression, uint32_t names);

// A bound that does not exist is NULL. `less` is "<" or "<=".
bp_status bad_bound(const Row& row, uint32_t index, int64_t item, int64_t given, const int64_t* low,
                    const int64_t* high, const char* less);
bp_status bad_bound(const Row& row, uint32_t index, int64_t item, double given, const double* low,
                    const double* high, const char* less);
bp_status bad_enumeration(const Row& row, uint32_t index, uint32_t given);
bp_status bad_duplicate(const Row& row, uint32_t index, dims::View given);

// Refuses arguments that leave an output without a shape. `names` has bit i for each argument that
// the expression reads.
bp_status bad_output(const Row& row, uint32_t index, const void* frame, const char* expression,
                     uint32_t names);
// Refuses a frame for which a rule of the spec does not hold. `says` is the reason for the rule, or
// "".
bp_status bad_rule(const Row& row, const void* frame, const char* rule, const char* says,
                   uint32_t names);

}  // namespace bp::ops
