#include "registry/layers/output_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace bp::layers {
namespace {

// Returns why open(2) failed, and what to do.
std::string open_defect(const std::string& path, int error) {
  std::error_code ignored;
  if (error == ELOOP && std::filesystem::is_symlink(path, ignored)) {
    return "it is a symbolic link, which layers do not follow; remove it, or give the file to "
           "which it leads";
  }
  return std::string(std::strerror(error)) + "; give a path that can be written";
}

}  // namespace

std::string write_to(const std::string& path, int flags, std::string_view bytes) {
  const int file = ::open(path.c_str(), O_WRONLY | O_NOFOLLOW | O_CLOEXEC | flags, 0666);
  if (file < 0) return open_defect(path, errno);
  std::string defect;
  while (!bytes.empty() && defect.empty()) {
    const ssize_t written = ::write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written > 0) {
      bytes.remove_prefix(static_cast<size_t>(written));
    } else {
      defect = written < 0 ? std::strerror(errno) : "the file takes no more bytes";
    }
  }
  if (::close(file) != 0 && defect.empty()) defect = std::strerror(errno);
  return defect;
}

}  // namespace bp::layers
