// Workers that resist their end, or print without one, and the warden between them and this
// process. The workers are this program once more (scripted_worker.hpp).
#include "conformance/runner/process.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "conformance/runner/session.hpp"
#include "conformance/runner/warden.hpp"

namespace bp::conformance {
namespace {

class Workers : public testing::Test {
 protected:
  // A limit that no worker of these tests reaches.
  static Clock::time_point late() { return Clock::now() + std::chrono::seconds(60); }

  // Starts a worker that does `step` in its one case, and reads its records up to BEGIN.
  WorkerProcess& begin(const std::string& step) {
    setup_.options = {{"stream.case", step}};
    worker_.emplace(setup_, -1);
    expect(RecordType::kHello);
    EXPECT_TRUE(worker_->send(RecordType::kRun, {{"case", "stream.case"}, {"attempt", 1}}));
    expect(RecordType::kBegin);
    return *worker_;
  }
  void expect(RecordType type) {
    Record record{};
    ASSERT_EQ(static_cast<int>(worker_->wait(late(), record)), static_cast<int>(Waited::kRecord))
        << worker_->problem();
    EXPECT_EQ(static_cast<int>(record.type), static_cast<int>(type));
  }
  void expect_gone() {
    Record record{};
    EXPECT_EQ(static_cast<int>(worker_->wait(late(), record)), static_cast<int>(Waited::kGone));
  }

  WorkerSetup setup_;
  std::optional<WorkerProcess> worker_;
};

TEST_F(Workers, AreKilledWhereTheyIgnoreTheRequestToEnd) {
  WorkerProcess& worker = begin("deaf:sync");
  expect(RecordType::kProgress);  // From here on it ignores SIGTERM.
  const pid_t pid = worker.pid();
  const ProcessEnd end = worker.finish(Clock::now());
  ASSERT_TRUE(WIFSIGNALED(end.wait_status)) << end.text();
  EXPECT_EQ(WTERMSIG(end.wait_status), SIGKILL);
  EXPECT_FALSE(end.is_abandoned || end.has_lost_warden);
  EXPECT_NE(kill(pid, 0), 0);
}

TEST_F(Workers, EndByTheFirstRequestWhereTheyHeedIt) {
  WorkerProcess& worker = begin("hang:sync");
  const ProcessEnd end = worker.finish(Clock::now());
  ASSERT_TRUE(WIFSIGNALED(end.wait_status)) << end.text();
  EXPECT_EQ(WTERMSIG(end.wait_status), SIGTERM);
}

TEST_F(Workers, AreFollowedAlsoThroughAWardenThatTheyStopped) {
  WorkerProcess& worker = begin("stop_parent:5");
  expect_gone();
  const ProcessEnd end = worker.finish(Clock::now());
  EXPECT_EQ(end.text(), "the process exited with code 5");
  EXPECT_TRUE(children_of(getpid()).empty());
}

TEST_F(Workers, KeepTheFirst64KiBOfWhatTheyPrintAndCountTheRest) {
  constexpr uint64_t kPrinted = 300000;
  WorkerProcess& worker = begin("flood:" + std::to_string(kPrinted));
  expect(RecordType::kEnd);
  uint64_t bytes = 0;
  const std::string output = worker.take_output(bytes);
  EXPECT_EQ(bytes, kPrinted);
  EXPECT_EQ(output, std::string(64u << 10, 'x'));
  EXPECT_EQ(worker.take_output(bytes), "");
  EXPECT_EQ(bytes, 0u) << "it was taken before";
}

TEST_F(Workers, AreNotWaitedForBehindADeadline) {
  WorkerProcess& worker = begin("hang:sync");
  expect(RecordType::kProgress);
  Record record{};
  EXPECT_EQ(static_cast<int>(worker.wait(Clock::now(), record)),
            static_cast<int>(Waited::kDeadline));
}

TEST_F(Workers, TellTheirEndOnce) {
  WorkerProcess& worker = begin("fail:values");
  expect(RecordType::kEnd);
  EXPECT_TRUE(worker.send(RecordType::kBye, nlohmann::json::object()));
  expect(RecordType::kBye);
  expect_gone();
  EXPECT_TRUE(worker.finish(late()).is_clean());
  EXPECT_TRUE(worker.finish(late()).is_clean());
  EXPECT_FALSE(worker.send(RecordType::kBye, nlohmann::json::object())) << "nobody reads it";
}

TEST_F(Workers, HaveThisProcessForTheirSupervisorWhateverTheSetupSays) {
  setup_.parent = 1;
  WorkerProcess& worker = begin("fail:values");
  expect(RecordType::kEnd);
  EXPECT_NE(worker.pid(), 0);
}

TEST(Wardens, EndWhereTheirParentIsNotTheSupervisor) {
  const pid_t child = fork();
  if (child == 0) {
    divide_into_warden_and_worker(getpid());  // No process is its own parent.
    _exit(99);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 1);
}

// Forks a process of this name, which waits until it is killed.
pid_t named_child(const char* name) {
  int ready[2];
  EXPECT_EQ(pipe2(ready, O_CLOEXEC), 0);
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_NAME, name);
    static_cast<void>(!write(ready[1], "x", 1));
    for (;;) pause();
  }
  char byte = 0;
  EXPECT_EQ(read(ready[0], &byte, 1), 1);
  close(ready[0]);
  close(ready[1]);
  return child;
}

TEST(Children, AreFoundWhateverTheyCallThemselves) {
  for (const char* name : {"plain", "a) S 1 (b", ") ", "(((", "a\nb"}) {
    const pid_t child = named_child(name);
    const std::vector<pid_t> found = children_of(getpid());
    EXPECT_EQ(std::ranges::count(found, child), 1) << name;
    EXPECT_TRUE(children_of(child).empty()) << name;
    kill(child, SIGKILL);
    EXPECT_EQ(waitpid(child, nullptr, 0), child);
    EXPECT_EQ(std::ranges::count(children_of(getpid()), child), 0) << name;
  }
}

}  // namespace
}  // namespace bp::conformance
