#include "registry/calls/one_node.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <utility>

#include "registry/calls/call.hpp"

namespace bp::core {
namespace {

bool is_written(Kind kind) {
  return kind == Kind::out || kind == Kind::out_opt || kind == Kind::out_list ||
         kind == Kind::inout || kind == Kind::inout_list;
}

// Returns whether the two are one tensor, as in a call in place.
bool is_same(const bp_tensor& a, const bp_tensor& b) {
  return a.buffer != nullptr && a.buffer == b.buffer && a.byte_offset == b.byte_offset &&
         a.dtype == b.dtype && a.ndim == b.ndim && a.layout == b.layout &&
         std::equal(a.shape, a.shape + a.ndim, b.shape) &&
         (a.layout != nullptr || std::equal(a.strides, a.strides + a.ndim, b.strides));
}

}  // namespace

std::vector<const bp_tensor*> tensors_of(const OpRow& row, const void* args) {
  std::vector<const bp_tensor*> tensors;
  for (uint32_t i = 0; i < row.tensor_count; ++i) {
    const TensorArgument& argument = row.tensors[i];
    if (!argument.is_list()) {
      tensors.push_back(tensor_at(args, argument));
      continue;
    }
    const TensorList list = list_at(args, argument);
    tensors.insert(tensors.end(), list.items, list.items + list.count);
  }
  return tensors;
}

std::vector<std::string> names_of_tensors(const OpRow& row, const void* args) {
  std::vector<std::string> names;
  for (uint32_t i = 0; i < row.tensor_count; ++i) {
    const TensorArgument& argument = row.tensors[i];
    if (!argument.is_list()) {
      names.emplace_back(argument.name);
      continue;
    }
    for (uint64_t k = 0; k < list_at(args, argument).count; ++k) {
      names.push_back(std::string(argument.name) + "[" + std::to_string(k) + "]");
    }
  }
  return names;
}

// Only tensors that begin at the same byte are compared, so that lists of thousands of tensors stay
// cheap.
std::vector<uint32_t> originals_of(const std::vector<const bp_tensor*>& tensors) {
  std::vector<uint32_t> originals(tensors.size());
  std::iota(originals.begin(), originals.end(), 0u);
  std::map<std::pair<const bp_buffer*, uint64_t>, std::vector<uint32_t>> by_place;
  for (uint32_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i] == nullptr || tensors[i]->buffer == nullptr) continue;
    std::vector<uint32_t>& distinct = by_place[{tensors[i]->buffer, tensors[i]->byte_offset}];
    const auto found = std::ranges::find_if(
        distinct, [&](uint32_t earlier) { return is_same(*tensors[i], *tensors[earlier]); });
    if (found != distinct.end()) {
      originals[i] = *found;
    } else {
      distinct.push_back(i);
    }
  }
  return originals;
}

OneNode::OneNode(const OpRow& row, const void* args, const std::vector<const bp_tensor*>& tensors)
    : frame_(row.frame_size_bytes / sizeof(uint64_t) + 1) {
  std::memcpy(frame_.data(), args, row.frame_size_bytes);
  const auto size_bytes = static_cast<uint32_t>(row.frame_size_bytes);
  std::memcpy(frame_.data(), &size_bytes, sizeof(size_bytes));
  add_values(row, args, tensors);
  put_views(row, args, tensors);
  node_ = {.struct_size = sizeof(node_),
           .struct_type = BP_STRUCT_PROGRAM_NODE,
           .next = nullptr,
           .args = frame_.data(),
           .values = value_of_.data(),
           .value_count = value_of_.size(),
           .op = row.op,
           .reserved = 0};
  program_ = {.struct_size = sizeof(program_),
              .struct_type = BP_STRUCT_PROGRAM,
              .next = nullptr,
              .values = values_.data(),
              .value_count = values_.size(),
              .value_stride_bytes = sizeof(bp_program_value),
              .nodes = &node_,
              .node_count = 1,
              .node_stride_bytes = sizeof(bp_program_node)};
}

bp_compile_desc OneNode::desc(bp_launch_flags flags) const {
  return {.struct_size = sizeof(bp_compile_desc),
          .struct_type = BP_STRUCT_COMPILE_DESC,
          .next = nullptr,
          .format = "backplane.graph",
          .data = &program_,
          .size_bytes = sizeof(program_),
          .flags = flags,
          .reserved = 0};
}

std::vector<uint32_t> OneNode::order() const {
  std::vector<uint32_t> order;
  for (const bp_value_role role : {BP_VALUE_INPUT, BP_VALUE_OUTPUT}) {
    for (uint32_t value = 0; value < values_.size(); ++value) {
      if (values_[value].role == role) order.push_back(tensor_of_[value]);
    }
  }
  return order;
}

void OneNode::add_values(const OpRow& row, const void* args,
                         const std::vector<const bp_tensor*>& tensors) {
  const std::vector<uint32_t> originals = originals_of(tensors);
  uint32_t k = 0;
  for (uint32_t i = 0; i < row.tensor_count; ++i) {
    const TensorArgument& argument = row.tensors[i];
    const uint64_t count = argument.is_list() ? list_at(args, argument).count : 1;
    for (uint64_t n = 0; n < count; ++n, ++k) {
      value_of_.push_back(add_value(tensors, originals, k, is_written(argument.kind)));
    }
  }
}

uint32_t OneNode::add_value(const std::vector<const bp_tensor*>& tensors,
                            const std::vector<uint32_t>& originals, uint32_t k, bool written) {
  if (tensors[k] == nullptr) return BP_NO_VALUE;
  const bp_value_role role = written ? BP_VALUE_OUTPUT : BP_VALUE_INPUT;
  if (originals[k] != k) {
    const uint32_t value = value_of_[originals[k]];
    values_[value].role = std::max(values_[value].role, role);
    return value;
  }
  const bp_tensor& t = *tensors[k];
  values_.push_back({.struct_size = sizeof(bp_program_value),
                     .struct_type = BP_STRUCT_PROGRAM_VALUE,
                     .next = nullptr,
                     .shape = t.shape,
                     .strides = t.layout == nullptr ? t.strides : nullptr,
                     .data = nullptr,
                     .dtype = t.dtype,
                     .ndim = t.ndim,
                     .role = role,
                     .reserved = 0,
                     .layout = t.layout == nullptr ? nullptr : t.layout->desc});
  tensor_of_.push_back(k);
  return static_cast<uint32_t>(values_.size() - 1);
}

void OneNode::put_views(const OpRow& row, const void* args,
                        const std::vector<const bp_tensor*>& tensors) {
  for (const bp_tensor* tensor : tensors) {
    bp_tensor& view = views_.emplace_back(tensor == nullptr ? bp_tensor{} : *tensor);
    view.buffer = nullptr;
    view.byte_offset = 0;
    view.layout = nullptr;
    view.next = nullptr;  // A program keeps no links.
    pointers_.push_back(tensor == nullptr ? nullptr : &view);
  }
  auto* const bytes = reinterpret_cast<std::byte*>(frame_.data());
  const bp_tensor* const* next = pointers_.data();
  for (uint32_t i = 0; i < row.tensor_count; ++i) {
    const TensorArgument& argument = row.tensors[i];
    if (argument.is_list()) {
      std::memcpy(bytes + argument.offset, &next, sizeof(const bp_tensor* const*));
      next += list_at(args, argument).count;
    } else {
      std::memcpy(bytes + argument.offset, next++, sizeof(const bp_tensor*));
    }
  }
}

}  // namespace bp::core
