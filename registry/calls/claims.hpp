// Reads the claims of a kernel, and decides whether they cover a call.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "registry/calls/call.hpp"

namespace bp::core {

// The end of the last member of the first release: it must not grow when the struct does.
inline constexpr uint32_t kFirstKernel = offsetof(bp_kernel, launch) + sizeof(void*);

// Returns whether the struct of the kernel has the functions of plans. A kernel of an older build
// has a shorter struct.
inline bool knows_plans(const bp_kernel& kernel) {
  return kernel.struct_size >= offsetof(bp_kernel, plan_release) + sizeof(void*);
}
inline bool has_plans(const bp_kernel& kernel) {
  return knows_plans(kernel) && kernel.prepare != nullptr;
}

// Returns why `kernel` cannot be used at all, or "" if it can.
std::string kernel_defect(const bp_kernel& kernel);

// Returns why the kernel that an executable lends cannot be used, or "" if it can. It has no claims
// and no frame of an op.
std::string lent_kernel_defect(const bp_kernel* kernel);

// Returns a line for each row of dtypes that is rejected because the host does not know one of its
// dtypes, such as "dtype row 2: dtype 77 is not known to this host". The row never fits a call,
// because no call has such a dtype.
std::vector<std::string> rejected_rows(const bp_kernel& kernel);

// Returns why the revision, the frame or the dtype rows of `kernel` cannot be those of a kernel of
// this op, or "" if they can.
std::string revision_defect(const OpRow& row, const bp_kernel& kernel);

// Returns whether the kernel knows each value that an enumeration of the op may have.
bool knows_all_values(const OpRow& row, const bp_kernel& kernel);

// Returns why the kernel does not take a call that gives a value which came after its revision, or
// "". `frame` is one for the kernel.
std::string later_value_refusal(const OpRow& row, const bp_kernel& kernel, const void* frame);

// Returns why the kernel does not take a call whose frame has the byte `offset`, which the kernel
// does not know.
std::string later_member_refusal(const OpRow& row, const bp_kernel& kernel, uint32_t offset);

// Returns whether an inline scalar of the call has to become a tensor for `kernel`.
bool needs_scalar_tensors(const OpRow& row, const bp_kernel& kernel, const Key& key);

// Returns whether an operand of the call is an inline scalar beside an x of f16 or bf16.
bool has_narrow_operand(const OpRow& row, const Key& key);

// Returns whether an inline operand gets the dtype of x before the kernel sees it.
inline bool rounds_operands(const bp_kernel& kernel) {
  return (kernel.flags & (BP_KERNEL_TAKES_SCALAR | BP_KERNEL_TAKES_ACC_OPERAND)) == 0;
}

// Returns why the kernel does not take the values of the inline operands, or "". `frame` is one for
// the kernel.
std::string operand_value_refusal(const OpRow& row, const bp_kernel& kernel, const void* frame);

// Returns why the claims do not cover the call, or "" if they do.
std::string claims_refusal(const OpRow& row, const bp_kernel& kernel, const Key& key);

}  // namespace bp::core
