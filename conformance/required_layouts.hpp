// Kernels that take layouts alone. The suite gives such a kernel no tensor by strides: it lays the
// tensors out, or launches through the host, which converts them.
#pragma once

#include <algorithm>
#include <span>

#include "backplane/kernel.h"

namespace bp::conformance {

inline bool requires_layouts(const bp_kernel& kernel) {
  const std::span claims(kernel.layout_claims, kernel.layout_claim_count);
  return std::ranges::any_of(claims, [](const bp_layout_claim* claim) {
    return (claim->flags & BP_LAYOUT_CLAIM_REQUIRED) != 0;
  });
}

}  // namespace bp::conformance
