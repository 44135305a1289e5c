// Imports tensors through DLPack. Nothing is copied: the elements are in a buffer that the backend
// finds at their address, or makes there.
#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>

#include "registry/boundary/fail.hpp"
#include "registry/boundary/guard.hpp"
#include "registry/tensors/dlpack.hpp"

namespace bp::core {
namespace {

// The contents of either form.
struct Source {
  const bp_dlpack_tensor* tensor;
  uint64_t flags;
  void* managed;
  void (*end)(void* managed);
};

template <typename Managed>
void end_managed(void* managed) {
  auto* const theirs = static_cast<Managed*>(managed);
  if (theirs->deleter != nullptr) theirs->deleter(theirs);
}

struct Foreign {
  bp_foreign_tensor lent{};
  int64_t shape[BP_MAX_RANK] = {}, strides[BP_MAX_RANK] = {};
  const bp_allocator_ops* allocator = nullptr;
  bp_buffer* wrapped = nullptr;
  Source source{};
};

std::string text_of(bp_dlpack_device device) {
  return "type " + std::to_string(device.type) + ", id " + std::to_string(device.id);
}

bp_status check_device(const bp_target& target, const bp_dlpack_tensor& theirs) {
  const bp_device_properties& p = *target.properties;
  const bp_dlpack_device ours{p.dlpack_device_type, p.dlpack_device_id};
  if (ours.type == 0) {
    return fail(BP_UNSUPPORTED,
                "dlpack.import: DLPack has no name for " + std::string(target.name));
  }
  if (theirs.device.type == ours.type && theirs.device.id == ours.id) return BP_OK;
  return fail(BP_INVALID_ARGUMENT, "dlpack.import: the tensor is of device " +
                                       text_of(theirs.device) + ", and " + target.name + " is " +
                                       text_of(ours));
}

bp_status read_dtype(const bp_dlpack_dtype& theirs, bp_tensor& ours) {
  for (const DlpackDtype& row : kDlpackDtypes) {
    if (row.theirs.code != theirs.code || row.theirs.bits != theirs.bits || theirs.lanes != 1) {
      continue;
    }
    ours.dtype = row.ours;
    return BP_OK;
  }
  return fail(BP_UNSUPPORTED, "dlpack.import: no dtype of 8 bits or more has code " +
                                  std::to_string(theirs.code) + ", " + std::to_string(theirs.bits) +
                                  " bits and " + std::to_string(theirs.lanes) + " lanes");
}

bp_status read_shape(const bp_dlpack_tensor& theirs, Foreign& ours) {
  if (theirs.ndim < 0 || theirs.ndim > BP_MAX_RANK) {
    return fail(BP_INVALID_ARGUMENT, "dlpack.import: ndim is " + std::to_string(theirs.ndim) +
                                         "; 0 to " + std::to_string(BP_MAX_RANK) + " are allowed");
  }
  if (theirs.ndim > 0 && theirs.shape == nullptr) return is_null("dlpack.import: shape");
  const auto rank = static_cast<uint32_t>(theirs.ndim);
  int64_t stride = 1;
  for (uint32_t i = rank; i-- > 0;) {
    const int64_t extent = theirs.shape[i];
    if (extent < 0) {
      return fail(BP_INVALID_ARGUMENT, "dlpack.import: shape[" + std::to_string(i) + "] is " +
                                           std::to_string(extent) + "; allowed: 0 and above");
    }
    ours.shape[i] = extent;
    ours.strides[i] = theirs.strides == nullptr ? stride : theirs.strides[i];
    if (__builtin_mul_overflow(stride, std::max<int64_t>(1, extent), &stride)) {
      return fail(BP_INVALID_ARGUMENT,
                  "dlpack.import: the product of the extents does not fit 64 bits; allowed: below "
                  "2^63, where an extent of 0 counts as 1");
    }
  }
  ours.lent.tensor.shape = ours.shape;
  ours.lent.tensor.strides = ours.strides;
  ours.lent.tensor.ndim = rank;
  return BP_OK;
}

// Finds the backend's buffer that the bytes lie in, for one of its own tensors that came back.
bool find_buffer(const bp_target& target, const Place& place, uint64_t alignment_bytes,
                 bp_tensor& out) {
  const bp_allocator_ops& m = *target.allocator;
  bp_address_info info{};
  info.struct_size = sizeof(info);
  info.struct_type = BP_STRUCT_ADDRESS_INFO;
  const bp_status status = m.address_info(m.self, place.begin, &info);
  if (status != BP_OK || info.device != target.device) return false;
  const uint64_t offset = info.byte_offset + place.first_offset;
  if (place.size_bytes > info.size_bytes - info.byte_offset || offset % alignment_bytes != 0) {
    return false;
  }
  out.buffer = info.buffer;
  out.byte_offset = offset;
  return true;
}

bp_status place_tensor(const bp_target& target, const bp_dlpack_tensor& theirs, Foreign& ours) {
  bp_tensor& tensor = ours.lent.tensor;
  const uint64_t item_bytes = bp_dtype_bits(tensor.dtype) / 8;
  uint64_t first = 0;
  if (__builtin_add_overflow(reinterpret_cast<uintptr_t>(theirs.data), theirs.byte_offset,
                             &first)) {
    return fail(BP_INVALID_ARGUMENT,
                "dlpack.import: byte_offset is " + std::to_string(theirs.byte_offset) +
                    ", and data + byte_offset does not fit 64 bits; correct byte_offset");
  }
  Place place;
  if (!place_of(tensor, item_bytes, first, place)) {
    return fail(
        BP_INVALID_ARGUMENT,
        "dlpack.import: shape and strides reach beyond the address space; correct the strides");
  }
  if (place.size_bytes == 0) return BP_OK;  // A tensor without elements needs no buffer.
  if (theirs.data == nullptr) return is_null("dlpack.import: data of a tensor with elements");
  if (first % item_bytes != 0) {
    return fail(BP_INVALID_ARGUMENT, "dlpack.import: address " + std::to_string(first) +
                                         " is no multiple of " + std::to_string(item_bytes) +
                                         ", the size of " + bp_dtype_name(tensor.dtype));
  }
  const uint64_t alignment = target.properties->heaps->tensor_offset_alignment_bytes;
  if (find_buffer(target, place, alignment, tensor)) return BP_OK;
  if (place.first_offset % alignment != 0) {
    return fail(BP_UNSUPPORTED, "dlpack.import: the first element lies " +
                                    std::to_string(place.first_offset) +
                                    " bytes behind the lowest one; " + target.name +
                                    " takes multiples of " + std::to_string(alignment));
  }
  const bp_allocator_ops& m = *target.allocator;
  const bp_status status =
      m.wrap_address(m.self, target.device, place.begin, place.size_bytes, &ours.wrapped);
  tensor.buffer = ours.wrapped;
  tensor.byte_offset = place.first_offset;
  return status;
}

bp_status import_source(const bp_target* target, const Source& source,
                        const bp_foreign_tensor** out_tensor) {
  if (target == nullptr) return is_null("dlpack.import: target");
  if (out_tensor == nullptr) return is_null("dlpack.import: out_tensor");
  constexpr uint64_t kFlags =
      BP_DLPACK_READ_ONLY | BP_DLPACK_IS_COPIED | BP_DLPACK_PADDED_SUB_BYTES;
  if ((source.flags & ~kFlags) != 0) {
    return fail(BP_UNSUPPORTED, "dlpack.import: flags are " + std::to_string(source.flags) +
                                    "; the bits " + std::to_string(kFlags) + " are known");
  }
  auto ours = std::make_unique<Foreign>();
  ours->lent.struct_size = sizeof(bp_foreign_tensor);
  ours->lent.struct_type = BP_STRUCT_FOREIGN_TENSOR;
  ours->lent.flags = source.flags;
  ours->allocator = target->allocator;
  ours->source = source;
  const bp_dlpack_tensor& theirs = *source.tensor;
  bp_status status = check_device(*target, theirs);
  if (status == BP_OK) status = read_dtype(theirs.dtype, ours->lent.tensor);
  if (status == BP_OK) status = read_shape(theirs, *ours);
  if (status == BP_OK) status = place_tensor(*target, theirs, *ours);
  if (status != BP_OK) return status;
  *out_tensor = &ours.release()->lent;
  return BP_OK;
}

}  // namespace
}  // namespace bp::core

bp_status bp_dlpack_find_target(const bp_registry* registry, bp_dlpack_device device,
                                const bp_target** out_target) {
  if (registry == nullptr) return bp::is_null("dlpack.find_target: registry");
  if (out_target == nullptr) return bp::is_null("dlpack.find_target: out_target");
  const uint64_t count = bp_registry_target_count(registry);
  for (uint64_t i = 0; i < count; ++i) {
    const bp_target* const target = bp_registry_target(registry, i);
    const bp_device_properties& p = *target->properties;
    if (device.type == 0 || p.dlpack_device_type != device.type || p.dlpack_device_id != device.id)
      continue;
    *out_target = target;
    return BP_OK;
  }
  return bp::fail(BP_NOT_FOUND, "dlpack.find_target: none of " + std::to_string(count) +
                                    " devices is " + bp::core::text_of(device));
}

bp_status bp_dlpack_import(const bp_target* target, bp_dlpack_managed* managed,
                           const bp_foreign_tensor** out_tensor) {
  return bp::core::guarded([&] {
    if (managed == nullptr) return bp::is_null("dlpack.import: managed");
    if (managed->version_major != bp::core::kDlpackMajor) {
      return bp::fail(BP_INCOMPATIBLE, "dlpack.import: the tensor is of DLPack " +
                                           std::to_string(managed->version_major) + "." +
                                           std::to_string(managed->version_minor) +
                                           "; versions 1.* are served");
    }
    return bp::core::import_source(
        target,
        {&managed->tensor, managed->flags, managed, bp::core::end_managed<bp_dlpack_managed>},
        out_tensor);
  });
}

bp_status bp_dlpack_import_unversioned(const bp_target* target, bp_dlpack_unversioned* managed,
                                       const bp_foreign_tensor** out_tensor) {
  return bp::core::guarded([&] {
    if (managed == nullptr) return bp::is_null("dlpack.import: managed");
    return bp::core::import_source(
        target, {&managed->tensor, 0, managed, bp::core::end_managed<bp_dlpack_unversioned>},
        out_tensor);
  });
}

bp_status bp_foreign_tensor_release(const bp_foreign_tensor* tensor) {
  if (tensor == nullptr) return BP_OK;
  static_assert(offsetof(bp::core::Foreign, lent) == 0);
  const std::unique_ptr<const bp::core::Foreign> ours(
      reinterpret_cast<const bp::core::Foreign*>(tensor));
  bp_status status = BP_OK;
  if (ours->wrapped != nullptr) {
    status = ours->allocator->deallocate(ours->allocator->self, ours->wrapped, nullptr);
  }
  ours->source.end(ours->source.managed);
  return status;
}
