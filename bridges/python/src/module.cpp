// The extension backplane._core.
#include <dlfcn.h>

#include "backplane/ops.h"
#include "binding.hpp"

namespace bp::python {
namespace {

// A library of another minor may lack what this extension calls, so the import says it in a
// sentence. Minors only append.
void check_version() {
  uint32_t major = 0, minor = 0;
  check_host(bp_abi_version(&major, &minor));
  if (major == BP_ABI_MAJOR && minor >= BP_ABI_MINOR) return;
  const std::string built = std::to_string(BP_ABI_MAJOR) + "." + std::to_string(BP_ABI_MINOR);
  const std::string found = std::to_string(major) + "." + std::to_string(minor);
  raise(PyExc_ImportError, "backplane was built for ABI " + built +
                               " of the library, and the libbackplane that was found has ABI " +
                               found + "; install the package for that library, or a library of " +
                               built + " or a newer minor");
}

// Returns the path of the libbackplane that this process uses.
std::string library_path() {
  Dl_info info{};
  const auto* const function = reinterpret_cast<const void*>(&bp_abi_version);
  return dladdr(function, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "";
}

}  // namespace
}  // namespace bp::python

NB_MODULE(_core, module) {
  namespace python = bp::python;
  python::check_version();
  nanobind::set_leak_warnings(false);  // Tensors of modules may live until the process ends.
  python::bind_errors(module);
  python::bind_dtypes(module);
  python::bind_devices(module);
  python::bind_streams(module);
  python::bind_tensors(module);
  python::bind_memory(module);
  python::bind_exchange(module);
  python::bind_autograd(module);
  python::bind_ops(module);
  python::bind_files(module);
  module.def("library_path", &python::library_path, "The path of the libbackplane that is used.");
  module.attr("abi_version") = nanobind::make_tuple(BP_ABI_MAJOR, BP_ABI_MINOR);
}
