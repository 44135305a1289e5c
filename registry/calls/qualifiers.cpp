#include "registry/calls/qualifiers.hpp"

#include <algorithm>
#include <bit>

#include "registry/boundary/fail.hpp"
#include "registry/boundary/prefix.hpp"

namespace bp::core {
namespace {

const bp_struct_header* header(const void* link) {
  return static_cast<const bp_struct_header*>(link);
}

constexpr bool must_be_understood(const bp_struct_header& link) {
  return (link.struct_type & BP_STRUCT_MUST_UNDERSTAND) != 0;
}

// Calls visit(argument, tensor) for each tensor that is given, until it returns false.
template <typename Visit>
void for_each_tensor(const OpRow& row, const void* args, Visit&& visit) {
  for (uint32_t i = 0; i < row.tensor_count; ++i) {
    const TensorArgument& argument = row.tensors[i];
    if (!has_member(args, argument.offset)) return;
    const bp_tensor* const single = argument.is_list() ? nullptr : tensor_at(args, argument);
    const TensorList list = argument.is_list() ? list_at(args, argument) : TensorList{1, &single};
    for (uint64_t k = 0; k < list.count; ++k) {
      if (list.items[k] != nullptr && !visit(argument, *list.items[k])) return;
    }
  }
}

bool is_too_long(const void* chain) {
  uint32_t count = 0;
  for (const void* link = chain; link != nullptr; link = header(link)->next) {
    if (++count > kMaxLinks) return true;
  }
  return false;
}

bool knows(const bp_kernel& kernel, uint32_t link_type) {
  const uint32_t* const end = kernel.link_types + kernel.link_type_count;
  return std::find(kernel.link_types, end, link_type) != end;
}

// Returns the refusal of one tensor, without its name, or "".
std::string tensor_refusal(const bp_kernel& kernel, const bp_tensor& tensor) {
  const uint32_t unknown = tensor.flags & ~kernel.tensor_flags;
  if (unknown != 0) {
    return "has flag bit " + std::to_string(std::countr_zero(unknown)) +
           ", which the kernel does not know";
  }
  for (const auto* link = header(tensor.next); link != nullptr; link = header(link->next)) {
    if (!must_be_understood(*link)) continue;
    const uint32_t type = link->struct_type & ~BP_STRUCT_MUST_UNDERSTAND;
    if (knows(kernel, type)) continue;
    return "has a link of type " + std::to_string(type) +
           " that must be understood, and the kernel does not know it";
  }
  return "";
}

}  // namespace

bool is_qualified(const bp_tensor& tensor) {
  return tensor.flags != 0 || bp_links_read(tensor.next, nullptr, 0) != BP_OK;
}

bp_status read_qualifiers(const OpRow& row, const void* args, Key& key) {
  bp_status status = BP_OK;
  for_each_tensor(row, args, [&](const TensorArgument& argument, const bp_tensor& tensor) {
    if (!is_qualified(tensor)) return true;
    key.head |= Key::kQualified;
    if (is_too_long(tensor.next)) {
      status = fail(BP_INCOMPATIBLE, std::string(row.name) + ": the chain of " + argument.name +
                                         " has more than " + std::to_string(kMaxLinks) +
                                         " links, or leads back into itself");
    }
    return status == BP_OK;
  });
  return status;
}

std::string qualifiers_refusal(const OpRow& row, const bp_kernel& kernel, const void* frame) {
  std::string refusal;
  for_each_tensor(row, frame, [&](const TensorArgument& argument, const bp_tensor& tensor) {
    const std::string why = tensor_refusal(kernel, tensor);
    if (!why.empty()) refusal = std::string(argument.name) + ": it " + why;
    return refusal.empty();
  });
  return refusal;
}

std::string qualifiers_defect(const bp_kernel& kernel) {
  if (kernel.link_types == nullptr) {
    if (kernel.link_type_count == 0) return "";
    return "link_types is NULL, and link_type_count is " + std::to_string(kernel.link_type_count);
  }
  const uint32_t* const end = kernel.link_types + kernel.link_type_count;
  const uint32_t* const marked = std::find_if(kernel.link_types, end, [](uint32_t type) {
    return (type & BP_STRUCT_MUST_UNDERSTAND) != 0;
  });
  if (marked == end) return "";
  return "link_types has type " + std::to_string(*marked & ~BP_STRUCT_MUST_UNDERSTAND) +
         " with BP_STRUCT_MUST_UNDERSTAND; it lists types without that bit";
}

}  // namespace bp::core
