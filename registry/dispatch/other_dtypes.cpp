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
#include "registry/services/decompose.hpp"
#include "registry/services/service_kernels.hpp"

namespace bp::core {
namespace {

using services::Evaluator;

// The argument whose dtype the call chooses first.
uint32_t root_of(const OpRow& row) {
  uint32_t i = 0;
  while (i < row.tensor_count && !row.tensors[i].is_free) ++i;
  return i;
}

// Returns whether an argument has the dtype of the root. The dtype of the result of a copy is free,
// and by_width_refusal() has compared it.
bool follows(const OpRow& row, uint32_t i, uint32_t root) {
  return i == root || row.tensors[i].like == root || row.op == BP_OP_COPY;
}

// A copy of a frame with other tensors. It is valid as long as this object.
class OtherFrame {
 public:
  // `replace(argument, tensor)` returns what takes the place of a tensor of the root's dtype.
  template <typename Replace>
  OtherFrame(const OpRow& row, const void* args, const Replace& replace) {
    std::memcpy(frame_.data(), args, row.frame_size_bytes);
    const uint32_t root = root_of(row);
    for (uint32_t i = 0; i < row.tensor_count; ++i) {
      const TensorArgument& argument = row.tensors[i];
      if (!follows(row, i, root)) continue;
      if (!argument.is_list()) {
        const bp_tensor* const given = tensor_at(args, argument);
        const bp_tensor* const other = given == nullptr ? nullptr : replace(argument, *given);
        // NOLINTNEXTLINE(bugprone-sizeof-expression): the pointer itself is written.
        std::memcpy(frame_.data() + argument.offset, &other, sizeof(other));
        continue;
      }
      const TensorList given = list_at(args, argument);
      std::vector<const bp_tensor*>& items = lists_.emplace_back();
      for (uint64_t k = 0; k < given.count; ++k) {
        items.push_back(replace(argument, *given.items[k]));
      }
      const bp_tensor* const* const data = items.data();
      // NOLINTNEXTLINE(bugprone-sizeof-expression): the pointer itself is written.
      std::memcpy(frame_.data() + argument.offset, &data, sizeof(data));
    }
  }
  OtherFrame(const OtherFrame&) = delete;

  const void* data() const { return frame_.data(); }

 private:
  alignas(8) std::array<std::byte, kMaxFrameBytes> frame_;
  std::deque<std::vector<const bp_tensor*>> lists_;
};

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

bp_dtype root_dtype(const OpRow& row, const void* args) {
  const TensorArgument& root = row.tensors[root_of(row)];
  return root.is_list() ? list_at(args, root).items[0]->dtype : tensor_at(args, root)->dtype;
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

template <void (*kRun)(Evaluator&, const OpRow&, const void*)>
bp_status launch(const bp_kernel* self, const bp_launch* launch, const void* args) {
  const auto& row = *static_cast<const OpRow*>(self->state);
  return services::evaluate(*launch, self->name, [&](Evaluator& e) { kRun(e, row, args); });
}

// The host makes tensors of inline scalars, which are converted to the dtype of the call.
constexpr bp_kernel_flags kFlags = BP_KERNEL_IN_PLACE | BP_KERNEL_DETERMINISTIC;

}  // namespace

bool moves_elements(const OpRow& row) {
  constexpr uint32_t kOps[] = {BP_OP_FILL,  BP_OP_COPY,   BP_OP_EMBEDDING, BP_OP_CAT,
                               BP_OP_WHERE, BP_OP_GATHER, BP_OP_SCATTER,   BP_OP_INDEX_SELECT};
  return std::ranges::count(kOps, row.op) != 0;
}

std::string by_width_refusal(const OpRow& row, const Key& key) {
  if (!moves_elements(row)) return "the op computes with its elements";
  const bp_dtype dtype = dtype_of(key.fact(root_of(row)));
  if (row.op == BP_OP_COPY && dtype_of(key.fact(0)) != dtype_of(key.fact(1))) {
    return "the call converts its elements";
  }
  const bp_dtype other = integer_as_wide(dtype);
  if (other == 0) return "no integer is as wide as its elements";
  return other == dtype ? "the call moves integers already" : "";
}

std::string in_i32_refusal(const OpRow& row, const Key& key) {
  const uint32_t root = root_of(row);
  if (is_runtime_op(row) || moves_elements(row) || root == row.tensor_count) {
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

const bp_kernel* by_width(const OpRow& row) {
  static services::ServiceKernels kernels("by_width", launch<run_by_width>, kFlags);
  return kernels.of(row);
}

const bp_kernel* in_i32(const OpRow& row) {
  static services::ServiceKernels kernels("in_i32", launch<run_in_i32>, kFlags);
  return kernels.of(row);
}

}  // namespace bp::core
