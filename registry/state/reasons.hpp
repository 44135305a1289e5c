// Why calls on a target were served in another way than by kernels of the device alone.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <tuple>

#include "backplane/host.h"

namespace bp::core {

// The calls of one op that had one reason.
struct Reason {
  uint32_t op = 0;
  bp_kernel_sources source = 0;
  std::string text;
  std::atomic<uint64_t> call_count = 0;
};

// The reasons of one target. It is thread-safe. A reason lives as long as the list, at its index.
class Reasons {
 public:
  static constexpr size_t kMaxReasons = 1024;
  static constexpr size_t kMaxCauses = 4 * kMaxReasons;

  // What tells calls apart without their text: calls with equal causes have one reason.
  struct Cause {
    const void* calls;      // What these calls have in common, such as their choices.
    const void* kernel;     // The kernel that served them.
    uint64_t refusals = 0;  // A hash of the answers of kernels that were asked about each call.

    auto operator<=>(const Cause&) const = default;
  };

  // Returns the reason of a cause, or NULL if the cause is new.
  Reason* find(const Cause& cause);

  // Returns the reason with this op, source and text, to which `cause` leads from now on. When the
  // list is full, it is the last reason, which stands for all others.
  Reason& add(const Cause& cause, uint32_t op, bp_kernel_sources source, const std::string& text);

  size_t count() const;

  // Returns a reason, or NULL if there is none with this index.
  const Reason* at(uint64_t index) const;

 private:
  Reason& named_locked(uint32_t op, bp_kernel_sources source, const std::string& text);

  mutable std::mutex mutex_;
  // mutex_ guards the members below.
  std::deque<Reason> reasons_;
  std::map<Cause, Reason*> by_cause_;
  std::map<std::tuple<uint32_t, bp_kernel_sources, std::string>, Reason*> by_text_;
};

}  // namespace bp::core
