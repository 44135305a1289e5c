#include "registry/layers/words.hpp"

#include <cinttypes>
#include <cstdio>

#include "backplane/host.h"
#include "registry/calls/call.hpp"
#include "registry/tensors/layout.hpp"

namespace bp::layers {
namespace {

std::string list_words(const int64_t* values, uint32_t count) {
  std::string text = "[";
  for (uint32_t i = 0; values != nullptr && i < count && i < BP_MAX_RANK; ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(values[i]);
  }
  return text + "]";
}

void add_tensor(std::string& text, const std::string& name, const bp_tensor* tensor) {
  if (tensor == nullptr) return;
  text += (text.empty() ? "" : ", ") + name + " " + words(*tensor);
}

}  // namespace

std::string words(const void* handle) {
  if (handle == nullptr) return "NULL";
  char text[24];
  std::snprintf(text, sizeof(text), "0x%" PRIxPTR, reinterpret_cast<uintptr_t>(handle));
  return text;
}

std::string words(const bp_buffer_ref& range) {
  return words(range.buffer) + "[" + std::to_string(range.byte_offset) + ", " +
         std::to_string(range.byte_offset + range.size_bytes) + ")";
}

std::string words(const bp_tensor& tensor) {
  std::string text = core::dtype_text(tensor.dtype);
  text += list_words(tensor.shape, tensor.ndim);
  if (tensor.buffer != nullptr) {
    text += " at " + words(tensor.buffer) + "+" + std::to_string(tensor.byte_offset);
  }
  if (tensor.shape == nullptr || tensor.strides == nullptr || tensor.ndim > BP_MAX_RANK) {
    return text;
  }
  bool has_one_element = false;
  if (core::layout_class(tensor, &has_one_element) != BP_LAYOUT_CONTIGUOUS) {
    text += " strides " + list_words(tensor.strides, tensor.ndim);
  }
  return text;
}

std::string status_words(bp_status status) {
  return status < 0 ? "vendor status " + std::to_string(status) : bp_status_name(status);
}

std::string op_words(uint32_t op) {
  const char* name = bp_op_name(op);
  return name == nullptr ? "op " + std::to_string(op) : name;
}

std::string frame_words(uint32_t op, const void* args) {
  const core::OpRow* row = core::find_op(op);
  std::string text;
  if (row == nullptr || args == nullptr || core::frame_size(args) < row->first_size_bytes()) {
    return text;
  }
  for (uint32_t i = 0; i < row->tensor_count; ++i) {
    const core::TensorArgument& argument = row->tensors[i];
    if (!core::has_member(args, argument.offset)) break;
    if (!argument.is_list()) {
      add_tensor(text, argument.name, core::tensor_at(args, argument));
      continue;
    }
    const core::TensorList list = core::list_at(args, argument);
    for (uint64_t item = 0; list.items != nullptr && item < list.count; ++item) {
      add_tensor(text, std::string(argument.name) + "[" + std::to_string(item) + "]",
                 list.items[item]);
    }
  }
  return text;
}

}  // namespace bp::layers
