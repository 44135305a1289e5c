#include "direct.h"

#include <algorithm>
#include <cstring>

#include "launch.h"
#include "memory.h"
#include "registrar.h"
#include "tensors.h"

namespace bpt {
namespace {

using at::Scalar;
using at::Tensor;

// Which of the arguments of an operator a kernel has: tensors, then perhaps alpha.
template <typename Signature>
struct Direct;

// What all forms have in common: the op, bound when it is first used, and the boxed kernel.
struct DirectBase : c10::OperatorKernel {
  DirectBase(c10::OperatorHandle the_op, const Row& the_row, c10::KernelFunction the_mapped,
             size_t the_count)
      : handle(std::move(the_op)), row(the_row), mapped(std::move(the_mapped)), count(the_count) {}

  const DirectOp* direct() {
    if (C10_UNLIKELY(!is_bound)) {
      const std::lock_guard lock(mutex);
      if (!is_bound) own = DirectOp::of(row, count);
      is_bound = true;
    }
    return own.get();
  }

  template <typename Result, typename... Args>
  Result call_mapped(Args... args) {
    return mapped.template call<Result, Args...>(
        handle, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), args...);
  }

  c10::OperatorHandle handle;
  const Row& row;
  c10::KernelFunction mapped;
  size_t count;
  std::unique_ptr<DirectOp> own;
  std::atomic<bool> is_bound{false};
  std::mutex mutex;
};

bool is_one(const Scalar& alpha) { return alpha.isIntegral(false) && alpha.toLong() == 1; }

template <>
struct Direct<Tensor(const Tensor&)> final : DirectBase {
  using DirectBase::DirectBase;
  Tensor operator()(const Tensor& a) {
    const DirectOp* op = direct();
    if (op != nullptr && op->takes(a)) {
      try {
        return op->run(a, nullptr, nullptr);
      } catch (const Unsupported&) {  // The boxed kernel finds another way, or counts the call.
      }
    }
    return call_mapped<Tensor, const Tensor&>(a);
  }
};

template <>
struct Direct<Tensor(const Tensor&, const Tensor&)> final : DirectBase {
  using DirectBase::DirectBase;
  Tensor operator()(const Tensor& a, const Tensor& b) {
    const DirectOp* op = direct();
    if (op != nullptr && op->takes(a, b)) {
      try {
        return op->run(a, &b, nullptr);
      } catch (const Unsupported&) {
      }
    }
    return call_mapped<Tensor, const Tensor&, const Tensor&>(a, b);
  }
};

template <>
struct Direct<Tensor(const Tensor&, const Tensor&, const Scalar&)> final : DirectBase {
  using DirectBase::DirectBase;
  Tensor operator()(const Tensor& a, const Tensor& b, const Scalar& alpha) {
    const DirectOp* op = direct();
    if (op != nullptr && is_one(alpha) && op->takes(a, b)) {
      try {
        return op->run(a, &b, nullptr);
      } catch (const Unsupported&) {
      }
    }
    return call_mapped<Tensor, const Tensor&, const Tensor&, const Scalar&>(a, b, alpha);
  }
};

template <>
struct Direct<Tensor&(Tensor&, const Tensor&)> final : DirectBase {
  using DirectBase::DirectBase;
  Tensor& operator()(Tensor& a, const Tensor& b) {
    const DirectOp* op = direct();
    if (op != nullptr && op->takes(a, b) && (a.is_same(b) || !a.is_alias_of(b))) {
      try {
        op->run(a, &b, &a);
        return a;
      } catch (const Unsupported&) {
      }
    }
    return call_mapped<Tensor&, Tensor&, const Tensor&>(a, b);
  }
};

template <>
struct Direct<Tensor&(Tensor&, const Tensor&, const Scalar&)> final : DirectBase {
  using DirectBase::DirectBase;
  Tensor& operator()(Tensor& a, const Tensor& b, const Scalar& alpha) {
    const DirectOp* op = direct();
    if (op != nullptr && is_one(alpha) && op->takes(a, b) && (a.is_same(b) || !a.is_alias_of(b))) {
      try {
        op->run(a, &b, &a);
        return a;
      } catch (const Unsupported&) {
      }
    }
    return call_mapped<Tensor&, Tensor&, const Tensor&, const Scalar&>(a, b, alpha);
  }
};

// An out= of the result's shape and dtype, without gaps, and not a part of what is read.
bool fits(const DirectOp& op, const Tensor& a, const Tensor& b, const Tensor& out) {
  const auto is_apart = [&](const Tensor& x) { return out.is_same(x) || !out.is_alias_of(x); };
  return op.gives(a, out) && is_apart(a) && is_apart(b);
}

template <>
struct Direct<Tensor&(const Tensor&, const Tensor&, Tensor&)> final : DirectBase {
  using DirectBase::DirectBase;
  Tensor& operator()(const Tensor& a, const Tensor& b, Tensor& out) {
    const DirectOp* op = direct();
    if (op != nullptr && op->takes(a, b) && fits(*op, a, b, out)) {
      try {
        op->run(a, &b, &out);
        return out;
      } catch (const Unsupported&) {
      }
    }
    return call_mapped<Tensor&, const Tensor&, const Tensor&, Tensor&>(a, b, out);
  }
};

template <>
struct Direct<Tensor&(const Tensor&, const Tensor&, const Scalar&, Tensor&)> final : DirectBase {
  using DirectBase::DirectBase;
  Tensor& operator()(const Tensor& a, const Tensor& b, const Scalar& alpha, Tensor& out) {
    const DirectOp* op = direct();
    if (op != nullptr && is_one(alpha) && op->takes(a, b) && fits(*op, a, b, out)) {
      try {
        op->run(a, &b, &out);
        return out;
      } catch (const Unsupported&) {
      }
    }
    return call_mapped<Tensor&, const Tensor&, const Tensor&, const Scalar&, Tensor&>(a, b, alpha,
                                                                                      out);
  }
};

template <typename Signature>
void add(const c10::OperatorHandle& op, const Row& row, c10::KernelFunction mapped, size_t count) {
  using Kernel = Direct<Signature>;
  register_kernel(op,
                  c10::KernelFunction::makeFromUnboxedFunctor<false, Kernel>(
                      std::make_unique<Kernel>(op, row, std::move(mapped), count)),
                  c10::impl::CppSignature::make<Signature>());
}

bool is_like(const bp_op_argument& argument, const std::string& first) {
  return argument.dtype_rule != nullptr && argument.dtype_rule == "like(" + first + ")";
}

// Whether the operator's own arguments are, in their order, those of the op: a, b.
bool is_in_order(const Row& row, const c10::FunctionSchema& schema, size_t count) {
  std::string binds;
  const Op& op = op_named(row.op);
  size_t next = 0;
  for (const Argument& argument : op.arguments) {
    if (argument.is_out()) continue;
    if (next == count) return false;
    binds += (next == 0 ? "" : " ") + argument.name + "=" + schema.arguments()[next].name();
    ++next;
  }
  return next == count && binds == row.binds;
}

std::string kinds_of(const c10::FunctionSchema& schema) {
  std::string kinds;
  for (const c10::Argument& argument : schema.arguments()) {
    const bool is_written = argument.alias_info() != nullptr && argument.alias_info()->isWrite();
    if (*argument.type() == *c10::TensorType::get()) {
      kinds += argument.is_out() ? 'o' : is_written ? 'i' : 't';
    } else {
      kinds +=
          *argument.type() == *c10::NumberType::get() && argument.name() == "alpha" ? 's' : '?';
    }
  }
  return kinds;
}

}  // namespace

std::unique_ptr<DirectOp> DirectOp::of(const Row& row, size_t tensor_count) try {
  auto own = std::make_unique<DirectOp>();
  own->op_ = &op_named(row.op);
  size_t next = 0;
  std::string first;
  for (const Argument& argument : own->op_->arguments) {
    const bp_op_argument& description = *argument.description;
    if (argument.is_out()) {
      const bool is_bool =
          description.dtype_rule != nullptr && std::strcmp(description.dtype_rule, "bool") == 0;
      const bool has_shape =
          description.shape_rule != nullptr && description.shape_rule == first + ".shape";
      if (next != tensor_count || !has_shape || (!is_bool && !is_like(description, first))) {
        return nullptr;
      }
      own->is_bool_ = is_bool;
      own->offsets_[2] = argument.offset;
    } else {
      if (next == 0) first = argument.name;
      if (next >= tensor_count || (next != 0 && !is_like(description, first))) return nullptr;
      own->offsets_[next++] = argument.offset;
    }
  }
  for (uint32_t i = 0; i < own->op_->arguments[0].description->dtype_count; ++i) {
    const auto type = from_bp(own->op_->arguments[0].description->dtypes[i]);
    if (type) own->types_ |= uint64_t{1} << static_cast<int>(*type);
  }
  return own;
} catch (const Unsupported&) {
  return nullptr;
}

bool DirectOp::takes(const Tensor& a) const {
  return a.device().type() == kBp && (types_ >> static_cast<int>(a.scalar_type()) & 1) != 0 &&
         a.is_contiguous() && !a.is_neg() && a.dim() <= BP_MAX_RANK && a.numel() != 0;
}

bool DirectOp::takes(const Tensor& a, const Tensor& b) const {
  return takes(a) && b.scalar_type() == a.scalar_type() && b.device() == a.device() &&
         b.sizes() == a.sizes() && b.is_contiguous() && !b.is_neg();
}

bool DirectOp::gives(const Tensor& a, const Tensor& y) const {
  return y.device() == a.device() && y.sizes() == a.sizes() && y.is_contiguous() &&
         y.scalar_type() == (is_bool_ ? at::kBool : a.scalar_type());
}

Tensor DirectOp::run(const Tensor& a, const Tensor* b, const Tensor* y) const {
  const Tensor result =
      y != nullptr ? *y : new_empty(a.sizes(), is_bool_ ? at::kBool : a.scalar_type(), a.device());
  alignas(8) unsigned char frame[kMaxFrameSize];
  std::memcpy(frame, op_->frame.data(), op_->frame.size());
  bp_tensor views[3];
  const auto put = [&](int which, const Tensor& tensor) {
    const bp_buffer_ref place = place_of(tensor);
    views[which] = {};
    views[which].buffer = place.buffer;
    views[which].byte_offset = place.byte_offset;
    views[which].shape = a.sizes().data();
    views[which].strides = a.strides().data();
    views[which].ndim = static_cast<uint32_t>(a.dim());
    views[which].dtype = to_bp(tensor.scalar_type());
    const bp_tensor* pointer = &views[which];
    std::memcpy(frame + offsets_[which], &pointer, sizeof(pointer));
  };
  put(0, a);
  if (b != nullptr) put(1, *b);
  put(2, result);
  launch(*op_, a.device(), frame);
  return result;
}

bool register_direct(const c10::OperatorHandle& op, const Row& row, c10::KernelFunction mapped) {
  const std::string kinds = kinds_of(op.schema());
  const size_t count = std::count_if(kinds.begin(), kinds.end(),
                                     [](char kind) { return kind == 't' || kind == 'i'; });
  if ((row.flags & ~(kElementwise | kFloat | kAlpha)) != 0 || !(row.flags & kElementwise)) {
    return false;
  }
  if (count > 2 || !is_in_order(row, op.schema(), count)) return false;
  if (kinds == "t") {
    add<Tensor(const Tensor&)>(op, row, std::move(mapped), 1);
  } else if (kinds == "tt") {
    add<Tensor(const Tensor&, const Tensor&)>(op, row, std::move(mapped), 2);
  } else if (kinds == "tts") {
    add<Tensor(const Tensor&, const Tensor&, const Scalar&)>(op, row, std::move(mapped), 2);
  } else if (kinds == "it") {
    add<Tensor&(Tensor&, const Tensor&)>(op, row, std::move(mapped), 2);
  } else if (kinds == "its") {
    add<Tensor&(Tensor&, const Tensor&, const Scalar&)>(op, row, std::move(mapped), 2);
  } else if (kinds == "tto") {
    add<Tensor&(const Tensor&, const Tensor&, Tensor&)>(op, row, std::move(mapped), 2);
  } else if (kinds == "ttso") {
    add<Tensor&(const Tensor&, const Tensor&, const Scalar&, Tensor&)>(op, row, std::move(mapped),
                                                                       2);
  } else {
    return false;
  }
  return true;
}

}  // namespace bpt
