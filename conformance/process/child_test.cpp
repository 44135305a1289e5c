#include "conformance/process/child.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <stdexcept>

#include "conformance/process/child_test_routines.hpp"

namespace bp::conformance {
namespace {

using Kind = ChildReport::Kind;

constexpr int kPatienceS = 60;  // A limit that no working child reaches.

ChildTask task_of(const char* routine, std::string argument = "") {
  return {.routine = routine, .argument = std::move(argument)};
}

void say_the_task(const ChildTask& task) {
  std::string text = task.plugin + "|" + std::to_string(task.device) + "|" +
                     std::to_string(task.seed) + "|" + task.argument;
  for (const bp_option& option : task.option_list()) {
    text += std::string("|") + option.key + "=" + option.value;
  }
  child_fails(text, "ENTRY-4", "told");
}

void expect_bytes(const ChildTask& task) {
  const bool is_same = task.plugin == "./\xfe.so" && task.argument == "\xff" &&
                       task.options.at(0) == std::pair<std::string, std::string>("a\x80", "b\x81");
  if (!is_same) child_fails("the bytes are others");
}

void write_to_the_descriptor(const ChildTask& task) {
  if (::write(task.descriptor, "given", 5) != 5) child_fails("the descriptor is not open");
  if (::write(task.channel, "talk", 4) != 4) child_fails("the channel is not open");
}

void die_silently(const ChildTask& task) {
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
  if (task.argument == "signal") {
    signal(SIGABRT, SIG_DFL);
    raise(SIGABRT);
  }
  _exit(7);
}

constexpr int kReportFd = 232;

// The argument is the number of the kind that is reported.
void report_and_die(const ChildTask& task) {
  const std::string report =
      "{\"kind\":" + task.argument + ",\"message\":\"said\",\"cause\":\"\",\"tag\":\"T-1\"}";
  if (::write(kReportFd, report.data(), report.size()) < 0) return;
  die_silently(task_of("die", "signal"));
}

// What a backend could do that writes to every descriptor it finds.
void write_the_report_itself(const ChildTask& task) {
  const auto size = static_cast<ssize_t>(task.argument.size());
  _exit(::write(kReportFd, task.argument.data(), task.argument.size()) == size ? 0 : 1);
}

TEST(Child, IsToldItsTaskAndReportsInItsOwnWords) {
  ChildTask task = task_of("say", "its \"words\"\n");
  task.plugin = "./x.so";
  task.options = {{"key", "value=with="}, {"empty", ""}};
  task.device = 3;
  task.seed = UINT64_MAX;
  const ChildReport report = call_child(task, kPatienceS);
  EXPECT_EQ(report.kind, Kind::kFailed);
  EXPECT_EQ(report.message, "./x.so|3|18446744073709551615|its \"words\"\n|key=value=with=|empty=");
  EXPECT_EQ(report.tag, "ENTRY-4");
  EXPECT_EQ(report.cause, "told");
}

TEST(Child, IsToldBytesThatAreNoTextAndReportsThemAsText) {
  ChildTask task = task_of("say", "\xff");
  task.plugin = "./\xfe.so";
  task.options = {{"a\x80", "b\x81"}};
  const ChildReport report = call_child(task, kPatienceS);
  EXPECT_EQ(report.message, "./\xEF\xBF\xBD.so|0|0|\xEF\xBF\xBD|a\xEF\xBF\xBD=b\xEF\xBF\xBD");
  task.routine = "expect bytes";
  EXPECT_EQ(call_child(task, kPatienceS).kind, Kind::kOk);
}

TEST(Child, ReportsOkWhereTheRoutineReturns) {
  EXPECT_EQ(call_child(task_of("return"), kPatienceS).kind, Kind::kOk);
}

TEST(Child, SaysWhatIsNotSupported) {
  const ChildReport report = call_child(task_of("refuse"), kPatienceS);
  EXPECT_EQ(report.kind, Kind::kNotSupported);
  EXPECT_EQ(report.message, "no such thing here");
}

TEST(Child, TakesAnExceptionOfTheRoutineForAFailure) {
  const ChildReport report = call_child(task_of("throw"), kPatienceS);
  EXPECT_EQ(report.kind, Kind::kFailed);
  EXPECT_EQ(report.message, "ended by an exception: thrown on purpose");
}

TEST(Child, NamesARoutineThatDoesNotExist) {
  const ChildReport report = call_child(task_of("nothing"), kPatienceS);
  EXPECT_EQ(report.kind, Kind::kFailed);
  EXPECT_EQ(report.message, "there is no routine 'nothing'");
}

TEST(Child, FailsWithTheWayItDiedWhereItMakesNoReport) {
  const ChildReport by_signal = call_child(task_of("die", "signal"), kPatienceS);
  EXPECT_EQ(by_signal.kind, Kind::kFailed);
  EXPECT_EQ(by_signal.message, "the child made no report: died of signal 6 (SIGABRT)");
  const ChildReport by_exit = call_child(task_of("die", "exit"), kPatienceS);
  EXPECT_EQ(by_exit.message, "the child made no report: the process exited with code 7");
  EXPECT_EQ(by_exit.cause, "child");
}

TEST(Child, FailsWhereItDiesBehindItsReport) {
  const ChildReport ok = call_child(task_of("report and die", "0"), kPatienceS);
  EXPECT_EQ(ok.kind, Kind::kFailed);
  EXPECT_EQ(ok.message, "the child reported success, and then died of signal 6 (SIGABRT)");
  EXPECT_EQ(ok.cause, "child");
  const ChildReport refused = call_child(task_of("report and die", "1"), kPatienceS);
  EXPECT_EQ(refused.kind, Kind::kFailed);
  EXPECT_EQ(refused.message, "the child reported 'said', and then died of signal 6 (SIGABRT)");
  const ChildReport failed = call_child(task_of("report and die", "2"), kPatienceS);
  EXPECT_EQ(failed.message, "said") << "the report says more than the end";
  EXPECT_EQ(failed.tag, "T-1");
}

TEST(Child, IsKilledWhereItDoesNotEndInTime) {
  const ChildReport report = call_child(task_of("hang"), 0);
  EXPECT_EQ(report.kind, Kind::kFailed);
  EXPECT_EQ(report.message, "the child did not end within 0 s");
}

TEST(Child, FailsWhereItsReportIsDamaged) {
  for (const char* text :
       {"{", "7", "{}", "{\"kind\":3,\"message\":\"\",\"cause\":\"\",\"tag\":\"\"}",
        "{\"kind\":-1,\"message\":\"\",\"cause\":\"\",\"tag\":\"\"}",
        "{\"kind\":0,\"message\":1,\"cause\":\"\",\"tag\":\"\"}",
        "{\"kind\":0,\"message\":\"\",\"tag\":\"\"}",
        "{\"kind\":0,\"message\":\"\",\"cause\":\"\",\"tag\":\"\"}{}"}) {
    const ChildReport report = call_child(task_of("forge", text), kPatienceS);
    EXPECT_EQ(report.kind, Kind::kFailed) << text;
    EXPECT_NE(report.message.find("the report of the child"), std::string::npos) << report.message;
  }
}

TEST(Child, ReceivesAnOpenDescriptorAndASocket) {
  int given[2], channel[2];
  ASSERT_EQ(pipe2(given, O_CLOEXEC), 0);
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, channel), 0);
  ChildTask task = task_of("descriptors");
  task.descriptor = given[1];
  task.channel = channel[1];
  const ChildReport report = call_child(task, kPatienceS);
  EXPECT_EQ(report.kind, Kind::kOk) << report.message;
  char text[16] = {};
  EXPECT_EQ(::read(given[0], text, sizeof(text)), 5);
  EXPECT_STREQ(text, "given");
  EXPECT_EQ(::read(channel[0], text, sizeof(text)), 4);
  for (const int fd : {given[0], given[1], channel[0], channel[1]}) close(fd);
}

TEST(Child, IsForWorkersOnly) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(run_child("{}", {}), 2) << "the descriptor of the report is not open here";
  EXPECT_EQ(run_child("no JSON", {}), 2);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("--child is for workers only"),
            std::string::npos);
}

}  // namespace

const std::vector<ChildRoutine>& child_test_routines() {
  static const std::vector<ChildRoutine> routines = {
      {"say", say_the_task},
      {"expect bytes", expect_bytes},
      {"return", [](const ChildTask&) {}},
      {"refuse", [](const ChildTask&) { child_not_supported("no such thing here"); }},
      {"throw", [](const ChildTask&) { throw std::runtime_error("thrown on purpose"); }},
      {"die", die_silently},
      {"report and die", report_and_die},
      {"hang",
       [](const ChildTask&) {
         for (;;) pause();
       }},
      {"forge", write_the_report_itself},
      {"descriptors", write_to_the_descriptor},
  };
  return routines;
}

}  // namespace bp::conformance
