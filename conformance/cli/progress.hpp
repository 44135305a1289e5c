// What a person sees while a run goes on: a bar on a terminal, else a line now and then.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

namespace bp::conformance {

class Progress {
 public:
  enum class Style { kNone, kLines, kBar };

  Progress(Style style, size_t width);
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;

  void update(size_t done, size_t total, size_t failed, const std::string& what);

  // Removes the bar, so that something else can be printed.
  void clear();

 private:
  using Clock = std::chrono::steady_clock;

  Style style_;
  size_t width_;
  bool is_shown_ = false;
  Clock::time_point start_ = Clock::now();
  Clock::time_point shown_ = start_;
};

}  // namespace bp::conformance
