// A put() writes a file of another name and renames it, so that a reader sees a whole value or
// none. A get() looks again and again: first after 0.2 ms, since most waits are short, and then at
// most every 10 ms.
#include "conformance/dist/folder_store.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <chrono>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <thread>
#include <utility>

namespace bp::conformance::dist {
namespace {

constexpr auto kFirstPause = std::chrono::microseconds(200);
constexpr auto kLongestPause = std::chrono::microseconds(10'000);

FolderStore& store_of(void* self, const char* key) {
  FolderStore& store = *static_cast<FolderStore*>(self);
  store.check_key(key);
  return store;
}

bp_status give(const std::string& value, uint64_t capacity, void* out_value,
               uint64_t* out_size_bytes) {
  const uint64_t size = std::min<uint64_t>(capacity, value.size());
  if (size != 0) std::memcpy(out_value, value.data(), size);
  *out_size_bytes = value.size();
  return BP_OK;
}

bp_status get_entry(void* self, const char* key, uint64_t timeout_ns, uint64_t capacity,
                    void* out_value, uint64_t* out_size_bytes) {
  std::string value;
  if (!store_of(self, key).get(key, timeout_ns, value)) return BP_TIMEOUT;
  return give(value, capacity, out_value, out_size_bytes);
}

bp_status try_get_entry(void* self, const char* key, uint64_t capacity, void* out_value,
                        uint64_t* out_size_bytes) {
  std::string value;
  if (!store_of(self, key).try_get(key, value)) return BP_NOT_FOUND;
  return give(value, capacity, out_value, out_size_bytes);
}

bp_status put_entry(void* self, const char* key, const void* value, uint64_t size_bytes) {
  const std::string bytes(static_cast<const char*>(value), size_bytes);
  return store_of(self, key).put(key, bytes) ? BP_OK : BP_INTERNAL;
}

}  // namespace

FolderStore::FolderStore(std::string folder) : folder_(std::move(folder)) {
  table_.struct_size = sizeof(table_);
  table_.struct_type = BP_STRUCT_STORE;
  table_.self = this;
  table_.get = get_entry;
  table_.try_get = try_get_entry;
  table_.put = put_entry;
}

const bp_store* FolderStore::table_for(const std::string& prefix) {
  const std::lock_guard lock(mutex_);
  prefixes_.push_back(prefix);
  return &table_;
}

void FolderStore::check_key(const std::string& key) {
  const std::lock_guard lock(mutex_);
  const auto begins = [&](const std::string& prefix) { return key.starts_with(prefix); };
  if (foreign_key_.empty() && std::ranges::none_of(prefixes_, begins)) foreign_key_ = key;
}

std::string FolderStore::foreign_key() const {
  const std::lock_guard lock(mutex_);
  return foreign_key_;
}

// A key may have any characters and any length. Most keys of backends are short and plain, and
// keep their names, so that a person who looks into the folder can read them.
std::string FolderStore::path_of(const std::string& key) const {
  constexpr size_t kLongestName = 120;
  std::string name;
  for (const char c : key) {
    const auto byte = static_cast<unsigned char>(c);
    const bool is_plain = std::isalnum(byte) != 0 || c == '_' || c == '-' || c == '.';
    if (is_plain) {
      name += c;
    } else {
      name += '%';
      name += "0123456789abcdef"[byte >> 4];
      name += "0123456789abcdef"[byte & 15];
    }
  }
  if (name.size() > kLongestName) {
    name = name.substr(0, kLongestName) + "%h" + std::to_string(std::hash<std::string>()(key));
  }
  return folder_ + "/k" + name;
}

bool FolderStore::put(const std::string& key, const std::string& value) const {
  static std::atomic<uint64_t> next{0};
  const std::string made = folder_ + "/new." + std::to_string(getpid()) + "." +
                           std::to_string(next.fetch_add(1, std::memory_order_relaxed));
  std::ofstream file(made, std::ios::binary);
  file.write(value.data(), static_cast<std::streamsize>(value.size()));
  file.close();
  return file.good() && rename(made.c_str(), path_of(key).c_str()) == 0;
}

bool FolderStore::try_get(const std::string& key, std::string& out_value) const {
  std::ifstream file(path_of(key), std::ios::binary);
  if (!file.is_open()) return false;
  out_value.assign(std::istreambuf_iterator<char>(file), {});
  return true;
}

bool FolderStore::get(const std::string& key, uint64_t timeout_ns, std::string& out_value) const {
  const auto start = std::chrono::steady_clock::now();
  auto pause = kFirstPause;
  while (!try_get(key, out_value)) {
    const auto passed = std::chrono::steady_clock::now() - start;
    const auto passed_ns =
        static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(passed).count());
    if (passed_ns >= timeout_ns) return false;
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, kLongestPause);
  }
  return true;
}

}  // namespace bp::conformance::dist
