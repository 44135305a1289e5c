#include "registry/layers/at_exit.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>

namespace bp::layers {
namespace {

constexpr unsigned kPatienceS = 20;  // After this time a signal ends a child that hangs.

void say(const char* text) { static_cast<void>(!write(STDERR_FILENO, text, strlen(text))); }

// Layers that the log of a host makes and ends while another one is flushed.
void exit_with_layers_that_come_and_go() {
  alarm(kPatienceS);
  static std::unique_ptr<AtExit> other;
  static auto* const first = new AtExit([] {
    const AtExit inner([] { say("inner "); });
    other.reset();
    std::thread([] { const AtExit of_a_thread([] { say("thread "); }); }).join();
    say("first ");
  });
  static_cast<void>(first);
  other = std::make_unique<AtExit>([] { say("other "); });
  std::exit(0);
}

TEST(AtExitDeathTest, FlushesWithoutALock) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(exit_with_layers_that_come_and_go(), testing::ExitedWithCode(0), "^(other )?first $");
}

TEST(AtExitDeathTest, FlushesWhatHasNotEnded) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto exit_with_one_that_ended = [] {
    alarm(kPatienceS);
    {
      const AtExit ended([] { say("ended "); });
    }
    new AtExit([] { say("kept "); });
    std::exit(0);
  };
  EXPECT_EXIT(exit_with_one_that_ended(), testing::ExitedWithCode(0), "^kept $");
}

}  // namespace
}  // namespace bp::layers
