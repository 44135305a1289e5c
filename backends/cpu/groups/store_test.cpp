#include "backends/cpu/groups/store.hpp"

#include <gtest/gtest.h>

#include <thread>

#include "backplane/shell/boundary.hpp"

namespace bp::cpu {
namespace {

using Bytes = std::vector<char>;

TEST(LocalStore, WaitsForAKeyNoLongerThanItsTimeout) {
  const LocalStore store;
  char value[4] = {};
  uint64_t size_bytes = 7;
  const bp_store& table = *store.table();
  EXPECT_EQ(table.get(table.self, "a", 1'000'000, 4, value, &size_bytes), BP_TIMEOUT);
  EXPECT_EQ(table.try_get(table.self, "a", 4, value, &size_bytes), BP_NOT_FOUND);
  EXPECT_EQ(size_bytes, 7u);
}

TEST(LocalStore, GivesTheSizeOfAValueThatHasNoRoom) {
  const LocalStore store;
  const bp_store& table = *store.table();
  char value[4] = {};
  uint64_t size_bytes = 0;
  ASSERT_EQ(table.put(table.self, "a", "abcdef", 6), BP_OK);
  EXPECT_EQ(table.get(table.self, "a", 0, 4, value, &size_bytes), BP_OK);
  EXPECT_EQ(std::string(value, 4), "abcd");
  EXPECT_EQ(size_bytes, 6u);
}

TEST(GroupStore, PutsItsPrefixBeforeEveryKey) {
  const LocalStore local;
  GroupStore store(*local.table(), "group 7/", 0, 1);
  store.set("0", Bytes{'x'});
  const bp_store& table = *local.table();
  char value = 0;
  uint64_t size_bytes = 0;
  EXPECT_EQ(table.get(table.self, "group 7/0", 0, 1, &value, &size_bytes), BP_OK);
  EXPECT_EQ(value, 'x');
}

TEST(GroupStore, ReadsValuesOfEverySize) {
  const LocalStore local;
  GroupStore store(*local.table(), "", 0, 1);
  const Bytes large(100'000, 'l');
  store.set("large", large);
  store.set("empty", {});
  EXPECT_EQ(store.get("large"), large);
  EXPECT_EQ(store.get("empty"), Bytes());
}

TEST(GroupStore, SaysWhoGivesAnotherNumberOfRanks) {
  const LocalStore local;
  GroupStore one(*local.table(), "", 1, 4), two(*local.table(), "", 2, 3);
  one.set("1", {});
  try {
    static_cast<void>(two.get("1"));
    FAIL();
  } catch (const StatusError& e) {
    EXPECT_EQ(e.status(), BP_INVALID_ARGUMENT);
    EXPECT_STREQ(e.what(), "rank 1 says that the group has 4 ranks, and rank 2 says that it has 3");
  }
}

TEST(GroupStore, EndsTheWaitOfAnotherThread) {
  const LocalStore local;
  GroupStore store(*local.table(), "", 0, 1);
  Outcome outcome;
  std::thread waiter([&] {
    try {
      store.wait({"rank_3"});
    } catch (const StatusError& e) {
      outcome = {e.status(), e.what()};
    }
  });
  while (store.awaited() != " rank 3") std::this_thread::yield();
  EXPECT_FALSE(store.end({BP_TIMEOUT, "too late"})) << "the rank has not published its addresses";
  waiter.join();
  EXPECT_EQ(outcome.status, BP_TIMEOUT);
  EXPECT_EQ(outcome.text, "too late");
  EXPECT_THROW(store.set("0", {}), StatusError);
}

TEST(GroupStore, KnowsWhenTheRankHasPublishedItsAddresses) {
  const LocalStore local;
  GroupStore store(*local.table(), "", 2, 3);
  store.set("rank_2", {});
  store.set("2", {});
  EXPECT_TRUE(store.end({BP_ABORTED, "end"}));
  EXPECT_EQ(store.ended().status, BP_ABORTED);
}

}  // namespace
}  // namespace bp::cpu
