// Tests the backend in a child of a process whose OpenMP threads it has used.
#include <sys/wait.h>
#include <unistd.h>

#include "backends/shell/test_backend.hpp"

namespace bp {
namespace {

constexpr int64_t kSize = 1 << 20;  // More than one thread computes so many sums.

// Returns the sum of the first and the last element of 1 + 2.
float first_and_last(TestBackend& b) {
  TestTensor a(b, BP_F32, {kSize}), c(b, BP_F32, {kSize}), y(b, BP_F32, {kSize});
  for (int64_t i = 0; i < kSize; ++i) {
    a.at<float>(i) = 1;
    c.at<float>(i) = 2;
  }
  EXPECT_EQ(b.launch(BP_OP_ADD, bp_add_args{.a = &a, .b = &c, .y = &y}), BP_OK) << b.text;
  return y.at<float>(0) + y.at<float>(kSize - 1);
}

// Runs `body` in a child, which has 20 seconds. Returns what it returned.
int in_child(int (*body)()) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    _exit(body());
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(Fork, LeavesTheChildOneThread) {
  TestBackend parent{BACKEND_PATH, {{"threads", "3"}}};
  EXPECT_EQ(first_and_last(parent), 6);
  EXPECT_EQ(in_child([] {
              TestBackend b{BACKEND_PATH, {{"threads", "1"}}};
              return static_cast<int>(first_and_last(b));
            }),
            6);
}

TEST(Fork, LetsTheChildHaveNoThreadsThatItWouldWaitFor) {
  TestBackend parent{BACKEND_PATH, {{"threads", "3"}}};
  EXPECT_EQ(first_and_last(parent), 6);
  EXPECT_EQ(in_child([] {
              TestBackend b{BACKEND_PATH, {{"threads", "1"}}};
              const bp_status status =
                  b.devices->set_option(b.devices->self, b.device, "threads", "3");
              const bool says_why = b.text.find("a fork of one that had several") != b.text.npos;
              return status == BP_UNSUPPORTED && says_why ? 1 : 0;
            }),
            1);
  EXPECT_EQ(parent.devices->set_option(parent.devices->self, parent.device, "threads", "2"), BP_OK)
      << parent.text;
}

}  // namespace
}  // namespace bp
