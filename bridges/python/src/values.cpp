// Numbers of Python as scalars of the library.
#include <string_view>

#include "binding.hpp"

namespace bp::python {
namespace {

Scalar integer_scalar(PyObject* integer, const char* what) {
  int overflow = 0;
  const int64_t value = PyLong_AsLongLongAndOverflow(integer, &overflow);
  if (overflow == 0) {
    if (value == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
    return value;
  }
  const uint64_t wide = overflow > 0 ? PyLong_AsUnsignedLongLong(integer) : 0;
  if (overflow < 0 || PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    raise(PyExc_OverflowError, std::string(what) +
                                   " is an integer of more than 64 bits; allowed: "
                                   "-2^63 to 2^64 - 1");
  }
  return wide;
}

// A bool of Python, or of numpy, which converts to a float and not to a bool by itself.
bool is_bool(PyObject* p) {
  const std::string_view name = Py_TYPE(p)->tp_name;
  return PyBool_Check(p) || name == "numpy.bool" || name == "numpy.bool_";
}

}  // namespace

bool is_number(nb::handle value) {
  PyObject* const p = value.ptr();
  if (PyBool_Check(p) || PyLong_Check(p) || PyFloat_Check(p)) return true;
  if (is_tensor(value) || PySequence_Check(p) != 0) return false;
  return PyIndex_Check(p) != 0 ||
         (Py_TYPE(p)->tp_as_number != nullptr && Py_TYPE(p)->tp_as_number->nb_float != nullptr);
}

Scalar to_scalar(nb::handle value, const char* what) {
  PyObject* const p = value.ptr();
  if (is_bool(p)) return PyObject_IsTrue(p) == 1;
  if (PyLong_Check(p)) return integer_scalar(p, what);
  if (PyFloat_Check(p)) return PyFloat_AS_DOUBLE(p);
  if (!is_number(value)) {
    raise(PyExc_TypeError, std::string(what) + " is " + type_text(value) + "; allowed: a number");
  }
  if (PyIndex_Check(p) != 0) {
    const nb::object integer = nb::steal(PyNumber_Index(p));
    if (!integer.is_valid()) throw nb::python_error();
    return integer_scalar(integer.ptr(), what);
  }
  const double number = PyFloat_AsDouble(p);
  if (number == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
  return number;
}

}  // namespace bp::python
