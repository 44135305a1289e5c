#include "registry/dispatch/other_dtypes.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <deque>
#include <span>
#include <utility>
#include <vector>

#include "registry/calls/runtime_ops.hpp"
#include "registry/dispatch/other_frame.hpp"
#include "registry/dispatch/packed_rows.hpp"
#include "registry/services/decompose.hpp"
#include "registry/services/service_kernels.hpp"

namespace bp::core {
namespace {

using services::Evaluator;

// Returns the integer that moves an element of `dtype`, or half of one of 16 bytes. Returns 0 if
// there is none.
bp_dtype integer_as_wide(bp_dtype dtype) {
  switch (bp_dtype_bits(dtype)) {
    case 8:
      return BP_U8;
    case 16:
      return BP_I16;
    case 32:
      return BP_I32;
    case 64:
    case 128:
      return BP_I64;
    default:
      return 0;
  }
}

// Returns whether the dtype is a bool, or a small integer with which ops compute.
bool is_small(bp_dtype dtype) {
  return dtype == BP_BOOL || dtype == BP_U8 || dtype == BP_I8 || dtype == BP_I16;
}

// Returns whether the spec lets the root be i32.
bool takes_i32(const OpRow& row) {
  const bp_op_desc* desc = nullptr;
  if (bp_op_describe(row.op, &desc) != BP_OK) return false;
  for (uint64_t i = 0; i < desc->argument_count; ++i) {
    const bp_op_argument& argument = *reinterpret_cast<const bp_op_argument*>(
        reinterpret_cast<const std::byte*>(desc->arguments) + i * desc->argument_stride_bytes);
    if (argument.offset_bytes != row.tensors[root_of(row)].offset) continue;
    const std::span<const bp_dtype> dtypes(argument.dtypes, argument.dtype_count);
    return std::ranges::count(dtypes, bp_dtype{BP_I32}) != 0;
  }
  return false;
}

// The integers in the memory of a tensor: its elements, or one half of each element of 16 bytes.
class Integers {
 public:
  Integers(const bp_tensor& given, uint32_t half) : tensor_(given) {
    tensor_.dtype = integer_as_wide(given.dtype);
    const int64_t width = bp_dtype_bits(given.dtype) / bp_dtype_bits(tensor_.dtype);
    std::transform(given.strides, given.strides + given.ndim, strides_.begin(),
                   [width](int64_t stride) { return width * stride; });
    tensor_.strides = strides_.data();
    tensor_.byte_offset += half * sizeof(int64_t);
  }
  Integers(const Integers&) = delete;

  const bp_tensor* tensor() const { return &tensor_; }

 private:
  bp_tensor tensor_;
  std::array<int64_t, BP_MAX_RANK> strides_{};
};

void move_half(Evaluator& e, const OpRow& row, const void* args, uint32_t half) {
  std::deque<Integers> tensors;
  const OtherFrame frame(row, args, [&](const TensorArgument&, const bp_tensor& given) {
    return tensors.emplace_back(given, half).tensor();
  });
  e.launch(row.op, frame.data());
}

// The halves of elements of 16 bytes are moved one after the other.
void run_by_width(Evaluator& e, const OpRow& row, const void* args) {
  move_half(e, row, args, 0);
  if (bp_dtype_bits(root_dtype(row, args)) == 128) move_half(e, row, args, 1);
}

void run_in_i32(Evaluator& e, const OpRow& row, const void* args) {
  std::vector<std::pair<const bp_tensor*, const bp_tensor*>> results;  // In i32, and the caller's.
  const OtherFrame frame(row, args, [&](const TensorArgument& argument, const bp_tensor& given) {
    if (!argument.is_output()) return e.cast(&given, BP_I32);
    const bp_tensor* const wide = e.make_like(given, BP_I32);
    results.emplace_back(wide, &given);
    return wide;
  });
  e.launch(row.op, frame.data());
  for (const auto& [wide, given] : results) e.store(wide, given);
}

// Returns whether the argument is one value, as a tensor in another dtype than the first of its
// set.
bool has_later_dtype(const TensorArgument& argument, bp_dtype given) {
  return argument.kind == Kind::scalar_tensor && argument.is_free && given != argument.dtype;
}

void run_with_cast_scalars(Evaluator& e, const OpRow& row, const void* args) {
  alignas(8) std::array<std::byte, kMaxFrameBytes> frame;
  std::memcpy(frame.data(), args, row.frame_size_bytes);
  for (uint32_t i = 0; i < row.tensor_count; ++i) {
    const TensorArgument& argument = row.tensors[i];
    if (argument.is_list()) continue;
    const bp_tensor* const given = tensor_at(args, argument);
    if (given == nullptr || !has_later_dtype(argument, given->dtype)) continue;
    const bp_tensor* const cast = e.cast(given, argument.dtype);
    std::memcpy(frame.data() + argument.offset, &cast, sizeof(const bp_tensor*));
  }
  e.launch(row.op, frame.data());
}

template <void (*kRun)(Evaluator&, const OpRow&, const void*)>
bp_status launch(const bp_kernel* self, const bp_launch* launch, const void* args) {
  const auto& row = *static_cast<const OpRow*>(self->state);
  return services::evaluate(*launch, self->name, [&](Evaluator& e) { kRun(e, row, args); });
}

// The host makes tensors of inline scalars, which are converted to the dtype of the call.
constexpr bp_kernel_flags kFlags = BP_KERNEL_IN_PLACE | BP_KERNEL_DETERMINISTIC;

}  // namespace

std::string by_width_refusal(const OpRow& row, const Key& key) {
  if (row.moves == Moves::none) return "the op computes with its elements";
  const bp_dtype dtype = dtype_of(key.fact(root_of(row)));
  if (row.op == BP_OP_COPY && dtype_of(key.fact(0)) != dtype_of(key.fact(1))) {
    return "the call converts its elements";
  }
  if (is_packed(dtype)) return "its elements are packed";
  const bp_dtype other = integer_as_wide(dtype);
  if (other == 0) return "no integer is as wide as its elements";
  return other == dtype ? "the call moves integers already" : "";
}

std::string in_i32_refusal(const OpRow& row, const Key& key) {
  const uint32_t root = root_of(row);
  if (is_runtime_op(row) || row.moves != Moves::none || root == row.tensor_count) {
    return "the op does not compute with integers of the spec";
  }
  if (!is_small(dtype_of(key.fact(root)))) return "its integers are as wide as i32";
  for (uint32_t i = 0; i < row.tensor_count; ++i) {
    const TensorArgument& argument = row.tensors[i];
    if (argument.is_free && !argument.is_output() && !follows(row, i, root) &&
        is_small(dtype_of(key.fact(i)))) {
      return std::string(argument.name) + " has a small integer of its own";
    }
  }
  return takes_i32(row) ? "" : "the op has no i32";
}

std::string cast_scalars_refusal(const OpRow& row, const Key& key) {
  for (uint32_t i = 0; i < row.tensor_count; ++i) {
    const Fact fact = key.fact(i);
    if (is_given(fact) && has_later_dtype(row.tensors[i], dtype_of(fact))) return "";
  }
  return "no scalar is a tensor in another dtype than the first of its set";
}

const bp_kernel* by_width(const OpRow& row) {
  static services::ServiceKernels kernels("by_width", launch<run_by_width>, kFlags);
  return kernels.of(row);
}

const bp_kernel* with_cast_scalars(const OpRow& row) {
  static services::ServiceKernels kernels("with_cast_scalars", launch<run_with_cast_scalars>);
  return kernels.of(row);
}

const bp_kernel* in_i32(const OpRow& row) {
  static services::ServiceKernels kernels("in_i32", launch<run_in_i32>, kFlags);
  return kernels.of(row);
}

}  // namespace bp::core
