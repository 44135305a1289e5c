#include "store.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

namespace bpt {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPause(2);

c10d::Store& store_of(void* self) { return *static_cast<c10d::Store*>(self); }

bp_status copy_out(const std::vector<uint8_t>& value, uint64_t capacity, void* out_value,
                   uint64_t* out_size_bytes) {
  std::memcpy(out_value, value.data(), std::min<uint64_t>(capacity, value.size()));
  *out_size_bytes = value.size();
  return BP_OK;
}

// Nothing but a status may cross the boundary: whatever the store throws is one.
template <typename Body>
bp_status guarded(Body body) noexcept {
  try {
    return body();
  } catch (...) {
    return BP_INTERNAL;
  }
}

bp_status try_get(void* self, const char* key, uint64_t capacity, void* out_value,
                  uint64_t* out_size_bytes) {
  return guarded([&]() -> bp_status {
    if (!store_of(self).check({key})) return BP_NOT_FOUND;
    return copy_out(store_of(self).get(key), capacity, out_value, out_size_bytes);
  });
}

// It looks again and again: a wait of a store of PyTorch's would keep other threads from it.
bp_status get(void* self, const char* key, uint64_t timeout_ns, uint64_t capacity, void* out_value,
              uint64_t* out_size_bytes) {
  const auto begin = Clock::now();
  for (;;) {
    const bp_status status = try_get(self, key, capacity, out_value, out_size_bytes);
    if (status != BP_NOT_FOUND) return status;
    const auto waited = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin);
    if (static_cast<uint64_t>(waited.count()) >= timeout_ns) return BP_TIMEOUT;
    std::this_thread::sleep_for(kPause);
  }
}

bp_status put(void* self, const char* key, const void* value, uint64_t size_bytes) {
  return guarded([&]() -> bp_status {
    const auto* bytes = static_cast<const uint8_t*>(value);
    store_of(self).set(key, std::vector<uint8_t>(bytes, bytes + size_bytes));
    return BP_OK;
  });
}

}  // namespace

StoreAdapter::StoreAdapter(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {
  ops_.struct_size = sizeof(ops_);
  ops_.struct_type = BP_STRUCT_STORE;
  ops_.self = store_.get();
  ops_.get = &bpt::get;
  ops_.try_get = &try_get;
  ops_.put = &put;
}

}  // namespace bpt
