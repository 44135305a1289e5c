// Exports tensors through DLPack. Nothing is copied: the taker gets the address of the elements.
#include <algorithm>
#include <cstddef>
#include <iterator>
#include <memory>
#include <string>

#include "registry/boundary/fail.hpp"
#include "registry/boundary/guard.hpp"
#include "registry/boundary/tables.hpp"
#include "registry/tensors/dlpack.hpp"

namespace bp::core {
namespace {

// The end of the last member of the first release.
constexpr uint32_t kFirstExportDesc = offsetof(bp_dlpack_export_desc, user_data) + sizeof(void*);

// What the taker gets, with the data that it points to.
template <typename Managed>
struct Exported {
  Managed managed{};
  int64_t shape[BP_MAX_RANK] = {}, strides[BP_MAX_RANK] = {};
  void (*release)(void* user_data) = nullptr;
  void* user_data = nullptr;

  static void end(Managed* managed) {
    const std::unique_ptr<Exported> ours(static_cast<Exported*>(managed->manager_context));
    if (ours->release != nullptr) ours->release(ours->user_data);
  }
};

bp_status read_export(const bp_dlpack_export_desc* desc, uint64_t allowed_flags,
                      bp_dlpack_export_desc& out) {
  if (desc == nullptr) return is_null("dlpack.export: desc");
  uint32_t offset = 0;
  if (bp_struct_read(desc, kFirstExportDesc, &out, sizeof(out), &offset) != BP_OK) {
    std::string defect = struct_defect(desc, BP_STRUCT_DLPACK_EXPORT_DESC, kFirstExportDesc);
    if (defect.empty()) {
      defect = "byte " + std::to_string(offset) + " is not zero, and this host does not know it";
    }
    return fail(BP_INCOMPATIBLE, "dlpack.export: desc: " + defect);
  }
  if (out.struct_type != BP_STRUCT_DLPACK_EXPORT_DESC) {
    return fail(BP_INVALID_ARGUMENT, "dlpack.export: desc: struct_type is " +
                                         std::to_string(out.struct_type) + ", not " +
                                         std::to_string(BP_STRUCT_DLPACK_EXPORT_DESC));
  }
  if (out.tensor == nullptr) return is_null("dlpack.export: desc: tensor");
  if ((out.flags & ~allowed_flags) == 0) return BP_OK;
  return fail(BP_INVALID_ARGUMENT, "dlpack.export: desc: flags are " + std::to_string(out.flags) +
                                       "; the bits " + std::to_string(allowed_flags) +
                                       " are allowed");
}

bp_status check_tensor(const bp_tensor& ours) {
  if (ours.layout != nullptr) {
    return fail(BP_UNSUPPORTED,
                "dlpack.export: DLPack cannot describe the layout of the tensor; convert the "
                "tensor to strides");
  }
  if (ours.ndim > BP_MAX_RANK || (ours.ndim > 0 && (!ours.shape || !ours.strides))) {
    return fail(BP_INVALID_ARGUMENT, "dlpack.export: ndim is " + std::to_string(ours.ndim) +
                                         "; up to " + std::to_string(BP_MAX_RANK) +
                                         ", with shape and strides, are allowed");
  }
  if (ours.flags != 0) {
    return fail(BP_INVALID_ARGUMENT, "dlpack.export: flags of the tensor are " +
                                         std::to_string(ours.flags) + "; 0 is allowed");
  }
  for (uint32_t i = 0; i < ours.ndim; ++i) {
    if (ours.shape[i] >= 0) continue;
    return fail(BP_INVALID_ARGUMENT, "dlpack.export: shape[" + std::to_string(i) + "] is " +
                                         std::to_string(ours.shape[i]) + "; allowed: 0 and above");
  }
  return BP_OK;
}

// Checks that the elements lie in their buffer, as far as the allocator can say.
bp_status check_place(const bp_target& target, const bp_tensor& ours, uint64_t item_bytes) {
  Place place;
  if (!place_of(ours, item_bytes, ours.byte_offset, place)) {
    if (place.first_offset <= ours.byte_offset) {
      return fail(BP_INVALID_ARGUMENT,
                  "dlpack.export: byte_offset, shape and strides reach beyond the address space; "
                  "correct them");
    }
    return fail(BP_INVALID_ARGUMENT, "dlpack.export: the elements begin " +
                                         std::to_string(place.first_offset - ours.byte_offset) +
                                         " bytes before their buffer");
  }
  if (place.size_bytes == 0) return BP_OK;  // A tensor without elements needs no buffer.
  if (ours.buffer == nullptr) return is_null("dlpack.export: buffer of a tensor with elements");
  if (ours.byte_offset % item_bytes != 0) {
    return fail(BP_INVALID_ARGUMENT, "dlpack.export: byte_offset is " +
                                         std::to_string(ours.byte_offset) + "; multiples of " +
                                         std::to_string(item_bytes) + ", the size of " +
                                         bp_dtype_name(ours.dtype) + ", are allowed");
  }
  // The allocator is asked by a copy of no bytes behind the last element, which it refuses outside
  // of the buffer.
  const bp_buffer_ref end{ours.buffer, place.begin + place.size_bytes, 0};
  const bp_allocator_ops& m = *target.allocator;
  if (m.copy(m.self, target.default_stream, &end, &end) != BP_INVALID_ARGUMENT) return BP_OK;
  return fail(BP_INVALID_ARGUMENT,
              "dlpack.export: the elements take bytes " + std::to_string(place.begin) + " to " +
                  std::to_string(place.begin + place.size_bytes) + " of a buffer that is smaller");
}

// Fills what both forms have in common.
bp_status write_tensor(const bp_target& target, const bp_tensor& ours, bp_dlpack_tensor& out) {
  const bp_device_properties& p = *target.properties;
  if (p.dlpack_device_type == 0) {
    return fail(BP_UNSUPPORTED,
                "dlpack.export: DLPack has no name for " + std::string(target.name));
  }
  const auto* const row = std::ranges::find(kDlpackDtypes, ours.dtype, &DlpackDtype::ours);
  if (row == std::end(kDlpackDtypes)) {
    const char* const name = bp_dtype_name(ours.dtype);
    return fail(BP_UNSUPPORTED, "dlpack.export: DLPack has no dtype of 8 bits or more for dtype " +
                                    (name == nullptr ? std::to_string(ours.dtype) : name));
  }
  out.device = {p.dlpack_device_type, p.dlpack_device_id};
  out.dtype = row->theirs;
  out.ndim = static_cast<int32_t>(ours.ndim);
  // Some takers ignore the offset, so the address includes it.
  out.byte_offset = 0;
  const bp_status placed = check_place(target, ours, bp_dtype_bits(ours.dtype) / 8);
  if (placed != BP_OK || ours.buffer == nullptr) return placed;
  const bp_allocator_ops& m = *target.allocator;
  uint64_t address = 0;
  const bp_status status = m.address(m.self, ours.buffer, &address);
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the ABI has addresses as numbers.
  if (status == BP_OK) out.data = reinterpret_cast<void*>(address + ours.byte_offset);
  return status;
}

template <typename Managed>
bp_status export_tensor(const bp_target* target, const bp_dlpack_export_desc* theirs,
                        uint64_t allowed_flags, Managed** out_managed,
                        std::unique_ptr<Exported<Managed>>& out, uint64_t& out_flags) {
  if (target == nullptr) return is_null("dlpack.export: target");
  if (out_managed == nullptr) return is_null("dlpack.export: out_managed");
  bp_dlpack_export_desc desc{};
  bp_status status = read_export(theirs, allowed_flags, desc);
  if (status == BP_OK) status = check_tensor(*desc.tensor);
  if (status != BP_OK) return status;
  out = std::make_unique<Exported<Managed>>();
  bp_dlpack_tensor& tensor = out->managed.tensor;
  status = write_tensor(*target, *desc.tensor, tensor);
  if (status != BP_OK) return status;
  std::copy_n(desc.tensor->shape, desc.tensor->ndim, out->shape);
  std::copy_n(desc.tensor->strides, desc.tensor->ndim, out->strides);
  tensor.shape = out->shape;
  tensor.strides = out->strides;
  out->release = desc.release;
  out->user_data = desc.user_data;
  out->managed.manager_context = out.get();
  out->managed.deleter = Exported<Managed>::end;
  out_flags = desc.flags;
  return BP_OK;
}

}  // namespace
}  // namespace bp::core

bp_status bp_dlpack_export(const bp_target* target, const bp_dlpack_export_desc* desc,
                           bp_dlpack_managed** out_managed) {
  return bp::core::guarded([&] {
    std::unique_ptr<bp::core::Exported<bp_dlpack_managed>> ours;
    uint64_t flags = 0;
    const bp_status status = bp::core::export_tensor(
        target, desc, BP_DLPACK_READ_ONLY | BP_DLPACK_IS_COPIED, out_managed, ours, flags);
    if (status != BP_OK) return status;
    ours->managed.version_major = bp::core::kDlpackMajor;
    ours->managed.version_minor = bp::core::kDlpackMinor;
    ours->managed.flags = flags;
    *out_managed = &ours.release()->managed;
    return status;
  });
}

bp_status bp_dlpack_export_unversioned(const bp_target* target, const bp_dlpack_export_desc* desc,
                                       bp_dlpack_unversioned** out_managed) {
  return bp::core::guarded([&] {
    std::unique_ptr<bp::core::Exported<bp_dlpack_unversioned>> ours;
    uint64_t flags = 0;
    const bp_status status = bp::core::export_tensor(target, desc, 0, out_managed, ours, flags);
    if (status == BP_OK) *out_managed = &ours.release()->managed;
    return status;
  });
}
