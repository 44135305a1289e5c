#include "conformance/cli/progress.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

namespace bp::conformance {
namespace {

constexpr std::chrono::milliseconds kBarPeriod{100};
constexpr std::chrono::seconds kLinePeriod{5};
constexpr size_t kBarCells = 24;

// The time left is known only when enough cases have run, because the first ones may be the slow
// ones: a tenth of them, or a twentieth in a long run.
constexpr double kLongSeconds = 60;

bool is_time_known(double elapsed, size_t done, size_t total) {
  return done * 10 >= total || (elapsed >= kLongSeconds && done * 20 >= total);
}

std::string time_text(double seconds) {
  char text[32];
  const auto whole = static_cast<long>(seconds + 0.5);
  if (whole < 60) {
    std::snprintf(text, sizeof(text), "%ld s", whole);
  } else {
    std::snprintf(text, sizeof(text), "%ld:%02ld min", whole / 60, whole % 60);
  }
  return text;
}

std::string left_text(double elapsed, size_t done, size_t total) {
  if (!is_time_known(elapsed, done, total)) return "";
  const double left = elapsed / static_cast<double>(done) * static_cast<double>(total - done);
  return "  " + time_text(left) + " left";
}

}  // namespace

Progress::Progress(bool is_quiet, bool may_draw) {
  const bool is_bar = may_draw && isatty(STDERR_FILENO) != 0;
  style_ = is_quiet ? Style::kNone : is_bar ? Style::kBar : Style::kLines;
  winsize size = {};
  const bool is_known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  width_ = std::max<size_t>(is_known ? size.ws_col : 80, 40);
}

void Progress::update(const ProgressState& state) {
  if (style_ == Style::kNone || state.total == 0) return;
  const Clock::time_point now = Clock::now();
  if (std::exchange(was_confirming_, state.is_confirming) != state.is_confirming) start_ = now;
  const bool is_bar = style_ == Style::kBar;
  if (now - shown_ < (is_bar ? Clock::duration(kBarPeriod) : Clock::duration(kLinePeriod))) return;
  shown_ = now;

  const double elapsed = std::chrono::duration<double>(now - start_).count();
  const auto [is_confirming, done, total, failed, what] = state;
  std::string text = std::to_string(done) + "/" + std::to_string(total) + "  " +
                     std::to_string(done * 100 / total) + " %  " +
                     (is_confirming ? "failures confirmed" : std::to_string(failed) + " failed") +
                     left_text(elapsed, done, total);
  if (!is_bar) {
    std::fprintf(stderr, "%s\n", text.c_str());
    return;
  }
  const size_t full = done * kBarCells / total;
  text =
      "[" + std::string(full, '#') + std::string(kBarCells - full, '.') + "] " + text + "  " + what;
  text.resize(std::min(text.size(), width_ - 1));
  std::fprintf(stderr, "\r\033[K%s", text.c_str());
  std::fflush(stderr);
  is_shown_ = true;
}

void Progress::clear() {
  if (!is_shown_) return;
  std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
  is_shown_ = false;
}

}  // namespace bp::conformance
