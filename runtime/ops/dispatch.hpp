// Parts of the generated wrappers, which turn arguments as users give them into frames as kernels
// see them. The common case is inline and allocates nothing but outputs.
#pragma once

#include <initializer_list>
#include <span>
#include <vector>

#include "backplane/ops.h"
#include "registry/tensors/floats.hpp"
#include "runtime/autograd/node.hpp"
#include "runtime/tensor/tensor_impl.hpp"

namespace bp::detail {

// The inputs of one call, which all lie on one device.
class Call {
 public:
  explicit Call(const char* op) : op_(op) {}
  Call(const char* op, Device device) : op_(op), target_(&device.target()), first_("device") {}

  const char* op() const { return op_; }
  const bp_target& target() const { return *target_; }

  const bp_tensor* tensor(const char* name, const Tensor& tensor) {
    if (!tensor) [[unlikely]]
      fail_missing(name);
    const bp_target* target = tensor.impl()->storage->target;
    if (target_ == nullptr) {
      target_ = target;
      first_ = name;
    } else if (target_ != target) [[unlikely]] {
      fail_device(name, *target);
    }
    return tensor.get();
  }
  const bp_tensor* optional(const char* name, const Tensor& tensor) {
    return tensor ? this->tensor(name, tensor) : nullptr;
  }
  // Returns NULL for a number, which is in operand.scalar().
  const bp_tensor* operand(const char* name, const Operand& operand) {
    return operand.tensor() != nullptr ? tensor(name, *operand.tensor()) : nullptr;
  }
  std::vector<const bp_tensor*> list(const char* name, std::span<const Tensor> tensors);

 private:
  [[noreturn]] void fail_missing(const char* name) const;
  [[noreturn]] void fail_device(const char* name, const bp_target& target) const;

  const char* op_;
  const bp_target* target_ = nullptr;
  const char* first_ = nullptr;
};

// Returns `given` seen in `shape`, to which it broadcasts. `strides` has room for BP_MAX_RANK
// strides.
bp_tensor broadcast_view(const bp_tensor& given, dims::View shape, int64_t* strides);

// The inputs of an elementwise op, cast to one dtype and broadcast to one shape. The first is
// always a tensor, since frames need one. An Elementwise refers to the operands, which must outlive
// it.
class Elementwise {
 public:
  enum class Rule { kPromote, kDivide };  // kDivide casts integers to f32 first.

  [[gnu::always_inline]] Elementwise(const char* op, Rule rule, const Operand& a, const Operand& b)
      : a_(a), b_(b) {
    if (!is_plain(rule)) [[unlikely]]
      prepare(op, rule);
  }
  Elementwise(const Elementwise&) = delete;
  Elementwise& operator=(const Elementwise&) = delete;

  const bp_tensor* a() const { return a_view_; }
  const bp_tensor* b() const { return b_view_; }
  const bp_scalar& b_scalar() const { return b_.scalar(); }
  const bp_target& target() const { return *target_; }

  // Returns what `a` was given as. A number has become a tensor without axes.
  const Tensor& first() const { return a_.tensor() != nullptr ? *a_.tensor() : held_[0]; }

 private:
  bool is_plain(Rule rule);
  void prepare(const char* op, Rule rule);
  void broadcast(const char* op);

  const Operand& a_;
  const Operand& b_;
  const bp_tensor* a_view_ = nullptr;
  const bp_tensor* b_view_ = nullptr;
  const bp_target* target_ = nullptr;
  Tensor held_[2];  // Casts, and a tensor that stands for a number.
  bp_tensor views_[2];
  int64_t shape_[BP_MAX_RANK];
  int64_t strides_[2][BP_MAX_RANK];
};

// The inputs of an op that takes one or two tensors and then an operand, such as elu(), where() and
// lerp(). They are broadcast to one shape, and cast to one dtype unless the first is a condition. A
// TensorsAndOperand refers to its tensors and its operand, which must outlive it.
class TensorsAndOperand {
 public:
  enum class First { kCondition, kValue };

  // `names` has a name for each tensor, and one for the operand.
  TensorsAndOperand(const char* op, std::initializer_list<const char*> names, First first,
                    std::initializer_list<const Tensor*> tensors, const Operand& operand);
  TensorsAndOperand(const TensorsAndOperand&) = delete;
  TensorsAndOperand& operator=(const TensorsAndOperand&) = delete;

  // Returns NULL if the operand is a number.
  const bp_tensor* tensor(size_t i) const {
    return i + 1 == count_ && operand_.tensor() == nullptr ? nullptr : &views_[i];
  }
  const bp_scalar& scalar() const { return operand_.scalar(); }
  const bp_target& target() const { return *target_; }

 private:
  static constexpr size_t kMost = 3;

  void cast(const bp_tensor** inputs, size_t begin, const Tensor* const* given, const char* op);
  void broadcast(const bp_tensor* const* inputs, const char* const* names, const char* op);

  const Operand& operand_;
  const size_t count_;
  const bp_target* target_ = nullptr;
  Tensor held_[kMost];  // Casts.
  bp_tensor views_[kMost];
  int64_t shape_[BP_MAX_RANK];
  int64_t strides_[kMost][BP_MAX_RANK];
};

// output() returns the given output `y` as kernels see it, for inputs on `target`.
[[noreturn]] void fail_output(const char* op, const char* name, const Tensor& y,
                              const bp_target& target);
inline const bp_tensor* output(const char* op, const char* name, const Tensor& y,
                               const bp_target& target) {
  if (!y || y.impl()->storage->target != &target) [[unlikely]]
    fail_output(op, name, y, target);
  return y.get();
}

inline bool is_float(bp_dtype dtype) {
  return tensors::is_plain_float(dtype) || (dtype >= BP_F8E4M3FN && dtype <= BP_F6E3M2);
}

// Returns whether the inputs need no cast and no broadcast. Then both have one dtype and shape and
// are on one device, or the second is a number that the dtype of the first holds.
[[gnu::always_inline]] inline bool Elementwise::is_plain(Rule rule) {
  if (a_.tensor() == nullptr || !*a_.tensor()) return false;
  const TensorImpl& a = *a_.tensor()->impl();
  if (!is_float(a.view.dtype) && (rule == Rule::kDivide || b_.tensor() == nullptr)) return false;
  if (b_.tensor() != nullptr) {
    if (!*b_.tensor()) return false;
    const TensorImpl& b = *b_.tensor()->impl();
    if (b.view.dtype != a.view.dtype || b.view.ndim != a.view.ndim ||
        b.storage->target != a.storage->target) {
      return false;
    }
    for (uint32_t i = 0; i < a.view.ndim; ++i) {
      if (a.view.shape[i] != b.view.shape[i]) return false;
    }
    b_view_ = &b.view;
  }
  a_view_ = &a.view;
  target_ = a.storage->target;
  return true;
}

// Returns the dtype in which an op computes values of both dtypes, or 0 if there is none. ops_spec
// has the rules.
bp_dtype promote(bp_dtype a, bp_dtype b);
bp_dtype promote_scalar(bp_dtype tensor, const bp_scalar& scalar);

// Returns `given`, repeated until it has `count` numbers if `count` is a multiple of its length.
dims::Dims resolve_list(const char* op, const char* name, IntList given, int64_t count);
dims::Dims resolve_axes(const char* op, const char* name, IntList given, int64_t ndim);

// Returns the rank of the first tensor of a list. Throws Error if the list is empty.
int64_t ndim_of(const char* op, const char* name, std::span<const Tensor> tensors);

inline IntList ints(dims::View list) { return {list.data, static_cast<size_t>(list.count)}; }
inline IntList ints(const dims::Dims& list) { return ints(dims::View(list)); }
inline uint64_t count_of(const dims::Dims& list) { return static_cast<uint64_t>(list.count); }

// Returns a tensor that only tells an op which dtype its output must have. 0 leaves the dtype to
// the op.
inline bp_tensor wanted(bp_dtype dtype) {
  return {nullptr, 0, nullptr, nullptr, 0, dtype, nullptr, 0, 0};
}

template <uint32_t kCount>
void infer(uint32_t op, const void* frame, bp_op_output (&outputs)[kCount]) {
  uint32_t count = 0;
  const bp_status status = bp_op_infer(op, frame, kCount, outputs, &count);
  if (status != BP_OK) [[unlikely]]
    throw_status(status, nullptr);
}

inline void check_frame(uint32_t op, const void* frame) {
  const bp_status status = bp_op_check(op, frame);
  if (status != BP_OK) [[unlikely]]
    throw_status(status, nullptr);
}

inline void launch(const bp_target& target, uint32_t op, const void* frame) {
  const bp_status status = bp_op_launch(&target, current_stream(target), 0, op, frame);
  if (status != BP_OK) [[unlikely]]
    throw_status(status, bp_op_name(op));
}

[[noreturn]] void fail_recorded_write(const char* op);

// Refuses a write into tensors that a recorded graph would have to know of.
template <typename... T>
void check_unrecorded(const char* op, const T&... tensors) {
  if (is_recorded(tensors...)) [[unlikely]]
    fail_recorded_write(op);
}
inline void count_write(std::span<const Tensor> tensors) {
  for (const Tensor& tensor : tensors) count_write(tensor);
}

// Returns a (..., m, k) and b (..., k, n) with the axes before the last two broadcast to each
// other.
std::pair<Tensor, Tensor> prepare_matmul(const Tensor& a, const Tensor& b);

}  // namespace bp::detail
