// Tests one worker and its supervisor: the results of workers that crash, hang or send garbage. The
// workers are this program once more, and behave as a script says (scripted_worker.hpp).
#include "conformance/runner/session.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstring>
#include <numeric>

#include "conformance/process/child.hpp"
#include "conformance/process/child_test_routines.hpp"
#include "conformance/runner/scripted_worker.hpp"
#include "conformance/runner/warden.hpp"

namespace bp::conformance {
namespace {

using nlohmann::json;

constexpr double kPatienceSeconds = 60;  // A limit that no working worker reaches.

CaseList numbered_cases(size_t count) {
  std::vector<Case> all(count);
  for (size_t i = 0; i < count; ++i) {
    all[i].id = "stream.case_" + std::to_string(i);
    all[i].group = "stream";
    all[i].tags = {"STREAM-" + std::to_string(i)};
    all[i].run = [](Context&) {};
  }
  return CaseList(std::move(all));
}

class Sessions : public testing::Test {
 protected:
  Sessions() { options_.timeout_seconds = kPatienceSeconds; }

  void on_case(size_t index, const std::string& step) {
    options_.setup.options.emplace_back(cases_[index].id, step);
  }

  BatchReport run(size_t count) {
    std::vector<size_t> batch(count);
    std::iota(batch.begin(), batch.end(), size_t{0});
    return run_batch(options_, cases_, batch, 1, [&](const Attempt& attempt) {
      attempts_.push_back(attempt);
      return goes_on_;
    });
  }

  // Case 1 of three does `step`. Only this case must be charged, with `cause` and a message.
  void expect_charged(const std::string& step, Outcome outcome, const std::string& cause,
                      const std::string& message) {
    options_.setup.options.clear();
    attempts_.clear();
    on_case(1, step);
    const BatchReport report = run(3);
    ASSERT_EQ(attempts_.size(), 2u) << step;
    EXPECT_EQ(attempts_[0].result.outcome, Outcome::kPass) << step;
    const Result& charged = attempts_[1].result;
    EXPECT_EQ(attempts_[1].index, 1u) << step;
    EXPECT_STREQ(outcome_name(charged.outcome), outcome_name(outcome)) << step;
    EXPECT_EQ(charged.cause, cause) << step;
    EXPECT_EQ(charged.message, message) << step;
    EXPECT_EQ(charged.tag, "STREAM-1") << step;
    EXPECT_EQ(report.finished_count, 2u) << step << ": case 2 has not begun";
    EXPECT_TRUE(report.has_died) << step;
    EXPECT_FALSE(report.load_failure.has_value()) << step;
  }

  // The worker does not load, so no case may run.
  void expect_not_loaded(const std::string& plugin, Outcome outcome, const std::string& cause,
                         const std::string& message) {
    options_.setup.plugin = plugin;
    const BatchReport report = run(1);
    ASSERT_TRUE(report.load_failure.has_value()) << plugin;
    EXPECT_STREQ(outcome_name(report.load_failure->outcome), outcome_name(outcome)) << plugin;
    EXPECT_EQ(report.load_failure->cause, cause) << plugin;
    EXPECT_EQ(report.load_failure->message.substr(0, message.size()), message)
        << report.load_failure->message;
    EXPECT_EQ(report.finished_count, 0u) << plugin;
    EXPECT_TRUE(attempts_.empty()) << plugin;
  }

  const CaseList cases_ = numbered_cases(4);
  SessionOptions options_;
  std::vector<Attempt> attempts_;
  bool goes_on_ = true;
};

TEST_F(Sessions, RunEachCaseOfABatchInOneWorker) {
  on_case(1, "fail:values");
  const BatchReport report = run(3);
  ASSERT_EQ(attempts_.size(), 3u);
  EXPECT_EQ(attempts_[0].result.outcome, Outcome::kPass);
  EXPECT_EQ(attempts_[1].result.outcome, Outcome::kFail);
  EXPECT_EQ(attempts_[1].result.cause, "values");
  EXPECT_EQ(attempts_[1].wall_ms, 1.5);
  EXPECT_EQ(attempts_[2].result.outcome, Outcome::kPass);
  EXPECT_NE(attempts_[0].pid, 0);
  EXPECT_EQ(attempts_[0].pid, attempts_[2].pid);
  EXPECT_NE(attempts_[0].pid, getpid());
  EXPECT_EQ(report.finished_count, 3u);
  EXPECT_FALSE(report.has_died);
  EXPECT_FALSE(report.load_failure || report.unload_failure);
  EXPECT_EQ(report.hello.at("plugin").at("name"), "acme.npu");
  EXPECT_EQ(report.hello.at("output_bytes"), 0);
}

TEST_F(Sessions, EndWhereTheCallerHasSeenEnough) {
  goes_on_ = false;
  const BatchReport report = run(3);
  EXPECT_EQ(attempts_.size(), 1u);
  EXPECT_EQ(report.finished_count, 1u);
  EXPECT_FALSE(report.has_died || report.unload_failure);
}

TEST_F(Sessions, ChargeADeathToTheCaseThatRan) {
  expect_charged("exit:7", Outcome::kCrash, "crash", "the process exited with code 7");
  expect_charged("exit:0", Outcome::kCrash, "crash", "the process exited with code 0");
  expect_charged("segfault:launch 2", Outcome::kCrash, "crash",
                 "died of signal 11 (SIGSEGV), in phase launch 2");
}

TEST_F(Sessions, ChargeWhatIsNoRecordToTheCaseThatSentIt) {
  const auto expect = [&](const std::string& bytes, const std::string& problem) {
    expect_charged("raw:" + bytes, Outcome::kCrash, "protocol", "the worker sent " + problem);
  };
  expect("zzzzzzzz", "a record of 2054847098 bytes; at most 16777216 are allowed");
  expect(std::string(5, '\1'), "a record of 16843009 bytes; at most 16777216 are allowed");
  const std::string_view two_bytes("\2\0\0\0", 4);
  expect(std::string(two_bytes) + "\7[]", "a record of unknown type 7");
  expect(std::string(two_bytes) + "\5[]", "a record whose payload is not a JSON object");
}

TEST_F(Sessions, ChargeRecordsThatAreOutOfOrder) {
  const auto expect = [&](const char* step, const std::string& problem) {
    expect_charged(step, Outcome::kCrash, "protocol", "the worker sent " + problem);
  };
  expect("cut", "a record that is cut");
  expect("other", "a record for another case");
  expect("no_begin", "a record out of order");
  expect("begin_twice", "a record out of order");
}

TEST_F(Sessions, ChargeAnEndThatCannotBeRead) {
  const auto expect = [&](const std::string& step) {
    options_.setup.options.clear();
    attempts_.clear();
    on_case(0, step);
    const BatchReport report = run(2);
    ASSERT_EQ(attempts_.size(), 1u) << step;
    EXPECT_EQ(attempts_[0].result.outcome, Outcome::kCrash) << step;
    EXPECT_EQ(attempts_[0].result.cause, "protocol") << step;
    EXPECT_TRUE(
        attempts_[0].result.message.starts_with("the worker sent an END that cannot be read: END"))
        << attempts_[0].result.message;
    EXPECT_TRUE(report.has_died) << step;
  };
  expect("end:{}");
  expect(R"(end:{"status":"Passed"})");
  expect(R"(end:{"status":["Pass"]})");
  expect(R"(end:{"status":"Pass","message":7})");
  expect(R"(end:{"status":"Pass","notes":{"a":1}})");
  expect(R"(end:{"status":"Pass","details":{"a":1}})");
  expect(R"(end:{"status":"Pass","metrics":[1]})");
  expect(R"(end:{"status":"Pass","dispatch":{"native":-1,"decomposed":0,"host":0}})");
  expect("no_time");
}

TEST_F(Sessions, CleanWhatAResultSays) {
  on_case(0, R"(end:{"status":"Fail","message":"\u001b[2Ja\nb","cause":"x\ny","tag":"\u0007"})");
  run(1);
  ASSERT_EQ(attempts_.size(), 1u);
  EXPECT_EQ(attempts_[0].result.message, "\\x1b[2Ja\nb");
  EXPECT_EQ(attempts_[0].result.cause, "x\\ny");
  EXPECT_EQ(attempts_[0].result.tag, "\\x07");
}

TEST_F(Sessions, FailACaseThatPrints) {
  on_case(0, "print:hello\nworld");
  on_case(1, "fail:values");
  const BatchReport report = run(2);
  ASSERT_EQ(attempts_.size(), 2u);
  EXPECT_EQ(attempts_[0].result.outcome, Outcome::kFail);
  EXPECT_EQ(attempts_[0].result.cause, "output");
  EXPECT_EQ(attempts_[0].result.tag, "ENTRY-4");
  EXPECT_EQ(attempts_[0].result.message, "wrote 11 bytes to standard streams: hello");
  EXPECT_EQ(attempts_[0].output, "hello\nworld");
  EXPECT_EQ(attempts_[1].output_bytes, 0u) << "what was printed belongs to one case";
  EXPECT_FALSE(report.has_died);
}

TEST_F(Sessions, ChargeADeathBetweenTwoCasesToTheEarlierOne) {
  on_case(1, "dies_late");
  const BatchReport report = run(3);
  ASSERT_EQ(attempts_.size(), 3u);
  EXPECT_EQ(attempts_[1].result.outcome, Outcome::kPass);
  EXPECT_EQ(attempts_[2].index, 1u) << "the attempt comes once more";
  EXPECT_TRUE(attempts_[2].is_after_end);
  EXPECT_EQ(attempts_[2].result.outcome, Outcome::kCrash);
  EXPECT_EQ(attempts_[2].result.message, "died of signal 11 (SIGSEGV) after the end of the case");
  EXPECT_EQ(report.finished_count, 2u) << "case 2 has not begun, and runs elsewhere";
  EXPECT_TRUE(report.has_died);
  EXPECT_FALSE(report.load_failure.has_value());
}

TEST_F(Sessions, TakeADeathBeforeTheFirstCaseForAFailureToLoad) {
  expect_not_loaded("hello_exit:3", Outcome::kCrash, "crash",
                    "the process exited with code 3 before the first case began");
}

TEST_F(Sessions, EndACaseThatHangsAndSayWhere) {
  options_.timeout_seconds = 1;  // The worker also has to start within that time.
  on_case(0, "hang:sync");
  const BatchReport report = run(2);
  ASSERT_EQ(attempts_.size(), 1u);
  EXPECT_EQ(attempts_[0].result.outcome, Outcome::kTimeout);
  EXPECT_EQ(attempts_[0].result.cause, "timeout");
  EXPECT_EQ(attempts_[0].result.message, "no end after 1 s, in phase sync");
  EXPECT_EQ(attempts_[0].wall_ms, 1000);
  EXPECT_TRUE(report.has_died);
  EXPECT_FALSE(report.is_abandoned);
  EXPECT_NE(kill(attempts_[0].pid, 0), 0) << "the worker is gone";
}

TEST_F(Sessions, DoNotLoadWhereTheWorkerEndsHangsOrRefuses) {
  expect_not_loaded("no_hello:3", Outcome::kCrash, "crash",
                    "the process exited with code 3 while loading");
  expect_not_loaded("begin_first", Outcome::kCrash, "protocol",
                    "the worker did not begin with HELLO");
  expect_not_loaded(R"(hello:{"error":"no \u001b device"})", Outcome::kFail, "load",
                    "no \\x1b device");
  options_.timeout_seconds = 0.05;
  expect_not_loaded("mute", Outcome::kTimeout, "timeout", "no end after 0.05 s while loading");
}

TEST_F(Sessions, DoNotTrustAHello) {
  const auto expect = [&](const std::string& hello, const std::string& problem) {
    expect_not_loaded("hello:" + hello, Outcome::kCrash, "protocol",
                      "the worker sent a HELLO that cannot be read: HELLO: " + problem);
  };
  expect("{}", "there is no \"plugin\"");
  expect(R"({"plugin":[]})", "\"plugin\" is a list of 0; an object is needed");
  expect(R"({"plugin":{"name":7}})", "plugin: \"name\" is the number 7; a text is needed");
  expect(R"({"plugin":{}})", "there is no \"targets\"");
  expect(R"({"plugin":{},"targets":{}})", "\"targets\" is an object; a list is needed");
  expect(R"({"plugin":{},"targets":[],"target":0})", "\"target\" is 0; the number of a device");
  expect(R"({"plugin":{},"targets":[1],"target":0})", "targets[0]: not a JSON object");
  expect(R"({"plugin":{},"targets":[],"log":[1]})", "\"log\" is a list with the number 1");
}

TEST_F(Sessions, CountWhatIsPrintedWhileLoading) {
  options_.setup.plugin = "print:a banner\n";
  const BatchReport report = run(1);
  EXPECT_EQ(report.hello.at("output_bytes"), 9);
  EXPECT_EQ(report.hello.at("output"), "a banner\n");
  EXPECT_EQ(attempts_.at(0).result.outcome, Outcome::kPass) << "no case printed it";
}

TEST_F(Sessions, StopBehindALostDevice) {
  on_case(0, "lost");
  const BatchReport report = run(3);
  EXPECT_EQ(attempts_.size(), 1u);
  EXPECT_EQ(report.finished_count, 1u);
  EXPECT_FALSE(report.has_died) << "the worker ended well";
}

TEST_F(Sessions, FindADeathWhileUnloading) {
  options_.setup.plugin = "bye_crash";
  const BatchReport report = run(1);
  ASSERT_TRUE(report.unload_failure.has_value());
  EXPECT_EQ(report.unload_failure->outcome, Outcome::kCrash);
  EXPECT_EQ(report.unload_failure->message, "died of signal 11 (SIGSEGV) while unloading");
  EXPECT_FALSE(report.has_died) << "each case has its result";
  EXPECT_EQ(report.finished_count, 1u);
}

TEST_F(Sessions, FindAnExitCodeAfterTheGoodbye) {
  options_.setup.plugin = "bye_exit:9";
  const BatchReport report = run(1);
  ASSERT_TRUE(report.unload_failure.has_value());
  EXPECT_EQ(report.unload_failure->outcome, Outcome::kCrash);
  EXPECT_EQ(report.unload_failure->message, "the process exited with code 9 after unloading");
}

TEST_F(Sessions, TakeTheFindingsOfTheGoodbye) {
  options_.setup.plugin = R"(bye:{"findings":["the locale changed","more"]})";
  BatchReport report = run(1);
  ASSERT_TRUE(report.unload_failure.has_value());
  EXPECT_EQ(report.unload_failure->message, "while unloading, the locale changed");
  EXPECT_EQ(report.unload_failure->tag, "ENTRY-4");
  options_.setup.plugin = R"(bye:{"layer_reports":["acme.npu/leak: 2 buffers","b","c"]})";
  report = run(1);
  ASSERT_TRUE(report.unload_failure.has_value());
  EXPECT_EQ(report.unload_failure->cause, "layer");
  EXPECT_EQ(report.unload_failure->message,
            "while unloading, acme.npu/leak: 2 buffers; and 2 more reports of layers");
  options_.setup.plugin = R"(bye:{"findings":[7],"layer_reports":"x"})";
  EXPECT_FALSE(run(1).unload_failure.has_value()) << "these are no texts";
}

TEST_F(Sessions, NameAndKillWhatAWorkerLeavesBehind) {
  on_case(0, "leave");
  run(1);
  ASSERT_EQ(attempts_.size(), 1u);
  EXPECT_EQ(attempts_[0].result.outcome, Outcome::kCrash);
  EXPECT_EQ(attempts_[0].result.notes,
            std::vector<std::string>{"the worker left 1 process (bp-worker) behind; killed"});
  EXPECT_TRUE(children_of(getpid()).empty());
}

TEST_F(Sessions, SurviveABackendThatKillsItsParent) {
  on_case(0, "kill_parent");
  const BatchReport report = run(2);
  ASSERT_EQ(attempts_.size(), 1u);
  EXPECT_EQ(attempts_[0].result.outcome, Outcome::kCrash);
  EXPECT_EQ(attempts_[0].result.message,
            "the parent of the process, which only watches it, died of signal 9 (SIGKILL): the "
            "backend may have killed its parent");
  EXPECT_FALSE(report.is_abandoned);
  EXPECT_TRUE(children_of(getpid()).empty()) << "the worker has ended with its warden";
}

TEST_F(Sessions, EndAtAnInterruption) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  options_.interrupt_fd = ends[0];
  on_case(0, "hang:sync");
  ASSERT_EQ(::write(ends[1], "x", 1), 1);
  const BatchReport report = run(1);
  EXPECT_TRUE(report.is_interrupted);
  EXPECT_FALSE(report.load_failure.has_value());
  EXPECT_TRUE(attempts_.empty()) << "a case that was cut off has no result";
  EXPECT_TRUE(children_of(getpid()).empty());
  close(ends[0]);
  close(ends[1]);
}

TEST(ProcessEnds, SayHowAProcessEnded) {
  EXPECT_EQ((ProcessEnd{.wait_status = 9}).text(), "died of signal 9 (SIGKILL)");
  EXPECT_EQ((ProcessEnd{.wait_status = 3 << 8}).text(), "the process exited with code 3");
  EXPECT_EQ((ProcessEnd{.wait_status = 0, .is_abandoned = true}).text(),
            "the process did not die of SIGKILL and was abandoned");
  EXPECT_TRUE(ProcessEnd{}.is_clean());
  EXPECT_FALSE((ProcessEnd{.wait_status = 3 << 8}).is_clean());
  EXPECT_FALSE((ProcessEnd{.has_lost_warden = true}).is_clean());
  EXPECT_FALSE((ProcessEnd{.is_abandoned = true}).is_clean());
}

}  // namespace
}  // namespace bp::conformance

int main(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], "--worker") == 0) {
    return bp::conformance::run_scripted_worker(argv[2]);
  }
  if (argc == 3 && std::strcmp(argv[1], "--child") == 0) {
    return bp::conformance::run_child(argv[2], bp::conformance::child_test_routines());
  }
  signal(SIGPIPE, SIG_IGN);  // As in bp-conformance, a write to a worker that is gone must not end
                             // the process.
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
