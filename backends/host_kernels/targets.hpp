// What the losses share whose rows have a class as their target: cross_entropy, its gradient and
// nll_loss.
#pragma once

#include <cstdint>
#include <string>

#include "backends/host_kernels/indices.hpp"
#include "backends/host_kernels/strided.hpp"

namespace bp::kernels {

// All losses share the values of their reductions.
inline bp_reason unknown_reduction(uint32_t reduction) {
  const bool is_known = reduction == BP_CROSS_ENTROPY_REDUCTION_NONE ||
                        reduction == BP_CROSS_ENTROPY_REDUCTION_MEAN ||
                        reduction == BP_CROSS_ENTROPY_REDUCTION_SUM;
  return is_known ? nullptr : "the reduction is not known";
}

// Returns the text that refuses a call of `op`.
inline std::string refusal_text(const char* op, bp_reason reason) {
  std::string text(op);
  return text.append(": ").append(reason);
}

// Returns element `index` of the first axis of a view.
template <typename T>
T* at(const View& view, int64_t index) {
  return reinterpret_cast<T*>(view.address) + index * view.strides[0];
}

// The target class of each row.
struct Targets {
  Targets(const bp_tensor& target, int64_t its_ignore_index, const Bounds& its_bounds)
      : view(view_of(target)),
        is_i64(target.dtype == BP_I64),
        ignore_index(its_ignore_index),
        bounds(its_bounds) {}

  // Returns the class, or ignore_index.
  int64_t operator[](int64_t row) const {
    const int64_t target = is_i64 ? *at<const int64_t>(view, row) : *at<const int32_t>(view, row);
    return target == ignore_index ? target : bounds.acting(target);
  }

  // Fails the work of `op`, because the target of a row is not a class.
  [[noreturn]] void fail(const char* op, int64_t row) const {
    throw StatusError(BP_DATA_FAILURE, bad_index_text(op, "target", row * view.strides[0],
                                                      (*this)[row], bounds.extent) +
                                           " and not ignore_index");
  }

  // Returns how many rows count. Throws StatusError if a target is not a class.
  int64_t check(const char* op) const {
    int64_t kept = 0;
    for (int64_t row = 0; row < view.shape[0]; ++row) {
      const int64_t target = (*this)[row];
      if (target == ignore_index) continue;
      if (!bounds.contains(target)) fail(op, row);
      ++kept;
    }
    return kept;
  }

  View view;
  bool is_i64;
  int64_t ignore_index;
  Bounds bounds;  // Of the classes.
};

// Returns the targets of a call.
template <typename Args>
Targets targets_of(const Args& args) {
  return {*args.target, args.ignore_index, Bounds(args.x->shape[1], args.bounds)};
}

}  // namespace bp::kernels
