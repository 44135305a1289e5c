// What all stores have in common: the C table, get() and barriers.
#include "backplane/runtime/distributed/store.hpp"

#include <algorithm>
#include <cstring>

#include "backplane/runtime/error.hpp"

namespace bp::distributed {
namespace {

Duration duration_of(uint64_t timeout_ns) {
  constexpr auto kMost = static_cast<uint64_t>(Duration::max().count());
  return Duration(static_cast<Duration::rep>(std::min(timeout_ns, kMost)));
}

void copy_value(const std::string& value, uint64_t capacity, void* out_value,
                uint64_t* out_size_bytes) {
  const uint64_t size = std::min<uint64_t>(value.size(), capacity);
  if (size != 0) std::memcpy(out_value, value.data(), size);
  *out_size_bytes = value.size();
}

}  // namespace

// The functions of the C table.
struct StoreTable {
  // Runs `body`, which returns a status or throws. The host offers no way to fill its error slot
  // from outside, so the text stays in the store.
  template <typename Body>
  static bp_status guarded(Store& store, const Body& body) noexcept {
    try {
      try {
        return body();
      } catch (const Error& error) {
        const std::lock_guard lock(store.mutex_);
        store.table_error_ = error.what();
        return error.code();
      } catch (const std::exception& error) {
        const std::lock_guard lock(store.mutex_);
        store.table_error_ = error.what();
        return BP_INTERNAL;
      }
    } catch (...) {
      return BP_OUT_OF_MEMORY;
    }
  }

  static bp_status get(void* self, const char* key, uint64_t timeout_ns, uint64_t capacity,
                       void* out_value, uint64_t* out_size_bytes) {
    Store& store = *static_cast<Store*>(self);
    return guarded(store, [&] {
      copy_value(store.get(key, duration_of(timeout_ns)), capacity, out_value, out_size_bytes);
      return bp_status{BP_OK};
    });
  }

  static bp_status try_get(void* self, const char* key, uint64_t capacity, void* out_value,
                           uint64_t* out_size_bytes) {
    Store& store = *static_cast<Store*>(self);
    return guarded(store, [&]() -> bp_status {
      const std::optional<std::string> value = store.try_get(key);
      if (!value) return BP_NOT_FOUND;
      copy_value(*value, capacity, out_value, out_size_bytes);
      return BP_OK;
    });
  }

  static bp_status put(void* self, const char* key, const void* value, uint64_t size_bytes) {
    Store& store = *static_cast<Store*>(self);
    return guarded(store, [&] {
      store.put(key, {static_cast<const char*>(value), size_bytes});
      return bp_status{BP_OK};
    });
  }
};

Store::Store()
    : table_{.struct_size = sizeof(bp_store),
             .struct_type = BP_STRUCT_STORE,
             .next = nullptr,
             .self = this,
             .get = StoreTable::get,
             .try_get = StoreTable::try_get,
             .put = StoreTable::put} {}

std::string Store::table_error() const {
  const std::lock_guard lock(mutex_);
  return table_error_;
}

std::string Store::get(const std::string& key, Duration timeout) {
  wait({&key, 1}, timeout);
  return try_get(key).value();
}

void Store::put_and_wait(const std::string& key, std::span<const std::string> keys,
                         Duration timeout) {
  put(key, "");
  wait(keys, timeout);
}

void Store::barrier(const std::string& name, uint32_t rank, uint32_t world_size, Duration timeout) {
  uint64_t count = 0;
  {
    const std::lock_guard lock(mutex_);
    count = ++barrier_counts_[{name, rank}];
  }
  const auto key_of = [&](uint32_t of) {
    return "barrier/" + name + "/" + std::to_string(count) + "/" + std::to_string(of);
  };
  std::vector<std::string> keys;
  for (uint32_t i = 0; i < world_size; ++i) keys.push_back(key_of(i));
  try {
    put_and_wait(key_of(rank), keys, timeout);
  } catch (const Error& error) {
    if (error.code() != BP_TIMEOUT) {
      throw Error(error.code(),
                  "barrier '" + name + "': rank " + std::to_string(rank) + ": " + error.what());
    }
    std::string missing;
    for (uint32_t i = 0; i < world_size; ++i) {
      if (!try_get(keys[i])) missing += (missing.empty() ? "" : ", ") + std::to_string(i);
    }
    throw Error(BP_TIMEOUT, "barrier '" + name + "': rank " + std::to_string(rank) +
                                " waited for the ranks " + missing +
                                ", which did not come in time");
  }
}

}  // namespace bp::distributed
