#include "registry/calls/own_layouts.hpp"

#include <algorithm>
#include <cstring>
#include <span>

#include "backplane/layout.h"
#include "registry/boundary/plugin_text.hpp"
#include "registry/boundary/tables.hpp"

namespace bp::core {
namespace {

std::string name_of(const bp_layout& layout) {
  return "layout \"" + clean_name(layout.name) + "\"";
}

bool has_layout(const bp_tensor* tensor) { return tensor != nullptr && tensor->layout != nullptr; }

std::span<const bp_layout_claim* const> claims_of(const bp_kernel& kernel) {
  return {kernel.layout_claims, kernel.layout_claim_count};
}

bp_layout_kind known_kind(bp_layout_kind kind) {
  const bool is_known = kind == BP_LAYOUT_KIND_TILED || kind == BP_LAYOUT_KIND_QUANTIZED;
  return is_known ? kind : bp_layout_kind{BP_LAYOUT_KIND_VENDOR};
}

// Returns whether the blocks of a layout have the extents that a claim names.
bool has_block_shape(const bp_layout_claim& claim, const bp_layout_desc& desc) {
  const uint32_t shared = std::min(claim.block_ndim, desc.ndim);
  const int64_t* const tail = desc.block_shape + (desc.ndim - shared);
  return std::equal(tail, tail + shared, claim.block_shape + (claim.block_ndim - shared)) &&
         std::all_of(desc.block_shape, tail, [](int64_t extent) { return extent == 1; });
}

bool fits(const bp_layout_claim& claim, const bp_layout& layout) {
  if (known_kind(claim.kind) != known_kind(layout.kind)) return false;
  const bp_layout_desc* const desc = layout.desc;
  if (desc == nullptr) {
    return claim.format_name == nullptr && claim.block_shape == nullptr && claim.scale_dtype == 0;
  }
  if (claim.format_name != nullptr &&
      (desc->format_name == nullptr || std::strcmp(claim.format_name, desc->format_name) != 0)) {
    return false;
  }
  if (claim.scale_dtype != 0 && claim.scale_dtype != desc->scale_dtype) return false;
  return claim.block_shape == nullptr || has_block_shape(claim, *desc);
}

// Returns why no claim takes the layout of tensor argument `index`, or "".
std::string tensor_refusal(const bp_kernel& kernel, uint32_t index, const bp_layout& layout) {
  std::string taken;
  for (const bp_layout_claim* claim : claims_of(kernel)) {
    if ((claim->arguments >> index & 1) == 0) continue;
    if (fits(*claim, layout)) return "";
    taken += ", " + claim_text(*claim);
  }
  const bool takes_strides = required_claim(kernel, index) == nullptr;
  if (takes_strides) taken.insert(0, ", strides");
  return name_of(layout) + " is not taken, only " + taken.substr(2);
}

}  // namespace

bool requires_layouts(const bp_kernel& kernel) {
  return std::ranges::any_of(claims_of(kernel), [](const bp_layout_claim* claim) {
    return (claim->flags & BP_LAYOUT_CLAIM_REQUIRED) != 0;
  });
}

const bp_layout_claim* required_claim(const bp_kernel& kernel, uint32_t index) {
  for (const bp_layout_claim* claim : claims_of(kernel)) {
    const bool is_required = (claim->flags & BP_LAYOUT_CLAIM_REQUIRED) != 0;
    if (is_required && (claim->arguments >> index & 1) != 0) return claim;
  }
  return nullptr;
}

bool is_described(const bp_layout_claim& claim) {
  return claim.kind == BP_LAYOUT_KIND_TILED && claim.block_shape != nullptr &&
         claim.scale_dtype == 0 && claim.format_name == nullptr;
}

std::string strides_refusal(const bp_kernel& kernel, const bp_layout_claim& claim) {
  return "strides are not taken, only " + claim_text(claim) +
         ", a layout that the host cannot make; ask layout.preferred() of " +
         clean_name(kernel.name) + " for it, and convert the tensor";
}

std::string claim_text(const bp_layout_claim& claim) {
  if (claim.format_name != nullptr) return clean_name(claim.format_name);
  const bp_layout_kind kind = known_kind(claim.kind);
  std::string text = kind == BP_LAYOUT_KIND_TILED       ? "TILED"
                     : kind == BP_LAYOUT_KIND_QUANTIZED ? "QUANTIZED"
                                                        : "those of its backend";
  for (uint32_t axis = 0; claim.block_shape != nullptr && axis < claim.block_ndim; ++axis) {
    text += (axis == 0 ? " of " : "x") + std::to_string(claim.block_shape[axis]);
  }
  return text;
}

std::string required_text(const OpRow& row, const bp_kernel& kernel) {
  std::string text;
  for (const bp_layout_claim* claim : claims_of(kernel)) {
    if ((claim->flags & BP_LAYOUT_CLAIM_REQUIRED) == 0) continue;
    std::string names;
    for (uint32_t i = 0; i < row.tensor_count; ++i) {
      if (required_claim(kernel, i) != claim) continue;
      names += (names.empty() ? "" : ", ") + std::string(row.tensors[i].name);
    }
    if (!names.empty()) text += (text.empty() ? "" : "; ") + names + " in " + claim_text(*claim);
  }
  return text;
}

bool has_own_layouts(const OpRow& row, const Key& key) {
  for (uint32_t i = 0; i < row.tensor_count; ++i) {
    if ((classes_of(key.fact(i)) & kOpaqueClass) != 0) return true;
  }
  return false;
}

std::string own_layouts_refusal(const OpRow& row, const bp_kernel& kernel, const void* args) {
  for (uint32_t i = 0; i < row.tensor_count; ++i) {
    const TensorArgument& argument = row.tensors[i];
    if (argument.is_list()) {
      const TensorList list = list_at(args, argument);
      for (uint64_t k = 0; k < list.count; ++k) {
        if (!has_layout(list.items[k])) continue;
        const std::string refusal = tensor_refusal(kernel, i, *list.items[k]->layout);
        if (refusal.empty()) continue;
        return std::string(argument.name) + "[" + std::to_string(k) + "]: " + refusal;
      }
      continue;
    }
    const bp_tensor* const tensor = tensor_at(args, argument);
    if (!has_layout(tensor)) continue;
    const std::string refusal = tensor_refusal(kernel, i, *tensor->layout);
    if (!refusal.empty()) return std::string(argument.name) + ": " + refusal;
  }
  return "";
}

std::string layout_claims_defect(const bp_kernel& kernel) {
  constexpr uint32_t kFirst = offsetof(bp_layout_claim, flags) + sizeof(bp_layout_claim_flags);
  if (kernel.layout_claims == nullptr) {
    if (kernel.layout_claim_count == 0) return "";
    return "layout_claims is NULL, and layout_claim_count is " +
           std::to_string(kernel.layout_claim_count);
  }
  for (uint64_t i = 0; i < kernel.layout_claim_count; ++i) {
    const bp_layout_claim* const claim = kernel.layout_claims[i];
    const std::string name = "layout_claims[" + std::to_string(i) + "]";
    if (claim == nullptr) return name + " is NULL";
    const std::string defect = struct_defect(claim, BP_STRUCT_LAYOUT_CLAIM, kFirst);
    if (!defect.empty()) return (name + ": ").append(defect);
    if (claim->block_ndim > BP_MAX_RANK) {
      return name + ": block_ndim is " + std::to_string(claim->block_ndim) + "; at most " +
             std::to_string(BP_MAX_RANK) + " is allowed";
    }
  }
  return "";
}

}  // namespace bp::core
