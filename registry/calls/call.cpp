#include "registry/calls/call.hpp"

#include <algorithm>
#include <string>

#include "backplane/host.h"
#include "registry/boundary/fail.hpp"
#include "registry/boundary/prefix.hpp"
#include "registry/calls/frame_words.hpp"
#include "registry/calls/qualifiers.hpp"
#include "registry/calls/runtime_ops.hpp"

namespace bp::core {
namespace {

constexpr int64_t kNoStrides[BP_MAX_RANK] = {};

bp_status refuse(const OpRow& row, const TensorArgument& argument, const std::string& why) {
  return fail(BP_INVALID_ARGUMENT, std::string(row.name) + ": " + argument.name + " " + why);
}

bp_status check_tensor(const OpRow& row, const TensorArgument& argument, const bp_tensor* tensor) {
  if (tensor == nullptr) return refuse(row, argument, "is NULL; it must be given");
  if (tensor->ndim > BP_MAX_RANK) {
    return refuse(row, argument,
                  "has rank " + std::to_string(tensor->ndim) + "; allowed is at most " +
                      std::to_string(BP_MAX_RANK));
  }
  if (tensor->ndim != 0 && (tensor->shape == nullptr || tensor->strides == nullptr)) {
    return refuse(row, argument, "has a rank, but shape or strides are NULL");
  }
  if (!is_known_dtype(tensor->dtype)) {
    return refuse(row, argument,
                  "has dtype " + std::to_string(tensor->dtype) +
                      ", which this host does not know; allowed are " + std::to_string(BP_BOOL) +
                      " (" + dtype_text(BP_BOOL) + ") to " + std::to_string(BP_U2) + " (" +
                      dtype_text(BP_U2) + "), and what add_dtype() handed out");
  }
  return BP_OK;
}

constexpr bool is_scalar_dtype(bp_dtype dtype) {
  return dtype == BP_F64 || dtype == BP_I64 || dtype == BP_BOOL || dtype == BP_U64;
}

// Returns the dtype of the argument if it is complex, else 0. The tensor that the argument is like
// may not have been checked yet.
bp_dtype complex_dtype(const OpRow& row, const TensorArgument& argument, const void* args) {
  bp_dtype dtype = argument.dtype;
  if (argument.like != kNoArgument && !row.tensors[argument.like].is_list()) {
    const bp_tensor* const like = tensor_at(args, row.tensors[argument.like]);
    if (like != nullptr) dtype = like->dtype;
  }
  return dtype == BP_C64 || dtype == BP_C128 ? dtype : 0;
}

// Returns whether the scalar at `argument` is one that the argument may have, or there is none. An
// argument that may be absent is zero then.
bool has_usable_scalar(const OpRow& row, const TensorArgument& argument, const void* args) {
  if (!argument.has_scalar()) return true;
  const bp_scalar& scalar = scalar_at(args, argument);
  if (scalar.dtype == BP_C128) return complex_dtype(row, argument, args) != 0;
  return scalar.imaginary_bits == 0 &&
         (is_scalar_dtype(scalar.dtype) || (argument.may_be_absent && scalar.dtype == 0));
}

bp_status refuse_scalar(const OpRow& row, const TensorArgument& argument, const bp_scalar& scalar) {
  if (scalar.dtype == BP_C128) {
    return refuse(row, argument, "is a complex scalar, and its argument is not complex");
  }
  if (scalar.imaginary_bits != 0 && is_scalar_dtype(scalar.dtype)) {
    return refuse(row, argument,
                  std::string("is a scalar of ") + dtype_text(scalar.dtype) +
                      " with imaginary_bits; allowed is 0, unless the dtype is c128");
  }
  return refuse(row, argument,
                "is a scalar of dtype " + std::to_string(scalar.dtype) +
                    "; allowed are bool, i64, u64 and f64, or a tensor in its place");
}

bool has_elements(const bp_tensor& tensor) {
  return std::all_of(tensor.shape, tensor.shape + tensor.ndim, [](int64_t n) { return n != 0; });
}

bp_status check_buffer(const OpRow& row, const TensorArgument& argument, const bp_tensor* tensor) {
  if (tensor == nullptr || tensor->buffer != nullptr || !has_elements(*tensor)) return BP_OK;
  return refuse(row, argument,
                "has elements and no buffer; allowed: NULL for a tensor without elements");
}

// What the tensors of a call have beside their facts.
struct Extras {
  bool has_null = false;    // A tensor has no buffer.
  uint64_t qualifiers = 0;  // Not 0 if a tensor has flags or links.

  void add(const bp_tensor& tensor) {
    has_null |= tensor.buffer == nullptr;
    qualifiers |= tensor.flags | reinterpret_cast<uintptr_t>(tensor.next);
  }
};

bp_status read_list(const OpRow& row, const TensorArgument& argument, const void* args, Fact& fact,
                    Extras& extras) {
  const TensorList list = list_at(args, argument);
  if (list.count != 0 && list.items == nullptr) {
    return refuse(row, argument, "is NULL, but its count is " + std::to_string(list.count));
  }
  for (uint64_t i = 0; i < list.count; ++i) {
    const bp_status status = check_tensor(row, argument, list.items[i]);
    if (status != BP_OK) return status;
    extras.add(*list.items[i]);
    const Fact next = describe(*list.items[i]);
    if (i == 0) {
      fact = next;
      continue;
    }
    const Fact differs = dtype_of(next) == dtype_of(fact) ? 0 : kDiffers;
    constexpr Fact kRank = 0xFu << kRankShift, kAlignment = 0xFu << kAlignmentShift;
    fact = dtype_of(fact) | (classes_of(fact) | classes_of(next)) << kClassShift |
           std::max(fact & kRank, next & kRank) | std::min(fact & kAlignment, next & kAlignment) |
           (fact & kDiffers) | differs;
  }
  return BP_OK;
}

// Returns whether the list of integers at `offset` is NULL, although its count is not 0.
bool lacks_integers(const void* args, uint32_t offset) {
  return *static_cast<const void* const*>(member(args, offset)) == nullptr &&
         *static_cast<const uint64_t*>(member(args, offset - 8)) != 0;
}

// Returns text like "linear: activation".
std::string member_text(const OpRow& row, uint32_t offset) {
  std::string text = std::string(row.name) + ": ";
  for (const FrameMember& each : frame_members(row)) {
    if (each.offset == offset) text += each.name;
  }
  return text;
}

bp_status refuse_integers(const OpRow& row, const void* args, uint32_t offset) {
  const auto count = *static_cast<const uint64_t*>(member(args, offset - 8));
  return fail(BP_INVALID_ARGUMENT,
              member_text(row, offset) + " is NULL, but its count is " + std::to_string(count));
}

// Refuses lists of integers without memory, and values of enumerations that this build does not
// know. A caller of a newer build may give such a value. The host cannot tell which revision
// brought it, so it cannot tell which kernels know it.
bp_status read_attributes(const OpRow& row, const void* args) {
  for (uint32_t i = 0; i < row.integer_list_count; ++i) {
    if (lacks_integers(args, row.integer_lists[i])) {
      return refuse_integers(row, args, row.integer_lists[i]);
    }
  }
  for (uint32_t i = 0; i < row.enumeration_count; ++i) {
    const auto [offset, last] = row.enumerations[i];
    const auto given = *static_cast<const uint32_t*>(member(args, offset));
    if (given <= last) continue;
    return fail(BP_UNSUPPORTED, member_text(row, offset) + " is " + std::to_string(given) +
                                    "; this host knows the values up to " + std::to_string(last));
  }
  return BP_OK;
}

// Returns whether `out` is the memory of one of `inputs`. bp_op_check() allows an output to overlap
// an input only if both are the same memory, so it is enough to compare the first byte.
bool is_in_place(const bp_tensor* const* inputs, uint32_t count, const bp_tensor& out) {
  for (uint32_t i = 0; i < count; ++i) {
    const bp_tensor& in = *inputs[i];
    if (in.buffer == out.buffer && in.byte_offset == out.byte_offset) return true;
  }
  return false;
}

// Returns whether a tensor can be described. If not, check_tensor() tells why.
bool is_usable(const bp_tensor* tensor) {
  return tensor != nullptr && tensor->ndim <= BP_MAX_RANK && is_known_dtype(tensor->dtype) &&
         (tensor->ndim == 0 || (tensor->shape != nullptr && tensor->strides != nullptr));
}

}  // namespace

bp_status read_call(const OpRow& row, bp_launch_flags flags, const void* args, Key& key,
                    bool* out_has_null) {
  key.head = row.op | uint64_t{flags} << 32;
  const bp_tensor* inputs[kMaxTensors];
  uint32_t input_count = 0, output_mask = 0;
  // read_list() gets an object of its own, so that this one stays in registers.
  Extras extras, of_lists;
  for (uint32_t i = 0; i < row.tensor_count; ++i) {
    const TensorArgument& argument = row.tensors[i];
    const uint32_t bit = 1u << i;
    Fact fact = 0;
    if ((row.list_mask & bit) != 0) [[unlikely]] {
      const bp_status status = read_list(row, argument, args, fact, of_lists);
      if (status != BP_OK) return status;
    } else {
      const bp_tensor* tensor = tensor_at(args, argument);
      if (tensor == nullptr && (row.required_mask & bit) == 0) {
        if (!has_usable_scalar(row, argument, args)) {
          return refuse_scalar(row, argument, scalar_at(args, argument));
        }
        const bool is_absent = argument.has_scalar() && scalar_at(args, argument).dtype == 0;
        key.facts[i / 2] |= uint64_t{is_absent ? kIsAbsent : 0} << (i % 2 * 32);
        continue;
      }
      if (!is_usable(tensor)) [[unlikely]] {
        return check_tensor(row, argument, tensor);
      }
      fact = describe(*tensor);
      extras.add(*tensor);
      if ((row.output_mask & bit) == 0) {
        inputs[input_count++] = tensor;
      } else if (tensor->buffer != nullptr) {
        output_mask |= bit;
      }
    }
    key.facts[i / 2] |= uint64_t{fact} << (i % 2 * 32);
  }
  if (row.has_read_attributes()) {
    const bp_status status = read_attributes(row, args);
    if (status != BP_OK) return status;
  }
  for (; output_mask != 0; output_mask &= output_mask - 1) {
    const auto i = static_cast<uint32_t>(std::countr_zero(output_mask));
    if (!is_in_place(inputs, input_count, *tensor_at(args, row.tensors[i]))) continue;
    key.head |= Key::kInPlace;
    break;
  }
  *out_has_null = extras.has_null || of_lists.has_null;
  if ((extras.qualifiers | of_lists.qualifiers) != 0) [[unlikely]] {
    return read_qualifiers(row, args, key);
  }
  return BP_OK;
}

bp_status check_buffers(const OpRow& row, const void* args) {
  for (uint32_t i = 0; i < row.tensor_count; ++i) {
    const TensorArgument& argument = row.tensors[i];
    const bool is_list = (row.list_mask & 1u << i) != 0;
    const bp_tensor* const single = is_list ? nullptr : tensor_at(args, argument);
    const TensorList list = is_list ? list_at(args, argument) : TensorList{1, &single};
    for (uint64_t k = 0; k < list.count; ++k) {
      const bp_status status = check_buffer(row, argument, list.items[k]);
      if (status != BP_OK) return status;
    }
  }
  return BP_OK;
}

const void* lengthened_frame(const OpRow& row, const void* args, std::byte* storage) {
  if (read_prefix(args, row.first_size_bytes(), storage, row.frame_size_bytes, nullptr) == BP_OK) {
    return storage;
  }
  fail(BP_INCOMPATIBLE,
       std::string(row.name) + ": the frame has " + std::to_string(frame_size(args)) +
           " bytes; in the first release it had " + std::to_string(row.first_size_bytes()));
  return nullptr;
}

const void* fit_frame(const OpRow& row, const void* args, uint32_t size_bytes, std::byte* storage,
                      uint32_t* out_offset) {
  const uint32_t given_bytes = frame_size(args);
  if (given_bytes == size_bytes) return args;
  if (given_bytes < size_bytes || given_bytes > kMaxStructBytes) {
    const bp_status status =
        read_prefix(args, row.first_size_bytes(), storage, size_bytes, out_offset);
    return status == BP_OK ? storage : nullptr;
  }
  const auto* const bytes = static_cast<const std::byte*>(args);
  const auto* const given = std::find_if(bytes + size_bytes, bytes + given_bytes,
                                         [](std::byte byte) { return byte != std::byte{0}; });
  *out_offset = static_cast<uint32_t>(given - bytes);
  return *out_offset == given_bytes ? args : nullptr;
}

bp_tensor scalar_view(const OpRow& row, const TensorArgument& argument, const bp_kernel& kernel,
                      const void* frame) {
  const bp_tensor* like = nullptr;
  if (argument.like != kNoArgument) like = tensor_at(frame, row.tensors[argument.like]);
  const bool is_operand = argument.kind == Kind::operand;
  bp_dtype dtype = like != nullptr ? like->dtype : argument.dtype;
  if (is_operand && takes_acc_operand(kernel)) dtype = acc_dtype(dtype);
  return {.buffer = nullptr,
          .byte_offset = 0,
          .shape = is_operand ? like->shape : kNoStrides,
          .strides = kNoStrides,
          .ndim = is_operand ? like->ndim : 0,
          .dtype = dtype,
          .layout = nullptr,
          .flags = 0,
          .reserved = 0,
          .next = nullptr};
}

bp_status unknown_op(uint32_t op) {
  const char* const name = runtime_op_name(op);
  if (name != nullptr) {
    return fail(BP_NOT_FOUND, std::string(name) +
                                  ": nobody who described this op is loaded any "
                                  "more; load a backend that describes it");
  }
  return fail(BP_NOT_FOUND, "op " + std::to_string(op) + " is not known to this host");
}

bp_status unknown_flags(const OpRow& row, bp_launch_flags flags) {
  return fail(BP_UNSUPPORTED, std::string(row.name) + ": the launch flags are " +
                                  std::to_string(flags) + "; allowed: the bits of " +
                                  std::to_string(kKnownLaunchFlags));
}

bp_status frame_too_long(const OpRow& row, const void* args) {
  return fail(BP_INCOMPATIBLE,
              std::string(row.name) + ": the frame has " + std::to_string(frame_size(args)) +
                  " bytes; allowed are at most " + std::to_string(kMaxStructBytes));
}

}  // namespace bp::core
