#include "registry/boundary/error_slot.hpp"

#include <gtest/gtest.h>

#include <thread>

#include "backplane/host.h"
#include "registry/boundary/fail.hpp"

namespace bp::core {
namespace {

TEST(ErrorSlot, KeepsTheLatestFailureOfItsThread) {
  bp_error_clear();
  EXPECT_STREQ(bp_error_text(), "");
  EXPECT_EQ(fail(BP_TIMEOUT, "too slow"), BP_TIMEOUT);
  std::thread([] {
    EXPECT_STREQ(bp_error_text(), "");
    fail(BP_INTERNAL, "another thread's");
  }).join();
  EXPECT_STREQ(bp_error_text(), "too slow");
  EXPECT_EQ(take_error(), "too slow");
  EXPECT_STREQ(bp_error_text(), "");
}

TEST(ErrorSlot, ReadsNullAsNoText) {
  fail(BP_TIMEOUT, "too slow");
  EXPECT_EQ(set_error(nullptr, -3, nullptr), -3);
  EXPECT_STREQ(bp_error_text(), "");
}

}  // namespace
}  // namespace bp::core
