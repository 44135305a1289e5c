// Tensors, their memory, and the ways to make them.
#include "backplane/runtime/tensor.hpp"

#include <algorithm>
#include <utility>

#include "backplane/runtime/ops.hpp"
#include "registry/tensors/strides.hpp"
#include "runtime/autograd/hooks.hpp"
#include "runtime/autograd/node.hpp"
#include "runtime/tensor/tensor_impl.hpp"

namespace bp {
namespace detail {
namespace {

uint64_t size_in_bytes(bp_dtype dtype, const int64_t* shape, uint32_t count) {
  const uint32_t bits = bp_dtype_bits(dtype);
  if (bits == 0) fail("a tensor cannot have the dtype " + dtype_text(dtype));
  return tensors::packed_bytes(static_cast<uint64_t>(count_elements(IntList(shape, count))), bits);
}

void release(Storage* storage) noexcept {
  const bool is_last = storage->references.load(std::memory_order_acquire) == 1 ||
                       storage->references.fetch_sub(1, std::memory_order_acq_rel) == 1;
  if (!is_last) return;
  if (storage->block != nullptr) bp_block_free(storage->block);
  delete storage;
}

}  // namespace

void throw_empty() { fail("an empty tensor was used: it was never given a value"); }

void fail(const std::string& message) { throw Error(BP_INVALID_ARGUMENT, message); }

int64_t resolve_axis(const char* op, const char* name, int64_t axis, int64_t ndim) {
  if (axis < -ndim || axis >= ndim) [[unlikely]] {
    fail(std::string(op) + ": " + name + " is " + std::to_string(axis) + "; allowed: " +
         (ndim == 0 ? "none, the tensor has no axes"
                    : std::to_string(-ndim) + " <= " + name + " < " + std::to_string(ndim)));
  }
  return axis < 0 ? axis + ndim : axis;
}

void retain(TensorImpl* impl) noexcept { impl->references.fetch_add(1, std::memory_order_relaxed); }

void release(TensorImpl* impl) noexcept {
  const bool is_last = impl->references.load(std::memory_order_acquire) == 1 ||
                       impl->references.fetch_sub(1, std::memory_order_acq_rel) == 1;
  if (!is_last) return;
  Node* grad_fn = impl->grad_fn;
  if (impl->grad != nullptr) release(impl->grad);
  if (impl->hooks != nullptr) delete_hooks(impl->hooks);
  Storage* storage = impl->storage;
  Storage* home = impl->home;
  if (home == nullptr) delete impl;
  release(storage);
  if (home != nullptr && home != storage) release(home);
  if (grad_fn != nullptr) release(grad_fn);
}

int64_t count_elements(IntList shape) {
  constexpr int64_t kMost = int64_t{1} << 58;
  int64_t count = 1;
  bool is_empty = false;
  for (const int64_t extent : shape) {
    if (extent < 0) {
      fail("the shape " + to_string(shape) + " has an extent below 0; allowed: 0 and above");
    }
    is_empty = is_empty || extent == 0;
    if (__builtin_mul_overflow(count, std::max<int64_t>(extent, 1), &count) || count > kMost) {
      fail("a tensor of the shape " + to_string(shape) + " has too many elements; allowed: 2^58, " +
           "where an extent of 0 counts as 1");
    }
  }
  return is_empty ? 0 : count;
}

void check_element_count(uint64_t count, IntList shape) {
  const int64_t needed = count_elements(shape);
  if (count == static_cast<uint64_t>(needed)) return;
  fail("from_host: data has " + std::to_string(count) + " elements, and the shape " +
       std::to_string(needed));
}

TensorImpl* allocate(const bp_target& target, bp_dtype dtype, const int64_t* shape,
                     uint32_t count) {
  if (count > BP_MAX_RANK) {
    fail("a tensor has " + std::to_string(count) + " axes; allowed: up to " +
         std::to_string(BP_MAX_RANK));
  }
  const uint64_t size_bytes = size_in_bytes(dtype, shape, count);
  bp_block* block = nullptr;
  check(bp_block_allocate(&target, current_stream(target), size_bytes, &block), nullptr);

  auto* storage = new Storage;
  storage->block = block;
  storage->target = &target;
  TensorImpl* impl = &storage->first;
  impl->storage = storage;
  impl->home = storage;
  dims::copy({shape, count}, impl->shape());
  tensors::set_contiguous_strides(count, shape, impl->strides());
  impl->view = {block->ref.buffer,
                block->ref.byte_offset,
                impl->shape(),
                impl->strides(),
                count,
                dtype,
                nullptr,
                0,
                0};
  return impl;
}

namespace {

void check_block_view(const bp_block* block, const bp_tensor& view) {
  if (block == nullptr) fail("from_block: block is NULL; allowed: a block");
  if (view.ndim > BP_MAX_RANK) {
    fail("from_block: view has " + std::to_string(view.ndim) + " axes; allowed: up to " +
         std::to_string(BP_MAX_RANK));
  }
  if (view.layout != nullptr || view.flags != 0 || view.next != nullptr) {
    fail("from_block: view has a layout, flags or links; allowed: elements that lie by strides");
  }
  const bp_buffer_ref& ref = block->ref;
  if (size_in_bytes(view.dtype, view.shape, view.ndim) == 0) return;
  const tensors::Wide bits = bp_dtype_bits(view.dtype);
  const tensors::Reach reach = tensors::reach_of(view.ndim, view.shape, view.strides);
  const tensors::Wide first = 8 * (tensors::Wide{view.byte_offset} - ref.byte_offset);
  const bool is_inside = first + reach.lowest * bits >= 0 &&
                         first + (reach.highest + 1) * bits <= 8 * tensors::Wide{ref.size_bytes};
  if (view.buffer != ref.buffer || !is_inside) {
    fail("from_block: view has elements outside of its block; allowed: those in its range");
  }
}

}  // namespace

TensorImpl* make_alias(const TensorImpl& of, uint32_t ndim, int64_t element_offset) {
  const int64_t first_bit = element_offset * int64_t{bp_dtype_bits(of.view.dtype)};
  if (first_bit % 8 != 0) {
    fail("a view begins at element " + std::to_string(element_offset) + " of a tensor of " +
         dtype_text(of.view.dtype) +
         ", which begins within a byte; allowed: elements that begin "
         "at a whole byte");
  }
  auto* impl = new TensorImpl;
  impl->storage = of.storage;
  impl->storage->references.fetch_add(1, std::memory_order_relaxed);
  impl->view = of.view;
  impl->view.shape = impl->shape();
  impl->view.strides = impl->strides();
  impl->view.ndim = ndim;
  impl->view.byte_offset += static_cast<uint64_t>(first_bit / 8);
  return impl;
}

Tensor make_alias(const Tensor& of) {
  const bp_tensor& view = *of.get();
  TensorImpl* impl = make_alias(*of.impl(), view.ndim);
  std::copy_n(view.shape, view.ndim, impl->shape());
  std::copy_n(view.strides, view.ndim, impl->strides());
  return Tensor::adopt(impl);
}

Tensor make_absent(const bp_target& target, bp_dtype dtype, IntList shape) {
  auto* storage = new Storage;
  storage->target = &target;
  TensorImpl* impl = &storage->first;
  impl->storage = storage;
  impl->home = storage;
  const auto ndim = static_cast<uint32_t>(shape.size());
  std::copy(shape.begin(), shape.end(), impl->shape());
  tensors::set_contiguous_strides(ndim, impl->shape(), impl->strides());
  impl->view = {nullptr, 0, impl->shape(), impl->strides(), ndim, dtype, nullptr, 0, 0};
  return Tensor::adopt(impl);
}

void rebind(const Tensor& tensor, const Tensor& data) {
  TensorImpl& impl = *tensor.impl();
  const TensorImpl& source = *data.impl();
  source.storage->references.fetch_add(1, std::memory_order_relaxed);
  Storage* old = std::exchange(impl.storage, source.storage);
  std::copy_n(source.view.shape, source.view.ndim, impl.shape());
  std::copy_n(source.view.strides, source.view.ndim, impl.strides());
  impl.view = source.view;
  impl.view.shape = impl.shape();
  impl.view.strides = impl.strides();
  if (old != impl.home) return release(old);
  // The reference goes on to hold the place of the tensor.
  if (old->block != nullptr && old->references.load(std::memory_order_acquire) == 1) {
    bp_block_free(std::exchange(old->block, nullptr));
  }
}

bool is_only_handle(const Tensor& tensor) {
  const TensorImpl& impl = *tensor.impl();
  return impl.references.load(std::memory_order_acquire) == 1 &&
         impl.storage->references.load(std::memory_order_acquire) == 1;
}

void check_present(const char* call, const Tensor& tensor) {
  if (tensor.get()->buffer != nullptr || tensor.numel() == 0) return;
  fail(std::string(call) + ": " + describe(tensor) + " has no memory at present: it is a " +
       "parameter whose parts lie on several ranks, and is whole only while its unit computes");
}

std::string describe(const Tensor& tensor) {
  return dtype_text(tensor.dtype()) + " " + to_string(tensor.shape());
}

}  // namespace detail

int64_t Tensor::shape(int64_t axis) const {
  return get()->shape[detail::resolve_axis("shape", "axis", axis, ndim())];
}

int64_t Tensor::numel() const { return tensors::element_count(*get()); }

uint64_t Tensor::size_bytes() const {
  return tensors::packed_bytes(static_cast<uint64_t>(numel()), bp_dtype_bits(dtype()));
}

Device Tensor::device() const { return Device(detail::target_of(*this)); }

bool Tensor::is_contiguous() const { return tensors::is_contiguous(*get()); }

uint32_t Tensor::version() const {
  get();
  return impl_->storage->version.load(std::memory_order_relaxed);
}

void Tensor::mark_written() const {
  get();
  detail::count_write(*this);
}

void Tensor::record_stream(const Stream& stream) const {
  detail::check_present("record_stream", *this);
  if (impl_->storage->block == nullptr) return;  // It has no elements.
  check(bp_block_record_stream(impl_->storage->block, stream.get()), "block.record_stream");
}

Tensor empty(IntList shape, bp_dtype dtype, Device device) {
  return Tensor::adopt(
      detail::allocate(device.target(), dtype, shape.data(), static_cast<uint32_t>(shape.size())));
}

Tensor full(IntList shape, Scalar value, bp_dtype dtype, Device device) {
  return fill(shape, dtype, device, value);
}

Tensor zeros(IntList shape, bp_dtype dtype, Device device) { return fill(shape, dtype, device, 0); }

Tensor ones(IntList shape, bp_dtype dtype, Device device) { return fill(shape, dtype, device, 1); }

Tensor zeros_like(const Tensor& other) {
  return fill(other.shape(), other.dtype(), other.device(), 0);
}

Tensor ones_like(const Tensor& other) {
  return fill(other.shape(), other.dtype(), other.device(), 1);
}

Tensor arange(int64_t count, bp_dtype dtype, Device device) {
  return arange({count}, dtype, device, 0, 1);
}

Tensor scalar(Scalar value, bp_dtype dtype, Device device) {
  return fill({}, dtype, device, value);
}

Tensor from_host(const void* data, IntList shape, bp_dtype dtype, Device device) {
  Tensor tensor = empty(shape, dtype, device);
  tensor.copy_from_host(data, tensor.size_bytes());
  return tensor;
}

Tensor from_block(bp_block* block, const bp_tensor& view, Device device) {
  detail::check_block_view(block, view);
  Tensor tensor = detail::make_absent(device.target(), view.dtype, {view.shape, view.ndim});
  detail::TensorImpl& impl = *tensor.impl();
  std::copy_n(view.strides, view.ndim, impl.strides());
  impl.view.buffer = view.buffer;
  impl.view.byte_offset = view.byte_offset;
  impl.storage->block = block;
  return tensor;
}

}  // namespace bp
