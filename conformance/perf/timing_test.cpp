// What is timed: launches of a kernel of this test, on a device whose work begins late.
#include "conformance/perf/timing.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <set>
#include <thread>

#include "conformance/perf/yardstick.hpp"
#include "conformance/tests/timing_fixture.hpp"

namespace bp::conformance {
namespace {

using namespace std::chrono_literals;

using LauncherTest = Timing;
using CallSetsTest = Timing;
using RotationTest = Timing;
using RepeatTest = Timing;

TEST_F(LauncherTest, GivesTheWorkspaceThatTheKernelPrefers) {
  with_sets(1, [&](Context& t, CallSets& sets, bp_stream* stream) {
    kernel_.required_bytes = 100, kernel_.preferred_bytes = 300;
    Launcher(t, kernel_, sets.frame(0), stream).launch(sets.frame(0));
    kernel_.required_bytes = 700;  // More than it prefers, as nobody forbids.
    Launcher(t, kernel_, sets.frame(0), stream).launch(sets.frame(0));
    kernel_.required_bytes = kernel_.preferred_bytes = 0;
    Launcher(t, kernel_, sets.frame(0), stream).launch(sets.frame(0));
    finish(t, stream);
  });
  ASSERT_EQ(kernel_.workspaces.size(), 3u);
  EXPECT_EQ(kernel_.workspaces[0].size_bytes, 300u);
  EXPECT_EQ(kernel_.workspaces[1].size_bytes, 700u);
  EXPECT_EQ(kernel_.workspaces[2].buffer, nullptr);
  EXPECT_EQ(device_.live_buffers, 0u);
}

TEST_F(LauncherTest, WaitsForEverythingThatItTimed) {
  with_sets(3, [&](Context& t, CallSets& sets, bp_stream* stream) {
    Launcher launcher(t, kernel_, sets.frame(0), stream);
    static_cast<void>(launcher.timed_batch(sets.frame(0), 5));
    EXPECT_EQ(kernel_.seen.size(), 5u) << "the work has ended, not only been submitted";
    kernel_.seen.clear();
    static_cast<void>(launcher.timed_sets(sets, 1, 2));
    ASSERT_EQ(kernel_.seen.size(), 2u);
    EXPECT_EQ(kernel_.seen[0].first, args_of(sets, 1).a->buffer);
    EXPECT_EQ(kernel_.seen[1].first, args_of(sets, 2).a->buffer);
  });
}

TEST_F(LauncherTest, EndsTheCaseAtALaunchThatFailsInTheMiddle) {
  kernel_.refuses_at = 3;
  const Result result = in_case([&](Context& t) {
    const DataGroups groups = {CallData(op_case_, 1), CallData(op_case_, 2)};
    const OwnedStream stream = make_stream(t);
    CallSets sets(t, op_case_, groups, stream.get(), 1);
    static_cast<void>(
        Launcher(t, kernel_, sets.frame(0), stream.get()).timed_batch(sets.frame(0), 10));
  });
  EXPECT_EQ(result.outcome, Outcome::kFail);
  EXPECT_EQ(result.cause, "launch");
  EXPECT_EQ(result.tag, "KERNEL-8");
  EXPECT_EQ(kernel_.count, 4) << "nothing is launched behind it";
}

TEST_F(LauncherTest, ClearsTheFailureOfTheStreamThatItReports) {
  kernel_.failure = BP_ABORTED;
  bp_stream* used = nullptr;
  const Result result = in_case([&](Context& t) {
    const DataGroups groups = {CallData(op_case_, 1), CallData(op_case_, 2)};
    CallSets sets(t, op_case_, groups, t.target().default_stream, 1);
    used = t.target().default_stream;
    Launcher(t, kernel_, sets.frame(0), used).timed_batch(sets.frame(0), 2);
  });
  EXPECT_EQ(result.outcome, Outcome::kFail);
  EXPECT_EQ(result.cause, "stream_failure");
  EXPECT_NE(result.message.find(bp_status_name(BP_ABORTED)), std::string::npos) << result.message;
  EXPECT_EQ(device_.streams.status(&device_, used), BP_OK) << "the next case has a clean stream";
}

TEST_F(CallSetsTest, HoldTheDataOfTheGroupsInTurn) {
  with_sets(4, [&](Context&, CallSets& sets, bp_stream*) {
    std::set<const bp_buffer*> buffers;
    for (size_t set = 0; set < 4; ++set) {
      const bp_add_args& args = args_of(sets, set);
      for (const bp_tensor* tensor : {args.a, args.b, args.y}) buffers.insert(tensor->buffer);
      EXPECT_EQ(bytes_of(args.a), bytes_of(args_of(sets, set % 2).a)) << set;
    }
    EXPECT_EQ(buffers.size(), 12u) << "each set has memory of its own";
    EXPECT_NE(bytes_of(args_of(sets, 0).a), bytes_of(args_of(sets, 1).a));
  });
}

TEST_F(CallSetsTest, StampOneElementWithAnotherValueOfItsFill) {
  with_sets(2, [&](Context& t, CallSets& sets, bp_stream* stream) {
    const std::vector<uint8_t> original = bytes_of(args_of(sets, 0).a);
    const std::vector<uint8_t> neighbour = bytes_of(args_of(sets, 1).a);
    std::set<size_t> places;
    for (uint64_t number = 1; number <= 200; ++number) {
      sets.restore(0, 0);
      ASSERT_TRUE(sets.stamp(0, number));
      finish(t, stream);
      const std::vector<uint8_t>& stamped = bytes_of(args_of(sets, 0).a);
      const std::vector<size_t> changed = changed_bytes(original, stamped);
      ASSERT_FALSE(changed.empty()) << number;
      const size_t element = changed.front() / sizeof(float);
      ASSERT_EQ(changed.back() / sizeof(float), element) << number;
      float value;
      std::memcpy(&value, &stamped[element * sizeof(float)], sizeof(float));
      EXPECT_TRUE(value >= -1 && value < 1) << value;
      places.insert(element);
    }
    EXPECT_EQ(places.size(), 24u) << "each element is chosen now and then";
    EXPECT_EQ(bytes_of(args_of(sets, 1).a), neighbour);
  });
}

TEST_F(CallSetsTest, NeverStampTwiceWhatIsThere) {
  op_case_ = make_case(BP_OP_ADD, BP_F32, "", "", "");
  op_case_.input("a", BP_F32, {1}, index_fill(3)).input("b", BP_F32, {1}, kRandom);
  op_case_.output("y", BP_F32, {1});
  with_sets(1, [&](Context& t, CallSets& sets, bp_stream* stream) {
    const std::vector<uint8_t> original = bytes_of(args_of(sets, 0).a);
    for (uint64_t number = 0; number < 50; ++number) {
      const std::vector<uint8_t> before = bytes_of(args_of(sets, 0).a);
      ASSERT_TRUE(sets.stamp(0, number));
      finish(t, stream);
      EXPECT_NE(bytes_of(args_of(sets, 0).a), before) << number;
      EXPECT_NE(bytes_of(args_of(sets, 0).a), original) << number << ", of the group itself";
      sets.stamp_again(0);
      finish(t, stream);
      EXPECT_NE(bytes_of(args_of(sets, 0).a), before) << "the same bytes, written once more";
    }
  });
}

TEST_F(CallSetsTest, StampElementsAndNeverGaps) {
  for (const Layout layout : {Layout::kSliced, Layout::kStepped, Layout::kNegative,
                              Layout::kReversed, Layout::kTransposed, Layout::kBroadcastFirst}) {
    op_case_ = make_case(BP_OP_ADD, BP_F32, "", "", "");
    op_case_.input("a", BP_F32, {4, 6}, kRandom, layout).input("b", BP_F32, {4, 6}, kRandom);
    op_case_.output("y", BP_F32, {4, 6});
    const Placement placement = place(layout, {4, 6});
    std::set<int64_t> elements;
    for (int64_t i = 0; i < 24; ++i) {
      elements.insert(element_offset(placement, {4, 6}, i) - placement.lowest);
    }
    with_sets(1, [&](Context& t, CallSets& sets, bp_stream* stream) {
      const std::vector<uint8_t> original = bytes_of(args_of(sets, 0).a);
      for (uint64_t number = 0; number < 60; ++number) sets.stamp(0, number);
      finish(t, stream);
      for (const size_t byte : changed_bytes(original, bytes_of(args_of(sets, 0).a))) {
        EXPECT_TRUE(elements.contains(static_cast<int64_t>(byte / sizeof(float))))
            << layout_text(layout) << ", byte " << byte;
      }
    });
  }
}

TEST_F(CallSetsTest, HoldElementsWhereTheirTensorsSay) {
  for (const Layout layout : {Layout::kDense, Layout::kSliced, Layout::kStepped, Layout::kNegative,
                              Layout::kReversed, Layout::kTransposed}) {
    op_case_.tensors[0].layout = layout;
    with_sets(1, [&](Context&, CallSets& sets, bp_stream*) {
      const CallData data(op_case_, 1);
      const bp_tensor& a = *args_of(sets, 0).a;
      for (int64_t i = 0; i < 24; ++i) {
        const int64_t element = i / 6 * a.strides[0] + i % 6 * a.strides[1];
        float value;
        std::memcpy(&value, &bytes_of(&a)[a.byte_offset + static_cast<uint64_t>(element * 4)],
                    sizeof(float));
        EXPECT_EQ(static_cast<double>(value), data.tensors()[0].data[static_cast<size_t>(i)].hi)
            << layout_text(layout) << ", element " << i;
      }
    });
  }
}

TEST_F(CallSetsTest, StampFloatsRatherThanIndices) {
  op_case_ = make_case(BP_OP_EMBEDDING, BP_F32, "", "", "");
  op_case_.input("indices", BP_I64, {5}, index_fill(10)).input("weight", BP_F32, {10, 2}, kRandom);
  op_case_.output("y", BP_F32, {5, 2});
  with_sets(1, [&](Context& t, CallSets& sets, bp_stream* stream) {
    const auto& args = *static_cast<const bp_embedding_args*>(sets.frame(0).data());
    const std::vector<uint8_t> indices = bytes_of(args.indices), weight = bytes_of(args.weight);
    sets.stamp(0, 3);
    finish(t, stream);
    EXPECT_EQ(bytes_of(args.indices), indices);
    EXPECT_NE(bytes_of(args.weight), weight);
  });
}

TEST_F(CallSetsTest, HaveNothingToStampWithoutInputs) {
  op_case_ = make_case(BP_OP_ARANGE, BP_F32, "", "", "");
  op_case_.output("y", BP_F32, {8});
  with_sets(1, [&](Context& t, CallSets& sets, bp_stream* stream) {
    EXPECT_FALSE(sets.stamp(0, 1));
    Launcher launcher(t, kernel_, sets.frame(0), stream);
    EXPECT_FALSE(time_repeated(sets, launcher, 1));
    EXPECT_EQ(kernel_.count, 0);
  });
}

TEST_F(CallSetsTest, SeeWhichElementsOfAnOutputNobodyHasWritten) {
  with_sets(1, [&](Context& t, CallSets& sets, bp_stream* stream) {
    const std::vector<OutputView> before = sets.views(sets.read(0));
    for (const bool each : before.at(0).is_unwritten) EXPECT_TRUE(each);
    const float seven = 7;
    std::memcpy(&bytes_of(args_of(sets, 0).y)[12], &seven, sizeof(float));
    finish(t, stream);
    const std::vector<OutputView> views = sets.views(sets.read(0));
    ASSERT_EQ(views.size(), 1u);
    EXPECT_EQ(views[0].name, "y");
    EXPECT_TRUE(views[0].is_poisoned);
    for (size_t i = 0; i < 24; ++i) EXPECT_EQ(views[0].is_unwritten[i], i != 3) << i;
    EXPECT_EQ(views[0].value[3].hi, 7);
  });
}

// Work that takes no time, and counts itself.
class CountedYardstick final : public Yardstick {
 public:
  CountedYardstick(Context& t, bp_stream* stream, std::chrono::microseconds length = 0us)
      : Yardstick(t, stream), length_(length) {}
  int submitted = 0, ended = 0;

 private:
  void submit() override {
    ++submitted;
    LazyDevice::submit(stream_, [this] {
      ++ended;
      std::this_thread::sleep_for(length_);
    });
  }
  std::chrono::microseconds length_;
};

TEST_F(RotationTest, TimesAPieceAloneWhereOneTakesLongEnough) {
  expect_pass([&](Context& t) {
    const OwnedStream stream = make_stream(t);
    CountedYardstick yardstick(t, stream.get(), 1100us);
    static_cast<void>(yardstick.seconds());
    EXPECT_EQ(yardstick.submitted, 2) << "one to learn how long it takes, and one that is timed";
    static_cast<void>(yardstick.seconds());
    EXPECT_EQ(yardstick.submitted, 3);
    EXPECT_EQ(yardstick.ended, 3);
  });
}

TEST_F(RotationTest, ShowsNoLaunchWhatAnEarlierOneSaw) {
  constexpr size_t kSets = 3;
  with_sets(kSets, [&](Context& t, CallSets& sets, bp_stream* stream) {
    Launcher launcher(t, kernel_, sets.frame(0), stream);
    CountedYardstick yardstick(t, stream);
    const GroupTimes times = time_rotating(sets, launcher, {&yardstick}, {.min_seconds = 1e-3});
    size_t launches = 0;
    for (const GroupTimes::Group& group : times.groups) {
      launches += group.launches;
      EXPECT_EQ(group.yardsticks.size(), 1u);
    }
    EXPECT_GE(times.groups.size(), GroupTimes::kFewest);
    EXPECT_EQ(launches % kSets, 0u) << "whole rounds";
    EXPECT_EQ(kernel_.seen.size(), launches + kSets) << "each set is launched once before";
    std::map<bp_buffer*, std::vector<uint8_t>> last;
    for (const auto& [buffer, bytes] : kernel_.seen) {
      EXPECT_NE(last[buffer], bytes) << "results of the launch before could be kept";
      last[buffer] = bytes;
    }
    for (size_t set = 0; set < kSets; ++set) {
      const CallSets::Outputs left = sets.read(set);
      sets.restore(set, set % 2);
      launcher.launch(sets.frame(set));
      launcher.wait();
      EXPECT_EQ(left, sets.read(set)) << "the last round is on restored data: set " << set;
    }
  });
}

TEST_F(RepeatTest, FindsAKernelThatKeepsItsResults) {
  kernel_.work_on_new = 400us;
  with_sets(1, [&](Context& t, CallSets& sets, bp_stream* stream) {
    Launcher launcher(t, kernel_, sets.frame(0), stream);
    const std::optional<RepeatTimes> times = time_repeated(sets, launcher, 7);
    ASSERT_TRUE(times);
    EXPECT_TRUE(times->is_cached());
    EXPECT_GE(times->changed.size(), 12u);
    EXPECT_GE(times->repeated.size(), 12u);
  });
}

TEST_F(RepeatTest, TellsRepeatedInputFromChangedInput) {
  with_sets(1, [&](Context& t, CallSets& sets, bp_stream* stream) {
    Launcher launcher(t, kernel_, sets.frame(0), stream);
    const std::optional<RepeatTimes> times = time_repeated(sets, launcher, 7);
    ASSERT_TRUE(times);
    size_t changed = 0;
    for (size_t i = 1; i < kernel_.seen.size(); ++i) {
      changed += kernel_.seen[i].second != kernel_.seen[i - 1].second;
    }
    const size_t timed = kernel_.seen.size() - 1;  // The first is not.
    EXPECT_EQ(times->changed.size() + times->repeated.size(), timed);
    EXPECT_EQ(times->changed.size(), changed);
  });
}

TEST(RepeatTimesTest, NeedADifferenceThatIsLargeAndSure) {
  const std::vector<double> ten(20, 10.0), nine(20, 8.9), close(20, 9.1);
  EXPECT_TRUE((RepeatTimes{.changed = ten, .repeated = nine}.is_cached()));
  EXPECT_FALSE((RepeatTimes{.changed = ten, .repeated = close}.is_cached())) << "a tenth at least";
  EXPECT_FALSE((RepeatTimes{.changed = nine, .repeated = ten}.is_cached()));
  EXPECT_FALSE((RepeatTimes{.changed = {10, 10}, .repeated = {5, 5}}.is_cached())) << "chance";
  EXPECT_FALSE((RepeatTimes{}.is_cached()));
  std::vector<double> mixed;
  for (int i = 0; i < 20; ++i) mixed.push_back(i % 2 == 0 ? 5 : 15);
  EXPECT_FALSE((RepeatTimes{.changed = ten, .repeated = mixed}.is_cached()))
      << "what scatters on both sides says nothing";
}

}  // namespace
}  // namespace bp::conformance
