// The capsules of Python in which tensors of DLPack change hands. A capsule that nobody took ends
// its tensor; whoever takes the tensor gives the capsule another name.
#include <torch/csrc/utils/pybind.h>

#include "exchange.h"

namespace py = pybind11;

namespace bpt {
namespace {

constexpr char kVersioned[] = "dltensor_versioned";
constexpr char kUnversioned[] = "dltensor";

template <typename Managed>
void end_capsule(PyObject* capsule, const char* name) {
  if (!PyCapsule_IsValid(capsule, name)) return;
  auto* managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule, name));
  if (managed->deleter != nullptr) managed->deleter(managed);
}

void end_versioned(PyObject* capsule) { end_capsule<bp_dlpack_managed>(capsule, kVersioned); }
void end_unversioned(PyObject* capsule) {
  end_capsule<bp_dlpack_unversioned>(capsule, kUnversioned);
}

py::object capsule_of(const at::Tensor& tensor, bool is_versioned, uint64_t flags) {
  void* managed = nullptr;
  {
    const py::gil_scoped_release unlocked;
    managed = is_versioned ? static_cast<void*>(to_dlpack(tensor, flags))
                           : static_cast<void*>(to_dlpack_unversioned(tensor));
  }
  return py::reinterpret_steal<py::object>(
      PyCapsule_New(managed, is_versioned ? kVersioned : kUnversioned,
                    is_versioned ? &end_versioned : &end_unversioned));
}

template <typename Managed>
Foreign take_out(const py::object& capsule, const char* name, const char* used, int index) {
  auto* managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule.ptr(), name));
  Foreign foreign = take(managed, static_cast<c10::DeviceIndex>(index));
  PyCapsule_SetName(capsule.ptr(), used);
  return foreign;
}

at::Tensor tensor_of(const py::object& capsule, int index) {
  Foreign foreign;
  if (PyCapsule_IsValid(capsule.ptr(), kVersioned)) {
    foreign = take_out<bp_dlpack_managed>(capsule, kVersioned, "used_dltensor_versioned", index);
  } else if (PyCapsule_IsValid(capsule.ptr(), kUnversioned)) {
    foreign = take_out<bp_dlpack_unversioned>(capsule, kUnversioned, "used_dltensor", index);
  } else {
    throw py::value_error(
        "torch_backplane: the tensor of the other library is no capsule of DLPack, or was taken "
        "already.");
  }
  return from_foreign(std::move(foreign), static_cast<c10::DeviceIndex>(index));
}

}  // namespace

void add_capsules(py::module_& m) {
  m.attr("DLPACK_READ_ONLY") = uint64_t{BP_DLPACK_READ_ONLY};
  m.attr("DLPACK_IS_COPIED") = uint64_t{BP_DLPACK_IS_COPIED};
  m.def("to_dlpack", &capsule_of);
  m.def("from_dlpack", &tensor_of);
}

}  // namespace bpt
