// Recorded steps: their files, and their replay.
#include "runtime/simulate/recorded.hpp"

#include <gtest/gtest.h>

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
  expect_error("\"root\":0", "\"root\":2", "bad.jsonl:4: root is not below");
  expect_error("\"wait\"", "\"weight\"", "bad.jsonl:6: event is \"weight\"; allowed: start, step");
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
