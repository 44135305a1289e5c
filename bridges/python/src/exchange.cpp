// DLPack: tensors to and from other libraries, without a copy.
#include <algorithm>
#include <memory>

#include "backplane/blocks.h"
#include "backplane/dlpack.h"
#include "binding.hpp"

namespace bp::python {
namespace {

constexpr const char* kVersioned = "dltensor_versioned";
constexpr const char* kUnversioned = "dltensor";

// Ends a managed tensor that nobody took out of its capsule.
template <typename Managed>
void end_capsule(PyObject* capsule, const char* name) {
  if (PyCapsule_IsValid(capsule, name) == 0) return;  // The taker has renamed it.
  auto* const managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule, name));
  if (managed->deleter != nullptr) managed->deleter(managed);
}
void end_versioned(PyObject* capsule) { end_capsule<bp_dlpack_managed>(capsule, kVersioned); }
void end_unversioned(PyObject* capsule) {
  end_capsule<bp_dlpack_unversioned>(capsule, kUnversioned);
}

nb::object new_capsule(void* managed, const char* name, PyCapsule_Destructor end) {
  PyObject* capsule = PyCapsule_New(managed, name, end);
  if (capsule == nullptr) throw nb::python_error();
  return nb::steal(capsule);
}

// ---- For others ---------------------------------------------------------------------------------

void release_tensor(void* held) { delete static_cast<Tensor*>(held); }

// The taker ends the tensor on any thread. That needs no GIL.
nb::object export_capsule(const Tensor& tensor, bool is_versioned, bool is_copied) {
  check_process();
  const bp_target& target = tensor.device().target();
  auto held = std::make_unique<Tensor>(tensor);
  const bp_dlpack_export_desc desc{
      .struct_size = sizeof(bp_dlpack_export_desc),
      .struct_type = BP_STRUCT_DLPACK_EXPORT_DESC,
      .next = nullptr,
      .tensor = tensor.get(),
      .flags = is_copied && is_versioned ? uint64_t{BP_DLPACK_IS_COPIED} : 0,
      .release = &release_tensor,
      .user_data = held.get()};
  if (is_versioned) {
    bp_dlpack_managed* managed = nullptr;
    check_host(bp_dlpack_export(&target, &desc, &managed));
    static_cast<void>(held.release());  // The taker ends it.
    return new_capsule(managed, kVersioned, &end_versioned);
  }
  bp_dlpack_unversioned* managed = nullptr;
  check_host(bp_dlpack_export_unversioned(&target, &desc, &managed));
  static_cast<void>(held.release());
  return new_capsule(managed, kUnversioned, &end_unversioned);
}

// ---- From others --------------------------------------------------------------------------------

struct ReleaseForeign {
  void operator()(const bp_foreign_tensor* foreign) const { bp_foreign_tensor_release(foreign); }
};
using Foreign = std::unique_ptr<const bp_foreign_tensor, ReleaseForeign>;

void release_foreign(void* foreign) {
  bp_foreign_tensor_release(static_cast<const bp_foreign_tensor*>(foreign));
}

// Takes the managed tensor out of its capsule.
Foreign take(const bp_target& target, PyObject* capsule) {
  const bp_foreign_tensor* foreign = nullptr;
  if (PyCapsule_IsValid(capsule, kVersioned) != 0) {
    void* const managed = PyCapsule_GetPointer(capsule, kVersioned);
    check_host(bp_dlpack_import(&target, static_cast<bp_dlpack_managed*>(managed), &foreign));
    PyCapsule_SetName(capsule, "used_dltensor_versioned");
  } else if (PyCapsule_IsValid(capsule, kUnversioned) != 0) {
    void* const managed = PyCapsule_GetPointer(capsule, kUnversioned);
    check_host(bp_dlpack_import_unversioned(&target, static_cast<bp_dlpack_unversioned*>(managed),
                                            &foreign));
    PyCapsule_SetName(capsule, "used_dltensor");
  } else {
    raise(PyExc_BufferError,
          "__dlpack__() returned no capsule named 'dltensor' or 'dltensor_versioned', or one that "
          "was taken before");
  }
  return Foreign(foreign);
}

// Returns the bytes of the buffer that hold the elements.
bp_buffer_ref range_of(const bp_tensor& view) {
  int64_t lowest = 0, highest = 0;
  for (uint32_t axis = 0; axis < view.ndim; ++axis) {
    const int64_t last = (view.shape[axis] - 1) * view.strides[axis];
    (last < 0 ? lowest : highest) += last;
  }
  const auto item_bytes = int64_t{bp_dtype_bits(view.dtype) / 8};
  return {view.buffer, view.byte_offset + static_cast<uint64_t>(lowest * item_bytes),
          static_cast<uint64_t>((highest - lowest + 1) * item_bytes)};
}

Tensor wrap(const bp_target& target, Foreign foreign) {
  const bp_tensor& view = foreign->tensor;
  const IntList shape(view.shape, view.ndim);
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) {
    return empty(shape, view.dtype, Device(target));
  }
  bp_block_wrap_desc desc{};
  desc.struct_size = sizeof(desc);
  desc.struct_type = BP_STRUCT_BLOCK_WRAP_DESC;
  desc.ref = range_of(view);
  desc.release = &release_foreign;
  desc.user_data = const_cast<bp_foreign_tensor*>(foreign.get());
  bp_block* block = nullptr;
  check_host(bp_block_wrap(&target, current_stream(target), &desc, &block));
  const bp_foreign_tensor* const kept = foreign.release();  // The block ends it now.
  try {
    return from_block(block, kept->tensor, Device(target));
  } catch (...) {
    bp_block_free(block);
    throw;
  }
}

// Returns the tensor, and whether its owner forbids to write to it.
nb::tuple import_capsule(nb::handle capsule, nb::handle device) {
  const bp_target& target = to_device(device, "device").target();
  Foreign foreign = take(target, capsule.ptr());
  const bool is_read_only = (foreign->flags & BP_DLPACK_READ_ONLY) != 0;
  return nb::make_tuple(tensor_object(wrap(target, std::move(foreign))), is_read_only);
}

nb::object find_dlpack_device(int32_t type, int32_t id) {
  const bp_target* target = nullptr;
  const bp_status status = bp_dlpack_find_target(default_registry(), {type, id}, &target);
  if (status == BP_NOT_FOUND) return nb::none();
  check_host(status);
  return nb::cast(Device(*target));
}

}  // namespace

void bind_exchange(nb::module_& module) {
  module.def("_export_capsule", &export_capsule, nb::arg("tensor"), nb::arg("is_versioned"),
             nb::arg("is_copied"));
  module.def("_import_capsule", &import_capsule, nb::arg("capsule"), nb::arg("device"));
  module.def("_find_dlpack_device", &find_dlpack_device, nb::arg("type"), nb::arg("id"));
  module.def(
      "_dlpack_device",
      [](const Device& device) {
        const bp_device_properties& p = *device.target().properties;
        return nb::make_tuple(p.dlpack_device_type, p.dlpack_device_id);
      },
      nb::arg("device"), "DLPack's type and id of a device; type 0: DLPack has no name for it.");
}

}  // namespace bp::python
