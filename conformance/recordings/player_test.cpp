// Recordings of this test, played on a real backend behind the layer that counts handles.
#include "conformance/recordings/player.hpp"

#include <gtest/gtest.h>

#include "conformance/recordings/recording_cases.hpp"
#include "conformance/tests/player_fixture.hpp"

namespace bp::conformance {
namespace {

TEST_F(Players, JudgeALaunchByItsOracleAndAReadByItsBytes) {
  begin_with({1, 2, 3, 4});
  const size_t launched = launch_add(), right = read({2, 0, 16}, bytes_of({2, 4, 6, 8}));
  const std::vector<LineResult> results = play();
  EXPECT_EQ(results[launched].outcome, Outcome::kPass) << results[launched].finding.message;
  EXPECT_EQ(results[launched].checked, "oracle");
  EXPECT_NE(results[launched].kernel, "");
  EXPECT_EQ(results[launched].source, "");
  EXPECT_EQ(results[right].outcome, Outcome::kPass) << results[right].finding.message;
  EXPECT_EQ(results[right].checked, "equal");
}

TEST_F(Players, ExplainADifferenceByTheRoundingOfLaunchesThatAreRight) {
  begin_with({1, 2, 3, 4});
  launch_add();
  const size_t differing = read({2, 0, 16}, bytes_of({2, 4, 6, 9}));
  const std::vector<LineResult> results = play();
  EXPECT_EQ(results[differing].outcome, Outcome::kPass);
  EXPECT_EQ(results[differing].checked, "within the bounds of its launches");
}

TEST_F(Players, ExplainNothingByLaunchesThatGaveTheRecordedBits) {
  begin_with({1, 2, 3, 4});
  const size_t launched = launch_add();
  lines_[launched]["outputs"] = {{"y", {{"payload", payload(bytes_of({2, 4, 6, 8}))}}}};
  const size_t differing = read({2, 4, 12}, bytes_of({4, 6, 9}));
  const std::vector<LineResult> results = play();
  EXPECT_EQ(results[launched].checked, "oracle and bits");
  ASSERT_EQ(results[differing].outcome, Outcome::kFail);
  EXPECT_EQ(results[differing].finding.message,
            "read 1 differs: 1 of 12 bytes that were written, from byte 10 on: 0041 here, 1041 "
            "recorded; every launch before gave the recorded bits");
  EXPECT_EQ(results[differing].finding.cause, "different");
}

TEST_F(Players, NameTheFirstLaunchThatIsWrong) {
  begin_with({1, 2, 3, 4});
  const size_t wrong = launch_add(), right = launch_add();
  const size_t differing = read({1, 0, 16}, bytes_of({1, 2, 3, 5}));
  Host host("leak,fault", "fault.corrupt=kernel.launch@1");
  const std::vector<LineResult> results = play_on(host);
  EXPECT_EQ(results[wrong].outcome, Outcome::kFail);
  EXPECT_TRUE(results[wrong].finding.message.starts_with("launch 1 (add): "))
      << results[wrong].finding.message;
  EXPECT_EQ(results[right].outcome, Outcome::kPass);
  EXPECT_NE(results[differing].finding.message.find("the first launch that is wrong is launch 1"),
            std::string::npos)
      << results[differing].finding.message;
}

TEST_F(Players, CompareNoByteThatNobodyHasWritten) {
  allocate(1, 16);
  allocate(2, 16);
  upload({1, 4, 4}, "abcd");
  const size_t partly = read({1, 0, 16}, "????abcd????????");
  add({{"call", "memory.copy"}, {"stream", 1}, {"dst", {2, 8, 8}}, {"src", {1, 0, 8}}});
  const size_t copied = read({2, 0, 16}, "????????????abcd");
  add({{"call", "memory.fill"}, {"stream", 1}, {"dst", {2, 0, 2}}, {"pattern", "2a2b"}});
  const size_t filled = read({2, 0, 16}, "*+??????????abcd");
  const size_t wrong = read({2, 0, 16}, "*-??????????abce");
  const std::vector<LineResult> results = play();
  for (const size_t each : {partly, copied, filled}) {
    EXPECT_EQ(results[each].outcome, Outcome::kPass) << results[each].finding.message;
    EXPECT_EQ(results[each].checked, "equal");
  }
  EXPECT_EQ(results[wrong].outcome, Outcome::kFail);
  EXPECT_TRUE(results[wrong].finding.message.starts_with(
      "read 4 differs: 2 of 6 bytes that were written, from byte 1 on: 2b"))
      << results[wrong].finding.message;
}

TEST_F(Players, KnowWhichElementsALaunchHasWritten) {
  begin_with({1, 2, 3, 4});
  json every_second = tensor(2, 2);
  every_second["strides"] = {2};
  launch("add", {{"a", tensor(1, 2)}, {"b", tensor(1, 2)}, {"y", every_second}});
  const size_t gaps = read({2, 0, 16}, bytes_of({2, -1, 4, -1}));
  EXPECT_EQ(play()[gaps].checked, "equal") << "gaps hold anything";
}

TEST_F(Players, EndAtAHandleThatDoesNotExist) {
  begin_with({1, 2, 3, 4});
  free(1);
  const size_t launched = launch_add();
  read({2, 0, 16}, bytes_of({0, 0, 0, 0}));
  add({{"call", "end"}});
  expect_end(launched, launched, "buffer 1 does not exist at this line", "recording");
}

// Else the first of them would never be ended, or be written to behind its end.
TEST_F(Players, EndWhereANumberIsGivenTwice) {
  const json late = {
      {"call", "memory.copy_to_host"}, {"stream", 1}, {"read", 5}, {"src", {1, 0, 8}}};
  const json made[] = {{{"call", "stream.create"}, {"device", 0}, {"stream", 2}, {"flags", 0}},
                       {{"call", "event.create"}, {"device", 0}, {"event", 3}, {"flags", 0}},
                       late};
  const char* const words[] = {"buffer 1 exists already", "stream 2 exists already",
                               "event 3 exists already", "read 5 exists already"};
  begin_with({1, 2, 3, 4});
  for (const json& line : made) add(line);
  const std::vector<json> good = lines_;
  for (size_t i = 0; i < 4; ++i) {
    lines_ = good;
    const size_t again = i == 0 ? allocate(1, 16) : add(made[i - 1]);
    expect_end(again, add({{"call", "end"}}), words[i], "recording");
  }
  lines_ = good;
  const size_t lent = add({{"call", "stream.default_stream"}, {"device", 0}, {"stream", 2}});
  expect_end(lent, add({{"call", "end"}}), "stream 2 exists already", "recording");
}

TEST_F(Players, TakeADefaultStreamThatTheProgramAskedForTwice) {
  begin_with({1, 2, 3, 4});
  add({{"call", "stream.default_stream"}, {"device", 0}, {"stream", 1}});
  const size_t launched = launch_add();
  EXPECT_EQ(play()[launched].checked, "oracle");
}

TEST_F(Players, TellAFailureOfALineThatIsNoCaseAtTheNextThatIsOne) {
  begin_with({1, 2, 3, 4});
  const size_t broken = add({{"call", "event.record"}, {"event", 9}, {"stream", 1}});
  add({{"call", "stream.flush"}, {"stream", 1}});
  const size_t told = read({1, 0, 16}, bytes_of({1, 2, 3, 4}));
  read({1, 0, 16}, bytes_of({1, 2, 3, 4}));
  expect_end(broken, told, "event 9 does not exist", "recording");
}

TEST_F(Players, TellAFailureBehindTheLastCaseAtTheEnd) {
  begin_with({1, 2, 3, 4});
  read({1, 0, 16}, bytes_of({1, 2, 3, 4}));
  const size_t broken = free(7);
  const size_t end = add({{"call", "end"}});
  expect_end(broken, end, "buffer 7 does not exist", "recording");
}

TEST_F(Players, EndWhereARangeOrATensorLeavesItsBuffer) {
  begin_with({1, 2, 3, 4});
  const size_t first = read({1, 8, 9}, std::string(9, 'x'));
  expect_end(first, first, "bytes 8 to 17 leave buffer 1 of 16", "recording");
  lines_.pop_back();
  const size_t second = launch("relu", {{"x", tensor(1, 4, 4)}, {"y", tensor(2, 4)}});
  expect_end(second, second, "launch 1 (relu): 'x' leaves buffer 1 of 16 bytes", "recording");
  lines_.pop_back();
  json backwards = tensor(1, 4);
  backwards["strides"] = {-1};
  const size_t third = launch("relu", {{"x", backwards}, {"y", tensor(2, 4)}});
  expect_end(third, third, "leaves buffer 1", "recording");
}

TEST_F(Players, EndWhereAPayloadHasAnotherSizeThanItsCopy) {
  allocate(1, 16);
  const size_t written = upload({1, 0, 16}, "short");
  const size_t told = read({1, 0, 4}, "four");
  expect_end(written, told, "the payload has 5 bytes, and the copy 16", "recording");
  lines_.erase(lines_.begin() + static_cast<std::ptrdiff_t>(written));
  lines_.back()["payload"] = payload("fours");
  expect_end(written, written, "the payload has 5 bytes, and the copy 4", "recording");
}

TEST_F(Players, EndWhereACallFails) {
  begin_with({1, 2, 3, 4});
  const size_t copied =
      add({{"call", "memory.copy"}, {"stream", 1}, {"dst", {2, 0, 8}}, {"src", {1, 0, 8}}});
  const size_t told = read({1, 0, 16}, bytes_of({1, 2, 3, 4}));
  Host host("leak,fault", "fault.fail=memory.copy@1");
  const std::vector<LineResult> results = play_on(host);
  EXPECT_EQ(results[told].outcome, Outcome::kFail);
  EXPECT_EQ(results[told].finding.cause, "call");
  EXPECT_TRUE(results[told].finding.message.starts_with(
      place(copied) + "memory.copy failed: " + bp_status_name(BP_INTERNAL) + ": "))
      << results[told].finding.message;
}

TEST_F(Players, CallALaunchMissingThatNothingRuns) {
  begin_with({1, 2, 3, 4});
  const size_t missing = launch_add();
  const size_t behind = read({1, 0, 16}, bytes_of({1, 2, 3, 4}));
  Host host("leak,mask", "mask.kernels=add*,mask.tables=compiler",
            BP_REGISTRY_FORBID_DECOMPOSITION | BP_REGISTRY_FORBID_HOST_FALLBACK);
  const std::vector<LineResult> results = play_on(host);
  EXPECT_EQ(results[missing].outcome, Outcome::kMissing);
  EXPECT_NE(results[missing].finding.message.find("launch 1 (add): nothing on "), std::string::npos)
      << results[missing].finding.message;
  EXPECT_EQ(results[behind].outcome, Outcome::kSkip);
}

TEST_F(Players, EndAReadWhereTheRecordingHasItsBytes) {
  begin_with({1, 2, 3, 4});
  add({{"call", "memory.copy_to_host"}, {"stream", 1}, {"read", 5}, {"src", {1, 0, 8}}});
  upload({1, 0, 16}, bytes_of({5, 6, 7, 8}));  // Behind the copy.
  const size_t ended =
      add({{"call", "host.read"}, {"read", 5}, {"payload", payload(bytes_of({1, 2}))}});
  const size_t mapped = add({{"call", "host.read"},
                             {"read", 6},
                             {"src", {1, 4, 4}},
                             {"payload", payload(bytes_of({6}))}});
  const size_t unknown =
      add({{"call", "host.read"}, {"read", 5}, {"payload", payload(bytes_of({1, 2}))}});
  const std::vector<LineResult> results = play();
  EXPECT_EQ(results[ended].checked, "equal") << results[ended].finding.message;
  EXPECT_EQ(results[mapped].checked, "equal") << results[mapped].finding.message;
  EXPECT_NE(results[unknown].finding.message.find("ends read 5, which no earlier line begins"),
            std::string::npos)
      << results[unknown].finding.message;
}

TEST_F(Players, WaitForNobodyWhileAStreamWaitsForTheHost) {
  begin_with({1, 2, 3, 4});
  add({{"call", "stream.create"}, {"device", 0}, {"stream", 2}, {"flags", 0}});
  add({{"call", "event.create"}, {"device", 0}, {"event", 1}, {"flags", BP_EVENT_HOST_SIGNAL}});
  add({{"call", "stream.synchronize"}, {"stream", 1}});
  add({{"call", "stream.wait_event"}, {"stream", 2}, {"event", 1}});
  const json args = {{"a", tensor(1, 4)}, {"b", tensor(1, 4)}, {"y", tensor(2, 4)}};
  const size_t held = launch("add", args, 2);
  add({{"call", "event.signal"}, {"event", 1}, {"signaled", 0}});
  const size_t free_again = launch("add", args, 2);
  const size_t result = read({2, 0, 16}, bytes_of({2, 4, 6, 8}), 2);
  add({{"call", "stream.destroy"}, {"stream", 2}});
  add({{"call", "event.destroy"}, {"event", 1}});
  const std::vector<LineResult> results = play();
  EXPECT_EQ(results[held].outcome, Outcome::kSkip) << results[held].finding.message;
  EXPECT_EQ(results[free_again].checked, "oracle") << results[free_again].finding.message;
  EXPECT_EQ(results[result].checked, "equal") << results[result].finding.message;
}

TEST_F(Players, WaitForNobodyWhileAStreamWaitsForASemaphore) {
  begin_with({1, 2, 3, 4});
  add({{"call", "stream.create"}, {"device", 0}, {"stream", 2}, {"flags", 0}});
  add({{"call", "semaphore.create"}, {"device", 0}, {"semaphore", 1}, {"value", 4}, {"flags", 0}});
  add({{"call", "stream.synchronize"}, {"stream", 1}});
  add({{"call", "semaphore.submit_wait"}, {"stream", 2}, {"semaphore", 1}, {"value", 5}});
  const json args = {{"a", tensor(1, 4)}, {"b", tensor(1, 4)}, {"y", tensor(2, 4)}};
  const size_t held = launch("add", args, 2);
  add({{"call", "semaphore.submit_signal"}, {"stream", 1}, {"semaphore", 1}, {"value", 6}});
  const size_t free_again = launch("add", args, 2);
  add({{"call", "semaphore.signal"}, {"semaphore", 1}, {"value", 7}});
  add({{"call", "semaphore.synchronize"}, {"semaphore", 1}, {"value", 7}});
  add({{"call", "semaphore.submit_wait"}, {"stream", 2}, {"semaphore", 1}, {"value", 9}});
  const size_t end = add({{"call", "end"}});
  const std::vector<LineResult> results = play();
  EXPECT_EQ(results[held].outcome, Outcome::kSkip) << results[held].finding.message;
  EXPECT_EQ(results[free_again].checked, "oracle") << results[free_again].finding.message;
  EXPECT_EQ(results[end].outcome, Outcome::kPass) << results[end].finding.message;
}

TEST_F(Players, EndWhatIsHeldBackWithTheRecording) {
  begin_with({1, 2, 3, 4});
  add({{"call", "stream.create"}, {"device", 0}, {"stream", 2}, {"flags", 0}});
  add({{"call", "event.create"}, {"device", 0}, {"event", 1}, {"flags", BP_EVENT_HOST_SIGNAL}});
  add({{"call", "stream.wait_event"}, {"stream", 2}, {"event", 1}});
  add({{"call", "memory.copy_to_host"}, {"stream", 2}, {"read", 9}, {"src", {1, 0, 8}}});
  const size_t end = add({{"call", "end"}});
  EXPECT_EQ(play()[end].outcome, Outcome::kPass) << "and no handle is left, as play() checks";
}

TEST_F(Players, CompareNothingWithDataOfASeed) {
  begin_with({1, 2, 3, 4});
  const size_t launched = launch_add(), compared = read({2, 0, 16}, bytes_of({2, 4, 6, 8}));
  source_.seeds_weights = true;
  source_.seed = 7;
  const std::vector<LineResult> results = play();
  EXPECT_EQ(results[launched].checked, "oracle") << results[launched].finding.message;
  EXPECT_EQ(results[compared].outcome, Outcome::kSkip);
}

TEST_F(Players, NeedAsManyDevicesAsTheRecordingUses) {
  begin_with({1, 2, 3, 4});
  json second = lines_[1];
  second["device"] = 1;
  second["buffer"] = 3;
  add(second);
  read({1, 0, 16}, bytes_of({1, 2, 3, 4}));
  const Host host;
  const Recording played = recording();
  try {
    const Player player(played, host.target());
    FAIL() << "there is one device only";
  } catch (const std::runtime_error& e) {
    EXPECT_NE(std::string(e.what()).find("the recording uses 2 devices, and "), std::string::npos)
        << e.what();
  }
}

TEST_F(Players, PassOverCallsThatFailedAndDevicesThatAreNotUsed) {
  add({{"call", "stream.default_stream"}, {"device", 6}, {"stream", 60}});
  add({{"call", "device.synchronize"}, {"device", 6}});
  add({{"call", "memory.copy"}, {"status", 2}});
  add({{"call", "device.synchronize"}, {"device", 0}});
  begin_with({1, 2, 3, 4});
  const size_t launched = launch_add();
  EXPECT_EQ(play()[launched].checked, "oracle");
}

TEST_F(Players, RunEachLineOnceWhateverCaseIsAskedForFirst) {
  begin_with({1, 2, 3, 4});
  const json in_place = {{"a", tensor(1, 4)}, {"b", tensor(1, 4)}, {"y", tensor(1, 4)}};
  launch("add", in_place);
  launch("add", in_place);
  read({1, 0, 16}, bytes_of({4, 8, 12, 16}));
  static_cast<void>(recording());  // Written.
  Host host;
  {
    const CaseList cases = recording_cases(source_);
    const Subject subject{.target = &host.target()};
    for (const size_t i : {2u, 0u, 2u, 1u}) {
      Context t(subject, cases[i], 1);
      const Result result = run_case(cases[i], t);
      EXPECT_EQ(result.outcome, Outcome::kPass) << cases[i].id << ": " << result.message;
      EXPECT_EQ(result.details.at("checked"), i == 2 ? "equal" : "oracle");
    }
  }
  EXPECT_EQ(host.leaks(), 0u);
}

}  // namespace
}  // namespace bp::conformance
