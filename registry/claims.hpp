// What a kernel says about itself as data, and whether a call is within it.
#pragma once

#include <string>

#include "registry/call.hpp"

namespace bp::core {

// Why `kernel` cannot be used at all; "" if it can.
std::string kernel_defect(const bp_kernel& kernel);

// Whether an inline scalar of the call has to become a tensor for `kernel`.
bool needs_scalar_tensors(const OpRow& row, const bp_kernel& kernel, const Key& key);

// Why the claims leave out the call; "" if they cover it.
std::string claims_refusal(const OpRow& row, const bp_kernel& kernel, const Key& key);

}  // namespace bp::core
