// The functions of ops: one callable for each description, made when it is first asked for.
#include <algorithm>
#include <cstring>
#include <memory>
#include <string_view>
#include <unordered_map>

#include "frame.hpp"
#include "op.hpp"

namespace bp::python {
namespace {

// Puts each value at the place of its parameter.
class Binder {
 public:
  explicit Binder(const Op& op) : op_(op) { std::fill_n(bound_, op.parameters.size(), nullptr); }

  void bind(PyObject* const* values, size_t count, PyObject* names) {
    if (count > op_.positional_count) {
      raise(PyExc_TypeError, std::string(op_.desc.name) + ": " + std::to_string(count) +
                                 " positional arguments were given; allowed: up to " +
                                 std::to_string(op_.positional_count) + ". The signature is " +
                                 op_.desc.name + op_.signature);
    }
    std::memcpy(bound_, values, count * sizeof(PyObject*));
    const Py_ssize_t named = names == nullptr ? 0 : PyTuple_GET_SIZE(names);
    for (Py_ssize_t i = 0; i < named; ++i) {
      bind_name(PyTuple_GET_ITEM(names, i), values[count + static_cast<size_t>(i)]);
    }
    for (size_t i = count; i < op_.positional_count; ++i) {
      if (op_.parameters[i].is_required && bound_[i] == nullptr) fail_missing(op_.parameters[i]);
    }
  }

  PyObject* const* bound() const { return bound_; }

 private:
  size_t find(PyObject* name) const {
    for (size_t i = 0; i < op_.parameters.size(); ++i) {
      if (op_.parameters[i].name == name) return i;
    }
    for (size_t i = 0; i < op_.parameters.size(); ++i) {
      if (PyUnicode_Compare(op_.parameters[i].name, name) == 0) return i;
    }
    return op_.parameters.size();
  }

  void bind_name(PyObject* name, PyObject* value) {
    const size_t i = find(name);
    const std::string text = PyUnicode_AsUTF8(name);
    if (i == op_.parameters.size()) {
      raise(PyExc_TypeError, std::string(op_.desc.name) + ": there is no argument '" + text +
                                 "'. The signature is " + op_.desc.name + op_.signature);
    }
    if (bound_[i] != nullptr) {
      raise(PyExc_TypeError, std::string(op_.desc.name) + ": " + text + " was given twice");
    }
    bound_[i] = value;
  }

  [[noreturn]] void fail_missing(const Parameter& parameter) const {
    raise(PyExc_TypeError, std::string(op_.desc.name) + ": " + PyUnicode_AsUTF8(parameter.name) +
                               " is missing. The signature is " + op_.desc.name + op_.signature);
  }

  const Op& op_;
  PyObject* bound_[kMaxParameters];
};

PyObject* call_op(PyObject* self, PyObject* const* values, Py_ssize_t count, PyObject* names) {
  try {
    check_process();
    const auto& op = *static_cast<const Op*>(PyCapsule_GetPointer(self, nullptr));
    return call(op, values, static_cast<size_t>(count), names).release().ptr();
  } catch (...) {
    set_python_error();
    return nullptr;
  }
}

// An op with the function of Python for it. Both live until the process ends.
struct Function {
  explicit Function(const bp_op_desc& desc) : op(desc) {
    const std::string_view name = desc.name;
    text = std::string(name.substr(name.rfind('.') + 1)) + op.signature + "\n--\n\n" + op.doc;
    method.ml_name = desc.name;
    method.ml_meth = reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&call_op));
    method.ml_flags = METH_FASTCALL | METH_KEYWORDS;
    method.ml_doc = text.c_str();
    const nb::object self = nb::steal(PyCapsule_New(&op, nullptr, nullptr));
    const nb::str module("backplane.ops");
    object = PyCFunction_NewEx(&method, self.ptr(), module.ptr());
    if (object == nullptr) throw nb::python_error();
  }

  Op op;
  std::string text;
  PyMethodDef method{};
  PyObject* object = nullptr;
};

const bp_op_desc& describe(const std::string& name) {
  const bp_op_desc* desc = nullptr;
  const uint32_t op = bp_op_from_name(name.c_str());
  if (op == 0) {
    throw Error(BP_NOT_FOUND, "there is no op '" + name +
                                  "'; backplane.ops.names() lists those of the library and of "
                                  "loaded backends");
  }
  check_host(bp_op_describe(op, &desc));
  return *desc;
}

// A description that grew gets a function of its own.
nb::object function_of(const std::string& name) {
  static auto* const made = new std::unordered_map<const bp_op_desc*, std::unique_ptr<Function>>;
  const bp_op_desc& desc = describe(name);
  std::unique_ptr<Function>& function = (*made)[&desc];
  if (function == nullptr) function = std::make_unique<Function>(desc);
  return nb::borrow(function->object);
}

nb::list names() {
  nb::list result;
  for (uint32_t op = bp_op_next(0); op != 0; op = bp_op_next(op)) {
    const bp_op_desc* desc = nullptr;
    if (bp_op_describe(op, &desc) == BP_OK) result.append(nb::str(desc->name));
  }
  return result;
}

nb::object text_or_none(const char* text) {
  return text == nullptr ? nb::object(nb::none()) : nb::object(nb::str(text));
}

nb::dict argument_dict(const Argument& a) {
  nb::dict d;
  d["name"] = a.name;
  d["kind"] = a.kind;
  d["is_tensor"] = a.is_tensor;
  d["is_output"] = a.is_output;
  d["is_written"] = a.is_written;
  d["is_list"] = a.is_list;
  d["is_optional"] = a.is_optional;
  d["has_scalar"] = a.has_scalar;
  d["is_given_shape"] = a.is_given_shape;
  d["since"] = a.desc->since;
  d["dtype_rule"] = text_or_none(a.desc->dtype_rule);
  d["shape_rule"] = text_or_none(a.desc->shape_rule);
  d["default"] = text_or_none(a.desc->default_text);
  d["doc"] = text_or_none(a.desc->doc);
  nb::list dtypes, values;
  for (uint32_t i = 0; i < a.desc->dtype_count; ++i) {
    dtypes.append(nb::str(bp_dtype_name(a.desc->dtypes[i])));
  }
  for (uint32_t i = 0; i < a.desc->value_count; ++i) values.append(nb::str(a.desc->value_names[i]));
  d["dtypes"] = dtypes;
  d["values"] = values;
  return d;
}

nb::dict description(const std::string& name) {
  const bp_op_desc& desc = describe(name);
  const Op op(desc);
  nb::dict d;
  d["name"] = desc.name;
  d["doc"] = text_or_none(desc.doc);
  d["signature"] = op.signature;
  d["numerics"] = text_or_none(desc.numerics);
  d["decomposition"] = text_or_none(desc.decomposition);
  d["backward"] = text_or_none(desc.backward);
  d["since"] = desc.since;
  d["backward_revision"] = desc.backward_revision != 0  ? desc.backward_revision
                           : desc.formula_revision != 0 ? desc.formula_revision
                                                        : desc.since;
  nb::list arguments, parameters;
  for (const Argument& a : op.arguments) arguments.append(argument_dict(a));
  for (size_t i = 0; i < op.parameters.size(); ++i) {
    const Parameter& p = op.parameters[i];
    parameters.append(
        nb::make_tuple(nb::borrow(p.name), i < op.positional_count, p.is_required, p.argument));
  }
  d["arguments"] = arguments;
  d["parameters"] = parameters;
  return d;
}

}  // namespace

nb::object call(const Op& op, PyObject* const* values, size_t count, PyObject* names) {
  Binder binder(op);
  binder.bind(values, count, names);
  return Frame(op, binder.bound()).run();
}

void bind_ops(nb::module_& module) {
  module.def("op", &function_of, nb::arg("name"), "The function of the op with this name.");
  module.def("op_names", &names, "The names of all ops, those of loaded backends last.");
  module.def("describe", &description, nb::arg("name"),
             "What the description of an op says, as a dict.");
}

}  // namespace bp::python
