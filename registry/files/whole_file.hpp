// Writes a file either as a whole or not at all: also after a crash, a full disk or a loss of
// power, readers find the old content or the new one.
//
// The content goes to a file of a unique name in the same folder. Nobody can have planted that
// file, because O_EXCL follows no link. It is synchronised before it gets its final name, and its
// folder after that.
//
// Header-only: every module that replaces files includes it, also behind libbackplane.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <utility>

namespace bp {

class WholeFile {
 public:
  // Makes the draft beside `path`, with the rights that the umask leaves of 0666.
  // Without `is_durable` nothing is synchronised: for files whose damage their reader sees.
  explicit WholeFile(std::string path, bool is_durable = true)
      : path_(std::move(path)), is_durable_(is_durable) {
    static std::atomic<uint64_t> count = 0;
    std::random_device random;
    const std::string start = folder() + "backplane." + std::to_string(getpid()) + ".";
    for (int tries = 0; file_ < 0 && tries < 100; ++tries) {
      draft_ =
          start + std::to_string(count.fetch_add(1)) + "." + std::to_string(random()) + ".draft";
      file_ = ::open(draft_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
      if (file_ < 0 && errno != EEXIST) break;
    }
    if (file_ >= 0) return;
    note("cannot be written: a file beside it cannot be created");
    draft_.clear();  // The draft belongs to another program, or does not exist.
  }
  WholeFile(const WholeFile&) = delete;
  // Removes the draft if commit() was not called.
  ~WholeFile() { drop(); }

  void write(const void* bytes, size_t size) {
    const char* next = static_cast<const char*>(bytes);
    while (size > 0 && problem_.empty()) {
      const ssize_t written = ::write(file_, next, size);
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return note("cannot be written");
      next += written;
      size -= static_cast<size_t>(written);
    }
  }
  void write(std::string_view text) { write(text.data(), text.size()); }

  // Gives the file its name. Returns why this fails, with the path, or "".
  std::string commit() {
    if (problem_.empty() && is_durable_ && ::fsync(file_) != 0) note("cannot be synchronised");
    if (file_ >= 0 && ::close(std::exchange(file_, -1)) != 0) note("cannot be closed");
    if (problem_.empty() && ::rename(draft_.c_str(), path_.c_str()) != 0) {
      note("the file that was written beside it cannot be renamed to it");
    }
    if (problem_.empty()) {
      draft_.clear();
      if (is_durable_) sync_folder();
    }
    drop();
    return problem_;
  }

 private:
  // Keeps the first problem, in the words of the system.
  void note(const char* what) {
    const int error = errno;
    if (problem_.empty()) problem_ = path_ + ": " + what + ": " + std::strerror(error);
  }

  // Returns the folder with its slash, or "" for the working folder.
  std::string folder() const { return path_.substr(0, path_.rfind('/') + 1); }

  void drop() {
    if (file_ >= 0) ::close(std::exchange(file_, -1));
    if (!draft_.empty()) ::unlink(std::exchange(draft_, {}).c_str());
  }

  // Synchronises the folder, because the name is part of it. Some file systems cannot, and return
  // EINVAL.
  void sync_folder() {
    const std::string name = folder().empty() ? "." : folder();
    const int handle = ::open(name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (handle < 0) return note("its folder cannot be synchronised");
    if (::fsync(handle) != 0 && errno != EINVAL) note("its folder cannot be synchronised");
    ::close(handle);
  }

  std::string path_, draft_, problem_;
  bool is_durable_;
  int file_ = -1;
};

}  // namespace bp
