// NVIDIA's libraries, opened when they are first asked for: the plugin links none of them, loads
// without them, and says in a sentence what is missing and what to do.
//
// A library is looked for in this order, and the first that opens and is new enough is taken:
//
//   what the process has loaded already, since two copies of one library do not mix
//   the folders of option library_path, with colons between them
//   the path of the loader
//   the toolkit: option toolkit_path, else /usr/local/cuda
//   the wheels of a Python environment: option python_path, the environment or its site-packages
//
// What was opened stays loaded until the process ends: these libraries hold threads and contexts
// that outlive their handles.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "backends/cuda/library_tables.hpp"
#include "backplane/backend.h"

namespace bp::cuda {

// How files are opened and looked at; a test puts its own in.
struct LibraryLoader {
  // The handle of a library that the process has loaded under this name; NULL if it has not.
  std::function<void*(const std::string& name)> open_loaded;
  // The handle of the library at a path, or of a name on the loader's path; NULL, and the reason.
  std::function<void*(const std::string& path, std::string& out_reason)> open;
  std::function<void*(void* handle, const char* symbol)> find_symbol;
  std::function<bool(const std::string& path)> exists;
  // The folders whose path fits `pattern`, in order: "*" stands for one name or a part of it.
  std::function<std::vector<std::string>(const std::string& pattern)> match;
};

LibraryLoader system_loader();

// Where to look, besides the loader's own path.
struct LibrarySearch {
  std::vector<std::string> folders;
  std::string toolkit = "/usr/local/cuda";
  std::string python;  // Empty: nowhere.
};

LibrarySearch read_library_search(const bp_host& host);

// What is looked for. Versions are 10000 * major + 100 * minor + patch.
struct LibrarySpec {
  const char* name;
  std::vector<const char*> files;  // Preferred ones first.
  int (*version)(const LibraryLoader& loader, void* handle);
  int least_version;
  const char* what_to_do;  // Ends the sentence of what is missing.
};

struct FoundLibrary {
  void* handle = nullptr;  // NULL: not found, and `reason` says why.
  std::string file;
  int version = 0;
  std::string reason;
};

FoundLibrary find_library(const LibrarySpec& spec, const LibrarySearch& search,
                          const LibraryLoader& loader);

std::string library_version_text(int version);

// Is told of each library once, when it was looked for: which one it is, or why it is missing.
using LibraryNote = std::function<void(bool is_found, const std::string& line)>;

// A library and its functions, opened at the first get().
template <typename Table>
class Library {
 public:
  // NULL if the library is missing: reason() says why.
  const Table* get(const LibrarySearch& search, const LibraryLoader& loader,
                   const LibraryNote& note);

  // Empty if the library was found, or not asked for yet.
  const std::string& reason() const { return found_.reason; }

  // For tests, before the first get(): takes `table` in place of what would be found, or nothing.
  void put(const Table& table);
  void leave_out(const std::string& reason);

 private:
  std::once_flag once_;
  FoundLibrary found_;
  Table table_{};
};

// The libraries of one instance. Safe from any thread.
class Libraries {
 public:
  // What is found, and what is missing, goes to the log of the host.
  explicit Libraries(const bp_host& host);
  Libraries(LibrarySearch search, LibraryLoader loader, LibraryNote note)
      : search_(std::move(search)), loader_(std::move(loader)), note_(std::move(note)) {}

  const CublasLt* cublaslt() { return cublaslt_.get(search_, loader_, note_); }
  const Cudnn* cudnn() { return cudnn_.get(search_, loader_, note_); }
  const Nccl* nccl() { return nccl_.get(search_, loader_, note_); }

  // Why one is missing, for a failure's text.
  const std::string& nccl_reason() const { return nccl_.reason(); }
  const std::string& cublaslt_reason() const { return cublaslt_.reason(); }
  const std::string& cudnn_reason() const { return cudnn_.reason(); }

  // For tests.
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
