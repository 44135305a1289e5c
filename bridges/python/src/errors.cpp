// Failures of the library become exceptions of Python. backplane/_errors.py has a class for each
// status.
#include <exception>

#include "binding.hpp"

namespace bp::python {

bool is_forked = false;

void fail_forked() {
  throw Error(BP_UNSUPPORTED,
              "this process was forked after Backplane had loaded a backend, whose threads and "
              "drivers do not survive a fork; use the start method 'spawn', or load the backend in "
              "the child alone");
}

namespace {

void set_error(bp_status status, const char* text) {
  try {
    const nb::object error = nb::module_::import_("backplane._errors").attr("make")(status, text);
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  } catch (nb::python_error& failure) {
    failure.restore();
  }
}

void translate(const std::exception_ptr& exception, void*) {
  try {
    std::rethrow_exception(exception);
  } catch (const Error& error) {
    set_error(error.code(), error.what());
  }
}

}  // namespace

void set_python_error() noexcept {
  try {
    throw;
  } catch (nb::python_error& error) {
    error.restore();
  } catch (const Error& error) {
    set_error(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
}

void raise(PyObject* type, const std::string& message) {
  PyErr_SetString(type, message.c_str());
  throw nb::python_error();
}

std::string type_text(nb::handle value) {
  if (value.is_none()) return "None";
  const std::string name = nb::cast<std::string>(value.type().attr("__qualname__"));
  const std::string module = nb::cast<std::string>(value.type().attr("__module__"));
  return "a " + (module == "builtins" ? name : module + "." + name);
}

void bind_errors(nb::module_& module) {
  nb::register_exception_translator(translate);
  module.def(
      "_set_forked", [] { is_forked = true; },
      "Makes every later use of a device in this process fail with a sentence.");
  module.def(
      "is_forked", [] { return is_forked; },
      "Whether this process was forked after a backend was loaded.");
  module.def("status_name", &bp_status_name, nb::arg("status"),
             "The name of a status of the library: 'out of memory' for 3.");
}

}  // namespace bp::python
