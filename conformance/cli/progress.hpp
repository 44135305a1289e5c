// Shows the progress of a run: a bar on a terminal, else a line now and then.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

namespace bp::conformance {

struct ProgressState {
  bool is_confirming = false;
  size_t done = 0, total = 0, failed = 0;
  std::string what;  // The case that ended last.
};

class Progress {
 public:
  // Draws a bar if standard error is a terminal and `may_draw` is true, else prints lines. If
  // `is_quiet`, it prints nothing.
  Progress(bool is_quiet, bool may_draw);
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;

  void update(const ProgressState& state);

  // Removes the bar, so that other output can be printed.
  void clear();

 private:
  using Clock = std::chrono::steady_clock;
  enum class Style { kNone, kLines, kBar };

  Style style_;
  size_t width_;
  bool is_shown_ = false;
  bool was_confirming_ = false;
  Clock::time_point start_ = Clock::now();
  Clock::time_point shown_ = start_;
};

}  // namespace bp::conformance
