// A store for tests, through which processes find each other.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <utility>

#include "backplane/collective.h"

namespace bp::cpu {

// A store whose values are the files of a folder.
class FileStore {
 public:
  // All keys begin with `prefix`, so that a folder can serve several stores.
  explicit FileStore(std::filesystem::path folder, std::string prefix = "")
      : folder_(std::move(folder)), prefix_(std::move(prefix)) {
    table_.struct_size = sizeof(table_);
    table_.struct_type = BP_STRUCT_STORE;
    table_.self = this;
    table_.get = [](void* self, const char* key, uint64_t timeout_ns, uint64_t capacity, void* out,
                    uint64_t* size) { return at(self).get(key, timeout_ns, capacity, out, size); };
    table_.try_get = [](void* self, const char* key, uint64_t capacity, void* out,
                        uint64_t* size) -> bp_status {
      const bp_status status = at(self).get(key, 0, capacity, out, size);
      return status == BP_TIMEOUT ? bp_status{BP_NOT_FOUND} : status;
    };
    table_.put = [](void* self, const char* key, const void* value, uint64_t size) {
      return at(self).put(key, value, size);
    };
  }
  FileStore(const FileStore&) = delete;
  const bp_store* table() const { return &table_; }

 private:
  static FileStore& at(void* self) { return *static_cast<FileStore*>(self); }

  std::filesystem::path path_of(std::string key) const {
    key = prefix_ + key;
    std::ranges::replace(key, '/', '.');
    return folder_ / key;
  }
  bp_status get(const char* key, uint64_t timeout_ns, uint64_t capacity, void* out,
                uint64_t* size) const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::nanoseconds(timeout_ns);
    while (!std::filesystem::exists(path_of(key))) {
      if (std::chrono::steady_clock::now() >= end) return BP_TIMEOUT;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    std::ifstream file(path_of(key), std::ios::binary);
    const std::string value{std::istreambuf_iterator<char>(file), {}};
    std::memcpy(out, value.data(), std::min<uint64_t>(capacity, value.size()));
    *size = value.size();
    return BP_OK;
  }
  // A file comes into being under another name, so that nobody sees a part of it.
  bp_status put(const char* key, const void* value, uint64_t size) const {
    const std::filesystem::path made =
        path_of(std::string(key) + ".of." + std::to_string(getpid()));
    std::ofstream(made, std::ios::binary)
        .write(static_cast<const char*>(value), static_cast<std::streamsize>(size));
    std::filesystem::rename(made, path_of(key));
    return BP_OK;
  }

  const std::filesystem::path folder_;
  const std::string prefix_;
  bp_store table_{};
};

}  // namespace bp::cpu
