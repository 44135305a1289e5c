// Counts that every submission reads first. They are nearly always 0.
#pragma once

#include <atomic>
#include <cstdint>

namespace bp {

struct Hooks {
  std::atomic<uint32_t> open_captures = 0;     // capture.hpp
  std::atomic<uint32_t> recorded_devices = 0;  // profiler.hpp

  bool is_capture_open() const { return open_captures.load(std::memory_order_relaxed) != 0; }
  bool is_recording() const { return recorded_devices.load(std::memory_order_relaxed) != 0; }
};

}  // namespace bp
