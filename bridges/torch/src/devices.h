// The devices of this process: which plugins are loaded, and which target each bp:N is.
//
// Devices are only ever added, so a reference to one stays valid. At the end of the interpreter,
// and in a child of fork(), the devices are closed: new work is refused, and ends are ignored.
#pragma once

#include <ATen/ATen.h>

#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "backplane/host.h"

namespace bpt {

constexpr auto kBp = c10::DeviceType::PrivateUse1;
constexpr size_t kStreamPoolSize = 32;

// One bp:N. The streams of the pool are made when they are first taken, and live until the unload.
struct Device {
  const bp_target* target = nullptr;
  std::array<std::atomic<bp_stream*>, kStreamPoolSize> pool{};
  std::atomic<uint32_t> next_in_pool{0};
};

// Loads a plugin by its path or by the name in its manifest, and gives the index of its first
// device and how many devices it has. A plugin that is loaded already is not loaded again.
std::pair<int, int> load(const std::string& name,
                         const std::vector<std::pair<std::string, std::string>>& options);

c10::DeviceIndex device_count() noexcept;
Device& device_at(c10::DeviceIndex index);  // Throws if there is no such device.
const bp_target* target_of(
    const c10::Device& device);  // That of the current device if it has no index.

// Refuses work with a sentence once the devices are closed.
void require_open();
bool is_open() noexcept;
bool is_in_child() noexcept;  // In a child of fork() that began after a load.

// Waits for each plugin at most so long, and unloads it. A plugin that was not unloaded stays as it
// is: the result says which, and why, but for those whose device was lost.
std::vector<std::string> close_all(uint64_t timeout_ns);

// ---- Errors -------------------------------------------------------------------------------------

// Throws PyTorch's exception for `status`, with the sentence of this thread's error slot.
[[noreturn]] void raise(bp_status status, const char* call);
inline void check(bp_status status, const char* call) {
  if (C10_UNLIKELY(status != BP_OK)) raise(status, call);
}

// Throws what `stream` failed with, and ends its failure, so that later work runs again.
[[noreturn]] void raise_failure_of(const bp_target* target, bp_stream* stream, bp_status status,
                                   const char* call);

// The call is legal in PyTorch and not served by the device: whoever catches it takes another way.
struct Unsupported {
  std::string reason;
};

}  // namespace bpt
