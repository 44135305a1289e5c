// What changes the meaning of a tensor: its flags, and the links that must be understood. A kernel
// gets a call with them only if it says that it understands all of them. Ignorable links restrict
// nothing.
#pragma once

#include <string>

#include "registry/calls/call.hpp"

namespace bp::core {

// Returns whether the tensor has a flag, or a link that must be understood.
bool is_qualified(const bp_tensor& tensor);

// Reads the flags and links of a call, at least one of whose tensors has one, into `key`. The
// frame has at least the row's size, and its tensors were checked. Refuses a chain that is too
// long.
bp_status read_qualifiers(const OpRow& row, const void* args, Key& key);

// Returns why the kernel does not take the flags and links of a call, or "". `frame` is one for the
// kernel.
std::string qualifiers_refusal(const OpRow& row, const bp_kernel& kernel, const void* frame);

// Returns why what the kernel says about flags and links cannot be used, or "" if it can.
std::string qualifiers_defect(const bp_kernel& kernel);

}  // namespace bp::core
