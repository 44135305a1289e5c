#include "conformance/process/hygiene.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cfenv>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

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

}  // namespace
}  // namespace bp::conformance
