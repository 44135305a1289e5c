// Weights on disk, in the safetensors format.
#include <nanobind/stl/map.h>

#include "backplane/runtime/safetensors.hpp"
#include "binding.hpp"

namespace bp::python {
namespace {

void save(const std::string& path, const nb::dict& tensors, const Metadata& metadata) {
  check_process();
  TensorMap map;
  for (const auto& [name, value] : tensors) {
    if (!nb::isinstance<nb::str>(name) || !is_tensor(value)) {
      raise(PyExc_TypeError, "save: tensors has " + type_text(name) + " with " + type_text(value) +
                                 "; allowed: a str with a backplane.Tensor");
    }
    map.emplace(nb::cast<std::string>(name), tensor_of(value));
  }
  const Released released;
  save_safetensors(path, map, metadata);
}

nb::tuple load(const std::string& path, nb::handle device) {
  const Device on = to_device(device, "device");
  LoadedTensors loaded;
  {
    const Released released;
    loaded = load_safetensors(path, on);
  }
  nb::dict tensors;
  for (auto& [name, tensor] : loaded.tensors) tensors[name.c_str()] = tensor_object(tensor);
  return nb::make_tuple(tensors, nb::cast(loaded.metadata));
}

}  // namespace

void bind_files(nb::module_& module) {
  module.def("_save_safetensors", &save, nb::arg("path"), nb::arg("tensors"), nb::arg("metadata"));
  module.def("_load_safetensors", &load, nb::arg("path"), nb::arg("device"));
}

}  // namespace bp::python
