// NVIDIA's libraries, which are opened at their first use. The plugin links none of them and loads
// without them. If one is missing, a sentence says so, and what to do.
//
// A library is looked for in this order, and the first that opens and is new enough is taken:
//
//   what the process has loaded already, since two copies of one library do not mix
//   the folders of option library_path, with colons between them
//   the path of the loader
//   the toolkit: option toolkit_path, else /usr/local/cuda
//   the wheels of a Python environment: option python_path, the environment or its site-packages
//
// Beside cuDNN the search opens NVRTC, which cuDNN opens later by its name alone.
//
// An opened library stays loaded until the process ends, because these libraries have threads and
// contexts that outlive their handles.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "backends/cuda/library_tables.hpp"
#include "backends/cuda/options.hpp"
#include "backplane/backend.h"

namespace bp::cuda {

// The functions that open and find files. A test replaces them.
struct LibraryLoader {
  // Returns the handle of a library that the process has already loaded under this name, or NULL.
  std::function<void*(const std::string& name)> open_loaded;
  // Opens the library at a path, or of a name on the loader's path. Returns NULL, and gives the
  // reason, if it cannot.
  std::function<void*(const std::string& path, std::string& out_reason)> open;
  std::function<void*(void* handle, const char* symbol)> find_symbol;
  std::function<bool(const std::string& path)> exists;
  // Returns the folders whose path matches `pattern`, in order. "*" stands for one name or a part
  // of it.
  std::function<std::vector<std::string>(const std::string& pattern)> match;
};

LibraryLoader system_loader();

// The library that is searched. Versions are 10000 * major + 100 * minor + patch.
struct LibrarySpec {
  const char* name;
  std::vector<const char*> files;  // Preferred ones first.
  int (*version)(const LibraryLoader& loader, void* handle);
  int least_version;
  const char* what_to_do;  // The end of the sentence about a missing one.
};

struct FoundLibrary {
  void* handle = nullptr;  // If NULL, `reason` says why.
  std::string file;
  int version = 0;
  std::string reason;
};

FoundLibrary find_library(const LibrarySpec& spec, const LibrarySearch& search,
                          const LibraryLoader& loader);

std::string library_version_text(int version);

// A line for the log: which file was taken, or why the library is missing.
struct LibraryLine {
  bool is_found = false;
  std::string text;
};

// A function that is called once for each library, after the search, with the text of its line.
using LibraryNote = std::function<void(bool is_found, const std::string& line)>;

// A library and its functions. The first get() opens it.
template <typename Table>
class Library {
 public:
  // Returns NULL if the library is missing; reason() says why.
  const Table* get(const LibrarySearch& search, const LibraryLoader& loader,
                   const LibraryNote& note);

  // Returns why the library is missing. It is empty if the library was found, or was not used yet.
  const std::string& reason() const { return found_.reason; }

  // Uses `table` in place of a search. Tests call it before the first get().
  void put(const Table& table);
  void leave_out(const std::string& reason);

 private:
  std::once_flag once_;
  FoundLibrary found_;
  Table table_{};
};

// The libraries of one instance. The class is safe from any thread.
class Libraries {
 public:
  // The host's log gets a line for each library that is found or missing.
  Libraries(const bp_host& host, const LibrarySearch& search);
  Libraries(LibrarySearch search, LibraryLoader loader, LibraryNote note)
      : search_(std::move(search)), loader_(std::move(loader)), note_(std::move(note)) {}

  const CublasLt* cublaslt() { return cublaslt_.get(search_, loader_, note_); }
  const Cudnn* cudnn() { return cudnn_.get(search_, loader_, note_); }
  const Nccl* nccl() { return nccl_.get(search_, loader_, note_); }

  // These functions return why a library is missing, for error texts.
  const std::string& nccl_reason() const { return nccl_.reason(); }
  const std::string& cublaslt_reason() const { return cublaslt_.reason(); }
  const std::string& cudnn_reason() const { return cudnn_.reason(); }

  // Tests put tables of their own.
  void put(const CublasLt& table) { cublaslt_.put(table); }
  void put(const Cudnn& table) { cudnn_.put(table); }
  void put(const Nccl& table) { nccl_.put(table); }
  void leave_out_cublaslt() { cublaslt_.leave_out("cuBLASLt is left out"); }
  void leave_out_cudnn() { cudnn_.leave_out("cuDNN is left out"); }

 private:
  const LibrarySearch search_;
  const LibraryLoader loader_;
  const LibraryNote note_;
  Library<CublasLt> cublaslt_;
  Library<Cudnn> cudnn_;
  Library<Nccl> nccl_;
};

}  // namespace bp::cuda
