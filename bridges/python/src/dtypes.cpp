// The dtypes of the library as objects of Python, one for each.
#include <unordered_map>

#include "binding.hpp"

namespace bp::python {
namespace {

// A dtype by its number. It equals itself, and its name as a str.
struct DType {
  bp_dtype number;
  const char* name() const { return bp_dtype_name(number); }
};

// The objects that were handed out. They live until the process ends.
std::unordered_map<bp_dtype, PyObject*>& objects() {
  static auto* const made = new std::unordered_map<bp_dtype, PyObject*>;
  return *made;
}

bp_dtype number_of(const std::string& name, const char* what) {
  const bp_dtype dtype = bp_dtype_from_name(name.c_str());
  if (dtype == 0) {
    throw Error(BP_INVALID_ARGUMENT, std::string(what) + " is '" + name +
                                         "', which is no dtype; allowed are names such as 'f32', "
                                         "'i64' and 'bool', and the dtypes of loaded backends");
  }
  return dtype;
}

bool equals(const DType& a, nb::handle b) {
  if (nb::isinstance<DType>(b)) return nb::cast<DType>(b).number == a.number;
  return nb::isinstance<nb::str>(b) && nb::cast<std::string>(b) == a.name();
}

}  // namespace

PyObject* dtype_object(bp_dtype dtype) {
  PyObject*& object = objects()[dtype];
  if (object == nullptr) object = nb::cast(DType{dtype}).release().ptr();
  return object;
}

bp_dtype to_dtype(nb::handle value, const char* what) {
  if (nb::isinstance<DType>(value)) return nb::cast<DType>(value).number;
  if (nb::isinstance<nb::str>(value)) return number_of(nb::cast<std::string>(value), what);
  raise(PyExc_TypeError, std::string(what) + " is " + type_text(value) +
                             "; allowed: a backplane.DType, or its name, such as 'f32'");
}

void bind_dtypes(nb::module_& module) {
  nb::class_<DType>(module, "DType",
                    "The type of the elements of a tensor. There is one object for each dtype, and "
                    "it equals its name: `t.dtype == 'f32'`.")
      .def_prop_ro("name", &DType::name, "The name: 'f32'.")
      .def_prop_ro(
          "bits", [](const DType& d) { return bp_dtype_bits(d.number); }, "Bits of one element.")
      .def("__repr__",
           [](const DType& d) { return "backplane.dtype('" + std::string(d.name()) + "')"; })
      .def("__str__", &DType::name)
      .def("__hash__", [](const DType& d) { return nb::hash(nb::str(d.name())); })
      .def(
          "__eq__", [](const DType& d, nb::handle other) { return equals(d, other); },
          nb::arg("other").none())
      .def(
          "__ne__", [](const DType& d, nb::handle other) { return !equals(d, other); },
          nb::arg("other").none())
      .def("__reduce__", [](const DType& d) {
        return nb::make_tuple(nb::module_::import_("backplane").attr("dtype"),
                              nb::make_tuple(nb::str(d.name())));
      });
  module.def(
      "dtype", [](nb::handle value) { return nb::borrow(dtype_object(to_dtype(value, "dtype"))); },
      nb::arg("name"), "The dtype of this name, such as 'f32'.");
}

}  // namespace bp::python
