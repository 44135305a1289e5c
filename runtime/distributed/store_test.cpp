#include "backplane/runtime/distributed/store.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <thread>

#include "backplane/runtime/error.hpp"
#include "runtime/distributed/test_messages.hpp"
#include "runtime/distributed/test_processes.hpp"

namespace bp::distributed {
namespace {

using std::chrono::milliseconds;

// Both stores keep one contract.
enum class Kind { kFile, kTcp };

class StoreTest : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    if (GetParam() == Kind::kFile) {
      store = std::make_unique<FileStore>(folder.file("store"));
    } else {
      store = std::make_unique<TcpStore>("127.0.0.1", 0, true, 1);
    }
  }
  ScratchFolder folder;
  std::unique_ptr<Store> store;
};

INSTANTIATE_TEST_SUITE_P(Stores, StoreTest, testing::Values(Kind::kFile, Kind::kTcp),
                         [](const auto& kind) {
                           return kind.param == Kind::kFile ? "File" : "Tcp";
                         });

TEST_P(StoreTest, GivesWhatWasPutLast) {
  EXPECT_EQ(store->try_get("a"), std::nullopt);
  store->put("a", "1");
  store->put("a", std::string("\0\n2", 3));
  store->put("empty", "");
  EXPECT_EQ(store->try_get("a"), std::string("\0\n2", 3));
  EXPECT_EQ(store->get("empty"), "");
}

TEST_P(StoreTest, TakesKeysAndValuesOfTheAllowedSizes) {
  const std::string key(kMaxKeyBytes, 'k'), value(kMaxValueBytes, 'v');
  store->put(key, value);
  EXPECT_EQ(store->get(key), value);
  expect_part(message_of(BP_INVALID_ARGUMENT, [&] { store->put(key + "k", ""); }),
              "a key has 1025 bytes; allowed: 1 to 1024");
  expect_part(message_of(BP_INVALID_ARGUMENT, [&] { store->put("", ""); }), "a key has 0 bytes");
  expect_part(message_of(BP_INVALID_ARGUMENT, [&] { store->put("v", value + "v"); }),
              "the value of 'v' has 1048577 bytes; allowed: up to 1048576");
}

TEST_P(StoreTest, AddsNumbers) {
  EXPECT_EQ(store->add("n", 5), 5);
  EXPECT_EQ(store->add("n", -7), -2);
  EXPECT_EQ(store->get("n"), "-2");
  store->put("text", "1x");
  expect_part(message_of(BP_INVALID_ARGUMENT, [&] { store->add("text", 1); }),
              "not a decimal number");
  store->put("most", "9223372036854775807");
  expect_part(message_of(BP_INVALID_ARGUMENT, [&] { store->add("most", 1); }), "leaves 64 bits");
}

TEST_P(StoreTest, WaitsForAKeyWhileOtherThreadsUseIt) {
  std::thread waiter([&] { EXPECT_EQ(store->get("late"), "here"); });
  EXPECT_EQ(store->add("other", 1), 1);
  store->put("late", "here");
  waiter.join();
}

TEST_P(StoreTest, NamesTheKeysThatDoNotCome) {
  store->put("a", "");
  const std::vector<std::string> keys{"a", "b", "c"};
  expect_part(message_of(BP_TIMEOUT, [&] { store->wait(keys, milliseconds(20)); }),
              "nobody has put 'b', 'c' within 0.02 s");
  EXPECT_EQ(store->add("still", 1), 1) << "the store works after a timeout";
}

TEST_P(StoreTest, NamesTheRanksThatAreNotInABarrier) {
  std::thread other([&] { store->barrier("go", 2, 4, milliseconds(2000)); });
  std::string text;
  std::thread late([&] { store->barrier("go", 3, 4, milliseconds(2000)); });
  text = message_of(BP_TIMEOUT, [&] { store->barrier("go", 0, 4, milliseconds(300)); });
  expect_part(text, "barrier 'go': rank 0 waited for the ranks 1");
  store->barrier("go", 1, 4, milliseconds(2000));
  other.join();
  late.join();
}

TEST_P(StoreTest, ServesABarrierAgain) {
  std::vector<std::thread> threads;
  std::atomic<int> come{0};
  for (uint32_t rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      for (int i = 1; i <= 5; ++i) {
        ++come;
        store->barrier("step", rank, 3);
        EXPECT_GE(come.load(), 3 * i);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_P(StoreTest, LendsACTable) {
  const bp_store& table = store->table();
  EXPECT_EQ(table.struct_type, BP_STRUCT_STORE);
  char value[4] = {};
  uint64_t size = 77;
  EXPECT_EQ(table.try_get(table.self, "k", 4, value, &size), BP_NOT_FOUND);
  EXPECT_EQ(size, 77u) << "an out parameter stays on failure";
  ASSERT_EQ(table.put(table.self, "k", "abcdef", 6), BP_OK);
  ASSERT_EQ(table.get(table.self, "k", 0, 4, value, &size), BP_OK);
  EXPECT_EQ(size, 6u);
  EXPECT_EQ(std::string(value, 4), "abcd");
  EXPECT_EQ(table.get(table.self, "none", 1'000'000, 4, value, &size), BP_TIMEOUT);
  expect_part(store->table_error(), "nobody has put 'none' within 0.001 s");
}

TEST(FileStore, IsSharedByProcesses) {
  const ScratchFolder folder;
  const auto codes = run_processes(4, [&](uint32_t rank) {
    FileStore store(folder.file("store"));
    for (int i = 0; i < 50; ++i) store.add("sum", rank + 1);
    store.barrier("end", rank, 4);
    return store.get("sum") == "500" ? 0 : 2;
  });
  EXPECT_EQ(codes, (std::vector<int>(4, 0)));
}

TEST(FileStore, CutsOffARecordWithoutItsEnd) {
  const ScratchFolder folder;
  const std::string path = folder.file("store");
  FileStore store(path);
  store.put("a", "1");
  {
    std::ofstream file(path, std::ios::app | std::ios::binary);
    file.write("\x05\0\0\0\x05\0\0\0hel", 11);  // As if its writer died here.
  }
  EXPECT_EQ(store.try_get("a"), "1");
  store.put("b", "2");
  FileStore fresh(path);
  EXPECT_EQ(fresh.try_get("a"), "1");
  EXPECT_EQ(fresh.try_get("b"), "2");
}

TEST(FileStore, RefusesWhatIsNoStore) {
  const ScratchFolder folder;
  std::ofstream(folder.file("text")) << "This is a text.";
  expect_part(message_of(BP_ABORTED, [&] { FileStore store(folder.file("text")); }),
              "the file is not a store; allowed: a new file");
  expect_part(message_of(BP_ABORTED, [&] { FileStore store(folder.file("no/store")); }),
              "it cannot be opened: No such file or directory");
  FileStore store(folder.file("store"));
  store.put("a", "");
  std::filesystem::remove(folder.file("store"));
  expect_part(message_of(BP_ABORTED, [&] { store.try_get("a"); }), "the file was removed");
}

}  // namespace
}  // namespace bp::distributed
