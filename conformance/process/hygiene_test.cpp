#include "conformance/process/hygiene.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cfenv>
#include <chrono>
#include <thread>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "conformance/process/processor_wait.hpp"

namespace bp::conformance {
namespace {

using Changes = std::vector<std::string>;

TEST(ProcessState, FindsNothingWhereNothingChanged) {
  EXPECT_EQ(ProcessState::take().compare_and_restore(), Changes());
}

TEST(ProcessState, FindsAndRestoresTheRoundingMode) {
  const ProcessState before = ProcessState::take();
  fesetround(FE_UPWARD);
  EXPECT_EQ(before.compare_and_restore(), Changes{"the rounding mode was changed"});
  EXPECT_EQ(fegetround(), FE_TONEAREST);
}

#if defined(__x86_64__)
TEST(ProcessState, FindsAndRestoresTheFlushToZeroBits) {
  const ProcessState before = ProcessState::take();
  _mm_setcsr(_mm_getcsr() | 0x8000);
  EXPECT_EQ(before.compare_and_restore(), Changes{"the flush-to-zero bits were changed"});
  EXPECT_EQ(_mm_getcsr() & 0x8000u, 0u);
}
#endif

TEST(ProcessState, FindsAndRestoresTheWorkingDirectory) {
  const ProcessState before = ProcessState::take();
  ASSERT_EQ(chdir("/"), 0);
  EXPECT_EQ(before.compare_and_restore(), Changes{"the working directory was changed to /"});
  EXPECT_EQ(before.compare_and_restore(), Changes());
}

TEST(ProcessState, FindsAndRestoresASignalHandler) {
  const ProcessState before = ProcessState::take();
  signal(SIGUSR1, SIG_IGN);
  EXPECT_EQ(before.compare_and_restore(), Changes{"the handler of signal SIGUSR1 was changed"});
  EXPECT_EQ(before.compare_and_restore(), Changes());
}

TEST(ProcessState, FindsAClosedDescriptor) {
  const int fd = open("/dev/null", O_RDONLY);
  const ProcessState before = ProcessState::take();
  close(fd);
  EXPECT_EQ(before.compare_and_restore(),
            Changes{"descriptor " + std::to_string(fd) + " (/dev/null) was closed"});
}

// A log that the worker has inherited may be renamed, or removed, by whoever writes it.
TEST(ProcessState, TakesARenamedFileForTheSame) {
  const std::string path = testing::TempDir() + "hygiene_test_log";
  const int fd = open(path.c_str(), O_RDWR | O_CREAT, 0600);
  ASSERT_GE(fd, 0);
  const ProcessState before = ProcessState::take();
  ASSERT_EQ(rename(path.c_str(), (path + ".old").c_str()), 0);
  EXPECT_EQ(before.compare_and_restore(), Changes());
  unlink((path + ".old").c_str());
  EXPECT_EQ(before.compare_and_restore(), Changes());
  const int other = open("/dev/zero", O_RDONLY);
  dup2(other, fd);
  EXPECT_EQ(before.compare_and_restore(),
            Changes{"descriptor " + std::to_string(fd) + " (" + path + ") was closed"});
  close(other);
  close(fd);
}

TEST(ProcessState, LetsGoOfWhatWasOpenedSinceTheStart) {
  const int own = open("/dev/null", O_RDONLY);
  const ProcessState start = ProcessState::take();
  const int later = open("/dev/zero", O_RDONLY);
  const ProcessState before = ProcessState::take(start);
  close(later);
  EXPECT_EQ(before.compare_and_restore(), Changes());
  close(own);
  EXPECT_EQ(before.compare_and_restore(),
            Changes{"descriptor " + std::to_string(own) + " (/dev/null) was closed"});
}

// A child that works, or sleeps, on the first processor of this process until it is killed.
class Child {
 public:
  explicit Child(bool works) : pid_(fork()) {
    if (pid_ != 0) return;
    cpu_set_t allowed, first;
    sched_getaffinity(0, sizeof(allowed), &allowed);
    CPU_ZERO(&first);
    for (size_t i = 0; i < CPU_SETSIZE && CPU_COUNT(&first) == 0; ++i) {
      if (CPU_ISSET(i, &allowed)) CPU_SET(i, &first);
    }
    sched_setaffinity(0, sizeof(first), &first);
    for (volatile uint64_t i = 0;;) {
      if (works) {
        i = i + 1;
      } else {
        pause();
      }
    }
  }
  ~Child() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

// Two children share one processor, so that each of them waits for half of the time.
TEST(ProcessorWait, CountsTheTimeOfWorkThatHasNoProcessor) {
  const Child first(true), second(true), asleep(false);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  if (seconds_without_processor(first.pid()) == 0) {
    GTEST_SKIP() << "the system does not tell how long a thread waits for a processor";
  }
  EXPECT_GT(seconds_without_processor(first.pid()), 0.1);
  EXPECT_GT(seconds_without_processor(second.pid()), 0.1);
  const double before = seconds_without_processor(asleep.pid());
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_LT(seconds_without_processor(asleep.pid()) - before, 0.1) << "it waits for a signal";
}

TEST(ProcessorWait, IsNothingForAProcessThatDoesNotExist) {
  EXPECT_EQ(seconds_without_processor(-1), 0);
}

}  // namespace
}  // namespace bp::conformance
