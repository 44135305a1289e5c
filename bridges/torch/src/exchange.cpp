#include "exchange.h"

#include <ATen/EmptyTensor.h>

#include <memory>

#include "backplane/addresses.h"
#include "backplane/blocks.h"
#include "memory.h"
#include "streams.h"
#include "tensors.h"

namespace bpt {
namespace {

void free_tensor(void* tensor) { delete static_cast<at::Tensor*>(tensor); }

void free_foreign(void* tensor) {
  bp_foreign_tensor_release(static_cast<const bp_foreign_tensor*>(tensor));
}

// The bytes from the first element to the last one.
uint64_t extent_of(const bp_tensor& tensor, uint64_t item_size) {
  uint64_t last = 0;
  for (uint32_t i = 0; i < tensor.ndim; ++i) {
    if (tensor.shape[i] == 0) return 0;
    TORCH_CHECK(tensor.strides[i] >= 0, "torch_backplane: PyTorch has no negative strides.");
    last += static_cast<uint64_t>((tensor.shape[i] - 1) * tensor.strides[i]);
  }
  return (last + 1) * item_size;
}

// Hands `tensor` over by one of the two functions of the library.
template <typename Managed>
Managed* export_tensor(const at::Tensor& tensor, uint64_t flags,
                       bp_status (*give)(const bp_target*, const bp_dlpack_export_desc*,
                                         Managed**)) {
  require_open();
  TORCH_CHECK(tensor.device().type() == kBp, "torch_backplane: the tensor is on ", tensor.device(),
              " and not on bp.");
  TORCH_CHECK(!tensor.is_neg() && !tensor.is_conj(),
              "torch_backplane: the tensor is a view that negates or conjugates, which DLPack "
              "cannot say. resolve_neg() and resolve_conj() make copies without that.");
  const bp_target* target = target_of(tensor.device());
  // The taker reads the memory when it likes, so the work on it ends first.
  synchronize(target, current_stream_of(tensor.device()), "to_dlpack");
  auto kept = std::make_unique<at::Tensor>(tensor.detach());
  const bp_buffer_ref place = place_of(*kept);
  bp_tensor view{};
  view.buffer = place.buffer;
  view.byte_offset = place.byte_offset;
  view.shape = kept->sizes().data();
  view.strides = kept->strides().data();
  view.ndim = static_cast<uint32_t>(kept->dim());
  view.dtype = to_bp(kept->scalar_type());
  bp_dlpack_export_desc desc{};
  desc.struct_size = sizeof(desc);
  desc.struct_type = BP_STRUCT_DLPACK_EXPORT_DESC;
  desc.tensor = &view;
  desc.flags = flags;
  desc.release = &free_tensor;
  desc.user_data = kept.get();
  Managed* managed = nullptr;
  check(give(target, &desc, &managed), "dlpack_export");
  (void)kept.release();
  return managed;
}

template <typename Managed>
Foreign import_tensor(Managed* managed, c10::DeviceIndex index,
                      bp_status (*import)(const bp_target*, Managed*, const bp_foreign_tensor**)) {
  require_open();
  const bp_foreign_tensor* foreign = nullptr;
  check(import(device_at(index).target, managed, &foreign), "dlpack_import");
  return Foreign(foreign);
}

}  // namespace

bp_dlpack_managed* to_dlpack(const at::Tensor& tensor, uint64_t flags) {
  return export_tensor(tensor, flags, &bp_dlpack_export);
}

bp_dlpack_unversioned* to_dlpack_unversioned(const at::Tensor& tensor) {
  return export_tensor(tensor, 0, &bp_dlpack_export_unversioned);
}

Foreign take(bp_dlpack_managed* managed, c10::DeviceIndex index) {
  return import_tensor(managed, index, &bp_dlpack_import);
}

Foreign take(bp_dlpack_unversioned* managed, c10::DeviceIndex index) {
  return import_tensor(managed, index, &bp_dlpack_import_unversioned);
}

at::Tensor from_foreign(Foreign foreign, c10::DeviceIndex index) {
  const bp_target* target = device_at(index).target;
  const bp_tensor& view = foreign->tensor;
  const auto type = from_bp(view.dtype);
  TORCH_CHECK(type, "torch_backplane: PyTorch has no dtype ", bp_dtype_name(view.dtype), ".");
  const uint64_t size = extent_of(view, c10::elementSize(*type));
  const std::vector<int64_t> shape(view.shape, view.shape + view.ndim),
      strides(view.strides, view.strides + view.ndim);
  if (size == 0) return new_empty(shape, *type, {kBp, index});
  const bool is_read_only = (foreign->flags & BP_DLPACK_READ_ONLY) != 0;
  bp_block_wrap_desc desc{};
  desc.struct_size = sizeof(desc);
  desc.struct_type = BP_STRUCT_BLOCK_WRAP_DESC;
  desc.ref = {view.buffer, view.byte_offset, size};
  desc.release = &free_foreign;
  desc.user_data = const_cast<bp_foreign_tensor*>(foreign.get());
  bp_block* block = nullptr;
  check(bp_block_wrap(target, current_stream(index), &desc, &block), "block_wrap");
  (void)foreign.release();
  const c10::Storage storage(c10::Storage::use_byte_size_t(), size, data_of(block, target, index),
                             nullptr, /*resizable=*/false);
  const at::Tensor shared = new_empty({0}, *type, {kBp, index}).set_(storage, 0, shape, strides);
  return is_read_only ? shared.clone() : shared;
}

}  // namespace bpt
