// Views give new shapes, strides and offsets to the same memory. Each view has a node that leads
// its gradient back.
#include <algorithm>

#include "backplane/runtime/ops.hpp"
#include "registry/tensors/strides.hpp"
#include "runtime/autograd/node.hpp"
#include "runtime/tensor/tensor_impl.hpp"

namespace bp {
namespace detail {
namespace {

constexpr uint32_t kMaxRank = BP_MAX_RANK;

struct ReshapeNode final : Node {
  explicit ReshapeNode(const Tensor& x) : Node("reshape", edges_, 1, nullptr, 0), shape_(x) {
    connect(0, x);
  }
  void backward(const Tensor* grad_outputs, Tensor* grad_inputs) override {
    grad_inputs[0] = grad_outputs[0].reshape({shape_.extents, shape_.ndim});
  }
  Edge edges_[1];
  Meta shape_;
};

struct ExpandNode final : Node {
  explicit ExpandNode(const Tensor& x) : Node("expand", edges_, 1, nullptr, 0), shape_(x) {
    connect(0, x);
  }
  void backward(const Tensor* grad_outputs, Tensor* grad_inputs) override {
    grad_inputs[0] = reduce_to(grad_outputs[0], shape_);
  }
  Edge edges_[1];
  Meta shape_;
};

struct PermuteNode final : Node {
  PermuteNode(const Tensor& x, const uint32_t* axes)
      : Node("permute", edges_, 1, nullptr, 0), ndim_(x.get()->ndim) {
    connect(0, x);
    for (uint32_t i = 0; i < ndim_; ++i) inverse_[axes[i]] = i;
  }
  void backward(const Tensor* grad_outputs, Tensor* grad_inputs) override {
    grad_inputs[0] = grad_outputs[0].permute({inverse_, ndim_});
  }
  Edge edges_[1];
  uint32_t ndim_;
  int64_t inverse_[kMaxRank];
};

struct SliceNode final : Node {
  SliceNode(const Tensor& x, int64_t axis, int64_t start, int64_t stop, int64_t step)
      : Node("slice", edges_, 1, nullptr, 0),
        shape_(x),
        axis_(axis),
        start_(start),
        stop_(stop),
        step_(step) {
    connect(0, x);
  }
  void backward(const Tensor* grad_outputs, Tensor* grad_inputs) override;
  Edge edges_[1];
  Meta shape_;
  int64_t axis_, start_, stop_, step_;
};

// The gradient of a slice consists of zeros with the given gradient at the place of the slice.
struct UnsliceNode final : Node {
  UnsliceNode(const Tensor& gradient, const SliceNode& slice)
      : Node("slice_backward", edges_, 1, nullptr, 0),
        axis_(slice.axis_),
        start_(slice.start_),
        stop_(slice.stop_),
        step_(slice.step_) {
    connect(0, gradient);
  }
  void backward(const Tensor* grad_outputs, Tensor* grad_inputs) override {
    grad_inputs[0] = grad_outputs[0].slice(axis_, start_, stop_, step_);
  }
  Edge edges_[1];
  int64_t axis_, start_, stop_, step_;
};

void SliceNode::backward(const Tensor* grad_outputs, Tensor* grad_inputs) {
  const Tensor& gradient = grad_outputs[0];
  Tensor whole;
  {
    const NoGradGuard guard;
    whole = zeros({shape_.extents, shape_.ndim}, gradient.dtype(), gradient.device());
    whole.slice(axis_, start_, stop_, step_).copy_from(gradient);
  }
  if (is_recorded(gradient)) attach(make_node<UnsliceNode>(gradient, *this), whole);
  grad_inputs[0] = std::move(whole);
}

[[noreturn]] void fail_shape(const char* op, const Tensor& x, IntList shape, const char* why) {
  fail(std::string(op) + ": the shape " + to_string(shape) + " " + why + " " +
       to_string(x.shape()));
}

// Writes `wanted` with its -1 resolved, and returns whether the number of elements agrees.
bool resolve_shape(const Tensor& x, IntList wanted, int64_t* shape) {
  int64_t count = 1;
  size_t open = wanted.size();
  for (size_t i = 0; i < wanted.size(); ++i) {
    shape[i] = wanted[i];
    if (wanted[i] == -1 && open == wanted.size()) {
      open = i;
    } else if (wanted[i] < 0 || __builtin_mul_overflow(count, wanted[i], &count)) {
      return false;
    }
  }
  const int64_t total = x.numel();
  if (open == wanted.size()) return count == total;
  if (count == 0 || total % count != 0) return false;
  shape[open] = total / count;
  return true;
}

// Finds the strides under which x has this shape, from the last axis of both to the first. Axes of
// x that lie behind one another without a gap make one run, which is cut into axes of the new
// shape. Returns false if a new axis would have to cross from one run into the next.
bool strides_for(const bp_tensor& x, const int64_t* shape, uint32_t ndim, int64_t* strides) {
  if (tensors::is_contiguous(x)) {
    tensors::set_contiguous_strides(ndim, shape, strides);
    return true;
  }
  uint32_t left = x.ndim;
  uint32_t i = ndim;
  while (left > 0) {
    int64_t run_count = x.shape[left - 1];
    const int64_t run_stride = x.strides[left - 1];
    --left;
    while (left > 0 && (x.shape[left - 1] == 1 || x.strides[left - 1] == run_stride * run_count)) {
      run_count *= x.shape[--left];
    }
    int64_t filled = 1;
    while (i > 0 && (filled < run_count || shape[i - 1] == 1)) {
      --i;
      strides[i] = run_stride * filled;
      filled *= shape[i];
    }
    if (filled != run_count) return false;
  }
  return i == 0;
}

Tensor restride(const Tensor& x, const int64_t* shape, const int64_t* strides, uint32_t ndim) {
  TensorImpl* impl = make_alias(*x.impl(), ndim);
  std::copy_n(shape, ndim, impl->shape());
  std::copy_n(strides, ndim, impl->strides());
  Tensor view = Tensor::adopt(impl);
  if (is_recorded(x)) attach(make_node<ReshapeNode>(x), view);
  return view;
}

Tensor reshape_to(const char* op, const Tensor& x, IntList wanted, bool may_copy) {
  const bp_tensor& view = *x.get();
  int64_t shape[kMaxRank];
  int64_t strides[kMaxRank];
  if (wanted.size() > kMaxRank) fail_shape(op, x, wanted, "has more than 8 axes, for a tensor of");
  if (!resolve_shape(x, wanted, shape)) fail_shape(op, x, wanted, "does not have the elements of");
  count_elements({shape, wanted.size()});  // Beside an extent of 0, others may be too large.
  const auto ndim = static_cast<uint32_t>(wanted.size());
  if (strides_for(view, shape, ndim, strides)) return restride(x, shape, strides, ndim);
  if (!may_copy) {
    fail_shape(op, x, wanted, "needs a copy, since elements lie too far apart in a tensor of");
  }
  const Tensor copy = x.contiguous();
  strides_for(*copy.get(), shape, ndim, strides);
  return restride(copy, shape, strides, ndim);
}

}  // namespace
}  // namespace detail

Tensor Tensor::view(IntList shape) const { return detail::reshape_to("view", *this, shape, false); }

Tensor Tensor::reshape(IntList shape) const {
  return detail::reshape_to("reshape", *this, shape, true);
}

Tensor Tensor::flatten(int64_t first, int64_t last) const {
  if (ndim() == 0) return reshape({1});
  first = detail::resolve_axis("flatten", "first", first, ndim());
  last = detail::resolve_axis("flatten", "last", last, ndim());
  std::vector<int64_t> wanted;
  for (int64_t axis = 0; axis < ndim(); ++axis) {
    if (axis > first && axis <= last) {
      wanted.back() *= shape(axis);
    } else {
      wanted.push_back(shape(axis));
    }
  }
  return reshape(wanted);
}

Tensor Tensor::permute(IntList axes) const {
  const bp_tensor& x = *get();
  if (axes.size() != x.ndim) {
    detail::fail("permute: axes " + to_string(axes) + " are " + std::to_string(axes.size()) +
                 "; allowed: one for each axis of the shape " + to_string(shape()));
  }
  uint32_t order[BP_MAX_RANK];
  uint32_t seen = 0;
  for (uint32_t i = 0; i < x.ndim; ++i) {
    order[i] = static_cast<uint32_t>(detail::resolve_axis("permute", "axes", axes[i], ndim()));
    seen |= 1u << order[i];
  }
  if (seen + 1 != 1u << x.ndim) {
    detail::fail("permute: axes " + to_string(axes) + " name an axis twice");
  }
  detail::TensorImpl* impl = detail::make_alias(*impl_, x.ndim);
  for (uint32_t i = 0; i < x.ndim; ++i) {
    impl->shape()[i] = x.shape[order[i]];
    impl->strides()[i] = x.strides[order[i]];
  }
  Tensor result = adopt(impl);
  if (detail::is_recorded(*this))
    detail::attach(detail::make_node<detail::PermuteNode>(*this, order), result);
  return result;
}

Tensor Tensor::transpose(int64_t axis_a, int64_t axis_b) const {
  axis_a = detail::resolve_axis("transpose", "axis_a", axis_a, ndim());
  axis_b = detail::resolve_axis("transpose", "axis_b", axis_b, ndim());
  int64_t axes[BP_MAX_RANK];
  for (int64_t i = 0; i < ndim(); ++i) axes[i] = i;
  std::swap(axes[axis_a], axes[axis_b]);
  return permute({axes, get()->ndim});
}

Tensor Tensor::transpose() const { return transpose(-2, -1); }

Tensor Tensor::expand(IntList wanted) const {
  const bp_tensor& x = *get();
  const auto ndim = static_cast<uint32_t>(wanted.size());
  if (ndim < x.ndim || ndim > BP_MAX_RANK) {
    detail::fail_shape("expand", *this, wanted, "does not end in axes for those of");
  }
  const uint32_t lead = ndim - x.ndim;
  detail::TensorImpl* impl = detail::make_alias(*impl_, ndim);
  Tensor result = adopt(impl);
  for (uint32_t i = 0; i < ndim; ++i) {
    const int64_t extent = i < lead ? 1 : x.shape[i - lead];
    const bool is_kept = wanted[i] == extent || (wanted[i] == -1 && i >= lead);
    if (!is_kept && (extent != 1 || wanted[i] < 0)) {
      detail::fail_shape("expand", *this, wanted, "is not what broadcasting can make of");
    }
    impl->shape()[i] = is_kept ? extent : wanted[i];
    impl->strides()[i] = is_kept && i >= lead ? x.strides[i - lead] : 0;
  }
  detail::count_elements(result.shape());
  if (detail::is_recorded(*this))
    detail::attach(detail::make_node<detail::ExpandNode>(*this), result);
  return result;
}

Tensor Tensor::slice(int64_t axis, int64_t start, int64_t stop, int64_t step) const {
  axis = detail::resolve_axis("slice", "axis", axis, ndim());
  if (step < 1) {
    detail::fail("slice: step is " + std::to_string(step) + "; allowed: 1 <= step");
  }
  const bp_tensor& x = *get();
  const int64_t extent = x.shape[axis];
  // A step longer than the axis takes the first element too.
  step = std::min(step, std::max<int64_t>(extent, 1));
  const auto clip = [&](int64_t i) {
    return std::clamp<int64_t>(i < 0 ? i + extent : i, 0, extent);
  };
  start = clip(start);
  stop = std::max(clip(stop), start);
  const bool has_elements = stop > start;
  detail::TensorImpl* impl =
      detail::make_alias(*impl_, x.ndim, has_elements ? start * x.strides[axis] : 0);
  std::copy_n(x.shape, x.ndim, impl->shape());
  std::copy_n(x.strides, x.ndim, impl->strides());
  impl->shape()[axis] = has_elements ? (stop - start - 1) / step + 1 : 0;
  impl->strides()[axis] = x.strides[axis] * step;
  Tensor result = adopt(impl);
  if (detail::is_recorded(*this)) {
    detail::attach(detail::make_node<detail::SliceNode>(*this, axis, start, stop, step), result);
  }
  return result;
}

Tensor Tensor::narrow(int64_t axis, int64_t start, int64_t length) const {
  axis = detail::resolve_axis("narrow", "axis", axis, ndim());
  const int64_t extent = shape(axis);
  if (start < 0) start += extent;
  if (start < 0 || length < 0 || start > extent - length) {
    detail::fail("narrow: start " + std::to_string(start) + " and length " +
                 std::to_string(length) + " reach beyond an axis of extent " +
                 std::to_string(extent));
  }
  return slice(axis, start, start + length);
}

Tensor Tensor::select(int64_t axis, int64_t index) const {
  axis = detail::resolve_axis("select", "axis", axis, ndim());
  if (shape(axis) == 0) {
    detail::fail("select: axis " + std::to_string(axis) + " has the extent 0; allowed: from 1");
  }
  index = detail::resolve_axis("select", "index", index, shape(axis));
  return slice(axis, index, index + 1).squeeze(axis);
}

Tensor Tensor::squeeze() const {
  std::vector<int64_t> wanted;
  for (const int64_t extent : shape()) {
    if (extent != 1) wanted.push_back(extent);
  }
  return view(wanted);
}

Tensor Tensor::squeeze(int64_t axis) const {
  axis = detail::resolve_axis("squeeze", "axis", axis, ndim());
  if (shape(axis) != 1) {
    detail::fail("squeeze: axis " + std::to_string(axis) + " has the extent " +
                 std::to_string(shape(axis)) + "; allowed: 1");
  }
  std::vector<int64_t> wanted = shape().to_vector();
  wanted.erase(wanted.begin() + axis);
  return view(wanted);
}

Tensor Tensor::unsqueeze(int64_t axis) const {
  axis = detail::resolve_axis("unsqueeze", "axis", axis, ndim() + 1);
  std::vector<int64_t> wanted = shape().to_vector();
  wanted.insert(wanted.begin() + axis, 1);
  return view(wanted);
}

Tensor Tensor::as_strided(IntList wanted, IntList strides, int64_t offset) const {
  get();
  if (detail::is_recorded(*this)) {
    detail::fail("as_strided: it has no gradient; use the other views, or detach() first");
  }
  detail::check_present("as_strided", *this);
  if (wanted.size() != strides.size() || wanted.size() > BP_MAX_RANK) {
    detail::fail("as_strided: shape " + to_string(wanted) + " and strides " + to_string(strides) +
                 " have different lengths, or more than 8 axes");
  }
  const auto rank = static_cast<uint32_t>(wanted.size());
  const bool has_elements = detail::count_elements(wanted) > 0;
  const bp_block* block = impl_->storage->block;
  const bp_buffer_ref memory = block == nullptr ? bp_buffer_ref{} : block->ref;
  const tensors::Reach reach = tensors::reach_of(rank, wanted.data(), strides.data());
  // The range is in bits from the beginning of the storage.
  const tensors::Wide bits = element_bits();
  const tensors::Wide first =
      offset * bits + 8 * tensors::Wide{impl_->view.byte_offset - memory.byte_offset};
  const tensors::Wide begin = first + reach.lowest * bits;
  const tensors::Wide end = first + (reach.highest + 1) * bits;
  if (has_elements && (begin < 0 || end > 8 * tensors::Wide{memory.size_bytes})) {
    detail::fail("as_strided: shape " + to_string(wanted) + ", strides " + to_string(strides) +
                 " and offset " + std::to_string(offset) + " leave the memory of " +
                 std::to_string(memory.size_bytes) + " bytes");
  }
  detail::TensorImpl* impl = detail::make_alias(*impl_, rank, has_elements ? offset : 0);
  std::copy(wanted.begin(), wanted.end(), impl->shape());
  std::copy(strides.begin(), strides.end(), impl->strides());
  return adopt(impl);
}

Tensor Tensor::detach() const { return detail::make_alias(*this); }

}  // namespace bp
