// What the parts of the extension share: who makes which classes, and the ways between Python's
// objects and the runtime's.
//
// Rules for everything here, unless it says otherwise:
//   Threads    The caller holds the GIL.
//   Blocking   What may wait for a device, or load a file, releases the GIL meanwhile.
//   Errors     Throws bp::Error, which becomes the exception class of its status, or
//   nb::python_error
//              for an exception that Python has set already.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <utility>

#include "backplane/host.h"
#include "backplane/runtime/tensor.hpp"

namespace bp::python {

namespace nb = nanobind;

// Each adds its classes and functions to the module.
void bind_errors(nb::module_& module);
void bind_dtypes(nb::module_& module);
void bind_devices(nb::module_& module);
void bind_streams(nb::module_& module);
void bind_tensors(nb::module_& module);
void bind_memory(nb::module_& module);
void bind_exchange(nb::module_& module);
void bind_autograd(nb::module_& module);
void bind_ops(nb::module_& module);
void bind_files(nb::module_& module);

// ---- Errors -------------------------------------------------------------------------------------

// Sets Python's exception for the C++ exception that is being handled. Call it in a catch block.
void set_python_error() noexcept;

// Throws nb::python_error of the Python class `type` (PyExc_TypeError, ...).
[[noreturn]] void raise(PyObject* type, const std::string& message);

// Throws Error with the text of this thread's error slot unless `status` is BP_OK.
inline void check_host(bp_status status) { check(status, nullptr); }

// Throws Error in a process that was forked after a backend was loaded: threads and drivers of a
// backend do not survive a fork.
extern bool is_forked;
[[noreturn]] void fail_forked();
inline void check_process() {
  if (is_forked) [[unlikely]]
    fail_forked();
}

// Releases the GIL in a scope that may wait, in a process that may use devices.
class Released {
 public:
  Released() = default;

 private:
  struct Check {
    Check() { check_process(); }
  };
  Check check_;  // It throws while the GIL is held.
  nb::gil_scoped_release released_;
};

// ---- Dtypes -------------------------------------------------------------------------------------

// Returns a borrowed reference to the one object of the dtype.
PyObject* dtype_object(bp_dtype dtype);

// Takes a backplane.DType or a name such as "f32". `what` names the argument in messages.
bp_dtype to_dtype(nb::handle value, const char* what);

// ---- Devices ------------------------------------------------------------------------------------

// Takes a backplane.Device or a name such as "cpu:0", which may load a backend.
Device to_device(nb::handle value, const char* what);

// The device of calls that name none: backplane.default_device().
Device default_device();

// ---- Tensors ------------------------------------------------------------------------------------

extern PyTypeObject* tensor_type;

inline bool is_tensor(nb::handle value) {
  return value.type().ptr() == reinterpret_cast<PyObject*>(tensor_type) ||
         PyType_IsSubtype(Py_TYPE(value.ptr()), tensor_type) != 0;
}

// The value must be a tensor. The reference lives as long as the Python object.
inline const Tensor& tensor_of(nb::handle value) { return *nb::inst_ptr<Tensor>(value); }

nb::object tensor_object(Tensor tensor);

// Returns the tensor as another dtype. It composes what the op `copy` does not convert.
Tensor converted(const Tensor& tensor, bp_dtype dtype);

// Takes a sequence of integers, or one integer for a list of one.
std::vector<int64_t> to_ints(nb::handle value, const char* what);

nb::tuple tuple_of(IntList list);

// Takes a number of Python, or of a library whose numbers convert to int or float.
Scalar to_scalar(nb::handle value, const char* what);
bool is_number(nb::handle value);

// Returns "a list", "a numpy.ndarray": the type of a value for messages.
std::string type_text(nb::handle value);

}  // namespace bp::python
