// Groups whose ranks are processes. Each test forks them before it loads the backend; they find
// each other through files.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "backends/cpu/groups/groups_test.hpp"
#include "backends/cpu/groups/test_store.hpp"

namespace bp::cpu {
namespace {

using Floats = std::vector<float>;

// What a process does with its rank. It throws if something is wrong.
using Body = std::function<void(Ranks& ranks, uint32_t rank)>;

void expect(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

void expect_equal(const Floats& got, const Floats& want, const std::string& what) {
  if (got == want) return;
  std::string text = what + " is";
  for (const float value : got) text += " " + std::to_string(value);
  throw std::runtime_error(text);
}

// Runs one rank of `size`, and returns the exit status of its process.
int run_rank(const std::filesystem::path& folder, uint32_t rank, uint32_t size, const Body& body) {
  const FileStore store(folder);
  Ranks ranks;
  try {
    const bp_status made = ranks.create({rank}, size, store.table());
    expect(made == BP_OK, "create: " + ranks.text());
    ranks.set(0, {static_cast<float>(rank + 1), 2, 3, static_cast<float>(10 * rank)});
    body(ranks, rank);
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "rank %u: %s\n", rank, e.what());
    return 1;
  }
}

// Forks `size` processes and returns how each has ended.
std::vector<int> run_processes(uint32_t size, const Body& body) {
  std::string folder = testing::TempDir() + "/groups.XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
  std::vector<pid_t> children;
  for (uint32_t rank = 0; rank < size; ++rank) {
    const pid_t child = fork();
    if (child == 0) _exit(run_rank(folder, rank, size, body));
    children.push_back(child);
  }
  std::vector<int> statuses;
  for (const pid_t child : children) waitpid(child, &statuses.emplace_back(), 0);
  std::filesystem::remove_all(folder);
  return statuses;
}

void expect_success(uint32_t size, const Body& body) {
  EXPECT_EQ(run_processes(size, body), std::vector<int>(size, 0));
}

float sum_of_ranks(uint32_t size) { return static_cast<float>(size * (size + 1)) / 2; }

void run_all_kinds(Ranks& r, uint32_t rank, uint32_t size) {
  const auto run = [&](const std::vector<bp_collective_call>& calls, const char* what) {
    expect(r.submit(calls) == BP_OK && r.outcome(0) == BP_OK, std::string(what) + r.text());
  };
  run({r.sum(0)}, "all_reduce: ");
  const auto n = static_cast<float>(size);
  expect_equal(r.get(0, 3), {sum_of_ranks(size), 2 * n, 3 * n}, "the sum");

  bp_collective_call broadcast = r.call(0, BP_COLLECTIVE_BROADCAST);
  broadcast.root = size - 1;
  r.set(0, {static_cast<float>(rank), 7});
  run({broadcast}, "broadcast: ");
  expect_equal(r.get(0, 2), {n - 1, 7}, "what the last rank sent");

  // Element r of the gathered ones is from rank r.
  r.values(0)[rank] = static_cast<float>(rank + 5);
  bp_collective_call gather = r.call(0, BP_COLLECTIVE_ALL_GATHER, 0, 1);
  gather.send.byte_offset = rank * sizeof(float);
  gather.send.size_bytes = sizeof(float);
  run({gather}, "all_gather: ");
  for (uint32_t i = 0; i < size; ++i) {
    expect(r.values(0)[i] == static_cast<float>(i + 5), "all_gather: element " + std::to_string(i));
  }

  // A letter to the next rank and one from the previous rank, together.
  r.set(0, {static_cast<float>(rank), 1, 1, 1});
  run({r.letter(0, BP_COLLECTIVE_SEND, (rank + 1) % size),
       r.letter(0, BP_COLLECTIVE_RECEIVE, (rank + size - 1) % size)},
      "letters: ");
  expect(r.values(0)[32] == static_cast<float>((rank + size - 1) % size), "the letter");
  run({r.call(0, BP_COLLECTIVE_BARRIER)}, "barrier: ");
}

TEST(Processes, TwoRunEveryKindOfCall) {
  expect_success(2, [](Ranks& r, uint32_t rank) { run_all_kinds(r, rank, 2); });
}

TEST(Processes, FourRunEveryKindOfCall) {
  expect_success(4, [](Ranks& r, uint32_t rank) { run_all_kinds(r, rank, 4); });
}

TEST(Processes, OfTwoColorsGetTwoGroups) {
  expect_success(4, [](Ranks& r, uint32_t rank) {
    const uint32_t color = rank % 2, key = 4 - rank;
    bp_process_group* const from = r.group(0);
    bp_process_group* made = nullptr;
    const auto& ops = r.ops();
    expect(ops.split(ops.self, 1, &from, &color, &key, kLong, &made) == BP_OK, r.text());
    r.add({made});
    r.values(1)[0] = static_cast<float>(rank);
    bp_collective_call gather = r.call(1, BP_COLLECTIVE_ALL_GATHER, 0, 1);
    gather.receive.byte_offset = 4 * sizeof(float);
    gather.receive.size_bytes = 2 * sizeof(float);
    expect(r.submit({gather}) == BP_OK && r.outcome(1) == BP_OK, r.text());
    const auto second = static_cast<float>(color);
    expect_equal({r.values(1)[4], r.values(1)[5]}, {second + 2, second}, "the order by key");
  });
}

TEST(Processes, TellWhichRankIsLate) {
  expect_success(4, [](Ranks& r, uint32_t rank) {
    if (rank == 2) {
      while (r.status(0) == BP_OK) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    } else {
      bp_collective_call call = r.sum(0);
      call.timeout_ns = kShort;
      expect(r.submit({call}) == BP_OK, "submit: " + r.text());
      expect(r.outcome(0) == BP_TIMEOUT, "the stream: " + r.text());
    }
    expect(r.status(0) == BP_TIMEOUT, "status: " + r.text());
    expect(r.text().find(" rank 2") != std::string::npos, r.text());
  });
}

TEST(Processes, EndTogetherWhenOneAborts) {
  expect_success(4, [](Ranks& r, uint32_t rank) {
    if (rank == 3) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      expect(r.ops().abort(r.ops().self, r.group(0)) == BP_OK, r.text());
    } else {
      expect(r.submit({r.sum(0)}) == BP_OK || r.status(0) == BP_ABORTED, "submit: " + r.text());
      expect(r.outcome(0) == BP_ABORTED || r.status(0) == BP_ABORTED, "the stream: " + r.text());
    }
    expect(r.status(0) == BP_ABORTED, "status: " + r.text());
    expect(r.text() == "rank 3 aborted the group", r.text());
  });
}

// The others learn of it, name the rank, and go on without it.
TEST(Processes, SurviveARankThatIsKilled) {
  const auto body = [](Ranks& r, uint32_t rank) {
    if (rank == 1) {  // It dies when all have made their group.
      for (const uint32_t other : {0u, 2u, 3u}) {
        expect(r.submit({r.letter(0, BP_COLLECTIVE_RECEIVE, other)}) == BP_OK, r.text());
        expect(r.outcome(0) == BP_OK, r.text());
      }
      std::raise(SIGKILL);
    }
    expect(r.submit({r.letter(0, BP_COLLECTIVE_SEND, 1)}) == BP_OK, r.text());
    if (r.submit({r.sum(0)}) == BP_OK) {
      expect(r.outcome(0) == BP_ABORTED, "the stream: " + r.text());
    }
    expect(r.status(0) == BP_ABORTED, "status: " + r.text());
    expect(r.text().starts_with("rank 1 is gone: its connection to rank "), r.text());

    const uint32_t gone = 1;
    bp_process_group* const from = r.group(0);
    bp_process_group* made = nullptr;
    const auto& ops = r.ops();
    expect(ops.shrink(ops.self, 1, &from, 1, &gone, kLong, &made) == BP_OK, r.text());
    r.add({made});
    r.set(1, {static_cast<float>(rank), 1, 1, 1});
    expect(r.submit({r.sum(1)}) == BP_OK && r.outcome(1) == BP_OK, r.text());
    expect_equal(r.get(1, 4), {0 + 2 + 3, 3, 3, 3}, "the sum without rank 1");
  };
  const std::vector<int> statuses = run_processes(4, body);
  EXPECT_EQ(statuses[0], 0);
  EXPECT_TRUE(WIFSIGNALED(statuses[1]));
  EXPECT_EQ(statuses[2], 0);
  EXPECT_EQ(statuses[3], 0);
}

// A process may end as soon as destroy() has returned. The others are told before.
TEST(Processes, LeaveInPeaceAlthoughTheyEndAtOnce) {
  const auto body = [](Ranks& r, uint32_t rank) {
    expect(r.submit({r.call(0, BP_COLLECTIVE_BARRIER)}) == BP_OK && r.outcome(0) == BP_OK,
           r.text());
    if (rank != 0) {
      expect(r.ops().destroy(r.ops().self, r.group(0)) == BP_OK, r.text());
      _exit(0);
    }
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(300);
    while (std::chrono::steady_clock::now() < end) {
      expect(r.status(0) == BP_OK, "status: " + r.text());
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  };
  for (int round = 0; round < 3; ++round) expect_success(4, body);
}

// A rank that is stopped keeps its connections, so only the timeout ends the call.
TEST(Processes, DoNotWaitForeverForARankThatIsStopped) {
  const auto body = [](Ranks& r, uint32_t rank) {
    expect(r.submit({r.call(0, BP_COLLECTIVE_BARRIER)}) == BP_OK && r.outcome(0) == BP_OK,
           r.text());
    if (rank == 1) {
      const pid_t self = getpid();
      const pid_t waker = fork();  // It lets the rank go on when the other one has given up.
      if (waker == 0) {
        std::this_thread::sleep_for(std::chrono::seconds(2));
        kill(self, SIGCONT);
        _exit(0);
      }
      std::raise(SIGSTOP);
      waitpid(waker, nullptr, 0);
      expect(r.submit({r.sum(0)}) != BP_OK || r.outcome(0) != BP_OK, "the group has ended");
      return;
    }
    bp_collective_call call = r.sum(0);
    call.timeout_ns = kShort;
    expect(r.submit({call}) == BP_OK, "submit: " + r.text());
    expect(r.outcome(0) == BP_TIMEOUT, "the stream: " + r.text());
    expect(r.text().find("for rank 1") != std::string::npos, r.text());
  };
  expect_success(2, body);
}

}  // namespace
}  // namespace bp::cpu
