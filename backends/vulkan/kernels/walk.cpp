#include "backends/vulkan/kernels/walk.hpp"

#include <cstdlib>
#include <utility>

#include "backplane/shell/shape.hpp"

namespace bp::vulkan {
namespace {

struct Axis {
  int64_t extent = 1;
  std::array<int64_t, kMaxOperands> strides{};  // In bytes.
};

// Returns whether `outer` continues where `inner` ends, in every operand.
bool can_merge(const Axis& outer, const Axis& inner) {
  for (size_t k = 0; k < kMaxOperands; ++k) {
    if (outer.strides[k] != inner.strides[k] * inner.extent) return false;
  }
  return true;
}

// Returns whether a is the inner axis. The inner axis has the smaller stride in the first operand
// in which the strides differ.
bool is_inner(const Axis& a, const Axis& b) {
  for (size_t k = 0; k < kMaxOperands; ++k) {
    const int64_t left = std::abs(a.strides[k]), right = std::abs(b.strides[k]);
    if (left != right) return left < right;
  }
  return false;
}

}  // namespace

Walk make_walk(uint32_t ndim, const int64_t* shape, std::span<const WalkOperand> operands,
               bool keeps_order) {
  std::array<Axis, BP_MAX_RANK> axes;
  size_t count = 0;
  Walk walk;
  for (uint32_t i = ndim; i-- > 0;) {
    walk.count *= shape[i];
    if (shape[i] == 1) continue;
    Axis& axis = axes[count++];
    axis.extent = shape[i];
    for (size_t k = 0; k < operands.size(); ++k) {
      const int64_t* strides = operands[k].strides;
      axis.strides[k] = strides == nullptr ? 0 : strides[i] * operands[k].size_bytes;
    }
  }
  // An insertion sort keeps the order of equal axes.
  for (size_t i = 1; i < count && !keeps_order; ++i) {
    for (size_t j = i; j > 0 && is_inner(axes[j], axes[j - 1]); --j) {
      std::swap(axes[j], axes[j - 1]);
    }
  }
  for (size_t i = 0; i < count; ++i) {
    const bool is_merged = i > 0 && can_merge(axes[i], axes[i - 1]);
    if (is_merged) {
      axes[i].extent *= axes[i - 1].extent;
      axes[i].strides = axes[i - 1].strides;
    } else {
      ++walk.rank;
    }
    walk.extents[walk.rank - 1] = axes[i].extent;
    for (size_t k = 0; k < kMaxOperands; ++k) walk.strides[k][walk.rank - 1] = axes[i].strides[k];
  }
  return walk;
}

Walk make_walk(std::initializer_list<const bp_tensor*> tensors, bool keeps_order) {
  const bp_tensor& first = **tensors.begin();
  std::array<WalkOperand, kMaxOperands> operands{};
  size_t k = 0;
  for (const bp_tensor* t : tensors) {
    operands[k++] = t == nullptr ? WalkOperand{nullptr, 0}
                                 : WalkOperand{t->strides, dtype_size_bytes(t->dtype)};
  }
  return make_walk(first.ndim, first.shape, {operands.data(), k}, keeps_order);
}

}  // namespace bp::vulkan
