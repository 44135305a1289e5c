#include "registry/dispatch/own_layouts.hpp"

#include "registry/boundary/error_slot.hpp"
#include "registry/boundary/plugin_text.hpp"
#include "registry/state/state.hpp"

namespace bp::core {
namespace {

std::string name_of(const bp_layout& layout) {
  return "layout \"" + clean_name(layout.name) + "\"";
}

bool has_layout(const bp_tensor* tensor) { return tensor != nullptr && tensor->layout != nullptr; }

// Releases a layout to which preferred() gave a reference.
struct Lent {
  const bp_layout_ops& layouts;
  const bp_layout* layout = nullptr;
  ~Lent() {
    if (layout != nullptr) static_cast<void>(layouts.release(layouts.self, layout));
  }
};

std::string tensor_refusal(const Target& target, const bp_kernel& kernel, uint32_t index,
                           const bp_tensor& tensor, const void* args) {
  const bp_layout_ops& layouts = *target.layouts;
  const std::string given = name_of(*tensor.layout);
  Lent wanted{layouts};
  if (layouts.preferred(layouts.self, target.device, &kernel, index, args, &wanted.layout) !=
      BP_OK) {
    return given + " is not taken: " + take_error();
  }
  if (wanted.layout == nullptr) return given + " is not taken, only strides";
  uint32_t is_equal = 0;
  if (layouts.equal(layouts.self, wanted.layout, tensor.layout, &is_equal) != BP_OK) {
    return given + " is not taken: " + take_error();
  }
  return is_equal == 1 ? "" : given + " is not taken, only " + name_of(*wanted.layout);
}

}  // namespace

bool has_own_layouts(const OpRow& row, const Key& key) {
  for (uint32_t i = 0; i < row.tensor_count; ++i) {
    if ((classes_of(key.fact(i)) & kOpaqueClass) != 0) return true;
  }
  return false;
}

std::string own_layouts_refusal(const Target& target, const OpRow& row, const bp_kernel& kernel,
                                const void* args) {
  for (uint32_t i = 0; i < row.tensor_count; ++i) {
    const TensorArgument& argument = row.tensors[i];
    if (argument.is_list()) {
      const TensorList list = list_at(args, argument);
      for (uint64_t k = 0; k < list.count; ++k) {
        if (!has_layout(list.items[k])) continue;
        return std::string(argument.name) + ": " + name_of(*list.items[k]->layout) +
               " is not taken in a list, only strides";
      }
      continue;
    }
    const bp_tensor* const tensor = tensor_at(args, argument);
    if (!has_layout(tensor)) continue;
    const std::string refusal = tensor_refusal(target, kernel, i, *tensor, args);
    if (!refusal.empty()) return std::string(argument.name) + ": " + refusal;
  }
  return "";
}

}  // namespace bp::core
