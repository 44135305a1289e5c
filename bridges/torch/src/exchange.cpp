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

void free_wrapped(void* context) {
  const std::unique_ptr<Block> own(static_cast<Block*>(context));
  if (own != nullptr && !is_in_child()) bp_block_free(own->block);
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

}  // namespace

bp_dlpack_managed* to_dlpack(const at::Tensor& tensor) {
  require_open();
  TORCH_CHECK(tensor.device().type() == kBp, "torch_backplane: the tensor is on ", tensor.device(),
              " and not on bp.");
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
  desc.release = &free_tensor;
  desc.user_data = kept.get();
  bp_dlpack_managed* managed = nullptr;
  check(bp_dlpack_export(target, &desc, &managed), "dlpack_export");
  (void)kept.release();
  return managed;
}

at::Tensor from_dlpack(bp_dlpack_managed* managed, c10::DeviceIndex index) {
  require_open();
  const bp_target* target = device_at(index).target;
  const bp_foreign_tensor* foreign = nullptr;
  check(bp_dlpack_import(target, managed, &foreign), "dlpack_import");
  std::unique_ptr<const bp_foreign_tensor, decltype(&bp_foreign_tensor_release)> kept(
      foreign, &bp_foreign_tensor_release);
  const bp_tensor& view = foreign->tensor;
  const auto type = from_bp(view.dtype);
  TORCH_CHECK(type, "torch_backplane: PyTorch has no dtype ", bp_dtype_name(view.dtype), ".");
  const uint64_t size = extent_of(view, c10::elementSize(*type));
  const at::IntArrayRef shape(view.shape, view.ndim), strides(view.strides, view.ndim);
  if (size == 0) return new_empty(shape, *type, {kBp, index});
  auto own = std::make_unique<Block>(Block{nullptr, target});
  bp_block_wrap_desc desc{};
  desc.struct_size = sizeof(desc);
  desc.struct_type = BP_STRUCT_BLOCK_WRAP_DESC;
  desc.ref = {view.buffer, view.byte_offset, size};
  desc.release = &free_foreign;
  desc.user_data = const_cast<bp_foreign_tensor*>(foreign);
  check(bp_block_wrap(target, current_stream(index), &desc, &own->block), "block_wrap");
  (void)kept.release();
  uint64_t address = 0;
  const bp_status status = bp_block_address(own->block, &address);
  c10::DataPtr data(reinterpret_cast<void*>(address), own.release(), &free_wrapped, {kBp, index});
  check(status, "block_address");
  const c10::Storage storage(c10::Storage::use_byte_size_t(), size, std::move(data), nullptr,
                             /*resizable=*/false);
  return new_empty({0}, *type, {kBp, index}).set_(storage, 0, shape, strides);
}

}  // namespace bpt
