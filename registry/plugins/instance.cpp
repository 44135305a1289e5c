#include "registry/plugins/instance.hpp"

#include <dlfcn.h>

#include <array>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <string_view>
#include <utility>

#include "registry/boundary/error_slot.hpp"
#include "registry/boundary/fail.hpp"
#include "registry/boundary/plugin_text.hpp"
#include "registry/boundary/served_abi.hpp"
#include "registry/boundary/tables.hpp"
#include "registry/files/read_file.hpp"

namespace bp::core {
namespace {

// The end of the last member of the first release: it must not grow when the struct does.
constexpr uint32_t kFirstBackend = offsetof(bp_backend, status_class) + sizeof(void*);

// Returns whether the file is a shared library. dlopen() says the same of a text file and of a
// library that lacks a symbol, so this is checked first.
bool is_shared_library(const std::string& path) {
  std::array<char, 4> head{};
  if (std::FILE* file = std::fopen(path.c_str(), "rb"); file != nullptr) {
    static_cast<void>(std::fread(head.data(), 1, head.size(), file));
    std::fclose(file);
  }
  return std::string_view(head.data(), head.size()) ==
         "\x7f"
         "ELF";
}

// Returns what is wrong with the instance that `reply` brought, or "" if nothing is wrong.
std::string backend_defect(const bp_backend& backend) {
  std::string defect = struct_defect(&backend, BP_STRUCT_BACKEND, kFirstBackend);
  if (!defect.empty()) return "bp_backend: " + defect;
  if (backend.name == nullptr || !is_vendor_name(backend.name)) {
    return "its name is " + (backend.name == nullptr ? "NULL" : clean_name(backend.name)) +
           ", not vendor.backend with both in [a-z0-9_]+";
  }
  if (backend.register_all == nullptr || backend.shutdown == nullptr) {
    return "register_all or shutdown is NULL";
  }
  return "";
}

// Returns what to add to a refusal of a backend that is for other majors than this host, or "". A
// backend of ABI 0.2 or older does not say its majors, which is 0.
std::string foreign_majors(const bp_entry_reply& reply) {
  const uint32_t ours = kServedAbi.major, first = reply.abi_major_min, last = reply.abi_major_max;
  if (first <= ours && ours <= last) return "";
  return "; the backend is for " +
         (first == last ? "major " + std::to_string(first) + " alone"
                        : "the majors " + std::to_string(first) + " to " + std::to_string(last));
}

bool is_served(const bp_entry_reply& reply) {
  return serves_abi({.major_min = reply.abi_major,
                     .major = reply.abi_major,
                     .minor_min = reply.abi_minor,
                     .minor = reply.abi_minor});
}

// Asks a plugin for its backend, and checks the answer. `name` begins the error text.
bp_status ask(const std::string& name, bp_backend_entry_fn* entry, const bp_host* host,
              bp_entry_reply& reply) {
  const bp_entry_request request{.struct_size = sizeof(bp_entry_request),
                                 .struct_type = BP_STRUCT_ENTRY_REQUEST,
                                 .next = nullptr,
                                 .abi_major_min = kServedAbi.major_min,
                                 .abi_major_max = kServedAbi.major,
                                 .abi_minor = kServedAbi.minor,
                                 .abi_minor_min = kServedAbi.minor_min,
                                 .host = host};
  reply.struct_size = sizeof(reply);
  reply.struct_type = BP_STRUCT_ENTRY_REPLY;
  bp_error_clear();
  if (const bp_status status = entry(&request, &reply); status != BP_OK) {
    std::string words = take_error();
    if (words.empty()) words = "refused without a reason, " + std::string(bp_status_name(status));
    if (status == BP_INCOMPATIBLE) {
      words += " (this host serves " + served_abi_text() + foreign_majors(reply) + ")";
    }
    return fail(status, name + ": " + words);
  }
  if (reply.backend == nullptr) {
    return fail(BP_INTERNAL, name + ": its entry returned BP_OK, but no backend");
  }
  if (is_served(reply)) return BP_OK;
  // An instance of an ABI that was not offered is left alone, because its shutdown() may have
  // moved.
  return fail(BP_INCOMPATIBLE,
              name + ": the backend chose ABI " + abi_text(reply.abi_major, reply.abi_minor) +
                  ", which was not offered; this host serves " + served_abi_text());
}

}  // namespace

bp_status Instance::open(const std::string& path, const bp_host* host, layers::Stack& layers) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return fail(BP_NOT_FOUND, path + ": no such file");
  if (const std::string defect = regular_file_defect(path); !defect.empty()) {
    return fail(BP_INCOMPATIBLE, path + ": not a plugin: " + defect);
  }
  if (!is_shared_library(path)) {
    return fail(BP_INCOMPATIBLE, path + ": not a plugin: it is not a shared library");
  }
  library_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library_ == nullptr) {
    return fail(BP_INCOMPATIBLE,
                path + ": not loaded: " + clean_text(dlerror(), LineBreaks::kEscape));
  }
  auto* entry = reinterpret_cast<bp_backend_entry_fn*>(dlsym(library_, "bp_backend_entry"));
  if (entry == nullptr) {
    static_cast<void>(end());
    return fail(BP_INCOMPATIBLE, path + ": not a plugin: it does not export bp_backend_entry");
  }
  const bp_status status = negotiate(path, entry, host, layers);
  if (status != BP_OK) static_cast<void>(end());
  return status;
}

bp_status Instance::negotiate(const std::string& name, bp_backend_entry_fn* entry,
                              const bp_host* host, layers::Stack& layers) {
  bp_entry_reply reply{};
  if (const bp_status status = ask(name, entry, layers.wrap_host(host), reply); status != BP_OK) {
    return status;
  }
  if (const std::string defect = backend_defect(*reply.backend); !defect.empty()) {
    return fail(BP_INTERNAL, name + ": " + defect);
  }
  const bp_backend* front = nullptr;
  if (const bp_status status = layers.put_on(*reply.backend, &front); status != BP_OK) {
    return fail(status, name + ": " + take_error());
  }
  // This cannot fail, since the size was checked before.
  static_cast<void>(bp_struct_read(front, kFirstBackend, &backend_, sizeof(backend_), nullptr));
  has_backend_ = true;
  abi_major_ = reply.abi_major;
  abi_minor_ = reply.abi_minor;
  return BP_OK;
}

bp_status Instance::end() {
  bp_status status = BP_OK;
  if (std::exchange(has_backend_, false)) status = backend_.shutdown(backend_.self, UINT64_MAX);
  // The text of the status may be a static string of the library, but the slot holds a copy.
  if (void* library = std::exchange(library_, nullptr); library != nullptr) dlclose(library);
  return status;
}

void Instance::swap(Instance& other) noexcept {
  std::swap(library_, other.library_);
  std::swap(has_backend_, other.has_backend_);
  std::swap(backend_, other.backend_);
  std::swap(abi_major_, other.abi_major_);
  std::swap(abi_minor_, other.abi_minor_);
}

}  // namespace bp::core
