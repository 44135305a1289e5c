// Recorded steps: their files, and their replay.
#include "runtime/simulate/recorded.hpp"

#include <gtest/gtest.h>

#include <map>

#include "backplane/runtime/error.hpp"

namespace bp::simulate {
namespace {

// Computes for `first` seconds, reduces 1 GB while it computes 0.5 s more, waits, and computes 1 s.
std::string recording(uint32_t rank, double first) {
  return R"({"event":"start","rank":)" + std::to_string(rank) + R"(,"ranks":2}
{"event":"step","between":0.25}
{"event":"compute","seconds":)" +
         std::to_string(first) + R"(}
{"event":"call","group":"world","number":1,"call":"all_reduce","bytes":1e9,"root":0}
{"event":"compute","seconds":0.5}
{"event":"wait","group":"world","number":1}
{"event":"compute","seconds":1}
{"event":"end","seconds":5}
)";
}

TEST(Recorded, AReplayWaitsWhereTheRankWaited) {
  const Network network({.node_count = 2, .shape = Shape::kSwitch, .bandwidth = 1e9});
  const std::vector<RecordedRank> ranks{parse_recorded(recording(0, 2), "a"),
                                        parse_recorded(recording(1, 3), "b")};
  ASSERT_EQ(ranks[0].steps.size(), 1u);
  const Schedule schedule = schedule_of(ranks, 0);
  // Both wait for rank 1, then for 1 s of the call, of which 0.5 s are hidden.
  const Timeline timeline = simulate(schedule, network);
  EXPECT_NEAR(timeline.step_seconds, 3 + 1 + 1, 1e-9);
  EXPECT_DOUBLE_EQ(measured_seconds(ranks, 0), 5);
  const std::vector<RankTimes> times = times_of(schedule, timeline);
  EXPECT_NEAR(times[0].exposed_s, 1, 1e-9);  // Rank 0 has computed before the call begins.
  EXPECT_NEAR(times[0].idle_s, 0.5, 1e-9);
  EXPECT_NEAR(times[1].exposed_s, 0.5, 1e-9);
}

// Two steps of a rank take as long as both and what is between them.
TEST(Recorded, StepsFollowEachOther) {
  const Network network({.node_count = 2, .shape = Shape::kSwitch, .bandwidth = 1e9});
  const auto twice = [](uint32_t rank) {
    const std::string once = recording(rank, 2);
    return parse_recorded(once + once.substr(once.find('\n') + 1), "twice");
  };
  const std::vector<RecordedRank> ranks{twice(0), twice(1)};
  ASSERT_EQ(ranks[0].steps.size(), 2u);
  EXPECT_NEAR(simulate(schedule_of(ranks, 0), network).step_seconds, 4 + 0.25 + 4, 1e-9);
  EXPECT_NEAR(simulate(schedule_of(ranks, 1), network).step_seconds, 4, 1e-9);
  EXPECT_DOUBLE_EQ(measured_seconds(ranks, 0), 5 + 0.25 + 5);
  EXPECT_DOUBLE_EQ(measured_seconds(ranks, 1), 5);
}

// ---- Groups, sends and receives ----------------------------------------------------------------

std::string compute(double seconds) {
  return R"({"event":"compute","seconds":)" + std::to_string(seconds) + "}\n";
}

std::string call(const std::string& group, int number, const std::string& kind, uint64_t bytes,
                 const std::string& more = "") {
  return R"({"event":"call","group":")" + group + R"(","number":)" + std::to_string(number) +
         R"(,"call":")" + kind + R"(","bytes":)" + std::to_string(bytes) + more + "}\n";
}

std::string send(const std::string& group, int number, uint32_t peer, uint64_t bytes) {
  return call(group, number, "send", bytes, ",\"peer\":" + std::to_string(peer));
}

std::string receive(const std::string& group, int number, uint32_t peer, uint64_t bytes) {
  return call(group, number, "receive", bytes, ",\"peer\":" + std::to_string(peer));
}

std::string wait(const std::string& group, int number) {
  return R"({"event":"wait","group":")" + group + R"(","number":)" + std::to_string(number) + "}\n";
}

std::string group(const std::string& name, const std::string& ranks) {
  return R"({"event":"group","group":")" + name + R"(","ranks":[)" + ranks + "]}\n";
}

// Parses one step. Its events begin at line 3, behind the lines of `groups`.
RecordedRank step_of(uint32_t rank, uint32_t ranks, const std::string& events,
                     const std::string& groups = "") {
  return parse_recorded(R"({"event":"start","rank":)" + std::to_string(rank) + R"(,"ranks":)" +
                            std::to_string(ranks) + "}\n" + groups +
                            "{\"event\":\"step\",\"between\":0}\n" + events +
                            "{\"event\":\"end\",\"seconds\":1}\n",
                        "step." + std::to_string(rank));
}

// Returns the seconds of a step on a switch of 1 GB/s.
double seconds_of(const std::vector<RecordedRank>& ranks) {
  const Network network({.node_count = static_cast<uint32_t>(ranks.size()),
                         .shape = Shape::kSwitch,
                         .bandwidth = 1e9});
  return simulate(schedule_of(ranks, 0), network).step_seconds;
}

constexpr uint64_t kGiga = 1000000000;

// Two pipelines of two stages. Each has a group of the same name, and they do not meet.
TEST(Recorded, PartGroupsOfOneNameAreApart) {
  const auto first = [](uint32_t rank, double seconds, uint64_t bytes, const std::string& ranks) {
    return step_of(rank, 4, compute(seconds) + send("pipe", 1, rank + 2, bytes),
                   group("pipe", ranks));
  };
  const auto second = [](uint32_t rank, uint64_t bytes, const std::string& ranks) {
    return step_of(rank, 4,
                   receive("pipe", 1, rank - 2, bytes) + wait("pipe", 1) + compute(1) +
                       call("world", 1, "barrier", 0),
                   group("pipe", ranks));
  };
  std::vector<RecordedRank> ranks{first(0, 1, kGiga, "0,2"), first(1, 2, 3 * kGiga, "3,1"),
                                  second(2, kGiga, "0,2"), second(3, 3 * kGiga, "1,3")};
  EXPECT_THROW(schedule_of(ranks, 0), Error) << "ranks 0 and 1 make no barrier";
  for (const uint32_t rank : {0u, 1u}) {
    ranks[rank].groups.push_back({"world", {0, 1, 2, 3}});
    ranks[rank].steps[0].events.push_back(
        {.kind = RecordedEvent::Kind::kCall, .group = 1, .number = 1, .call = CallKind::kBarrier});
  }
  EXPECT_NEAR(seconds_of(ranks), 2 + 3 + 1, 1e-9);
}

TEST(Recorded, CallsOfOneSubmissionRunBesideEachOther) {
  const auto ring = [](uint32_t rank) {
    const uint32_t next = (rank + 1) % 3, previous = (rank + 2) % 3;
    std::string events;
    for (int number = 1; number <= 2; ++number) {
      events += send("world", number, next, kGiga) + receive("world", number, previous, kGiga) +
                send("world", number, next, kGiga) + receive("world", number, previous, kGiga);
    }
    return step_of(rank, 3, events + wait("world", 2) + compute(1));
  };
  // Two tensors in each of two submissions, one after the other.
  EXPECT_NEAR(seconds_of({ring(0), ring(1), ring(2)}), 2 * 2 + 1, 1e-9);
  // Both directions between two ranks at once.
  const auto exchange = [](uint32_t rank) {
    return step_of(rank, 2,
                   send("world", 1, 1 - rank, kGiga) + receive("world", 1, 1 - rank, kGiga));
  };
  EXPECT_NEAR(seconds_of({exchange(0), exchange(1)}), 1, 1e-9);
}

// In submissions of their own the sends wait for each other, as on the stream of a group.
TEST(Recorded, SubmissionsOfAGroupFollowEachOther) {
  const auto exchange = [](uint32_t rank) {
    return step_of(rank, 2, send("world", 1, 1 - rank, 8) + receive("world", 2, 1 - rank, 8));
  };
  try {
    seconds_of({exchange(0), exchange(1)});
    ADD_FAILURE() << "no error";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("ranks wait for ever: operation 0 (send, line 3 of the "
                                         "recording) of rank 0 never ends"),
              std::string::npos)
        << e.what();
  }
}

TEST(Recorded, ACallCanBeBehindAnotherGroup) {
  const auto both = [](uint32_t rank, const std::string& more) {
    return step_of(rank, 2,
                   call("a", 1, "broadcast", kGiga, ",\"root\":1") +
                       call("b", 1, "broadcast", kGiga, ",\"root\":0" + more) + wait("b", 1));
  };
  EXPECT_NEAR(seconds_of({both(0, ""), both(1, "")}), 1, 1e-9);
  const std::string behind = R"(,"behind":"a")";
  EXPECT_NEAR(seconds_of({both(0, behind), both(1, behind)}), 2, 1e-9);
}

TEST(Recorded, AReportHasAllCalls) {
  const std::vector<RecordedRank> ranks{
      step_of(0, 2, send("world", 1, 1, 100) + call("world", 2, "all_reduce", 7)),
      step_of(1, 2, receive("world", 1, 0, 100) + call("world", 2, "all_reduce", 7))};
  const Schedule schedule = schedule_of(ranks, 0);
  const Network network({.node_count = 2, .shape = Shape::kSwitch, .bandwidth = 1e9});
  std::map<std::string, std::pair<double, double>> found;
  for (const CallSum& sum : calls_of(schedule, simulate(schedule, network))) {
    found[sum.kind] = {sum.count, sum.bytes};
  }
  const std::map<std::string, std::pair<double, double>> expected{
      {"all_reduce", {2, 14}}, {"receive", {1, 100}}, {"send", {1, 100}}};
  EXPECT_EQ(found, expected);
}

void expect_mismatch(const std::string& of_0, const std::string& of_1, const std::string& text) {
  try {
    schedule_of({step_of(0, 2, of_0), step_of(1, 2, of_1)}, 0);
    ADD_FAILURE() << "no error for " << of_0 << of_1;
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find(text), std::string::npos) << e.what();
  }
}

TEST(Recorded, CallsThatNeverMatchAreNamed) {
  const std::string sent = send("world", 1, 1, 64), received = receive("world", 1, 0, 64);
  expect_mismatch(sent, compute(1),
                  "step.0:3: rank 0 sends 64 bytes to rank 1 in the group 'world' of ranks 0, 1, "
                  "and nothing matches it: this is number 1, and rank 1 has 0 receives from it");
  expect_mismatch(sent, received + receive("world", 2, 0, 64),
                  "step.1:4: rank 1 receives 64 bytes from rank 0 in the group 'world' of ranks 0, "
                  "1, and nothing matches it: this is number 2, and rank 0 has 1 sends to it");
  expect_mismatch(sent, receive("world", 1, 0, 65),
                  "step.0:3: rank 0 sends 64 bytes to rank 1 in the group 'world' of ranks 0, 1, "
                  "and rank 1 receives 65 bytes from rank 0 (step.1:3); they must agree");
  expect_mismatch(sent, receive("other", 1, 0, 64), "and nothing matches it");
  const std::string reduced = call("world", 1, "all_reduce", 8);
  expect_mismatch(reduced, compute(1) + call("world", 1, "all_gather", 8),
                  "step.0:3: rank 0 calls all_reduce of 8 bytes with root rank 0 in the group "
                  "'world' of ranks 0, 1, and rank 1 calls all_gather of 8 bytes with root rank 0 "
                  "(step.1:4); they must agree");
  expect_mismatch(reduced, reduced + compute(1) + reduced,
                  "step.1:5: rank 1 calls all_reduce of 8 bytes with root rank 0 in the group "
                  "'world' of ranks 0, 1, and nothing matches it: this is number 2, and rank 0 has "
                  "1 such calls");
}

// Only steps that are replayed must match.
TEST(Recorded, StepsThatAreLeftOutNeedNotMatch) {
  const auto twice = [](uint32_t rank, const std::string& only_once) {
    const std::string end = "{\"event\":\"end\",\"seconds\":1}\n";
    const std::string more = compute(1) + end + "{\"event\":\"step\",\"between\":0}\n";
    return step_of(rank, 2, only_once + more + call("world", 2, "barrier", 0) + wait("world", 1));
  };
  const std::vector<RecordedRank> ranks{twice(0, send("world", 1, 1, 8)), twice(1, "")};
  EXPECT_THROW(schedule_of(ranks, 0), Error);
  const Network network({.node_count = 2, .shape = Shape::kSwitch, .bandwidth = 1e9});
  EXPECT_NEAR(simulate(schedule_of(ranks, 1), network).step_seconds, 0, 1e-9);
}

TEST(Recorded, UnknownFieldsAreLeftOut) {
  const RecordedRank rank = step_of(1, 2, call("part", 1, "send", 8, R"(,"peer":0,"tag":3)"),
                                    R"({"event":"group","group":"part","ranks":[1,0],"color":2})"
                                    "\n");
  ASSERT_EQ(rank.steps[0].events.size(), 1u);
  EXPECT_EQ(rank.steps[0].events[0].kind, RecordedEvent::Kind::kSend);
  EXPECT_EQ(rank.groups, (std::vector<RecordedGroup>{{"part", {0, 1}}}));
}

void expect_refused(const std::string& events, const std::string& groups, const std::string& text) {
  try {
    step_of(0, 4, events, groups);
    ADD_FAILURE() << "no error for " << groups << events;
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find(text), std::string::npos) << e.what();
  }
}

TEST(Recorded, RefusesWrongGroupsAndPeers) {
  const std::string part = group("part", "0,2");
  expect_refused("", group("part", "0,4"), "step.0:2: ranks has 4; allowed: integers from 0 to 3");
  expect_refused("", group("part", "0,-1"), "step.0:2: ranks has -1; allowed: integers from 0");
  expect_refused("", group("part", "0,0"), "step.0:2: ranks is [0,0]; allowed: each rank once");
  expect_refused("", group("part", "1,2"),
                 "step.0:2: ranks is [1,2], and the file is that of rank 0; allowed: groups that");
  expect_refused("",
                 R"({"event":"group","group":"part","ranks":3})"
                 "\n",
                 "step.0:2: ranks is 3; allowed: a list of ranks");
  expect_refused(send("part", 1, 1, 8), part,
                 "step.0:4: peer is rank 1, and the group 'part' has the ranks 0, 2");
  expect_refused(send("part", 1, 0, 8), part, "step.0:4: peer is 0, the rank itself");
  expect_refused(call("part", 1, "broadcast", 8, ",\"root\":3"), part, "step.0:4: root is rank 3");
  expect_refused(call("part", 1, "send", 8), part, "step.0:4: ");
  EXPECT_THROW(parse_recorded(part + recording(0, 1), "early"), Error);
}

// ---- Errors ------------------------------------------------------------------------------------

void expect_error(const std::string& from, const std::string& to, const std::string& part) {
  std::string text = recording(0, 1);
  const size_t place = text.find(from);
  ASSERT_NE(place, std::string::npos) << from;
  text.replace(place, from.size(), to);
  try {
    parse_recorded(text, "bad.jsonl");
    ADD_FAILURE() << "no error for " << to;
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
  }
}

TEST(Recorded, ErrorsNameTheLine) {
  expect_error("\"start\"", "\"begin\"", "bad.jsonl:1: the event \"begin\" is outside of a step");
  expect_error("\"rank\":0", "\"rank\":2", "bad.jsonl:1: rank is 2, of 2 ranks; allowed: below");
  expect_error("\"ranks\":2", "\"ranks\":-2", "bad.jsonl:1: ranks is -2; allowed: an integer");
  expect_error("\"seconds\":1.0", "\"seconds\":-1.0", "bad.jsonl:3: seconds is -1.0");
  expect_error("all_reduce", "sum",
               "bad.jsonl:4: the kind of a call is 'sum'; allowed: all_reduce");
  expect_error("\"bytes\"", "\"size\"", "bad.jsonl:4: ");
  expect_error("\"root\":0", "\"root\":2", "bad.jsonl:4: root is rank 2, and the group 'world'");
  expect_error("\"wait\"", "\"weight\"",
               "bad.jsonl:6: event is \"weight\"; allowed: start, group, step");
  expect_error("{\"event\":\"end\",\"seconds\":5}", "", "the last step has no event \"end\"");
  expect_error("{\"event\":\"end\",\"seconds\":5}", "{\"event\":\"step\",\"between\":0}",
               "do not come in turn");
  expect_error("{\"event\":\"end\",\"seconds\":5}", "{\"event\":", "bad.jsonl:8: ");
}

TEST(Recorded, AllRanksAreNeeded) {
  const RecordedRank one = parse_recorded(recording(0, 1), "a");
  EXPECT_THROW(schedule_of({one}, 0), Error);
  EXPECT_THROW(schedule_of({one, one}, 0), Error);
}

}  // namespace
}  // namespace bp::simulate
