// The class Tensor: what it is, its views and its copies. Operators and indices are Python's
// (backplane/_operators.py, _indexing.py).
#include <cmath>

#include "backplane/runtime/autograd.hpp"
#include "backplane/runtime/tensor.hpp"
#include "binding.hpp"
#include "buffer.hpp"

namespace bp::python {

PyTypeObject* tensor_type = nullptr;

nb::object tensor_object(Tensor tensor) {
  nb::object object = nb::inst_alloc(reinterpret_cast<PyObject*>(tensor_type));
  new (nb::inst_ptr<Tensor>(object)) Tensor(std::move(tensor));
  nb::inst_mark_ready(object);
  return object;
}

nb::tuple tuple_of(IntList list) {
  PyObject* tuple = PyTuple_New(static_cast<Py_ssize_t>(list.size()));
  if (tuple == nullptr) throw nb::python_error();
  for (size_t i = 0; i < list.size(); ++i) {
    PyTuple_SET_ITEM(tuple, static_cast<Py_ssize_t>(i), PyLong_FromLongLong(list[i]));
  }
  return nb::steal<nb::tuple>(tuple);
}

std::vector<int64_t> to_ints(nb::handle value, const char* what) {
  const auto one = [&](nb::handle item) {
    PyObject* number = PyIndex_Check(item.ptr()) ? PyNumber_Index(item.ptr()) : nullptr;
    if (number == nullptr) {
      PyErr_Clear();
      raise(PyExc_TypeError, std::string(what) + " has " + type_text(item) + "; allowed: integers");
    }
    const int64_t result = PyLong_AsLongLong(number);
    Py_DECREF(number);
    if (result == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
    return result;
  };
  if (PyIndex_Check(value.ptr())) return {one(value)};
  if (!nb::isinstance<nb::list>(value) && !nb::isinstance<nb::tuple>(value)) {
    raise(PyExc_TypeError, std::string(what) + " is " + type_text(value) +
                               "; allowed: an integer, or a list or tuple of integers");
  }
  std::vector<int64_t> result;
  for (const nb::handle item : value) result.push_back(one(item));
  return result;
}

namespace {

// The op `copy` moves u16, u32 and u64, and converts none of them.
bool is_moved(bp_dtype dtype) { return dtype >= BP_U16 && dtype <= BP_U64; }

}  // namespace

Tensor converted(const Tensor& t, bp_dtype dtype) {
  if (t.dtype() != dtype && (is_moved(t.dtype()) || is_moved(dtype))) {
    const nb::object cast = nb::module_::import_("backplane._casts").attr("cast");
    return tensor_of(cast(tensor_object(t), nb::handle(dtype_object(dtype))));
  }
  const Released released;
  return t.to(dtype);
}

namespace {

// Takes f(2, 3) and f((2, 3)).
std::vector<int64_t> spread_ints(const nb::args& args, const char* what) {
  if (args.size() == 1 && PyIndex_Check(args[0].ptr()) == 0) return to_ints(args[0], what);
  return to_ints(args, what);
}

// Reads the one element as T while the GIL is released.
template <typename T>
T read_item(const Tensor& t) {
  check_process();
  const Released released;
  return t.item<T>();
}

nb::object item(const Tensor& t) {
  const bp_dtype dtype = t.dtype();
  if (dtype == BP_BOOL) return nb::bool_(read_item<bool>(t));
  if (dtype == BP_U64) return nb::int_(static_cast<uint64_t>(read_item<int64_t>(t)));
  const bool is_integer = (dtype >= BP_I4 && dtype < BP_U64) || dtype == BP_I2 || dtype == BP_U2;
  if (is_integer) return nb::int_(read_item<int64_t>(t));
  return nb::float_(read_item<double>(t));
}

void copy_from(const Tensor& t, const Tensor& source) {
  check_process();
  const bool is_cast = is_moved(t.dtype()) || is_moved(source.dtype());
  const Tensor given = is_cast ? converted(source, t.dtype()) : source;
  const Released released;
  t.copy_from(given);
}

std::string text_of(const Tensor& t) {
  check_process();
  if (is_moved(t.dtype())) {
    const nb::object text = nb::module_::import_("backplane._casts").attr("text");
    return nb::cast<std::string>(text(tensor_object(t)));
  }
  const Released released;
  return to_string(t);
}

Tensor to(const Tensor& t, nb::handle where) {
  check_process();
  if (nb::isinstance<Device>(where)) {
    const Device device = nb::cast<Device>(where);
    const Released released;
    return t.to(device);
  }
  const bool is_dtype_name = nb::isinstance<nb::str>(where) &&
                             bp_dtype_from_name(nb::cast<std::string>(where).c_str()) != 0;
  if (is_dtype_name || !nb::isinstance<nb::str>(where)) {
    return converted(t, to_dtype(where, "to: the argument"));
  }
  const Device device = to_device(where, "to: the argument");
  const Released released;
  return t.to(device);
}

void set_grad(const Tensor& t, nb::handle grad) {
  if (!grad.is_none() && !is_tensor(grad)) {
    raise(PyExc_TypeError, "grad is " + type_text(grad) + "; allowed: a backplane.Tensor, or None");
  }
  t.set_grad(grad.is_none() ? Tensor() : tensor_of(grad));
}

void bind_properties(nb::class_<Tensor>& c) {
  c.def_prop_ro(
       "shape", [](const Tensor& t) { return tuple_of(t.shape()); }, "Extents of the axes.")
      .def_prop_ro(
          "strides", [](const Tensor& t) { return tuple_of(t.strides()); },
          "Steps of the axes, counted in elements.")
      .def_prop_ro("ndim", &Tensor::ndim, "How many axes there are.")
      .def_prop_ro("size", &Tensor::numel, "How many elements there are.")
      .def_prop_ro("nbytes", &Tensor::size_bytes, "The bytes of all elements without gaps.")
      .def_prop_ro("dtype", [](const Tensor& t) { return nb::borrow(dtype_object(t.dtype())); })
      .def_prop_ro("device", &Tensor::device)
      .def_prop_ro("is_contiguous", &Tensor::is_contiguous,
                   "Whether the elements are row-major without gaps.")
      .def_prop_ro("version", &Tensor::version, "How often the memory was written in place.")
      .def_prop_rw(
          "requires_grad", &Tensor::requires_grad,
          [](const Tensor& t, bool required) { t.set_requires_grad(required); },
          "Whether ops on the tensor are recorded. It can be set for a leaf of floats.")
      .def_prop_ro("is_leaf", &Tensor::is_leaf, "True unless a recorded op made the tensor.")
      .def_prop_rw(
          "grad",
          [](const Tensor& t) {
            Tensor grad = t.grad();
            return grad ? tensor_object(std::move(grad)) : nb::object(nb::none());
          },
          &set_grad, nb::arg("grad").none(),
          "The gradient that backward() added up; None until it reached this leaf.");
}

// Views are cheap and never wait, and so they keep the GIL.
void bind_views(nb::class_<Tensor>& c) {
  c.def(
       "view", [](const Tensor& t, const nb::args& s) { return t.view(spread_ints(s, "shape")); },
       "The same elements in another shape, without a copy. An extent may be -1.")
      .def(
          "permute",
          [](const Tensor& t, const nb::args& axes) {
            return t.permute(spread_ints(axes, "axes"));
          },
          "Orders the axes anew.")
      .def(
          "transpose", [](const Tensor& t, int64_t a, int64_t b) { return t.transpose(a, b); },
          nb::arg("axis_a") = -2, nb::arg("axis_b") = -1, "Swaps two axes.")
      .def(
          "expand",
          [](const Tensor& t, const nb::args& shape) {
            return t.expand(spread_ints(shape, "shape"));
          },
          "Repeats axes of extent 1 by strides of 0.")
      .def("slice", &Tensor::slice, nb::arg("axis"), nb::arg("start"), nb::arg("stop"),
           nb::arg("step") = 1, "Elements start, start + step, ... below stop of one axis.")
      .def("select", &Tensor::select, nb::arg("axis"), nb::arg("index"),
           "The elements at one index of an axis, without the axis.")
      .def(
          "squeeze",
          [](const Tensor& t, std::optional<int64_t> axis) {
            return axis ? t.squeeze(*axis) : t.squeeze();
          },
          nb::arg("axis").none() = nb::none(), "Removes one axis of extent 1, or all of them.")
      .def("unsqueeze", &Tensor::unsqueeze, nb::arg("axis"), "Adds an axis of extent 1.")
      .def(
          "as_strided",
          [](const Tensor& t, nb::handle shape, nb::handle strides, int64_t offset) {
            return t.as_strided(to_ints(shape, "shape"), to_ints(strides, "strides"), offset);
          },
          nb::arg("shape"), nb::arg("strides"), nb::arg("offset") = 0,
          "Any view inside the memory of the tensor. Strides and offset count elements.")
      .def("detach", &Tensor::detach, "The same memory outside the recorded graph.");
}

void bind_copies(nb::class_<Tensor>& c) {
  using Release = nb::call_guard<Released>;
  c.def(
       "reshape",
       [](const Tensor& t, const nb::args& s) {
         const std::vector<int64_t> shape = spread_ints(s, "shape");
         const Released released;
         return t.reshape(shape);
       },
       "As view(), but copies if no strides express the shape.")
      .def("flatten", &Tensor::flatten, nb::arg("first") = 0, nb::arg("last") = -1, Release())
      .def("contiguous", &Tensor::contiguous, Release(), "The tensor, or a row-major copy of it.")
      .def("clone", &Tensor::clone, Release(), "A row-major copy.")
      .def("to", &to, nb::arg("where"),
           "The tensor as another dtype, or on another device; itself if it is so already.")
      .def(
          "copy_",
          [](nb::handle self, const Tensor& source) {
            copy_from(tensor_of(self), source);
            return nb::borrow(self);
          },
          nb::arg("source"), "Writes `source`, broadcast and cast, in place.")
      .def(
          "fill_",
          [](nb::handle self, nb::handle value) {
            const Scalar scalar = to_scalar(value, "fill_: value");
            {
              const Released released;
              tensor_of(self).fill(scalar);
            }
            return nb::borrow(self);
          },
          nb::arg("value"), "Sets every element in place.")
      .def("item", &item, "The one element as a bool, int or float of Python. It waits.")
      .def("record_stream", &Tensor::record_stream, nb::arg("stream"),
           "Keeps the memory until the work submitted to `stream` has ended.")
      .def("mark_written", &Tensor::mark_written,
           "Counts a write that somebody else made, such as through DLPack.");
}

}  // namespace

void bind_tensors(nb::module_& module) {
  nb::class_<Tensor> c(module, "Tensor", nb::type_slots(buffer_slots),
                       "A shared handle of strided device memory. backplane.asarray() makes one.");
  tensor_type = reinterpret_cast<PyTypeObject*>(c.ptr());
  bind_properties(c);
  bind_views(c);
  bind_copies(c);
  c.def("__repr__", &text_of);
}

}  // namespace bp::python
