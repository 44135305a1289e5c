#include "backplane/runtime/progress.hpp"

#include <unistd.h>

#include <algorithm>

#include "registry/boundary/number_text.hpp"

namespace bp {
namespace {

constexpr auto kRedrawInterval = std::chrono::milliseconds(100);
constexpr uint64_t kBarWidth = 24;

// Returns text like "8.3 s", "2:05" or "1:02:05".
std::string duration(double seconds) {
  if (seconds < 60) return fixed_text(seconds, 1) + " s";
  char text[32];
  const auto whole = static_cast<uint64_t>(seconds);
  if (seconds < 3600) {
    std::snprintf(text, sizeof(text), "%u:%02u", static_cast<unsigned>(whole / 60),
                  static_cast<unsigned>(whole % 60));
  } else {
    std::snprintf(text, sizeof(text), "%u:%02u:%02u", static_cast<unsigned>(whole / 3600),
                  static_cast<unsigned>(whole / 60 % 60), static_cast<unsigned>(whole % 60));
  }
  return text;
}

}  // namespace

ProgressBar::ProgressBar(uint64_t total, std::string label, std::FILE* output)
    : total_(total),
      label_(std::move(label)),
      output_(output),
      is_terminal_(isatty(fileno(output)) != 0),
      start_(std::chrono::steady_clock::now()),
      last_draw_(start_ - kRedrawInterval) {}

ProgressBar::~ProgressBar() {
  // An exception may be in flight, and its text should begin on a new line.
  if (!is_finished_ && is_terminal_ && drawn_width_ > 0) std::fputc('\n', output_);
}

std::string ProgressBar::line(const std::string& note) const {
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  const uint64_t filled = total_ == 0 ? kBarWidth : kBarWidth * std::min(done_, total_) / total_;
  std::string text = label_ + " [" + std::string(filled, '=') +
                     std::string(kBarWidth - filled, ' ') + "] " + std::to_string(done_) + "/" +
                     std::to_string(total_) + "  " + duration(seconds);
  if (!is_finished_ && done_ > 0 && done_ < total_) {
    const double left = seconds / static_cast<double>(done_) * static_cast<double>(total_ - done_);
    text += ", " + duration(left) + " left";
  }
  return note.empty() ? text : text + "  " + note;
}

void ProgressBar::draw(const std::string& note) {
  std::string text = line(note);
  if (!is_terminal_) {
    std::fprintf(output_, "%s\n", text.c_str());
    return;
  }
  const size_t width = text.size();
  if (width < drawn_width_) text.append(drawn_width_ - width, ' ');
  drawn_width_ = width;
  std::fprintf(output_, "\r%s", text.c_str());
  std::fflush(output_);
}

void ProgressBar::step(const std::string& note) {
  if (is_finished_) return;
  ++done_;
  const auto now = std::chrono::steady_clock::now();
  const bool is_due = is_terminal_ ? now - last_draw_ >= kRedrawInterval
                                   : done_ * 10 >= next_tenth_ * total_ && done_ < total_;
  if (!is_due) return;
  last_draw_ = now;
  while (total_ > 0 && done_ * 10 >= next_tenth_ * total_) ++next_tenth_;
  draw(note);
}

void ProgressBar::finish(const std::string& note) {
  if (is_finished_) return;
  is_finished_ = true;
  draw(note);
  if (is_terminal_) std::fputc('\n', output_);
  std::fflush(output_);
}

}  // namespace bp
