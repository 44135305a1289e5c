#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <thread>

#include "backplane/runtime/distributed/store.hpp"
#include "backplane/runtime/error.hpp"
#include "runtime/distributed/store_wire.hpp"
#include "runtime/distributed/test_processes.hpp"

namespace bp::distributed {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

struct Thrown {
  bp_status code = BP_OK;
  std::string text = "(nothing was thrown)";
};

Thrown thrown_by(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }
  return {};
}

void expect_thrown(const Thrown& thrown, bp_status code, const std::string& part) {
  EXPECT_EQ(thrown.code, code);
  EXPECT_NE(thrown.text.find(part), std::string::npos) << thrown.text;
}

// Makes the stores of all ranks in threads, and returns what each threw.
std::vector<Thrown> join_all(const std::vector<uint32_t>& world_sizes, Duration timeout) {
  const ReservedPort reserved("127.0.0.1");
  const uint16_t port = reserved.number();
  std::vector<Thrown> thrown(world_sizes.size());
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < world_sizes.size(); ++rank) {
    threads.emplace_back([&, rank] {
      thrown[rank] = thrown_by([&] {
        TcpStore store("localhost", port, rank == 0, world_sizes[rank], timeout);
        store.barrier("end", static_cast<uint32_t>(rank), world_sizes[rank], seconds(20));
      });
    });
  }
  for (std::thread& thread : threads) thread.join();
  return thrown;
}

TEST(TcpStore, IsSharedByProcesses) {
  const ReservedPort reserved("127.0.0.1");
  const uint16_t port = reserved.number();
  const auto codes = run_processes(4, [&](uint32_t rank) {
    TcpStore store("127.0.0.1", port, rank == 0, 4, seconds(60));
    for (int i = 0; i < 50; ++i) store.add("sum", rank + 1);
    store.put("rank/" + std::to_string(rank), std::string(1000, 'x'));
    store.barrier("added", rank, 4);
    const bool is_right = store.get("sum") == "500" && store.get("rank/3").size() == 1000;
    store.barrier("end", rank, 4);
    return is_right ? 0 : 2;
  });
  EXPECT_EQ(codes, (std::vector<int>(4, 0)));
}

TEST(TcpStore, MayEndBehindABarrier) {
  for (int i = 0; i < 30; ++i) {
    for (const Thrown& thrown : join_all({4, 4, 4, 4}, seconds(30))) {
      EXPECT_EQ(thrown.code, BP_OK) << thrown.text;
    }
  }
}

TEST(TcpStore, NamesBothWorldSizesOnEveryRank) {
  for (const Thrown& thrown : join_all({3, 2, 3}, seconds(30))) {
    expect_thrown(thrown, BP_INVALID_ARGUMENT,
                  "the rank that serves the store has 3, another one 2; allowed: one number");
  }
}

TEST(TcpStore, TellsHowManyRanksHaveJoined) {
  for (const Thrown& thrown : join_all({3, 3}, milliseconds(300))) {
    expect_thrown(thrown, BP_TIMEOUT, "2 of 3 ranks have joined within");
  }
}

TEST(TcpStore, RefusesARankTooMany) {
  TcpStore store("127.0.0.1", 0, true, 1);
  expect_thrown(thrown_by([&] { TcpStore more("127.0.0.1", store.port(), false, 1); }),
                BP_INVALID_ARGUMENT, "all 1 ranks have joined already");
}

TEST(TcpStore, TellsThatThePortIsInUse) {
  const Socket other = listen_at("127.0.0.1", 0);
  const uint16_t port = port_of(other);
  expect_thrown(thrown_by([&] { TcpStore store("127.0.0.1", port, true, 1); }), BP_ALREADY_EXISTS,
                "port " + std::to_string(port) + " is in use by another program");
}

// Asks for the port by name, since no test can take all the others.
TEST(TcpStore, TakesAReservedPort) {
  const ReservedPort reserved("127.0.0.1");
  const ReservedPort other("127.0.0.1");
  EXPECT_NE(reserved.number(), other.number());
  TcpStore store("127.0.0.1", reserved.number(), true, 1);
  EXPECT_EQ(store.port(), reserved.number());
}

TEST(TcpStore, TellsThatNobodyListens) {
  const ReservedPort reserved("127.0.0.1");
  const uint16_t port = reserved.number();
  expect_thrown(thrown_by([&] { TcpStore store("127.0.0.1", port, false, 2, milliseconds(120)); }),
                BP_TIMEOUT,
                "nobody listens at 127.0.0.1:" + std::to_string(port) + ", tried for 0.1");
  expect_thrown(
      thrown_by([&] { TcpStore store("no-such-host.invalid", port, false, 2, milliseconds(1)); }),
      BP_TIMEOUT, "the name is not known");
}

TEST(TcpStore, TellsThatTheStoreHasGone) {
  const ReservedPort reserved("127.0.0.1");
  const uint16_t port = reserved.number();
  std::unique_ptr<TcpStore> server;
  std::thread serving([&] { server = std::make_unique<TcpStore>("127.0.0.1", port, true, 2); });
  TcpStore client("127.0.0.1", port, false, 2);
  serving.join();
  std::thread waiting(
      [&] { expect_thrown(thrown_by([&] { client.get("never"); }), BP_ABORTED, "is gone"); });
  while (client.add("asked", 1) < 3) {
  }
  server.reset();
  waiting.join();
  expect_thrown(thrown_by([&] { client.put("a", "b"); }), BP_ABORTED,
                "the store at 127.0.0.1:" + std::to_string(port) + " is gone");
}

TEST(TcpStore, SurvivesGarbageFromStrangers) {
  TcpStore store("127.0.0.1", 0, true, 1);
  store.put("kept", "value");
  const Deadline deadline = deadline_after(seconds(20));
  std::string hello(1, static_cast<char>(Request::kHello));
  hello += kHelloMark;
  append_u32(hello, 1);
  hello += std::string(9, '\0');
  std::string huge(4, '\xff');
  const std::vector<std::string> garbage = {"GET / HTTP/1.1\r\n\r\n",
                                            huge,
                                            std::string(4, '\0'),
                                            std::string("\x01\0\0\0\x03", 5),
                                            std::string("\x01\0\0\0\x01", 5),
                                            std::string(100000, 'x')};
  for (const std::string& bytes : garbage) {
    for (const bool says_hello : {false, true}) {
      const Socket stranger = connect_to("127.0.0.1", store.port(), deadline, true);
      if (says_hello) {
        send_message(stranger, hello, deadline);
        EXPECT_EQ(receive_message(stranger, 64, deadline).size(), 5u);
      }
      static_cast<void>(send(stranger.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL));
      EXPECT_EQ(store.get("kept"), "value");
    }
  }
  const Socket silent = connect_to("127.0.0.1", store.port(), deadline, true);
  EXPECT_EQ(store.add("n", 1), 1);
}

TEST(TcpStore, ServesManyWaitsAtOnce) {
  TcpStore store("127.0.0.1", 0, true, 1);
  std::vector<std::thread> threads;
  threads.reserve(20);
  std::atomic<int> woken{0};
  for (int i = 0; i < 20; ++i) {
    threads.emplace_back([&, i] {
      EXPECT_EQ(store.get("k" + std::to_string(i)), std::to_string(i));
      ++woken;
    });
  }
  for (int i = 19; i >= 0; --i) store.put("k" + std::to_string(i), std::to_string(i));
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(woken.load(), 20);
}

}  // namespace
}  // namespace bp::distributed
