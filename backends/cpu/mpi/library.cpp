#include "backends/cpu/mpi/library.hpp"

#include <dlfcn.h>

#include <array>
#include <string>

#include "backplane/shell/entry.hpp"

namespace bp::mpi {
namespace {

constexpr const char* kModule = "libbackplane_cpu_mpi.so";

// Returns the path of the module beside the library that has this code.
std::string path_beside_us() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&load_api), &info) == 0) return kModule;
  const std::string ours = info.dli_fname == nullptr ? "" : info.dli_fname;
  const size_t slash = ours.rfind('/');
  return slash == std::string::npos ? kModule : ours.substr(0, slash + 1) + kModule;
}

std::string loader_error() {
  const char* const text = dlerror();
  return text == nullptr ? "the loader gives no reason" : text;
}

}  // namespace

const Api& load_api(const char* call) {
  const std::string path = path_beside_us();
  void* const module = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (module == nullptr) {
    refuse(BP_UNSUPPORTED,
           std::string(call) + ": process groups \"mpi\" need the module " + kModule +
               " and Open MPI (Debian: libopenmpi3, openmpi-bin); install them, or choose another "
               "table: " +
               loader_error());
  }
  auto* const function = reinterpret_cast<ApiFunction*>(dlsym(module, kApiSymbol));
  const Api* const api = function == nullptr ? nullptr : function();
  if (api == nullptr || api->size_bytes != sizeof(Api)) {
    refuse(BP_UNSUPPORTED, std::string(call) + ": " + path +
                               " is not of the same build as this backend; install both together");
  }
  return *api;
}

void check(const Api& api, int error, bp_status status, const char* what) {
  if (error == 0) return;
  std::array<char, 512> text{};
  api.text(error, text.data(), text.size());
  refuse(status, std::string(what) + ": MPI: " + text.data());
}

}  // namespace bp::mpi
