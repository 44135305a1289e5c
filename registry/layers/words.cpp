#include "registry/layers/words.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "backplane/host.h"
#include "registry/boundary/number_text.hpp"
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

template <typename T>
T value_at(const void* args, uint32_t offset) {
  T value;
  // NOLINTNEXTLINE(bugprone-sizeof-expression): T may be a pointer.
  std::memcpy(&value, core::member(args, offset), sizeof(value));
  return value;
}

std::string enumeration_words(const bp_op_argument& a, uint32_t value) {
  const uint32_t i = value - a.first_value;
  return i < a.value_count ? a.value_names[i] : std::to_string(value);
}

// Returns the text of the value of an attribute; "" for a tensor.
std::string value_words(const bp_op_argument& a, const void* args) {
  switch (a.kind) {
    case BP_ARGUMENT_I32:
      return std::to_string(value_at<int32_t>(args, a.offset_bytes));
    case BP_ARGUMENT_I64:
      return std::to_string(value_at<int64_t>(args, a.offset_bytes));
    case BP_ARGUMENT_U64:
      return std::to_string(value_at<uint64_t>(args, a.offset_bytes));
    case BP_ARGUMENT_F64:
      return short_text(value_at<double>(args, a.offset_bytes));
    case BP_ARGUMENT_DTYPE:
      return core::dtype_text(value_at<bp_dtype>(args, a.offset_bytes));
    case BP_ARGUMENT_ENUM:
      return enumeration_words(a, value_at<uint32_t>(args, a.offset_bytes));
    case BP_ARGUMENT_I64_LIST: {
      const auto count = value_at<uint64_t>(args, a.offset_bytes - 8);
      return list_words(value_at<const int64_t*>(args, a.offset_bytes),
                        static_cast<uint32_t>(std::min<uint64_t>(count, BP_MAX_RANK)));
    }
    default:
      return "";
  }
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

std::string attribute_words(uint32_t op, const void* args) {
  const core::OpRow* const row = core::find_op(op);
  const bp_op_desc* desc = nullptr;
  std::string text;
  if (row == nullptr || args == nullptr || core::frame_size(args) < row->first_size_bytes() ||
      bp_op_describe(op, &desc) != BP_OK) {
    return text;
  }
  for (uint64_t i = 0; i < desc->argument_count; ++i) {
    const bp_op_argument& a = desc->arguments[i];
    if (!core::has_member(args, a.offset_bytes)) break;
    const std::string value = value_words(a, args);
    if (!value.empty()) text += (text.empty() ? "" : ", ") + std::string(a.name) + " " + value;
  }
  return text;
}

}  // namespace bp::layers
