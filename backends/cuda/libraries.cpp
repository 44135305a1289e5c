#include "backends/cuda/libraries.hpp"

#include <dlfcn.h>
#include <glob.h>
#include <sys/stat.h>

#include <utility>

namespace bp::cuda {
namespace {

// Returns the folders with libraries of a toolkit and of wheels, in search order.
std::vector<std::string> library_folders(const LibrarySearch& search, const LibraryLoader& loader) {
  std::vector<std::string> folders;
  if (!search.toolkit.empty()) {
    for (const char* part : {"/lib64", "/lib", "/targets/x86_64-linux/lib"}) {
      folders.push_back(search.toolkit + part);
    }
  }
  if (search.python.empty()) return folders;
  for (const char* part : {"", "/lib/python3*/site-packages"}) {
    for (std::string& folder : loader.match(search.python + part + "/nvidia/*/lib")) {
      folders.push_back(std::move(folder));
    }
  }
  return folders;
}

// One search, which remembers where it looked and why it did not take a file.
class Search {
 public:
  Search(const LibrarySpec& spec, const LibraryLoader& loader) : spec_(spec), loader_(loader) {}

  // Returns whether the library was found.
  bool take(void* handle, const std::string& file) {
    if (handle == nullptr) return false;
    const int version = spec_.version(loader_, handle);
    if (version < spec_.least_version) {
      note(file + " is " +
           (version == 0 ? "of an unknown version" : library_version_text(version)) + ", and " +
           library_version_text(spec_.least_version) + " or newer is needed");
      return false;
    }
    found_.handle = handle;
    found_.file = file;
    found_.version = version;
    return true;
  }

  bool open_in(const std::string& folder) {
    for (const char* file : spec_.files) {
      const std::string path = folder + "/" + file;
      if (!loader_.exists(path)) continue;
      std::string why;
      void* const handle = loader_.open(path, why);
      if (take(handle, path)) return true;
      if (handle == nullptr) note(path, "does not open: " + why);
    }
    return false;
  }

  bool open_named() {
    for (const char* file : spec_.files) {
      std::string why;
      if (take(loader_.open(file, why), file)) return true;
    }
    return false;
  }

  bool open_loaded() {
    for (const char* file : spec_.files) {
      if (take(loader_.open_loaded(file), file)) return true;
    }
    return false;
  }

  void note(const std::string& file, const std::string& text) { note(file + " " + text); }
  void note(const std::string& text) { notes_ += (notes_.empty() ? "" : "; ") + text; }

  FoundLibrary finish() {
    if (found_.handle != nullptr) return std::move(found_);
    found_.reason = std::string(spec_.name) + " is missing: ";
    found_.reason += notes_.empty() ? std::string("no ") + spec_.files[0] +
                                          " is loaded, on the loader's path or in the folders of "
                                          "options library_path, toolkit_path and python_path"
                                    : notes_;
    found_.reason += std::string("; ") + spec_.what_to_do;
    return std::move(found_);
  }

 private:
  const LibrarySpec& spec_;
  const LibraryLoader& loader_;
  FoundLibrary found_;
  std::string notes_;
};

// ---- The libraries ------------------------------------------------------------------------------

template <typename Function>
Function function(const LibraryLoader& loader, void* handle, const char* name) {
  return reinterpret_cast<Function>(loader.find_symbol(handle, name));
}

int cublaslt_version(const LibraryLoader& loader, void* handle) {
  const auto get = function<size_t (*)()>(loader, handle, "cublasLtGetVersion");
  return get == nullptr ? 0 : static_cast<int>(get());
}

int cudnn_version(const LibraryLoader& loader, void* handle) {
  const auto get = function<size_t (*)()>(loader, handle, "cudnnGetVersion");
  return get == nullptr ? 0 : static_cast<int>(get());
}

// NVRTC has no patch in its version.
int nvrtc_version(const LibraryLoader& loader, void* handle) {
  const auto get = function<int (*)(int*, int*)>(loader, handle, "nvrtcVersion");
  int major = 0, minor = 0;
  return get == nullptr || get(&major, &minor) != 0 ? 0 : major * 10000 + minor * 100;
}

int nccl_version(const LibraryLoader& loader, void* handle) {
  const auto get = function<ncclResult_t (*)(int*)>(loader, handle, "ncclGetVersion");
  int version = 0;
  return get == nullptr || get(&version) != ncclSuccess ? 0 : version;
}

LibrarySpec spec_of(const CublasLt&) {
  return {
      "cuBLASLt",
      {"libcublasLt.so.13", "libcublasLt.so.12"},
      cublaslt_version,
      120000,
      "install cuBLAS 12 or newer (the toolkit, or the wheel nvidia-cublas), or name its folder "
      "in option library_path; matmul and linear run on kernels of this backend, which are "
      "slower"};
}

LibrarySpec spec_of(const Cudnn&) {
  return {"cuDNN",
          {"libcudnn.so.9"},
          cudnn_version,
          90000,
          "install cuDNN 9 (or the wheel nvidia-cudnn-cu13), or name its folder in option "
          "library_path; convolutions run on kernels of this backend, which are slower"};
}

LibrarySpec spec_of(const Nccl&) {
  return {
      "NCCL",
      {"libnccl.so.2"},
      nccl_version,
      21800,
      "install NCCL 2.18 or newer (or the wheel nvidia-nccl-cu13), or name its folder in option "
      "library_path; without it there are no process groups"};
}

// Fills a table, and remembers what the library lacks.
class Binder {
 public:
  Binder(const LibraryLoader& loader, void* handle) : loader_(loader), handle_(handle) {}

  template <typename Function>
  void operator()(const char* name, Function& slot) {
    slot = function<Function>(loader_, handle_, name);
    if (slot == nullptr && missing_.empty()) missing_ = name;
  }

  const std::string& missing() const { return missing_; }

 private:
  const LibraryLoader& loader_;
  void* const handle_;
  std::string missing_;
};

void bind(Binder& get, CublasLt& t) {
  get("cublasLtCreate", t.create);
  get("cublasLtDestroy", t.destroy);
  get("cublasLtMatmul", t.matmul);
  get("cublasLtMatmulAlgoGetHeuristic", t.get_heuristic);
  get("cublasLtMatmulDescCreate", t.desc_create);
  get("cublasLtMatmulDescDestroy", t.desc_destroy);
  get("cublasLtMatmulDescSetAttribute", t.desc_set);
  get("cublasLtMatrixLayoutCreate", t.layout_create);
  get("cublasLtMatrixLayoutDestroy", t.layout_destroy);
  get("cublasLtMatrixLayoutSetAttribute", t.layout_set);
  get("cublasLtMatmulPreferenceCreate", t.preference_create);
  get("cublasLtMatmulPreferenceDestroy", t.preference_destroy);
  get("cublasLtMatmulPreferenceSetAttribute", t.preference_set);
  get("cublasLtGetStatusName", t.status_name);
}

void bind(Binder& get, Cudnn& t) {
  get("cudnnCreate", t.create);
  get("cudnnDestroy", t.destroy);
  get("cudnnSetStream", t.set_stream);
  get("cudnnGetErrorString", t.error_string);
  get("cudnnGetVersion", t.version);
  get("cudnnBackendCreateDescriptor", t.create_descriptor);
  get("cudnnBackendDestroyDescriptor", t.destroy_descriptor);
  get("cudnnBackendSetAttribute", t.set_attribute);
  get("cudnnBackendGetAttribute", t.get_attribute);
  get("cudnnBackendFinalize", t.finalize);
  get("cudnnBackendExecute", t.execute);
}

void bind(Binder& get, Nccl& t) {
  get("ncclGetUniqueId", t.get_unique_id);
  get("ncclCommInitRankConfig", t.init_rank);
  get("ncclCommSplit", t.split);
  get("ncclCommFinalize", t.finalize);
  get("ncclCommDestroy", t.destroy);
  get("ncclCommAbort", t.abort);
  get("ncclCommGetAsyncError", t.get_async_error);
  get("ncclCommCount", t.count);
  get("ncclCommUserRank", t.user_rank);
  get("ncclGetErrorString", t.error_string);
  get("ncclGetLastError", t.last_error);
  get("ncclGroupStart", t.group_start);
  get("ncclGroupEnd", t.group_end);
  get("ncclAllReduce", t.all_reduce);
  get("ncclReduce", t.reduce);
  get("ncclBroadcast", t.broadcast);
  get("ncclAllGather", t.all_gather);
  get("ncclReduceScatter", t.reduce_scatter);
  get("ncclSend", t.send);
  get("ncclRecv", t.receive);
  get("ncclRedOpCreatePreMulSum", t.create_scaled_sum);
  get("ncclRedOpDestroy", t.destroy_reduction);
}

// ---- What a library opens by itself -------------------------------------------------------------

// Opens what a library needs later, and returns lines for the log.
template <typename Table>
std::vector<LibraryLine> open_companions(const Table&, const LibrarySearch&, const LibraryLoader&,
                                         void*) {
  return {};
}

// cuDNN opens NVRTC by the name of a file when it compiles an engine, and NVRTC opens its builtins
// in this way. The loader finds neither in a toolkit or in wheels, but takes a library that the
// process has already loaded. (cuDNN's page "Building and Running a cuDNN Dependent Program" names
// libnvrtc.so; the file of the builtins ends in NVRTC's version.)
std::vector<LibraryLine> open_companions(const Cudnn&, const LibrarySearch& search,
                                         const LibraryLoader& loader, void* handle) {
  const auto cudart_version = function<size_t (*)()>(loader, handle, "cudnnGetCudartVersion");
  const size_t major = cudart_version == nullptr ? 0 : cudart_version() / 1000;
  const std::string file = "libnvrtc.so." + std::to_string(major);
  const LibrarySpec spec{
      "NVRTC",
      {file.c_str()},
      nvrtc_version,
      static_cast<int>(major) * 10000,
      "install it (the toolkit, or the wheel nvidia-cuda-nvrtc), or name its folder in option "
      "library_path; without it cuDNN cannot use the engines that it compiles at run time"};
  const FoundLibrary found = find_library(spec, search, loader);
  if (found.handle == nullptr) return {{false, found.reason}};
  std::vector<LibraryLine> lines{
      {true, "NVRTC " + library_version_text(found.version) + " (" + found.file + ")"}};
  const size_t folder_length = found.file.rfind('/');
  if (folder_length == std::string::npos) return lines;  // The loader finds its neighbours too.
  const std::string builtins = found.file.substr(0, folder_length) + "/libnvrtc-builtins.so." +
                               std::to_string(major) + "." +
                               std::to_string(found.version / 100 % 100);
  std::string why = "there is no such file";
  if (!loader.exists(builtins) || loader.open(builtins, why) == nullptr) {
    lines.push_back({false, "NVRTC lacks its builtins: " + builtins + " does not open: " + why});
  }
  return lines;
}

}  // namespace

LibraryLoader system_loader() {
  LibraryLoader loader;
  loader.open_loaded = [](const std::string& name) {
    return dlopen(name.c_str(), RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
  };
  loader.open = [](const std::string& path, std::string& out_reason) {
    void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (handle == nullptr) {
      const char* const why = dlerror();
      out_reason = why == nullptr ? "dlopen gives no reason" : why;
    }
    return handle;
  };
  loader.find_symbol = [](void* handle, const char* symbol) { return dlsym(handle, symbol); };
  loader.exists = [](const std::string& path) {
    struct stat info {};
    return stat(path.c_str(), &info) == 0;
  };
  loader.match = [](const std::string& pattern) {
    std::vector<std::string> paths;
    glob_t found{};
    if (glob(pattern.c_str(), 0, nullptr, &found) == 0) {
      paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
    }
    globfree(&found);
    return paths;
  };
  return loader;
}

std::string library_version_text(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

FoundLibrary find_library(const LibrarySpec& spec, const LibrarySearch& search,
                          const LibraryLoader& loader) {
  Search s(spec, loader);
  if (s.open_loaded()) return s.finish();
  for (const std::string& folder : search.folders) {
    if (s.open_in(folder)) return s.finish();
  }
  if (s.open_named()) return s.finish();
  for (const std::string& folder : library_folders(search, loader)) {
    if (s.open_in(folder)) return s.finish();
  }
  return s.finish();
}

template <typename Table>
const Table* Library<Table>::get(const LibrarySearch& search, const LibraryLoader& loader,
                                 const LibraryNote& note) {
  std::vector<LibraryLine> lines;  // The lines for the log.
  std::call_once(once_, [&] {
    const LibrarySpec spec = spec_of(Table{});
    found_ = find_library(spec, search, loader);
    const std::string version = library_version_text(found_.version);
    Binder binder(loader, found_.handle);
    if (found_.handle != nullptr) bind(binder, table_);
    if (!binder.missing().empty()) {
      found_.handle = nullptr;
      found_.reason = std::string(spec.name) + " is missing: " + found_.file + " (" + version +
                      ") has no " + binder.missing() + "; " + spec.what_to_do;
    }
    if (found_.handle == nullptr) {
      lines.push_back({false, found_.reason});
      return;
    }
    lines = open_companions(table_, search, loader, found_.handle);
    lines.push_back({true, std::string(spec.name) + " " + version + " (" + found_.file + ")"});
  });
  for (const LibraryLine& line : lines) note(line.is_found, line.text);
  return found_.handle == nullptr ? nullptr : &table_;
}

template <typename Table>
void Library<Table>::put(const Table& table) {
  std::call_once(once_, [&] {
    table_ = table;
    found_.handle = &table_;
  });
}

template <typename Table>
void Library<Table>::leave_out(const std::string& reason) {
  std::call_once(once_, [&] { found_.reason = reason; });
}

template class Library<CublasLt>;
template class Library<Cudnn>;
template class Library<Nccl>;

Libraries::Libraries(const bp_host& host, const LibrarySearch& search)
    : Libraries(search, system_loader(), [&host](bool is_found, const std::string& line) {
        host.log_line(host.self, is_found ? BP_LOG_INFO : BP_LOG_WARNING, line.c_str());
      }) {}

}  // namespace bp::cuda
