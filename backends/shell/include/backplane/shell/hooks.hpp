// Counts that every submission reads first, and that are nearly always 0; and what a launch asks of
// the captures of its instance, without the contents of capture.hpp.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "backplane/kernel.h"
#include "backplane/shell/captures.hpp"
#include "backplane/shell/entry.hpp"

namespace bp {

struct Hooks {
  std::atomic<uint32_t> open_captures = 0;     // capture.hpp
  std::atomic<uint32_t> recorded_devices = 0;  // profiler.hpp

  bool is_capture_open() const { return open_captures.load(std::memory_order_relaxed) != 0; }
  bool is_recording() const { return recorded_devices.load(std::memory_order_relaxed) != 0; }
};

// Runs a launch while a capture is open: records it if its stream captures, else runs it. `body`
// does all that a launch does; if its argument is true, it does everything but submit.
bp_status launch_in_capture(Captures& captures, const bp_kernel& kernel, const bp_launch& launch,
                            const void* args,
                            const std::function<bp_status(bool only_checks)>& body);

// Runs body(Launch&) for a launch that the host made, and keeps exceptions inside. make() returns
// the Launch of the backend, which has set_only_checks(). `Instance` has host, hooks and captures.
template <typename Instance, typename Make, typename Body>
bp_status with_launch(const Instance& i, const bp_kernel& kernel, const bp_launch* launch,
                      const void* args, const Make& make, const Body& body) {
  return guarded(*i.host, [&]() -> bp_status {
    require(launch, "launch: launch");
    require(args, "launch: args");
    auto context = make();
    if (i.hooks.is_capture_open()) [[unlikely]] {
      return launch_in_capture(*i.captures, kernel, *launch, args, [&](bool only_checks) {
        context.set_only_checks(only_checks);
        return body(context);
      });
    }
    return body(context);
  });
}

}  // namespace bp
