// A part of a buffer with shape and strides, as ops take it, and the views that can be made of it.
//
// Shapes are in the order of Backplane: the last axis is the innermost one, which ggml counts
// first. The last axis of a tensor of ggml is therefore axis 3 here, and it has 4 axes.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <vector>

#include "backplane/host.h"
#include "ggml.h"

namespace bpg {

// Says why a node is not computed on the device. supports_op() then returns false.
struct Refusal : std::runtime_error {
  using runtime_error::runtime_error;
};

using Shape = std::vector<int64_t>;

// The elements may lie by a layout, such as the blocks of ggml.q4_k; then `dtype` is f32, and no
// view is made of it but of whole rows.
struct View {
  bp_buffer* buffer = nullptr;
  uint64_t byte_offset = 0;
  bp_dtype dtype = 0;
  uint32_t ndim = 0;
  std::array<int64_t, BP_MAX_RANK> shape{};
  std::array<int64_t, BP_MAX_RANK> strides{};  // In elements.
  const bp_layout* layout = nullptr;

  int64_t extent(int axis) const { return shape[axis < 0 ? axis + ndim : axis]; }
  int64_t count() const;
  uint64_t element_bytes() const { return bp_dtype_bits(dtype) / 8; }
  bool is_contiguous() const;
  Shape dims() const { return Shape(shape.begin(), shape.begin() + ndim); }
  bool has_shape(const View& other) const;
};

// Makes a view of dense elements from `byte_offset` on.
View dense(bp_buffer* buffer, uint64_t byte_offset, bp_dtype dtype, const Shape& shape);

View permute(const View& x, std::initializer_list<int> axes);
View swap_last(const View& x);

// The elements from start to stop - 1 along `axis`.
View slice(const View& x, int axis, int64_t start, int64_t stop);
// Every step-th element along `axis`, from `start` on; `count` of them.
View every(const View& x, int axis, int64_t start, int64_t step, int64_t count);

// Axis `axis` becomes two: the outer one of extent / inner elements, and one of `inner`.
View split(const View& x, int axis, int64_t inner);
// Axes `axis` and axis + 1 become one. Returns false if no stride describes that.
bool merge(View& x, int axis);
// Puts an axis of one element before `axis`.
View unsqueeze(const View& x, int axis);
// Takes an axis of one element out.
View squeeze(const View& x, int axis);
// Repeats an axis of one element `count` times, with a stride of 0.
View expand(const View& x, int axis, int64_t count);
// Broadcasts axes of one element to those of `shape`, which has the same rank.
View expand_to(const View& x, const Shape& shape);

// Gives `x` another shape without a copy. Returns false if no strides describe that.
bool reshape_view(const View& x, const Shape& shape, View& out);

// Merges neighbouring axes and drops those of one element, as far as strides allow.
View simplified(const View& x);

// True if the bytes of the views may overlap.
bool overlap(const View& a, const View& b);
// True if both are the same elements in the same order.
bool same_elements(const View& a, const View& b);

// The dtype that stands for a type of ggml, or 0 if there is none.
bp_dtype dtype_of(ggml_type type);

}  // namespace bpg
