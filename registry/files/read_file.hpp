// Reads a whole file that another program wrote. It must be a regular file, of at most the size
// that the caller allows. Opening a FIFO would wait for a writer for ever, and a device may have no
// end.
//
// Header-only: every module that reads files from outside includes it, also behind libbackplane.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>

namespace bp {

// Returns "" for a regular file, else what the file is.
inline std::string file_kind(mode_t mode) {
  if (S_ISREG(mode)) return "";
  if (S_ISDIR(mode)) return "folder";
  if (S_ISFIFO(mode)) return "FIFO";
  if (S_ISSOCK(mode)) return "socket";
  return "device";
}

// Returns why the file at `path` cannot be opened as a regular file, or "" if it can. It never
// waits.
inline std::string regular_file_defect(const std::string& path) {
  struct stat found {};
  if (::stat(path.c_str(), &found) != 0) return std::strerror(errno);
  const std::string kind = file_kind(found.st_mode);
  return kind.empty() ? "" : "it is a " + kind + ", not a regular file";
}

// Fills `out` with the file at `path`. Returns why this fails, or "".
inline std::string read_file(const std::string& path, uint64_t max_bytes, std::string& out) {
  // A path that is no regular file is not opened, because opening one can have effects. O_NONBLOCK
  // is for a path that becomes a FIFO in between.
  std::string defect = regular_file_defect(path);
  if (!defect.empty()) return defect;
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return std::strerror(errno);
  struct stat found {};
  if (::fstat(file, &found) != 0) {
    defect = std::strerror(errno);
  } else if (const std::string kind = file_kind(found.st_mode); !kind.empty()) {
    defect = "it is a " + kind + ", not a regular file";
  } else if (static_cast<uint64_t>(found.st_size) > max_bytes) {
    defect = "it has " + std::to_string(found.st_size) + " bytes; allowed are at most " +
             std::to_string(max_bytes);
  } else {
    out.resize(static_cast<size_t>(found.st_size));
    size_t done = 0;
    while (done < out.size()) {
      const ssize_t count = ::read(file, out.data() + done, out.size() - done);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) defect = std::strerror(errno);
      if (count <= 0) break;
      done += static_cast<size_t>(count);
    }
    out.resize(done);  // The file is shorter if another program cut it meanwhile.
  }
  ::close(file);
  return defect;
}

}  // namespace bp
