#include "backends/cpu/groups/store.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "backplane/shell/deadline.hpp"
#include "backplane/shell/entry.hpp"

namespace bp::cpu {
namespace {

// A wait for a key asks the store this often whether it should go on.
constexpr uint64_t kSliceNs = 100'000'000;

LocalStore& store_of(void* self) { return *static_cast<LocalStore*>(self); }

}  // namespace

LocalStore::LocalStore() {
  table_.struct_size = sizeof(table_);
  table_.struct_type = BP_STRUCT_STORE;
  table_.self = this;
  table_.get = [](void* self, const char* key, uint64_t timeout_ns, uint64_t capacity,
                  void* out_value, uint64_t* out_size_bytes) {
    return store_of(self).get(key, timeout_ns, capacity, out_value, out_size_bytes);
  };
  table_.try_get = [](void* self, const char* key, uint64_t capacity, void* out_value,
                      uint64_t* out_size_bytes) -> bp_status {
    const bp_status status = store_of(self).get(key, 0, capacity, out_value, out_size_bytes);
    return status == BP_TIMEOUT ? bp_status{BP_NOT_FOUND} : status;
  };
  table_.put = [](void* self, const char* key, const void* value, uint64_t size_bytes) {
    return store_of(self).put(key, value, size_bytes);
  };
}

bp_status LocalStore::get(const char* key, uint64_t timeout_ns, uint64_t capacity, void* out_value,
                          uint64_t* out_size_bytes) {
  std::unique_lock lock(mutex_);
  if (!wait_on(changed_, lock, timeout_ns, [&] { return values_.contains(key); })) {
    return BP_TIMEOUT;
  }
  const std::string& value = values_[key];
  std::memcpy(out_value, value.data(), std::min<uint64_t>(capacity, value.size()));
  *out_size_bytes = value.size();
  return BP_OK;
}

bp_status LocalStore::put(const char* key, const void* value, uint64_t size_bytes) {
  const std::lock_guard lock(mutex_);
  values_[key].assign(static_cast<const char*>(value), size_bytes);
  changed_.notify_all();
  return BP_OK;
}

GroupStore::GroupStore(const bp_store& store, std::string prefix, uint32_t rank,
                       uint32_t world_size)
    : store_(store),
      prefix_(std::move(prefix)),
      address_key_(std::to_string(rank)),
      world_size_(world_size) {}

void GroupStore::check() const {
  const Outcome ended = this->ended();
  if (ended.status != BP_OK) refuse(ended.status, ended.text);
}

void GroupStore::set(const std::string& key, const std::vector<char>& data) {
  {
    const std::lock_guard lock(mutex_);
    if (ended_.status == BP_OK && key == address_key_) is_published_ = true;
  }
  check();
  const std::string name = prefix_ + key;
  if (put(name, data) != BP_OK) refuse(BP_INTERNAL, "the store does not take \"" + name + "\"");
}

bp_status GroupStore::put(const std::string& name, const std::vector<char>& data) const {
  std::vector<char> value(data.size() + sizeof(world_size_));
  std::ranges::copy(data, value.begin());
  std::memcpy(value.data() + data.size(), &world_size_, sizeof(world_size_));
  return store_.put(store_.self, name.c_str(), value.data(), value.size());
}

std::vector<char> GroupStore::get(const std::string& key) {
  {
    const std::lock_guard lock(mutex_);
    const size_t number = key.find_first_of("0123456789");
    awaited_ = number == std::string::npos ? "" : " rank " + key.substr(number);
  }
  const std::string name = prefix_ + key;
  std::vector<char> value(4096);
  while (true) {
    check();
    uint64_t size_bytes = 0;
    const bp_status status =
        store_.get(store_.self, name.c_str(), kSliceNs, value.size(), value.data(), &size_bytes);
    if (status == BP_TIMEOUT) continue;
    if (status != BP_OK) refuse(BP_INTERNAL, "the store gives no value for \"" + name + "\"");
    const bool is_whole = size_bytes <= value.size();
    value.resize(size_bytes);
    if (is_whole) return without_size(std::move(value));
  }
}

std::vector<char> GroupStore::without_size(std::vector<char> value) const {
  uint32_t theirs = 0;
  if (value.size() < sizeof(theirs)) {
    refuse(BP_INTERNAL, "the value of" + awaited() + " in the store is cut");
  }
  value.resize(value.size() - sizeof(theirs));
  std::memcpy(&theirs, value.data() + value.size(), sizeof(theirs));
  if (theirs == world_size_) return value;
  // The others may wait for the addresses of this rank, and learn why there are none.
  static_cast<void>(put(prefix_ + address_key_, {}));
  refuse(BP_INVALID_ARGUMENT, awaited().substr(1) + " says that the group has " +
                                  std::to_string(theirs) + " ranks, and rank " + address_key_ +
                                  " says that it has " + std::to_string(world_size_));
}

void GroupStore::wait(const std::vector<std::string>& keys) {
  for (const std::string& key : keys) static_cast<void>(get(key));
}

// The timeout is that of create(), which ends the waits itself.
void GroupStore::wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) {
  wait(keys);
}

bool GroupStore::end(const Outcome& why) {
  const std::lock_guard lock(mutex_);
  if (ended_.status == BP_OK) ended_ = why;
  return is_published_;
}

Outcome GroupStore::ended() const {
  const std::lock_guard lock(mutex_);
  return ended_;
}

std::string GroupStore::awaited() const {
  const std::lock_guard lock(mutex_);
  return awaited_;
}

}  // namespace bp::cpu
