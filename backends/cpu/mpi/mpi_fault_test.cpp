// Collectives over MPI in processes that mpirun has started: ranks that disagree, are late, abort,
// leave or die. Every other rank is told, and nothing is left behind.
#include <dirent.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <iterator>
#include <set>
#include <thread>

#include "backends/cpu/mpi/mpi_test.hpp"

namespace bp::mpi {
namespace {

using std::chrono::milliseconds;

// Submits a call and expects that it fails with `status`, and with a text that has `part`.
void expect_failure(Ranks& r, const bp_collective_call& call, bp_status status,
                    const std::string& part) {
  const bp_status submitted = r.submit({call});
  expect(submitted == BP_OK || submitted == status, "submit: " + r.text());
  if (submitted == BP_OK) expect(r.outcome(0) == status, "the stream: " + r.text());
  expect(r.status(0) == status, "status: " + r.text());
  expect(r.text().find(part) != std::string::npos,
         "the text is '" + r.text() + "', without '" + part + "'");
}

void wait_for_failure(Ranks& r) {
  while (r.status(0) == BP_OK) std::this_thread::sleep_for(milliseconds(1));
}

// Makes another group of all processes, which works.
void expect_that_a_new_group_works(Ranks& r, uint32_t rank, uint32_t size) {
  const cpu::FileStore store(std::getenv(kFolder), "again/");
  expect(r.create({rank}, size, store.table()) == BP_OK, "a new group: " + r.text());
  r.set(1, {static_cast<float>(rank + 1)});
  run_calls(r, {r.sum(1)}, 1, "a new group");
  expect_equal(r.values(1)[0], static_cast<float>(size * (size + 1)) / 2, "the sum");
  r.destroy_last();
}

// ---- Ranks that disagree ------------------------------------------------------------------------

TEST(MpiFault, SaysWhichRanksGiveOtherCounts) {
  in_processes(3, [](Ranks& r, uint32_t rank) {
    const bp_collective_call call = r.call(0, BP_COLLECTIVE_BROADCAST, 0, rank == 2 ? 2 : 4);
    expect_failure(r, call, BP_INVALID_ARGUMENT, "gives other counts, such as");
    expect(r.text().find("rank 2") != std::string::npos, r.text());
    expect_that_a_new_group_works(r, rank, 3);
  });
}

TEST(MpiFault, SaysWhichRanksCallSomethingElse) {
  in_processes(2, [](Ranks& r, uint32_t rank) {
    const bp_collective_call call =
        rank == 0 ? r.sum(0) : r.call(0, BP_COLLECTIVE_ALL_GATHER, 0, 4);
    expect_failure(r, call, BP_INVALID_ARGUMENT, "calls all_gather");
    expect(r.text().find("calls all_reduce") != std::string::npos, r.text());
  });
}

TEST(MpiFault, SaysWhatALetterHas) {
  in_processes(2, [](Ranks& r, uint32_t rank) {
    bp_collective_call letter =
        r.letter(0, rank == 0 ? BP_COLLECTIVE_SEND : BP_COLLECTIVE_RECEIVE, 1 - rank);
    if (rank == 0) {
      letter.count = 9;
      static_cast<void>(r.submit({letter}));
      wait_for_failure(r);
      expect(r.status(0) == BP_INVALID_ARGUMENT, r.text());
    } else {
      expect_failure(r, letter, BP_INVALID_ARGUMENT, "rank 0 sends 9 elements");
    }
  });
}

// Rank 1 thinks that there is a third rank.
TEST(MpiFault, RefusesGroupsOfOtherSizes) {
  in_processes_alone(2, [](Ranks& r, uint32_t rank) {
    const bp_status made = r.create({rank}, 2 + rank, store_here(), kLong);
    expect(made == BP_INVALID_ARGUMENT, "create: " + r.text());
    const std::string text = rank == 0 ? "create: rank 1 makes a group of 3 ranks, rank 0 one of 2"
                                       : "create: rank 0 makes a group of 2 ranks, rank 1 one of 3";
    expect_equal<std::string>(r.text(), text, "the text");
  });
}

// ---- Ranks that are late ------------------------------------------------------------------------

TEST(MpiFault, NamesTheRankThatIsLate) {
  in_processes(4, [](Ranks& r, uint32_t rank) {
    bp_collective_call call = r.sum(0);
    call.timeout_ns = kShort;
    if (rank == 2) {
      wait_for_failure(r);
      expect(r.status(0) == BP_TIMEOUT, "status: " + r.text());
    } else {
      expect_failure(r, call, BP_TIMEOUT, " rank 2");
    }
    expect(r.text().find("all_reduce: rank ") == 0, r.text());
    expect(r.submit({call}) == BP_TIMEOUT, "a later call: " + r.text());
    expect_that_a_new_group_works(r, rank, 4);
  });
}

// The other ranks still move the data of their call when one is stopped in it.
TEST(MpiFault, EndsACallOfARankThatIsStopped) {
  in_processes(2, [](Ranks& r, uint32_t rank) {
    constexpr uint64_t kMany = 10'000'000;
    const Memory<float> memory(r, kMany);
    run_calls(r, {r.call(0, BP_COLLECTIVE_BARRIER)}, 0, "barrier");
    bp_collective_call call = r.call(0, BP_COLLECTIVE_ALL_REDUCE, BP_REDUCTION_SUM, kMany);
    call.send = call.receive = memory.all();
    call.timeout_ns = kShort;
    if (rank == 0) return expect_failure(r, call, BP_TIMEOUT, "all_reduce: rank 0 waited 1000 ms");
    const pid_t self = getpid();
    const pid_t waker = fork();  // It lets the rank go on when the other one has given up.
    if (waker == 0) {
      std::this_thread::sleep_for(std::chrono::seconds(3));
      kill(self, SIGCONT);
      _exit(0);
    }
    expect(r.submit({call}) == BP_OK, r.text());
    std::raise(SIGSTOP);
    waitpid(waker, nullptr, 0);
    wait_for_failure(r);
    expect(r.status(0) == BP_TIMEOUT, r.text());
  });
}

TEST(MpiFault, NamesTheRankThatDoesNotComeToCreate) {
  in_processes_alone(3, [](Ranks& r, uint32_t rank) {
    if (rank != 1) {
      expect(r.create({rank}, 3, store_here(), kShort) == BP_TIMEOUT, r.text());
      expect_equal<std::string>(r.text(), "create: rank 1 did not come within 1000 ms", "the text");
    }
    const cpu::FileStore store(std::getenv(kFolder), "again/");
    expect(r.create({rank}, 3, store.table()) == BP_OK, r.text());
    if (rank == 0) {  // MPI runs now.
      expect(r.create({0}, 2, store_here(), kShort) == BP_TIMEOUT, r.text());
      expect_equal<std::string>(r.text(), "create: rank 1 did not come within 1000 ms", "the text");
    }
    run_calls(r, {r.call(0, BP_COLLECTIVE_BARRIER)}, 0, "barrier");
    r.destroy_last();
  });
}

// MPI starts in no process until it starts in all.
TEST(MpiFault, SaysThatMpiDoesNotStart) {
  in_processes_alone(3, [](Ranks& r, uint32_t rank) {
    if (rank != 1) {
      const cpu::FileStore some(std::getenv(kFolder), "some/");
      expect(r.create({rank / 2}, 2, some.table(), kShort) == BP_TIMEOUT, r.text());
      expect(r.text().find("create: MPI has not started in time") == 0, r.text());
    } else {
      std::this_thread::sleep_for(milliseconds(1500));
    }
    expect(r.create({rank}, 3, store_here()) == BP_OK, r.text());
    run_calls(r, {r.sum(0)}, 0, "all_reduce");
  });
}

TEST(MpiFault, NamesTheRankThatDoesNotComeToSplit) {
  in_processes(2, [](Ranks& r, uint32_t rank) {
    if (rank == 0) {
      bp_process_group* const from = r.group(0);
      bp_process_group* made = nullptr;
      const uint32_t color = 0, key = 0;
      expect(r.ops().split(r.ops().self, 1, &from, &color, &key, kShort, &made) == BP_TIMEOUT,
             r.text());
      expect(r.text().find("split: rank 0 waited ") == 0 &&
                 r.text().find(" ms for rank 1") != std::string::npos,
             r.text());
      expect(made == nullptr, "a group was made");
    }
    wait_for_failure(r);
  });
}

TEST(MpiFault, ShrinksAfterATimeout) {
  in_processes(3, [](Ranks& r, uint32_t rank) {
    if (rank == 1) return wait_for_failure(r);
    bp_collective_call call = r.sum(0);
    call.timeout_ns = kShort;
    expect_failure(r, call, BP_TIMEOUT, "rank 1");
    bp_process_group* const from = r.group(0);
    bp_process_group* made = nullptr;
    const uint32_t gone = 1;
    expect(r.ops().shrink(r.ops().self, 1, &from, 1, &gone, kLong, &made) == BP_OK, r.text());
    r.add({made});
    r.set(1, {static_cast<float>(rank)});
    run_calls(r, {r.sum(1)}, 1, "all_reduce");
    expect_equal(r.values(1)[0], 2.0f, "the sum without rank 1");
  });
}

// ---- Ranks that end their group -----------------------------------------------------------------

TEST(MpiFault, EndsTogetherWhenOneAborts) {
  in_processes(4, [](Ranks& r, uint32_t rank) {
    if (rank == 3) {
      std::this_thread::sleep_for(milliseconds(50));
      expect(r.ops().abort(r.ops().self, r.group(0)) == BP_OK, r.text());
      expect(r.status(0) == BP_ABORTED, "status: " + r.text());
    } else {
      expect_failure(r, r.sum(0), BP_ABORTED, "rank 3 aborted the group");
    }
    expect(r.submit({r.sum(0)}) == BP_ABORTED, "a later call: " + r.text());
    expect_that_a_new_group_works(r, rank, 4);
  });
}

TEST(MpiFault, NamesTheRankThatHasDestroyedItsGroup) {
  in_processes(2, [](Ranks& r, uint32_t rank) {
    if (rank == 0) return r.destroy_last();
    expect_failure(r, r.sum(0), BP_ABORTED, "all_reduce: rank 0 has destroyed its group");
  });
}

TEST(MpiFault, LeavesThePeersOfADestroyedGroupInPeace) {
  in_processes(2, [](Ranks& r, uint32_t rank) {
    if (rank == 0) {
      expect(r.submit({r.letter(0, BP_COLLECTIVE_SEND, 1)}) == BP_OK, r.text());
      return r.destroy_last();
    }
    std::this_thread::sleep_for(milliseconds(100));
    run_calls(r, {r.letter(0, BP_COLLECTIVE_RECEIVE, 0)}, 0, "a letter");
    expect_equal(r.values(0)[32], 1.0f, "the letter");
    expect(r.status(0) == BP_OK, r.text());
  });
}

// ---- What is left behind ------------------------------------------------------------------------

std::set<std::string> names_in(const char* folder) {
  std::set<std::string> names;
  DIR* const opened = opendir(folder);
  if (opened == nullptr) return names;
  while (const dirent* entry = readdir(opened)) names.insert(entry->d_name);
  closedir(opened);
  return names;
}

size_t count_in(const char* folder) { return names_in(folder).size(); }

TEST(MpiFault, LeavesNoDescriptorAndNoThreadBehindAGroup) {
  in_processes(2, [](Ranks& r, uint32_t rank) {
    const auto round = [&](int i) {
      const cpu::FileStore store(std::getenv(kFolder), std::to_string(i) + "/");
      expect(r.create({rank}, 2, store.table()) == BP_OK, r.text());
      run_calls(r, {r.sum(1)}, 1, "all_reduce");
      r.destroy_last();
    };
    round(0);
    const size_t descriptors = count_in("/proc/self/fd"), threads = count_in("/proc/self/task");
    for (int i = 1; i < 5; ++i) round(i);
    expect(count_in("/proc/self/fd") <= descriptors, "a descriptor is left behind");
    expect(count_in("/proc/self/task") <= threads, "a thread is left behind");
  });
}

// The backend lives until the process exits, as in a program that shuts nothing down. Notices of
// the other rank come when MPI is about to end, and must not meet memory that is free again.
TEST(MpiFault, EndsItsThreadBeforeMpiEnds) {
  in_processes_alone(2, [](Ranks&, uint32_t rank) {
    auto& r = *new Ranks("mpi");
    for (int i = 0; i < 32; ++i) {
      const cpu::FileStore store(std::getenv(kFolder), std::to_string(i) + "/");
      expect(r.create({rank}, 2, store.table()) == BP_OK, r.text());
    }
    if (rank == 1) std::this_thread::sleep_for(milliseconds(100));
    for (int i = 0; i < 32; ++i) r.destroy_last();
  });
}

// Returns which names of `more` are not in `fewer`.
std::set<std::string> difference(const std::set<std::string>& more,
                                 const std::set<std::string>& fewer) {
  std::set<std::string> left;
  std::set_difference(more.begin(), more.end(), fewer.begin(), fewer.end(),
                      std::inserter(left, left.end()));
  return left;
}

// mpirun ends all processes when one dies, and removes what they share. Other programs over MPI may
// run beside this test: what is theirs goes when they end, and what was left behind stays.
TEST(MpiFault, LeavesNothingBehindARankThatIsKilled) {
  BP_SKIP_WITHOUT_MPIRUN();
  const std::set<std::string> before = names_in("/dev/shm");
  const Job job = job_of(2, 2, [](Ranks& r, uint32_t rank) {
    run_calls(r, {r.call(0, BP_COLLECTIVE_BARRIER)}, 0, "barrier");
    if (rank == 1) std::raise(SIGKILL);
    static_cast<void>(r.submit({r.sum(0)}));
    static_cast<void>(r.outcome(0));
  });
  if (rank_here()) return;
  EXPECT_NE(job.status, 0);
  EXPECT_NE(job.output.find("signal 9"), std::string::npos) << job.output;
  std::set<std::string> added = difference(names_in("/dev/shm"), before);
  for (int i = 0; i < 600 && !added.empty(); ++i) {
    std::this_thread::sleep_for(milliseconds(100));
    const std::set<std::string> gone = difference(added, names_in("/dev/shm"));
    added = difference(added, gone);
  }
  EXPECT_EQ(added, std::set<std::string>());
}

}  // namespace
}  // namespace bp::mpi
