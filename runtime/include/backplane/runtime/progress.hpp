// A progress bar for long loops.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

namespace bp {

// Shows how far a loop has come, how fast it runs, and when it will end:
//
//   ProgressBar bar(steps, "epoch 1");
//   for (...) { ...; bar.step("loss 0.31"); }
//   bar.finish("loss 0.31");
//
// On a terminal one line is redrawn, at most ten times a second. Elsewhere, such as in a log, a
// line is written at each tenth of the way. A ProgressBar is not thread-safe.
class ProgressBar {
 public:
  // `total` is the number of steps. `output` is not owned.
  ProgressBar(uint64_t total, std::string label, std::FILE* output = stderr);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // Counts one more step as done. `note` stands at the end of the line.
  void step(const std::string& note = "");

  // Draws the last state and ends the line. Further steps do nothing.
  void finish(const std::string& note = "");

 private:
  std::string line(const std::string& note) const;
  void draw(const std::string& note);

  uint64_t total_, done_ = 0;
  uint64_t next_tenth_ = 1;
  std::string label_;
  std::FILE* output_;
  bool is_terminal_;
  bool is_finished_ = false;
  size_t drawn_width_ = 0;
  std::chrono::steady_clock::time_point start_, last_draw_;
};

}  // namespace bp
