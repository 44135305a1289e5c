#include "backends/cpu/mpi/library.hpp"

#include <dlfcn.h>

#include <array>
#include <string>

#include "backplane/shell/entry.hpp"

namespace bp::mpi {
namespace {

constexpr const char* kModule = "libbackplane_cpu_mpi.so";

// Returns where the module may lie: beside the library that has this code, which is the plugin, or
// in the folder of plugins beside it, if the backend is linked into a library.
std::array<std::string, 2> paths() {
  Dl_info info{};
  static_cast<void>(dladdr(reinterpret_cast<const void*>(&load_api), &info));
  const std::string ours = info.dli_fname == nullptr ? "" : info.dli_fname;
  const std::string folder = ours.substr(0, ours.rfind('/') + 1);
  return {folder + kModule, folder + "backplane/" + kModule};
}

std::string loader_error() {
  const char* const text = dlerror();
  return text == nullptr ? "the loader gives no reason" : text;
}

}  // namespace

const Api& load_api(const char* call) {
  void* module = nullptr;
  std::string reasons;
  for (const std::string& path : paths()) {
    if (module == nullptr) module = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (module == nullptr) reasons += (reasons.empty() ? "" : "; ") + loader_error();
  }
  if (module == nullptr) {
    refuse(BP_UNSUPPORTED,
           std::string(call) + ": process groups \"mpi\" need the module " + kModule +
               " and Open MPI (Debian: libopenmpi3, openmpi-bin); install them, or choose another "
               "table: " +
               reasons);
  }
  auto* const function = reinterpret_cast<ApiFunction*>(dlsym(module, kApiSymbol));
  const Api* const api = function == nullptr ? nullptr : function();
  if (api == nullptr || api->size_bytes != sizeof(Api)) {
    refuse(BP_UNSUPPORTED, std::string(call) + ": the module " + kModule +
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
