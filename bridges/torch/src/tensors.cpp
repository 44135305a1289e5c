// What PyTorch asks of a device for memory and views: empty, resize_, set_, as_strided, view.
#include "tensors.h"

#include <ATen/EmptyTensor.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/native/TensorShape.h>
#include <ATen/ops/is_set_to_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <torch/library.h>

#include "memory.h"
#include "streams.h"

namespace bpt {
namespace {

using at::Tensor;
using c10::SymInt;
using c10::SymIntArrayRef;

struct DtypePair {
  at::ScalarType theirs;
  bp_dtype ours;
};
constexpr DtypePair kDtypes[] = {
    {at::kBool, BP_BOOL},
    {at::kByte, BP_U8},
    {at::kChar, BP_I8},
    {at::kShort, BP_I16},
    {at::kInt, BP_I32},
    {at::kLong, BP_I64},
    {at::kUInt16, BP_U16},
    {at::kUInt32, BP_U32},
    {at::kUInt64, BP_U64},
    {at::kHalf, BP_F16},
    {at::kBFloat16, BP_BF16},
    {at::kFloat, BP_F32},
    {at::kDouble, BP_F64},
    {at::kComplexFloat, BP_C64},
    {at::kComplexDouble, BP_C128},
    {at::kFloat8_e4m3fn, BP_F8E4M3FN},
    {at::kFloat8_e5m2, BP_F8E5M2},
    {at::kFloat8_e4m3fnuz, BP_F8E4M3FNUZ},
    {at::kFloat8_e5m2fnuz, BP_F8E5M2FNUZ},
    {at::kFloat8_e8m0fnu, BP_F8E8M0FNU},
};

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

// Makes a device current for the call of an allocator, which is asked for no device.
class OnDevice {
 public:
  explicit OnDevice(std::optional<at::Device> device) : old_(current_device()) {
    if (device && device->has_index()) set_current_device(device->index());
  }
  ~OnDevice() { set_current_device(old_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  c10::DeviceIndex old_;
};

void check_factory(std::optional<at::Layout> layout, std::optional<bool> pin_memory) {
  TORCH_CHECK(!layout || *layout == at::kStrided,
              "torch_backplane: tensors on bp are strided, not ", *layout, ".");
  TORCH_CHECK(!pin_memory.value_or(false),
              "torch_backplane: only tensors of the CPU can be pinned.");
  TORCH_CHECK(device_count() > 0, "torch_backplane: no device is loaded. Call ",
              "torch_backplane.load() with a plugin first.");
}

bool fills_empty() {
  return at::globalContext().deterministicAlgorithms() &&
         at::globalContext().deterministicFillUninitializedMemory();
}

Tensor filled(Tensor tensor) {
  if (C10_UNLIKELY(fills_empty())) at::native::fill_empty_deterministic_(tensor);
  return tensor;
}

Tensor empty(SymIntArrayRef size, std::optional<at::ScalarType> type,
             std::optional<at::Layout> layout, std::optional<at::Device> device,
             std::optional<bool> pin_memory, std::optional<at::MemoryFormat> format) {
  check_factory(layout, pin_memory);
  const OnDevice current(device);
  return filled(at::detail::empty_generic_symint(
      size, device_allocator(), kKeys, type.value_or(at::get_default_dtype_as_scalartype()),
      format));
}

Tensor empty_strided(SymIntArrayRef size, SymIntArrayRef stride, std::optional<at::ScalarType> type,
                     std::optional<at::Layout> layout, std::optional<at::Device> device,
                     std::optional<bool> pin_memory) {
  check_factory(layout, pin_memory);
  const OnDevice current(device);
  return filled(at::detail::empty_strided_symint_generic(
      size, stride, device_allocator(), kKeys,
      type.value_or(at::get_default_dtype_as_scalartype())));
}

const Tensor& resize_(const Tensor& self, SymIntArrayRef sym_size,
                      std::optional<at::MemoryFormat> format) {
  const auto size = C10_AS_INTARRAYREF_SLOW(sym_size);
  c10::TensorImpl* impl = self.unsafeGetTensorImpl();
  if (impl->sizes() == size && !format) return self;
  impl->set_sizes_contiguous(size);
  if (format && *format != at::MemoryFormat::Preserve) impl->empty_tensor_restride(*format);
  const size_t needed = at::detail::computeStorageNbytes(
      impl->sizes(), impl->strides(), impl->dtype().itemsize(), impl->storage_offset());
  const size_t before = impl->storage().nbytes();
  if (needed > before) resize_storage(impl->storage(), needed);
  if (C10_UNLIKELY(fills_empty())) {
    at::native::fill_resize_deterministic_(self, static_cast<int64_t>(before));
  }
  return self;
}

Tensor& set_storage(Tensor& self, at::Storage source, SymInt offset, SymIntArrayRef sym_size,
                    SymIntArrayRef sym_stride) {
  TORCH_CHECK(source.device() == self.device() || self.numel() == 0,
              "torch_backplane: the storage is on ", source.device(), ", the tensor on ",
              self.device(), ".");
  const auto size = C10_AS_INTARRAYREF_SLOW(sym_size);
  const auto stride = C10_AS_INTARRAYREF_SLOW(sym_stride);
  c10::TensorImpl* impl = self.unsafeGetTensorImpl();
  const int64_t first = offset.expect_int();
  const at::DimVector strides = stride.data() != nullptr
                                    ? at::DimVector(stride.begin(), stride.end())
                                    : c10::contiguous_strides(size);
  impl->set_storage_keep_dtype(std::move(source));
  impl->set_sizes_and_strides(size, strides, first);
  const size_t needed =
      at::detail::computeStorageNbytes(size, strides, impl->dtype().itemsize(), first);
  if (needed > impl->storage().nbytes()) resize_storage(impl->storage(), needed);
  return self;
}

Tensor& set_source(Tensor& self, at::Storage source) {
  const SymInt count(static_cast<int64_t>(source.nbytes() / self.itemsize()));
  const SymInt one(1);
  return set_storage(self, std::move(source), 0, count, one);
}

Tensor& set_tensor(Tensor& self, const Tensor& source) {
  return set_storage(self, source.storage(), source.sym_storage_offset(), source.sym_sizes(),
                     source.sym_strides());
}

Tensor& set_nothing(Tensor& self) {
  c10::Storage none(c10::Storage::use_byte_size_t(), 0, allocate(0, self.device().index()),
                    device_allocator(), /*resizable=*/true);
  return set_storage(self, std::move(none), 0, SymInt(0), SymInt(1));
}

Tensor as_strided(const Tensor& self, at::IntArrayRef size, at::IntArrayRef stride,
                  std::optional<int64_t> offset) {
  return at::native::as_strided_tensorimpl(self, size, stride, offset);
}

Tensor view(const Tensor& self, at::IntArrayRef size) { return at::native::view(self, size); }

Tensor reshape_alias(const Tensor& self, at::IntArrayRef size, at::IntArrayRef stride) {
  return at::native::_reshape_alias(self, size, stride);
}

Tensor unfold(const Tensor& self, int64_t dim, int64_t size, int64_t step) {
  return at::native::unfold(self, dim, size, step);
}

void record_stream_of(Tensor& self, c10::Stream stream) {
  record_stream(self.storage().data_ptr(), stream);
}

}  // namespace

bp_dtype to_bp(at::ScalarType type) noexcept {
  for (const DtypePair& pair : kDtypes) {
    if (pair.theirs == type) return pair.ours;
  }
  return 0;
}

std::optional<at::ScalarType> from_bp(bp_dtype dtype) noexcept {
  for (const DtypePair& pair : kDtypes) {
    if (pair.ours == dtype) return pair.theirs;
  }
  return std::nullopt;
}

at::Tensor new_empty(at::IntArrayRef size, at::ScalarType type, at::Device device,
                     std::optional<at::IntArrayRef> stride) {
  const OnDevice current(device);
  if (stride) {
    return at::detail::empty_strided_generic(size, *stride, device_allocator(), kKeys, type);
  }
  return at::detail::empty_generic(size, device_allocator(), kKeys, type, std::nullopt);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("as_strided", &as_strided);
  m.impl("view", &view);
  m.impl("_reshape_alias", &reshape_alias);
  m.impl("unfold", &unfold);
  m.impl("is_set_to", &at::native::is_set_to);
  m.impl("view_as_real", &at::native::view_as_real);
  m.impl("view_as_complex", &at::native::view_as_complex);
  m.impl("resize_", &resize_);
  m.impl("set_.source_Storage_storage_offset", &set_storage);
  m.impl("set_.source_Storage", &set_source);
  m.impl("set_.source_Tensor", &set_tensor);
  m.impl("set_", &set_nothing);
  m.impl("record_stream", &record_stream_of);
}

}  // namespace bpt
