#include "backplane/shell/kernel_choice.hpp"

#include <algorithm>
#include <array>

#include "backplane/layout.h"
#include "backplane/shell/boundary.hpp"
#include "backplane/shell/dtypes.hpp"
#include "backplane/shell/later.hpp"
#include "backplane/shell/shape.hpp"

namespace bp {
namespace {

// Returns whether the axes with more than one element lie one after the other without gaps, in some
// order.
bool is_dense(const bp_tensor& t) {
  std::array<uint32_t, BP_MAX_RANK> axes{};
  uint32_t count = 0;
  for (uint32_t i = 0; i < t.ndim; ++i) {
    if (t.shape[i] != 1) axes[count++] = i;
  }
  std::sort(axes.begin(), axes.begin() + count,
            [&](uint32_t a, uint32_t b) { return t.strides[a] < t.strides[b]; });
  int64_t expected = 1;
  for (uint32_t i = 0; i < count; ++i) {
    if (t.strides[axes[i]] != expected) return false;
    expected *= t.shape[axes[i]];
  }
  return true;
}

bool claims_dtypes(const bp_kernel& kernel, const OwnedFrame& frame) {
  if (kernel.dtype_rows == nullptr) return true;
  std::vector<bp_dtype> given;
  for (size_t i = 0; i < frame.tensors().size(); ++i) {
    const FrameArgument& argument = frame.arguments()[i];
    if (!argument.has_free_dtype) continue;
    const bp_tensor* const tensor = frame.tensors()[i];
    const bp_dtype dtype = tensor == nullptr ? bp_dtype{0} : tensor->dtype;
    if (argument.is_first) given.push_back(dtype);
    if (dtype != given.back()) return false;  // The list has several dtypes.
  }
  if (given.size() != kernel.dtype_count) return false;
  for (uint32_t row = 0; row < kernel.dtype_row_count; ++row) {
    const bp_dtype* const claimed = kernel.dtype_rows + size_t{row} * kernel.dtype_count;
    const bool fits = std::ranges::equal(given, std::span(claimed, kernel.dtype_count),
                                         [](bp_dtype its, bp_dtype theirs) {
                                           return its == 0 || its == theirs;  // 0: it is absent.
                                         });
    if (fits) return true;
  }
  return false;
}

// Returns whether tensor i is an operand in acc(x), which is f32 beside an x of a 16-bit float.
bool is_acc_operand(const OwnedFrame& frame, size_t i) {
  const bp_tensor* const x = frame.tensors()[frame.arguments()[i].x];
  const bp_dtype own = frame.tensors()[i]->dtype;
  return x != nullptr && own != x->dtype && own == acc_dtype(x->dtype);
}

bool repeats_one_element(const bp_tensor& t) {
  for (uint32_t i = 0; i < t.ndim; ++i) {
    if (t.shape[i] > 1 && t.strides[i] != 0) return false;
  }
  return true;
}

// Returns whether the blocks of a layout have the extents that a claim names.
bool has_block_shape(const bp_layout_claim& claim, const bp_layout_desc& desc) {
  const uint32_t shared = std::min(claim.block_ndim, desc.ndim);
  const int64_t* const tail = desc.block_shape + (desc.ndim - shared);
  return std::equal(tail, tail + shared, claim.block_shape + (claim.block_ndim - shared)) &&
         std::all_of(desc.block_shape, tail, [](int64_t extent) { return extent == 1; });
}

bool fits(const bp_layout_claim& claim, const bp_layout& layout) {
  if (claim.kind != layout.kind) return false;
  const bp_layout_desc* const desc = layout.desc;
  if (desc == nullptr) {
    return claim.format_name == nullptr && claim.block_shape == nullptr && claim.scale_dtype == 0;
  }
  const std::string_view format = desc->format_name == nullptr ? "" : desc->format_name;
  if (claim.format_name != nullptr && format != claim.format_name) return false;
  if (claim.scale_dtype != 0 && claim.scale_dtype != desc->scale_dtype) return false;
  return claim.block_shape == nullptr || has_block_shape(claim, *desc);
}

bool is_for(const bp_layout_claim& claim, const FrameArgument& argument) {
  return (claim.arguments >> argument.index & 1) != 0;
}

// Returns whether the kernel never takes an argument by strides.
bool requires_layout(const bp_kernel& kernel, const FrameArgument& argument) {
  const std::span claims(kernel.layout_claims, kernel.layout_claim_count);
  return std::ranges::any_of(claims, [&](const bp_layout_claim* claim) {
    return is_for(*claim, argument) && (claim->flags & BP_LAYOUT_CLAIM_REQUIRED) != 0;
  });
}

// Returns why the kernel does not take a tensor as its elements lie, or NULL.
bp_reason place_refusal(const bp_kernel& kernel, const FrameArgument& argument,
                        const bp_tensor& tensor) {
  if (tensor.layout != nullptr) {
    const bool is_claimed = claims_layout(kernel, argument, tensor);
    return is_claimed ? nullptr : "a layout of the backend's own is not claimed";
  }
  if (requires_layout(kernel, argument)) return "the kernel takes a layout alone, and no strides";
  const bool takes_any = (kernel.layouts & BP_LAYOUT_ANY) != 0;
  return takes_any || (layout_class(tensor) & kernel.layouts) != 0 ? nullptr : "layout not claimed";
}

bp_reason tensors_refusal(const bp_kernel& kernel, const OwnedFrame& frame) {
  for (size_t i = 0; i < frame.tensors().size(); ++i) {
    const bp_tensor* const tensor = frame.tensors()[i];
    if (tensor == nullptr) {
      const bool is_scalar = frame.arguments()[i].has_scalar;
      if (is_scalar && (kernel.flags & BP_KERNEL_TAKES_SCALAR) == 0) {
        return "an inline scalar is not claimed";
      }
      continue;
    }
    if (is_acc_operand(frame, i)) {
      const bool takes_it = (kernel.flags & BP_KERNEL_TAKES_ACC_OPERAND) != 0;
      if (!takes_it || !repeats_one_element(*tensor)) return "an operand in f32 is not claimed";
    }
    const bp_reason place = place_refusal(kernel, frame.arguments()[i], *tensor);
    if (place != nullptr) return place;
    if (kernel.max_rank != 0 && tensor->ndim > kernel.max_rank) return "rank not claimed";
    const uint64_t alignment = std::max<uint64_t>(1, kernel.min_byte_alignment_bytes);
    if (tensor->byte_offset % alignment != 0) return "alignment not claimed";
  }
  return nullptr;
}

// Calls supports() with a frame as long as in the kernel's own build.
bp_reason frame_refusal(const bp_kernel& kernel, bp_device* device, bp_launch_flags flags,
                        const OwnedFrame& frame) {
  if (kernel.supports == nullptr) return nullptr;
  const OwnedFrame fitted = frame.fitted(kernel.args_size_bytes);
  return kernel.supports(&kernel, device, flags, fitted.data());
}

bp_reason claims_refusal(const bp_kernel& kernel, bp_launch_flags flags, const OwnedFrame& frame,
                         bool is_in_place) {
  if (is_in_place && (kernel.flags & BP_KERNEL_IN_PLACE) == 0) return "not for use in place";
  if ((flags & BP_LAUNCH_DETERMINISTIC) != 0 && (kernel.flags & BP_KERNEL_DETERMINISTIC) == 0) {
    return "not deterministic";
  }
  if ((flags & BP_LAUNCH_STRICT_F32) != 0 && kernel.numerics != nullptr &&
      kernel.numerics->products != BP_PRODUCTS_NATIVE) {
    return "multiplies in reduced precision";
  }
  if (!claims_dtypes(kernel, frame)) return "dtypes not claimed";
  return tensors_refusal(kernel, frame);
}

}  // namespace

bool claims_layout(const bp_kernel& kernel, const FrameArgument& argument,
                   const bp_tensor& tensor) {
  const std::span claims(kernel.layout_claims, kernel.layout_claim_count);
  return std::ranges::any_of(claims, [&](const bp_layout_claim* claim) {
    return is_for(*claim, argument) && fits(*claim, *tensor.layout);
  });
}

bp_layout_flags layout_class(const bp_tensor& t) {
  if (is_contiguous(t)) return BP_LAYOUT_CONTIGUOUS;
  for (uint32_t i = 0; i < t.ndim; ++i) {
    if (t.shape[i] != 1 && t.strides[i] == 0) return BP_LAYOUT_BROADCAST;
  }
  if (is_dense(t)) return BP_LAYOUT_DENSE_PERMUTED;
  const bool is_inner_dense = t.shape[t.ndim - 1] == 1 || t.strides[t.ndim - 1] == 1;
  return is_inner_dense ? BP_LAYOUT_INNER_DENSE : BP_LAYOUT_ANY;
}

const bp_kernel* choose_kernel(const CompilerBackend& backend, bp_device* device,
                               bp_launch_flags flags, const OwnedFrame& frame, bool is_in_place,
                               std::string& out_reason) {
  out_reason = "the device has no kernel for the op";
  for (const bp_kernel* kernel : backend.kernels) {
    if (!frame.is_op_of(*kernel)) continue;
    out_reason = later_refusal(*backend.host, *kernel, frame);
    if (!out_reason.empty()) continue;
    bp_reason reason = claims_refusal(*kernel, flags, frame, is_in_place);
    if (reason == nullptr) reason = frame_refusal(*kernel, device, flags, frame);
    if (reason == nullptr) return kernel;
    out_reason = reason;
  }
  return nullptr;
}

}  // namespace bp
