#include "registry/calls/claims.hpp"

#include <algorithm>
#include <bit>

#include "backplane/host.h"
#include "registry/boundary/plugin_text.hpp"

namespace bp::core {
namespace {

std::string dtype_name(bp_dtype dtype) {
  const char* name = bp_dtype_name(dtype);
  return name == nullptr ? "dtype " + std::to_string(dtype) : name;
}

// Returns text like "contiguous, broadcast" for these bits.
std::string layout_names(bp_layout_flags layouts) {
  std::string names;
  for (bp_layout_flags bit = 1; bit <= BP_LAYOUT_ANY; bit <<= 1) {
    if ((layouts & bit) == 0) continue;
    names += (names.empty() ? "" : ", ") + std::string(layout_name(bit));
  }
  return names;
}

// Returns the facts of argument i as `kernel` sees them. An inline scalar may reach the kernel as a
// tensor.
Fact seen(const OpRow& row, const bp_kernel& kernel, const Key& key, uint32_t i) {
  const TensorArgument& argument = row.tensors[i];
  const Fact fact = key.fact(i);
  const bool becomes_tensor =
      !is_given(fact) && argument.has_scalar() && (kernel.flags & BP_KERNEL_TAKES_SCALAR) == 0;
  if (!becomes_tensor) return fact;
  const Fact one = kHasOneElement | kMaxAlignmentLog2 << kAlignmentShift;
  if (argument.kind == Kind::scalar_tensor) return one | BP_LAYOUT_CONTIGUOUS << kClassShift;
  const Fact like = key.fact(argument.like);
  const bool is_single = (like & kHasOneElement) != 0;
  return one | dtype_of(like) | rank_of(like) << kRankShift |
         bp_layout_flags{is_single ? BP_LAYOUT_CONTIGUOUS : BP_LAYOUT_BROADCAST} << kClassShift;
}

std::string tensor_refusal(const bp_kernel& kernel, const TensorArgument& argument, Fact fact) {
  const std::string name = argument.name;
  const bp_layout_flags classes = classes_of(fact);
  // Claims say nothing about layouts of the backend's own. own_layouts.hpp decides about them.
  const bp_layout_flags others = classes & ~(kernel.layouts | kOpaqueClass);
  if ((kernel.layouts & BP_LAYOUT_ANY) == 0 && others != 0) {
    return name + ": layout " + layout_names(others) + " is not claimed, only " +
           layout_names(kernel.layouts);
  }
  if (kernel.max_rank != 0 && rank_of(fact) > kernel.max_rank) {
    return name + ": rank " + std::to_string(rank_of(fact)) + " is above " +
           std::to_string(kernel.max_rank);
  }
  if (alignment_of(fact) < kernel.min_byte_alignment_bytes) {
    return name + ": its byte offset is no multiple of " +
           std::to_string(kernel.min_byte_alignment_bytes);
  }
  if ((fact & kDiffers) != 0) return name + ": its tensors have several dtypes";
  return "";
}

std::string dtypes_refusal(const OpRow& row, const bp_kernel& kernel, const Key& key) {
  if (kernel.dtype_rows == nullptr) return "";
  bp_dtype given[kMaxTensors];
  uint32_t count = 0;
  std::string names;
  for (uint32_t i = 0; i < row.tensor_count; ++i) {
    if (!row.tensors[i].is_free) continue;
    given[count++] = dtype_of(key.fact(i));
    names += (names.empty() ? "" : ", ") + std::string(row.tensors[i].name) + " " +
             dtype_name(dtype_of(key.fact(i)));
  }
  for (uint32_t i = 0; i < kernel.dtype_row_count; ++i) {
    const bp_dtype* claimed = kernel.dtype_rows + size_t{i} * kernel.dtype_count;
    if (std::equal(given, given + count, claimed)) return "";
  }
  return "dtypes are not claimed: " + names;
}

std::string flags_refusal(const bp_kernel& kernel, const Key& key) {
  if ((key.flags() & BP_LAUNCH_DETERMINISTIC) != 0 &&
      (kernel.flags & BP_KERNEL_DETERMINISTIC) == 0) {
    return "it is not deterministic, and the launch flags ask for that";
  }
  if ((key.flags() & BP_LAUNCH_STRICT_F32) != 0 && kernel.numerics != nullptr &&
      kernel.numerics->products != BP_PRODUCTS_NATIVE) {
    return "it multiplies in reduced precision, and the launch flags ask for strict f32";
  }
  if (key.is_in_place() && (kernel.flags & BP_KERNEL_IN_PLACE) == 0) {
    return "an output is the memory of an input, and the kernel does not work in place";
  }
  return "";
}

}  // namespace

std::string kernel_defect(const bp_kernel& kernel) {
  if (kernel.name == nullptr || kernel.launch == nullptr) return "name or launch is NULL";
  if (clean_name(kernel.name) !=
      std::string_view(kernel.name, strnlen(kernel.name, kMaxPluginName + 1))) {
    return "its name has control characters, is no UTF-8, or has more than " +
           std::to_string(kMaxPluginName) + " bytes";
  }
  const OpRow* row = find_op(kernel.op);
  if (row == nullptr) return "op " + std::to_string(kernel.op) + " is not known to this host";
  if (kernel.op_version != row->version) {
    return "it is written for version " + std::to_string(kernel.op_version) + " of " + row->name +
           ", and this host has version " + std::to_string(row->version);
  }
  if (kernel.args_size_bytes < row->frame_size_bytes || kernel.args_size_bytes > kMaxFrameBytes) {
    return "args_size_bytes is " + std::to_string(kernel.args_size_bytes) + ", allowed are " +
           std::to_string(row->frame_size_bytes) + " to " + std::to_string(kMaxFrameBytes);
  }
  if (kernel.dtype_rows != nullptr && kernel.dtype_count != row->free_count) {
    return "dtype_count is " + std::to_string(kernel.dtype_count) + ", " + row->name + " has " +
           std::to_string(row->free_count) + " free dtypes";
  }
  if ((kernel.layouts & (2 * BP_LAYOUT_ANY - 1)) == 0) return "claims no layout";
  const uint64_t alignment = kernel.min_byte_alignment_bytes;
  if (alignment > 4096 || (alignment != 0 && !std::has_single_bit(alignment))) {
    return "min_byte_alignment_bytes is " + std::to_string(alignment) +
           ", allowed is a power of two up to 4096";
  }
  if (knows_plans(kernel)) {
    const int given = (kernel.prepare != nullptr) + (kernel.plan_info != nullptr) +
                      (kernel.plan_pack != nullptr) + (kernel.plan_release != nullptr);
    if (given != 0 && given != 4) {
      return "it has only some of prepare, plan_info, plan_pack and plan_release; give all of them "
             "or none";
    }
  }
  return "";
}

bool needs_scalar_tensors(const OpRow& row, const bp_kernel& kernel, const Key& key) {
  if ((kernel.flags & BP_KERNEL_TAKES_SCALAR) != 0) return false;
  for (uint32_t i = 0; i < row.tensor_count; ++i) {
    if (row.tensors[i].has_scalar() && !is_given(key.fact(i))) return true;
  }
  return false;
}

std::string claims_refusal(const OpRow& row, const bp_kernel& kernel, const Key& key) {
  std::string refusal = flags_refusal(kernel, key);
  for (uint32_t i = 0; refusal.empty() && i < row.tensor_count; ++i) {
    const Fact fact = seen(row, kernel, key, i);
    if (is_given(fact)) refusal = tensor_refusal(kernel, row.tensors[i], fact);
  }
  return refusal.empty() ? dtypes_refusal(row, kernel, key) : refusal;
}

}  // namespace bp::core
