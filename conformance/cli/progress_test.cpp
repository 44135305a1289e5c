// What a terminal shows of a run: the tests draw on a pseudo-terminal in the place of standard
// error.
#include "conformance/cli/progress.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace bp::conformance {
namespace {

// The two ends of a pseudo-terminal.
struct Ends {
  int master = -1, slave = -1;
};

// Opens a pseudo-terminal. If the system has none, the slave is -1, and errno says why.
Ends open_terminal() {
  Ends ends{.master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)};
  if (ends.master >= 0 && grantpt(ends.master) == 0 && unlockpt(ends.master) == 0) {
    ends.slave = open(ptsname(ends.master), O_RDWR | O_NOCTTY | O_CLOEXEC);
  }
  return ends;
}

// While it lives, standard error is a terminal of so many columns.
class Terminal {
 public:
  explicit Terminal(unsigned short columns) {
    const auto [master, slave] = open_terminal();
    EXPECT_GE(slave, 0);
    master_ = master;
    termios settings{};
    tcgetattr(slave, &settings);
    settings.c_oflag &= ~static_cast<tcflag_t>(OPOST);  // It hands on each byte as it is.
    tcsetattr(slave, TCSANOW, &settings);
    const winsize size{.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    ioctl(slave, TIOCSWINSZ, &size);
    saved_ = dup(STDERR_FILENO);
    dup2(slave, STDERR_FILENO);
    close(slave);
  }
  ~Terminal() {
    dup2(saved_, STDERR_FILENO);
    close(saved_);
    close(master_);
  }
  Terminal(const Terminal&) = delete;

  // Returns what was written since the last call; "" if there is nothing.
  std::string take() const {
    std::string text;
    for (pollfd source{master_, POLLIN, 0}; poll(&source, 1, 0) > 0;) {
      char bytes[4096];
      const ssize_t size = read(master_, bytes, sizeof(bytes));
      if (size <= 0) break;
      text.append(bytes, static_cast<size_t>(size));
    }
    return text;
  }

 private:
  int master_ = -1, saved_ = -1;
};

// Updates until the terminal shows it, because a bar is not drawn for each update.
std::string drawn(Progress& progress, const Terminal& terminal, const ProgressState& state) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (std::chrono::steady_clock::now() < limit) {
    progress.update(state);
    if (std::string text = terminal.take(); !text.empty()) return text;
  }
  return "";
}

// A bare system may have no pseudo-terminals, because nothing is mounted at its /dev/pts.
class ProgressBar : public testing::Test {
 protected:
  void SetUp() override {
    const auto [master, slave] = open_terminal();
    const int error = errno;
    if (master >= 0) close(master);
    if (slave < 0) {
      GTEST_SKIP() << "the system has no pseudo-terminals: " << std::strerror(error);
    }
    close(slave);
  }
};

constexpr const char* kErase = "\r\033[K";

TEST_F(ProgressBar, ShowsTheCountsAndTheCaseInTheWidthOfTheTerminal) {
  const Terminal wide(200);
  Progress progress(false, true);
  const std::string text =
      drawn(progress, wide, {.done = 1, .total = 2, .failed = 3, .what = "op.add.f32"});
  EXPECT_TRUE(text.starts_with(kErase + std::string("[############............] 1/2  50 %  "
                                                    "3 failed  ")))
      << text;
  EXPECT_TRUE(text.ends_with(" left  op.add.f32")) << text;
  const std::string confirming =
      drawn(progress, wide, {.is_confirming = true, .done = 2, .total = 2, .failed = 3});
  EXPECT_NE(confirming.find("[########################] 2/2  100 %  failures confirmed  0 s left"),
            std::string::npos)
      << confirming;
}

TEST_F(ProgressBar, SaysTheTimeLeftOnlyWhenATenthHasRun) {
  const Terminal wide(200);
  Progress progress(false, true);
  const std::string early = drawn(progress, wide, {.done = 9, .total = 100, .what = "op.add.f32"});
  EXPECT_EQ(early.find(" left"), std::string::npos) << early;
  EXPECT_NE(early.find("9/100  9 %  0 failed  op.add.f32"), std::string::npos) << early;
  const std::string later = drawn(progress, wide, {.done = 10, .total = 100});
  EXPECT_NE(later.find(" left"), std::string::npos) << later;
}

TEST_F(ProgressBar, IsCutAtTheEndOfTheLine) {
  for (const size_t columns : {60u, 1u}) {  // Below 40 columns it is as wide as for 40.
    const Terminal narrow(static_cast<unsigned short>(columns));
    Progress progress(false, true);
    const std::string text = drawn(progress, narrow, {.total = 7, .what = std::string(300, 'x')});
    EXPECT_EQ(text.size(), std::string(kErase).size() + std::max<size_t>(columns, 40) - 1) << text;
  }
}

TEST_F(ProgressBar, IsRemovedOnceBeforeOtherOutputAndAtItsEnd) {
  const Terminal terminal(80);
  {
    Progress progress(false, true);
    progress.clear();
    EXPECT_EQ(terminal.take(), "") << "nothing is shown yet";
    EXPECT_NE(drawn(progress, terminal, {.total = 7}), "");
    progress.clear();
    progress.clear();
    EXPECT_EQ(terminal.take(), kErase);
    EXPECT_NE(drawn(progress, terminal, {.done = 1, .total = 7}), "");
  }
  EXPECT_EQ(terminal.take(), kErase);
}

TEST_F(ProgressBar, IsNotDrawnWhereItMayNotBe) {
  const Terminal terminal(80);
  Progress quiet(true, true), lines(false, false), nothing(false, true);
  for (int i = 0; i < 1000; ++i) {
    quiet.update({.done = 1, .total = 2});
    lines.update({.done = 1, .total = 2});
    nothing.update({.done = 0, .total = 0});  // No case is selected.
  }
  quiet.clear();
  lines.clear();
  EXPECT_EQ(terminal.take(), "");
}

}  // namespace
}  // namespace bp::conformance
