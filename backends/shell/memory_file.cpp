#include "backplane/shell/memory_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>

#include "backplane/shell/entry.hpp"
#include "backplane/shell/first_size.hpp"
#include "backplane/shell/memory_file_kind.hpp"

namespace bp {
namespace {

constexpr int kSeals = F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL;

// Returns the name of a file, which contains its size and kind. Another process can read the name,
// and nobody can change it.
std::string file_name(const std::string& kind, uint64_t size_bytes) {
  return kind + "." + std::to_string(size_bytes);
}

// Returns the system's name for the file behind a descriptor, or "" if the descriptor is not open.
std::string name_of(int descriptor) {
  std::array<char, 256> target;
  const std::string path = "/proc/self/fd/" + std::to_string(descriptor);
  const ssize_t size = readlink(path.c_str(), target.data(), target.size());
  return size < 0 ? "" : std::string(target.data(), static_cast<size_t>(size));
}

// Returns whether the file is sealed and has the size that MemoryFile gave it, so that mapped pages
// cannot be taken away.
bool is_sealed(int descriptor, uint64_t size_bytes) {
  struct stat status;
  return fcntl(descriptor, F_GET_SEALS) == kSeals && fstat(descriptor, &status) == 0 &&
         static_cast<uint64_t>(status.st_size) == whole_pages(size_bytes);
}

// Returns what name_of() returns for a file of this kind and size.
std::string wanted_name(const std::string& kind, uint64_t size_bytes) {
  return "/memfd:" + file_name(kind, size_bytes) + " (deleted)";
}

[[noreturn]] void refuse_memory(const char* call, uint64_t size_bytes) {
  throw StatusError(BP_OUT_OF_MEMORY, std::string(call) + ": " + std::to_string(size_bytes) +
                                          " bytes were asked for, and the system has no room: " +
                                          std::strerror(errno));
}

void check_external_type(bp_external_type type, const char* call) {
  if (type == BP_EXTERNAL_OPAQUE_FD) return;
  throw StatusError(BP_UNSUPPORTED, std::string(call) + ": type is " + std::to_string(type) +
                                        "; BP_EXTERNAL_OPAQUE_FD, a descriptor, is offered");
}

}  // namespace

void check_export(bp_external_type type, const bp_external_handle* out_handle, const char* call) {
  check_external_type(type, call);
  check_offer(out_handle, kFirstSize<bp_external_handle>, std::string(call) + ": out_handle");
}

void give_descriptor(int descriptor, uint64_t size_bytes, bp_external_handle* out_handle) {
  bp_external_handle given{};
  given.type = BP_EXTERNAL_OPAQUE_FD;
  given.fd = descriptor;
  given.size_bytes = size_bytes;
  write_offer(given, out_handle);
}

bp_external_handle read_external(const bp_external_handle* handle, const char* call) {
  require(handle, (std::string(call) + ": handle").c_str());
  const auto given =
      read_desc(handle, kFirstSize<bp_external_handle>, BP_STRUCT_EXTERNAL_HANDLE, call, "handle");
  check_external_type(given.type, call);
  return given;
}

bp_external_handle read_external_object(const bp_external_handle* handle, const char* call,
                                        const char* what) {
  const bp_external_handle given = read_external(handle, call);
  if (given.size_bytes == 0) return given;
  refuse(BP_INVALID_ARGUMENT, std::string(call) + ": handle: size_bytes is " +
                                  std::to_string(given.size_bytes) + ", and that of " + what +
                                  " is 0");
}

uint64_t system_page_bytes() {
  static const auto size_bytes = static_cast<uint64_t>(sysconf(_SC_PAGE_SIZE));
  return size_bytes;
}

uint64_t whole_pages(uint64_t size_bytes) {
  const uint64_t page = system_page_bytes(), last = std::numeric_limits<uint64_t>::max() - page + 1;
  return std::max(page, size_bytes > last ? last : (size_bytes + page - 1) / page * page);
}

bool is_memory_file(const std::string& kind, uint64_t size_bytes, int descriptor) {
  return name_of(descriptor) == wanted_name(kind, size_bytes) && is_sealed(descriptor, size_bytes);
}

MemoryFile::MemoryFile(const char* call, const std::string& kind, uint64_t size_bytes) {
  const uint64_t file_bytes = whole_pages(size_bytes);
  if (file_bytes > static_cast<uint64_t>(std::numeric_limits<off_t>::max())) {
    errno = EFBIG;
    refuse_memory(call, size_bytes);
  }
  descriptor_ = memfd_create(file_name(kind, size_bytes).c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (descriptor_ < 0) refuse_memory(call, size_bytes);
  if (ftruncate(descriptor_, static_cast<off_t>(file_bytes)) == 0 &&
      fcntl(descriptor_, F_ADD_SEALS, kSeals) == 0) {
    return;
  }
  const int problem = errno;
  close(descriptor_);
  errno = problem;
  refuse_memory(call, size_bytes);
}

MemoryFile::MemoryFile(const char* call, const std::string& kind, uint64_t size_bytes,
                       int descriptor) {
  if (!is_memory_file(kind, size_bytes, descriptor)) {
    const std::string found = name_of(descriptor), wanted = wanted_name(kind, size_bytes);
    throw StatusError(BP_INVALID_ARGUMENT,
                      std::string(call) + ": descriptor " + std::to_string(descriptor) + " is " +
                          (found.empty() ? "not open" : "\"" + found + "\"") + ", and memory of " +
                          std::to_string(size_bytes) +
                          " bytes that this backend exported is called \"" + wanted + "\"");
  }
  descriptor_ = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
  if (descriptor_ < 0) refuse_memory(call, size_bytes);
}

MemoryFile::~MemoryFile() { close(descriptor_); }

int MemoryFile::duplicate(const char* call) const {
  const int copy = fcntl(descriptor_, F_DUPFD_CLOEXEC, 0);
  if (copy >= 0) return copy;
  throw StatusError(BP_OUT_OF_MEMORY,
                    std::string(call) + ": no descriptor is left: " + std::strerror(errno));
}

Mapping::Mapping(const char* call, const MemoryFile& file, uint64_t size_bytes)
    : mapped_bytes_(whole_pages(size_bytes)) {
  void* const address =
      mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file.descriptor(), 0);
  if (address == MAP_FAILED) refuse_memory(call, size_bytes);
  address_ = static_cast<std::byte*>(address);
}

Mapping::~Mapping() { munmap(address_, mapped_bytes_); }

}  // namespace bp
