// Gradients: recording, and runs of the runtime's engine.
#include "backplane/runtime/autograd.hpp"

#include <memory>

#include "binding.hpp"
#include "gradient.hpp"

namespace bp::python {
namespace {

std::vector<Tensor> to_tensors(nb::handle values, const char* what) {
  std::vector<Tensor> result;
  for (const nb::handle value : values) {
    if (!is_tensor(value)) {
      raise(PyExc_TypeError, std::string(what) + " has " + type_text(value) +
                                 "; allowed: a list of backplane.Tensor");
    }
    result.push_back(tensor_of(value));
  }
  return result;
}

nb::list to_list(const std::vector<Tensor>& tensors) {
  nb::list result;
  for (const Tensor& t : tensors) result.append(t ? tensor_object(t) : nb::object(nb::none()));
  return result;
}

// An object of Python that any thread may end.
std::shared_ptr<PyObject> shared(nb::object object) {
  return {object.release().ptr(), [](PyObject* kept) {
            if (!nb::is_alive()) return;  // The interpreter has ended.
            const nb::gil_scoped_acquire held;
            Py_DECREF(kept);
          }};
}

// The engine runs without the GIL; each gradient takes it.
std::vector<Tensor> run_gradient(PyObject* arguments, const Tensor& gradient) {
  const nb::gil_scoped_acquire held;
  static PyObject* function = nullptr;  // Without a guard: the GIL guards it.
  if (function == nullptr) {
    function =
        nb::object(nb::module_::import_("backplane._autograd").attr("gradients")).release().ptr();
  }
  const nb::object result =
      nb::handle(function)(*nb::borrow<nb::args>(arguments), tensor_object(gradient));
  std::vector<Tensor> gradients;
  for (const nb::handle item : result) {
    gradients.push_back(item.is_none() ? Tensor() : tensor_of(item));
  }
  return gradients;
}

void run_backward(const Tensor& tensor, nb::handle gradient, bool retain_graph, bool create_graph) {
  check_process();
  if (!gradient.is_none() && !is_tensor(gradient)) {
    raise(PyExc_TypeError, "backward: gradient is " + type_text(gradient) +
                               "; allowed: a backplane.Tensor, or None");
  }
  const Tensor given = gradient.is_none() ? Tensor() : tensor_of(gradient);
  const Released released;
  tensor.backward(given, retain_graph, create_graph);
}

nb::list run_grad(nb::handle outputs, nb::handle inputs, nb::handle grad_outputs, bool retain_graph,
                  bool create_graph, bool allow_unused) {
  check_process();
  const std::vector<Tensor> of = to_tensors(outputs, "outputs"), by = to_tensors(inputs, "inputs");
  const std::vector<Tensor> given =
      grad_outputs.is_none() ? std::vector<Tensor>() : to_tensors(grad_outputs, "grad_outputs");
  std::vector<Tensor> result;
  {
    const Released released;
    result = grad(of, by, given, {retain_graph, create_graph, allow_unused});
  }
  return to_list(result);
}

}  // namespace

Tensor record_call(const char* name, std::span<const Tensor> inputs, const Tensor& output,
                   nb::tuple arguments) {
  return with_gradient(name, inputs, output,
                       [kept = shared(std::move(arguments))](const Tensor& gradient) {
                         return run_gradient(kept.get(), gradient);
                       });
}

void bind_autograd(nb::module_& module) {
  nb::class_<Facts>(module, "_Facts", "Shape and dtype of a tensor, without its elements.")
      .def_prop_ro("shape",
                   [](const Facts& f) {
                     return tuple_of({f.shape, f.ndim});
                   })
      .def_prop_ro("ndim", [](const Facts& f) { return f.ndim; })
      .def_prop_ro("dtype", [](const Facts& f) { return nb::borrow(dtype_object(f.dtype)); });
  module.def(
      "is_grad_enabled", [] { return is_grad_enabled(); },
      "Whether this thread records what ops need for gradients.");
  module.def(
      "set_grad_enabled",
      [](bool enabled) {
        const bool before = is_grad_enabled();
        detail::recording = enabled;
        return before;
      },
      nb::arg("enabled"), "Turns recording on or off for this thread; returns what it was.");
  module.def("_backward", &run_backward, nb::arg("tensor"), nb::arg("gradient").none(),
             nb::arg("retain_graph"), nb::arg("create_graph"));
  module.def(
      "grad", &run_grad, nb::arg("outputs"), nb::arg("inputs"),
      nb::arg("grad_outputs").none() = nb::none(), nb::arg("retain_graph") = false,
      nb::arg("create_graph") = false, nb::arg("allow_unused") = false,
      "The gradients of lists of outputs by lists of inputs, without touching their grad. An "
      "input that the outputs do not depend on has None, if allow_unused is true.");
}

}  // namespace bp::python
