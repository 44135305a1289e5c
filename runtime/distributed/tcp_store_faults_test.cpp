// What ranks are told when the store goes away, or the network between them and the store is bad.
#include <gtest/gtest.h>
#include <signal.h>

#include <thread>

#include "backplane/runtime/distributed/store.hpp"
#include "runtime/distributed/test_messages.hpp"
#include "runtime/distributed/test_processes.hpp"
#include "runtime/distributed/test_relay.hpp"

namespace bp::distributed {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// The tests of a process of its own: its exit code is 0 if nothing failed.
int exit_code() { return testing::Test::HasFailure() ? 1 : 0; }

std::string place(uint16_t port) { return "the store at 127.0.0.1:" + std::to_string(port); }

// ---- A store that is killed --------------------------------------------------------------------

// Rank 0 dies as soon as the others are about to wait. They wait in `body`, and call the store
// again behind it.
void expect_told(const std::function<std::string(TcpStore& store, uint32_t rank)>& body,
                 const std::string& call) {
  const ReservedPort reserved{"127.0.0.1"};
  const uint16_t port = reserved.number();
  const auto codes = run_processes(4, [&](uint32_t rank) {
    TcpStore store("127.0.0.1", port, rank == 0, 4, seconds(60));
    if (rank == 0) {
      while (store.try_get("asked") != "3") std::this_thread::sleep_for(milliseconds(1));
      raise(SIGKILL);
    }
    store.add("asked", 1);
    const std::string text = body(store, rank);
    expect_part(text, call);
    expect_part(text, place(port) + " is gone: ");
    expect_part(message_of(BP_ABORTED, [&] { store.put("a", "b"); }),
                "TcpStore: put 'a': " + place(port) + " is gone: ");
    return exit_code();
  });
  EXPECT_EQ(codes, (std::vector<int>{128 + SIGKILL, 0, 0, 0}));
}

TEST(TcpStoreFaults, ToldToRanksThatWaitForAKey) {
  const auto wait = [](TcpStore& store, uint32_t) {
    return message_of(BP_ABORTED, [&] { store.get("never"); });
  };
  expect_told(wait, "TcpStore: wait for 'never': ");
}

TEST(TcpStoreFaults, ToldToRanksInABarrier) {
  const auto wait = [](TcpStore& store, uint32_t rank) {
    std::string text = message_of(BP_ABORTED, [&] { store.barrier("go", rank, 4); });
    expect_part(text, "barrier 'go': rank " + std::to_string(rank) + ": ");
    return text;
  };
  expect_told(wait, "wait for 'barrier/go/1/0', 'barrier/go/1/1', 'barrier/go/1/2' and 1 more");
}

TEST(TcpStoreFaults, ToldToRanksThatJoin) {
  const ReservedPort reserved{"127.0.0.1"};
  const uint16_t port = reserved.number();
  const Relay relay({});
  const auto codes = run_processes(3, [&](uint32_t rank) {
    relay.join(rank);
    if (rank == 0) {  // It dies when all three have connected. A fourth rank does not come.
      std::thread([&] {
        while (relay.connections() < 3) std::this_thread::yield();
        raise(SIGKILL);
      }).detach();
    }
    const std::string text = message_of(
        BP_ABORTED, [&] { TcpStore store("127.0.0.1", port, rank == 0, 4, seconds(60)); });
    expect_part(text, "TcpStore: joining the ranks: " + place(port) + " is gone: ");
    return exit_code();
  });
  EXPECT_EQ(codes, (std::vector<int>{128 + SIGKILL, 0, 0}));
}

// ---- A bad network -----------------------------------------------------------------------------

// Makes the store of each rank over the relay, and runs `body`.
void run_over(const Relay& relay, uint32_t count, Duration timeout,
              const std::function<void(TcpStore& store, uint32_t rank)>& body) {
  const ReservedPort reserved{"127.0.0.1"};
  const uint16_t port = reserved.number();
  const auto codes = run_processes(count, [&](uint32_t rank) {
    relay.join(rank);
    TcpStore store("127.0.0.1", port, rank == 0, count, timeout);
    body(store, rank);
    return exit_code();
  });
  EXPECT_EQ(codes, std::vector<int>(count, 0));
  EXPECT_GE(relay.connections(), count);
}

void use_all_calls(TcpStore& store, uint32_t rank, size_t value_bytes) {
  const std::string own = "of/" + std::to_string(rank);
  for (int i = 1; i <= 5; ++i) {
    store.put(own, std::string(value_bytes, static_cast<char>('a' + i)));
    EXPECT_EQ(store.get(own), std::string(value_bytes, static_cast<char>('a' + i)));
    store.add("sum", rank + 1);
    store.barrier("step", rank, 4);
    EXPECT_EQ(store.get("sum"), std::to_string(10 * i));
    EXPECT_EQ(store.try_get("of/9"), std::nullopt);
    store.barrier("seen", rank, 4);
  }
  expect_part(message_of(BP_TIMEOUT, [&] { store.get("never", milliseconds(20)); }),
              "nobody has put 'never' within 0.02 s");
  store.barrier("end", rank, 4);
}

TEST(TcpStoreFaults, NoneOnASlowNetwork) {
  const Relay relay({.delay = milliseconds(3), .jitter = milliseconds(5)});
  run_over(relay, 4, seconds(60),
           [](TcpStore& store, uint32_t rank) { use_all_calls(store, rank, 100000); });
}

TEST(TcpStoreFaults, NoneOnANarrowNetwork) {
  const Relay relay({.bytes_per_second = 4'000'000, .piece_bytes = 1000});
  run_over(relay, 4, seconds(60),
           [](TcpStore& store, uint32_t rank) { use_all_calls(store, rank, 100000); });
}

TEST(TcpStoreFaults, NoneIfEachByteComesAlone) {
  const Relay relay({.piece_bytes = 1});
  run_over(relay, 4, seconds(60),
           [](TcpStore& store, uint32_t rank) { use_all_calls(store, rank, 1000); });
  EXPECT_GT(relay.pieces(), uint64_t{4} * 5 * 2 * 1000);
}

// Rank 0 serves the store until rank 1 needs it no more. Calls may have to be made again.
void leave_in_peace(TcpStore& store, uint32_t rank) {
  for (bool has_ended = false; !has_ended;) {
    try {
      if (rank == 1) store.put("end", "");
      has_ended = rank == 1 || store.try_get("end").has_value();
    } catch (const Error& error) {  // The last answer may have been lost.
      has_ended = std::string(error.what()).find("Connection refused") != std::string::npos;
    }
  }
}

// Each connection is cut in the middle of a message. The call that it hits is told, and the next
// one makes another connection: no value is torn, and none is lost whose put() returned.
void expect_calls_go_on(Cut cut) {
  const Relay relay({.cut = cut, .cut_after_bytes = 30000});
  run_over(relay, 2, seconds(60), [](TcpStore& store, uint32_t rank) {
    const std::string own = "of/" + std::to_string(rank);
    int failures = 0;
    std::string last;
    for (int i = 0; i < 100; ++i) {
      const std::string value(1000, static_cast<char>('a' + i % 26));
      try {
        store.put(own, value);
        last = value;
        EXPECT_EQ(store.try_get(own), last);
      } catch (const Error& error) {
        ++failures;
        EXPECT_EQ(error.code(), BP_ABORTED);
        expect_part(error.what(), "'" + own + "': the store at 127.0.0.1:");
        expect_part(error.what(), " is gone: ");
      }
    }
    EXPECT_GE(failures, 3);
    EXPECT_LE(failures, 20);
    leave_in_peace(store, rank);
  });
  EXPECT_GE(relay.cuts(), 3u);
}

TEST(TcpStoreFaults, HitOnlyTheCallWhoseConnectionEnds) { expect_calls_go_on(Cut::kEnd); }

TEST(TcpStoreFaults, HitOnlyTheCallWhoseConnectionIsReset) { expect_calls_go_on(Cut::kReset); }

// Each connection carries a greeting and one call, and ends while nobody uses it.
TEST(TcpStoreFaults, DoNotHitCallsAfterAnIdleConnectionHasEnded) {
  constexpr uint64_t kGreeting = 26 + 9, kPut = 14 + 9;  // Bytes of a request and of its reply.
  for (const Cut cut : {Cut::kEnd, Cut::kReset}) {
    const Relay relay({.cut = cut, .cut_after_bytes = kGreeting + kPut});
    run_over(relay, 1, seconds(60), [&](TcpStore& store, uint32_t) {
      for (uint64_t i = 1; i <= 5; ++i) {
        EXPECT_NO_THROW(store.put("k", ""));
        while (relay.cuts() < i) std::this_thread::yield();
      }
    });
    EXPECT_EQ(relay.connections(), 5u);
  }
}

// Nothing comes through any more, and nobody is told.
TEST(TcpStoreFaults, EndWaitsThatGetNoAnswer) {
  const Relay relay({.cut = Cut::kStall, .cut_after_bytes = 20000});
  run_over(relay, 2, seconds(2), [](TcpStore& store, uint32_t rank) {
    const std::string own = "of/" + std::to_string(rank);
    const std::string text = message_of(BP_ABORTED, [&] {
      for (int i = 0; i < 100; ++i) store.put(own, std::string(1000, 'x'));
    });
    expect_part(text, "TcpStore: put '" + own + "': the store at 127.0.0.1:");
    expect_part(text, " does not answer: no answer came in time");
    EXPECT_EQ(store.try_get(own), std::string(1000, 'x')) << "over a new connection";
    leave_in_peace(store, rank);
  });
  EXPECT_GE(relay.cuts(), 2u);
}

TEST(TcpStoreFaults, EndABarrierThatGetsNoAnswer) {
  const Relay relay({.cut = Cut::kStall, .cut_after_bytes = 60});
  run_over(relay, 2, seconds(2), [](TcpStore& store, uint32_t rank) {
    const std::string text =
        message_of(BP_ABORTED, [&] { store.barrier("go", rank, 2, milliseconds(200)); });
    expect_part(text, "barrier 'go': rank " + std::to_string(rank) + ": TcpStore: wait for ");
    expect_part(text, " does not answer: ");
  });
}

TEST(TcpStoreFaults, EndAJoinThatGetsNoAnswer) {
  const ReservedPort reserved{"127.0.0.1"};
  const uint16_t port = reserved.number();
  const Relay relay({.cut = Cut::kStall});
  const auto codes = run_processes(2, [&](uint32_t rank) {
    relay.join(rank);
    const std::string text = message_of(
        BP_ABORTED, [&] { TcpStore store("127.0.0.1", port, rank == 0, 2, milliseconds(500)); });
    expect_part(text, "TcpStore: joining the ranks: " + place(port) + " does not answer: ");
    return exit_code();
  });
  EXPECT_EQ(codes, (std::vector<int>{0, 0}));
}

}  // namespace
}  // namespace bp::distributed
