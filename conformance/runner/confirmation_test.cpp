// The second half of a run: which failures are repeated, what a repetition may say, and what
// happens where no worker or thread can be started. The workers behave as a script says
// (scripted_worker.hpp).
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <latch>
#include <system_error>
#include <thread>

#include "conformance/tests/runs_fixture.hpp"

namespace bp::conformance {
namespace {

// While it lives, this process cannot open another file.
class NoMoreFiles {
 public:
  NoMoreFiles() {
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit few = before_;
    few.rlim_cur = 64;
    setrlimit(RLIMIT_NOFILE, &few);
    for (int fd; (fd = dup(STDIN_FILENO)) >= 0;) taken_.push_back(fd);
  }
  ~NoMoreFiles() {
    for (const int fd : taken_) close(fd);
    setrlimit(RLIMIT_NOFILE, &before_);
  }
  NoMoreFiles(const NoMoreFiles&) = delete;

 private:
  rlimit before_{};
  std::vector<int> taken_;
};

// While it lives, the address space has room for one thread, because each stack has a large guard.
class RoomForOneThread {
 public:
  RoomForOneThread() {
    pthread_getattr_default_np(&before_);
    pthread_attr_t guarded;
    pthread_getattr_default_np(&guarded);
    pthread_attr_setguardsize(&guarded, kGuardBytes);
    pthread_setattr_default_np(&guarded);
    pthread_attr_destroy(&guarded);
  }
  ~RoomForOneThread() {
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }
  RoomForOneThread(const RoomForOneThread&) = delete;

  // Returns whether this is so here: other processors have more address space, and ThreadSanitizer
  // leaves less of it.
  static bool is_so() {
    const RoomForOneThread room;
    std::latch may_end(1);
    std::vector<std::thread> threads;
    try {
      while (threads.size() < 2) threads.emplace_back([&] { may_end.wait(); });
    } catch (const std::system_error&) {
    }
    may_end.count_down();
    for (std::thread& thread : threads) thread.join();
    return threads.size() == 1;
  }

 private:
  static constexpr size_t kGuardBytes = size_t{64} << 40;  // Half of what x86-64 gives a process.

  pthread_attr_t before_{};
};

class Confirmations : public Runs {
 protected:
  explicit Confirmations(size_t count = 6) : Runs(count) {}

  size_t attempts_at(size_t index) const {
    return static_cast<size_t>(std::ranges::count(seen_, index));
  }
};

class LongRuns : public Confirmations {
 protected:
  LongRuns() : Confirmations(30) {}

  // The ids of the cases before `end`, as a script names them.
  std::string ids_before(size_t end) const {
    std::string ids;
    for (size_t i = 0; i < end; ++i) ids += (i == 0 ? "" : ",") + cases_[i].id;
    return ids;
  }
};

TEST_F(Confirmations, RepeatAFailureAsOftenAsAsked) {
  on_case(1, "fail:values");
  options_.retries = 3;
  const RunReport report = run({0, 1});
  EXPECT_TRUE(report.finals[1].is_confirmed);
  EXPECT_EQ(report.finals[1].attempt_count, 4);
  EXPECT_EQ(attempts_at(1), 4u);
}

TEST_F(Confirmations, TakeAFailureForAFlakeWhereOneOfSeveralRepetitionsPasses) {
  // Attempt 1 is that of the batch, and attempts 2 to 4 are repetitions.
  options_.session.setup.options = {{cases_[0].id, "fails_but:3:values"}};
  options_.retries = 3;
  const RunReport report = run({0});
  EXPECT_EQ(outcomes(report), "Flake");
  EXPECT_EQ(report.finals[0].attempt_count, 3) << "the third repetition says nothing new";
  EXPECT_FALSE(report.finals[0].is_confirmed);
}

TEST_F(Confirmations, CountTheRoundsBeforeThem) {
  // The rounds are attempts 1 and 2, so that the repetition is attempt 3.
  on_case(0, "fails_but:3:values");
  options_.repeat = 2;
  EXPECT_EQ(outcomes(run({0})), "Flake");
}

TEST_F(Confirmations, NameEveryPredecessorThatAFailureNeeds) {
  on_case(5, "after:stream.case_1,stream.case_3:values");
  const RunReport report = run_all();
  const Result& blamed = result_of(report, 5);
  EXPECT_EQ(blamed.cause, "order");
  EXPECT_EQ(blamed.details.at("was_cause"), "values");
  EXPECT_EQ(blamed.details.at("after"), "stream.case_1, stream.case_3") << "as they run";
  EXPECT_EQ(blamed.message, "passes alone, fails after stream.case_1, stream.case_3: it fails");
}

TEST_F(LongRuns, NameEightPredecessorsAndSayThatThereAreMore) {
  on_case(9, "after:" + ids_before(9) + ":values");
  std::vector<size_t> selection(10);
  std::iota(selection.begin(), selection.end(), size_t{0});
  const RunReport report = run(selection);
  const Result& blamed = result_of(report, 9);
  EXPECT_EQ(blamed.cause, "order");
  EXPECT_EQ(std::ranges::count(blamed.details.at("after"), ','), 7) << blamed.message;
  EXPECT_NE(blamed.message.find(" and more: it fails"), std::string::npos) << blamed.message;
}

TEST_F(LongRuns, RepeatTwentyFailuresOfEachKind) {
  for (size_t i = 0; i < 25; ++i) on_case(i, "fail:values");
  for (size_t i = 25; i < 28; ++i) on_case(i, "fail:tail");
  const RunReport report = run_all();
  const auto confirmed = [&](size_t first, size_t last) {
    return std::ranges::count_if(report.finals, [&](const Final& final) {
      return final.index >= first && final.index < last && final.is_confirmed;
    });
  };
  EXPECT_EQ(confirmed(0, 25), 20);
  EXPECT_EQ(confirmed(25, 28), 3) << "another cause is another kind";
  EXPECT_EQ(positions_.back().total, 23u);
}

TEST_F(Confirmations, AskForNoFailureThatARepetitionCannotChange) {
  on_case(0, R"(end:{"status":"Missing"})");
  on_case(1, R"(end:{"status":"HarnessError"})");
  const RunReport report = run({0, 1});
  EXPECT_EQ(seen_.size(), 2u);
  EXPECT_FALSE(report.finals[0].is_confirmed || report.finals[1].is_confirmed);
}

TEST_F(Confirmations, LeaveAFailureAsItIsWhereTheBackendLoadsNoMore) {
  on_case(1, "fail:values");
  on_attempt_ = [&](const Attempt& attempt) {
    if (attempt.index == 1) options_.session.setup.plugin = "no_hello:3";
  };
  const RunReport report = run({0, 1});
  EXPECT_EQ(outcomes(report), "Pass Fail") << "it is no Flake: it did not run again";
  EXPECT_EQ(result_of(report, 1).cause, "values");
  EXPECT_FALSE(report.finals[1].is_confirmed);
  ASSERT_EQ(report.process.size(), 1u);
  EXPECT_EQ(report.process[0].index, kLoad);
  EXPECT_EQ(report.process[0].result.message, "the process exited with code 3 while loading");
}

TEST_F(Confirmations, BlameNobodyWhereTheBackendLoadsNoMore) {
  // Attempt 2 is the repetition alone, and attempts 3 are those behind other cases.
  for (const int last : {2, 3}) {
    options_.session.setup.plugin = "";
    options_.session.setup.options = {{cases_[5].id, "after:stream.case_2:values"}};
    on_attempt_ = [&](const Attempt& attempt) {
      if (attempt.index == 5 && attempt.number == last) {
        options_.session.setup.plugin = "no_hello:3";
      }
    };
    const RunReport report = run_all();
    EXPECT_EQ(outcomes(report), "Pass Pass Pass Pass Pass Fail") << last;
    EXPECT_EQ(result_of(report, 5).cause, "values") << "no order is known";
    EXPECT_EQ(result_of(report, 5).message, "it fails");
    EXPECT_FALSE(report.finals[5].is_confirmed);
    ASSERT_EQ(report.process.size(), 1u);
    EXPECT_EQ(report.process[0].index, kLoad);
  }
}

TEST_F(Confirmations, BlameNobodyWhereAPredecessorDiesInFrontOfTheCase) {
  // Behind all five cases the failure comes back. The bisection then begins without the first two,
  // and another case dies.
  on_case(5, "after:stream.case_2:values");
  on_attempt_ = [&](const Attempt& attempt) {
    if (attempt.index == 5 && attempt.number == 3) on_case(4, "exit:1");
  };
  const RunReport report = run_all();
  EXPECT_EQ(outcomes(report), "Pass Pass Pass Pass Pass Fail");
  EXPECT_EQ(result_of(report, 5).cause, "values");
  EXPECT_FALSE(report.finals[5].is_confirmed);
}

TEST_F(Confirmations, EndTheRunWhereTheBackendDoesNotLoadThreeTimesInARow) {
  for (size_t i = 0; i < 5; ++i) on_case(i, "fail:values");
  int code = 0;
  on_attempt_ = [&](const Attempt& attempt) {
    // The first repetition runs. The three behind it end while loading, each with another code, so
    // that each is a finding of its own. Then the backend would load again.
    if (attempt.number != 2 && attempt.index != kLoad) return;
    options_.session.setup.plugin = ++code > 3 ? "" : "no_hello:" + std::to_string(code);
  };
  const RunReport report = run_all();
  EXPECT_EQ(outcomes(report), "Fail Fail Fail Fail Fail Pass");
  EXPECT_EQ(report.process.size(), 3u);
  EXPECT_TRUE(report.finals[0].is_confirmed);
  for (size_t i = 1; i < 5; ++i) EXPECT_FALSE(report.finals[i].is_confirmed) << i;
  EXPECT_EQ(attempts_at(4), 1u) << "no worker is started for the last failure";
}

TEST_F(Confirmations, EndTheRunWhereNoWorkerCanBeStarted) {
  on_case(1, "fail:values");
  std::optional<NoMoreFiles> no_more_files;
  on_attempt_ = [&](const Attempt& attempt) {
    if (attempt.index == 1) no_more_files.emplace();
  };
  const RunReport report = run({0, 1});
  no_more_files.reset();
  EXPECT_EQ(outcomes(report), "Pass Fail");
  EXPECT_FALSE(report.finals[1].is_confirmed);
  ASSERT_EQ(report.process.size(), 1u);
  EXPECT_EQ(report.process[0].result.outcome, Outcome::kHarnessError);
  EXPECT_NE(report.process[0].result.message.find("Too many open files"), std::string::npos)
      << report.process[0].result.message;
}

TEST_F(Runs, EndWhereNoWorkerCanBeStarted) {
  options_.batch = 1;
  std::optional<NoMoreFiles> no_more_files;
  on_attempt_ = [&](const Attempt&) {
    if (!no_more_files) no_more_files.emplace();
  };
  const RunReport report = run({0, 1, 2});
  no_more_files.reset();
  EXPECT_EQ(outcomes(report), "Pass Skip Skip");
  EXPECT_TRUE(result_of(report, 2).message.starts_with("the suite could not run a worker: "))
      << result_of(report, 2).message;
  ASSERT_EQ(report.process.size(), 1u);
  EXPECT_EQ(report.process[0].result.outcome, Outcome::kHarnessError);
}

TEST_F(Runs, EndWhereNotEveryThreadCanBeStarted) {
  if (!RoomForOneThread::is_so()) GTEST_SKIP() << "the address space has another size";
  options_.jobs = 2;
  std::optional<RoomForOneThread> room(std::in_place);
  const RunReport report = run_all();
  room.reset();
  ASSERT_EQ(report.process.size(), 1u);
  const Result& found = report.process[0].result;
  EXPECT_EQ(found.outcome, Outcome::kHarnessError);
  EXPECT_TRUE(found.message.starts_with("the suite could not start thread 2 of 2 (--jobs): "))
      << found.message;
  for (const Final& final : report.finals) {
    // The first thread may have run some of the cases before.
    const Result& result = final.attempt.result;
    if (result.outcome == Outcome::kPass) continue;
    EXPECT_EQ(result.outcome, Outcome::kSkip);
    EXPECT_EQ(result.message, found.message);
  }
}

TEST_F(Confirmations, EndTheRunWhereNotEveryThreadCanBeStarted) {
  if (!RoomForOneThread::is_so()) GTEST_SKIP() << "the address space has another size";
  on_case(0, "fail:values");
  std::optional<RoomForOneThread> room;
  on_attempt_ = [&](const Attempt&) {
    if (room) return;
    room.emplace();
    options_.jobs = 2;
  };
  const RunReport report = run({0});
  room.reset();
  EXPECT_EQ(outcomes(report), "Fail");
  ASSERT_EQ(report.process.size(), 1u);
  EXPECT_EQ(report.process[0].result.outcome, Outcome::kHarnessError);
}

TEST_F(Runs, GiveExclusiveCasesTheDeviceAlone) {
  std::vector<Case> all = cases_.cases();
  all[1].is_exclusive = all[4].is_exclusive = true;
  cases_ = CaseList(std::move(all));
  options_.jobs = 3;
  run_all();
  ASSERT_EQ(seen_.size(), 6u);
  EXPECT_EQ(std::vector<size_t>(seen_.begin() + 4, seen_.end()), (std::vector<size_t>{1, 4}))
      << "behind all others, one after the other";
}

}  // namespace
}  // namespace bp::conformance
