// Makes programs from parts, for tests.
#pragma once

#include <algorithm>
#include <deque>
#include <memory>
#include <vector>

#include "backplane/compiler.h"
#include "backplane/ops.h"

namespace bp {

// Every part of a program has a fixed address, and may be changed until program() is called.
class ProgramMaker {
 public:
  uint32_t add_value(bp_value_role role, std::vector<int64_t> shape = {4},
                     bp_dtype dtype = BP_F32) {
    const std::vector<int64_t>& kept = axes_.emplace_back(std::move(shape));
    values.push_back({.struct_size = sizeof(bp_program_value),
                      .struct_type = BP_STRUCT_PROGRAM_VALUE,
                      .shape = kept.data(),
                      .dtype = dtype,
                      .ndim = static_cast<uint32_t>(kept.size()),
                      .role = role});
    return static_cast<uint32_t>(values.size() - 1);
  }
  // Adds a range; returns the entry that names it in a shape.
  int64_t add_range(int64_t min, int64_t preferred, int64_t max) {
    return add_extent({.kind = BP_EXTENT_RANGE, .min = min, .preferred = preferred, .max = max});
  }
  int64_t add_formula(bp_extent_kind kind, std::vector<int64_t> terms) {
    const std::vector<int64_t>& kept = axes_.emplace_back(std::move(terms));
    return add_extent({.kind = kind, .terms = kept.data(), .term_count = kept.size()});
  }
  int64_t add_extent(bp_program_extent extent) {
    extent.struct_size = sizeof(extent);
    extent.struct_type = BP_STRUCT_PROGRAM_EXTENT;
    extents.push_back(extent);
    return -static_cast<int64_t>(extents.size());
  }
  uint32_t add_constant(const std::vector<float>& data) {
    const uint32_t value = add_value(BP_VALUE_CONSTANT, {static_cast<int64_t>(data.size())});
    values[value].data = data.data();
    return value;
  }

  // Makes a row-major tensor of that shape, which begins `byte_offset` bytes behind the beginning
  // of a value. It has no strides if the shape names extents.
  bp_tensor* view(std::vector<int64_t> shape, uint64_t byte_offset = 0, bp_dtype dtype = BP_F32) {
    std::vector<int64_t>& strides = axes_.emplace_back(shape.size(), 1);
    for (size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
    const std::vector<int64_t>& kept = axes_.emplace_back(std::move(shape));
    const bool is_fixed = std::ranges::all_of(kept, [](int64_t entry) { return entry >= 0; });
    return &tensors_.emplace_back(bp_tensor{.byte_offset = byte_offset,
                                            .shape = kept.data(),
                                            .strides = is_fixed ? strides.data() : nullptr,
                                            .ndim = static_cast<uint32_t>(kept.size()),
                                            .dtype = dtype});
  }
  bp_tensor* whole(uint32_t value) {
    const bp_program_value& v = values[value];
    return view({v.shape, v.shape + v.ndim}, 0, v.dtype);
  }

  // Makes the frame of a node and sets its struct_size. The frame lives as long as the maker.
  template <typename Args>
  Args& add_node(uint32_t op, const Args& args, std::vector<uint32_t> value_names) {
    const auto frame = std::make_shared<Args>(args);
    frames_.push_back(frame);
    frame->struct_size = sizeof(Args);
    const std::vector<uint32_t>& kept = names.emplace_back(std::move(value_names));
    nodes.push_back({.struct_size = sizeof(bp_program_node),
                     .struct_type = BP_STRUCT_PROGRAM_NODE,
                     .args = frame.get(),
                     .values = kept.data(),
                     .value_count = kept.size(),
                     .op = op,
                     .reserved = 0});
    return *frame;
  }
  bp_neg_args& add_neg(uint32_t x, uint32_t y) {
    return add_node(BP_OP_NEG, bp_neg_args{.x = whole(x), .y = whole(y)}, {x, y});
  }
  bp_add_args& add_add(uint32_t a, uint32_t b, uint32_t y) {
    return add_node(BP_OP_ADD, bp_add_args{.a = whole(a), .b = whole(b), .y = whole(y)}, {a, b, y});
  }

  bp_program* program() {
    program_ = {.struct_size = sizeof(bp_program),
                .struct_type = BP_STRUCT_PROGRAM,
                .values = values.data(),
                .value_count = values.size(),
                .value_stride_bytes = sizeof(bp_program_value),
                .nodes = nodes.data(),
                .node_count = nodes.size(),
                .node_stride_bytes = sizeof(bp_program_node),
                .extents = extents.data(),
                .extent_count = extents.size(),
                .extent_stride_bytes = sizeof(bp_program_extent),
                .aliases = aliases.data(),
                .alias_count = aliases.size()};
    return &program_;
  }
  const bp_compile_desc* desc(bp_launch_flags flags = 0) {
    desc_ = {.struct_size = sizeof(bp_compile_desc),
             .struct_type = BP_STRUCT_COMPILE_DESC,
             .format = "backplane.graph",
             .data = program(),
             .flags = flags};
    return &desc_;
  }

  std::vector<bp_program_value> values;
  std::vector<bp_program_node> nodes;
  std::vector<bp_program_extent> extents;
  std::vector<bp_program_alias> aliases;
  std::deque<std::vector<uint32_t>> names;  // The values of each node.

 private:
  std::deque<std::vector<int64_t>> axes_;
  std::deque<bp_tensor> tensors_;
  std::vector<std::shared_ptr<void>> frames_;
  bp_program program_{};
  bp_compile_desc desc_{};
};

}  // namespace bp
