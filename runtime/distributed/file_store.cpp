// A store in one file, to which every put() appends.
//
//   "BPSTORE1"                               once, at the beginning
//   u32 key size  u32 value size  key  value      for each put(), little-endian
//
// The latest record of a key counts. Readers and writers lock the whole file (flock), so a record
// that lacks its end was left by a process that died; the next writer cuts it off. A process reads
// only what was appended since its last look.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <thread>
#include <unordered_map>

#include "backplane/runtime/distributed/store.hpp"
#include "backplane/runtime/error.hpp"
#include "runtime/distributed/store_values.hpp"

namespace bp::distributed {
namespace {

constexpr std::string_view kMark = "BPSTORE1";
constexpr uint64_t kHeadBytes = 8;

// Waits between two looks at the file: short at first, since most waits are short.
constexpr auto kFirstWait = std::chrono::milliseconds(1);
constexpr auto kLongestWait = std::chrono::milliseconds(50);

[[noreturn]] void fail(const std::string& path, const std::string& what) {
  throw Error(BP_ABORTED, "FileStore '" + path + "': " + what);
}

[[noreturn]] void fail_errno(const std::string& path, const char* what) {
  fail(path, std::string(what) + ": " + std::generic_category().message(errno));
}

// The lock of the file, among processes and among stores of one process.
class FileLock {
 public:
  FileLock(int file, bool writes, const std::string& path) : file_(file) {
    while (flock(file_, writes ? LOCK_EX : LOCK_SH) != 0) {
      if (errno != EINTR) fail_errno(path, "it cannot be locked");
    }
  }
  ~FileLock() { flock(file_, LOCK_UN); }
  FileLock(const FileLock&) = delete;

 private:
  const int file_;
};

}  // namespace

struct FileStore::File {
  std::string path;
  int descriptor = -1;
  std::mutex mutex;  // Guards the members below, and the lock of the file.
  std::unordered_map<std::string, std::string> values;
  uint64_t end = 0;  // Of the last whole record that was read.

  ~File() {
    if (descriptor >= 0) close(descriptor);
  }

  uint64_t size() const {
    struct stat status {};
    if (fstat(descriptor, &status) != 0) fail_errno(path, "its size cannot be read");
    if (status.st_nlink == 0) fail(path, "the file was removed");
    return static_cast<uint64_t>(status.st_size);
  }

  void read_at(uint64_t place, char* bytes, uint64_t count) const {
    while (count != 0) {
      const ssize_t got = pread(descriptor, bytes, count, static_cast<off_t>(place));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) fail_errno(path, "it cannot be read");
      place += static_cast<uint64_t>(got);
      bytes += got;
      count -= static_cast<uint64_t>(got);
    }
  }

  void write_at(uint64_t place, std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t put = pwrite(descriptor, bytes.data(), bytes.size(), static_cast<off_t>(place));
      if (put < 0 && errno == EINTR) continue;
      if (put <= 0) fail_errno(path, "it cannot be written");
      place += static_cast<uint64_t>(put);
      bytes.remove_prefix(static_cast<size_t>(put));
    }
  }

  // Reads the records that were appended since. The caller holds the locks.
  void read_new() {
    const uint64_t total = size();
    if (total <= end) return;
    std::string bytes(total - end, '\0');
    read_at(end, bytes.data(), bytes.size());
    std::string_view rest = bytes;
    if (end == 0) {
      if (rest.size() < kMark.size() && kMark.starts_with(rest)) return;
      if (!rest.starts_with(kMark)) fail(path, "the file is not a store; allowed: a new file");
      rest.remove_prefix(kMark.size());
    }
    while (rest.size() >= kHeadBytes) {
      const uint64_t key_bytes = read_u32(rest), value_bytes = read_u32(rest.substr(4));
      if (key_bytes > kMaxKeyBytes || value_bytes > kMaxValueBytes) fail(path, "it is damaged");
      if (rest.size() < kHeadBytes + key_bytes + value_bytes) break;
      values[std::string(rest.substr(kHeadBytes, key_bytes))] =
          rest.substr(kHeadBytes + key_bytes, value_bytes);
      rest.remove_prefix(kHeadBytes + key_bytes + value_bytes);
    }
    end = total - rest.size();
  }

  // Appends a record, behind the last whole one. The caller holds the locks, and has read all.
  void append(const std::string& key, const std::string& value) {
    std::string record = end == 0 ? std::string(kMark) : "";
    append_u32(record, static_cast<uint32_t>(key.size()));
    append_u32(record, static_cast<uint32_t>(value.size()));
    record += key + value;
    if (size() > end && ftruncate(descriptor, static_cast<off_t>(end)) != 0) {
      fail_errno(path, "a broken record cannot be removed");
    }
    write_at(end, record);
    end += record.size();
    values[key] = value;
  }
};

FileStore::FileStore(std::string path) : file_(std::make_unique<File>()) {
  file_->path = std::move(path);
  file_->descriptor = open(file_->path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file_->descriptor < 0) fail_errno(file_->path, "it cannot be opened");
  const FileLock lock(file_->descriptor, false, file_->path);
  file_->read_new();
}

FileStore::~FileStore() = default;

std::optional<std::string> FileStore::try_get(const std::string& key) {
  check_key(key);
  const std::lock_guard guard(file_->mutex);
  {
    const FileLock lock(file_->descriptor, false, file_->path);
    file_->read_new();
  }
  const auto found = file_->values.find(key);
  return found == file_->values.end() ? std::nullopt : std::optional(found->second);
}

void FileStore::put(const std::string& key, const std::string& value) {
  check_key(key);
  check_value(key, value);
  const std::lock_guard guard(file_->mutex);
  const FileLock lock(file_->descriptor, true, file_->path);
  file_->read_new();
  file_->append(key, value);
}

int64_t FileStore::add(const std::string& key, int64_t amount) {
  check_key(key);
  const std::lock_guard guard(file_->mutex);
  const FileLock lock(file_->descriptor, true, file_->path);
  file_->read_new();
  const auto found = file_->values.find(key);
  const int64_t sum = add_to_value(key, found == file_->values.end() ? "0" : found->second, amount);
  file_->append(key, std::to_string(sum));
  return sum;
}

void FileStore::wait(std::span<const std::string> keys, Duration timeout) {
  for (const std::string& key : keys) check_key(key);
  const auto begin = std::chrono::steady_clock::now();
  auto pause = std::chrono::duration_cast<Duration>(kFirstWait);
  while (true) {
    std::string missing;
    for (const std::string& key : keys) {
      if (!try_get(key)) missing += (missing.empty() ? "'" : ", '") + key + "'";
    }
    if (missing.empty()) return;
    const Duration passed = std::chrono::steady_clock::now() - begin;
    if (passed >= timeout) {
      throw Error(BP_TIMEOUT, "FileStore '" + file_->path + "': nobody has put " + missing +
                                  " within " + duration_text(timeout));
    }
    std::this_thread::sleep_for(std::min(pause, timeout - passed));
    pause = std::min<Duration>(pause * 2, kLongestWait);
  }
}

}  // namespace bp::distributed
