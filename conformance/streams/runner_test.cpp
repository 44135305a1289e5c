// That a right device runs every program, however late its work begins, and that the runner sees
// each way in which one can break the order of work.
#include "conformance/streams/runner.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "conformance/streams/generator.hpp"
#include "conformance/tests/lazy_device.hpp"

namespace bp::conformance {
namespace {

constexpr StreamAbilities kWithSignals{.has_host_signals = true};

std::optional<Deviation> run(const LazyDevice& device, const Program& program,
                             uint64_t delay_seed = 0, StreamAbilities abilities = kWithSignals) {
  const Meaning meaning = meaning_of(program);
  EXPECT_EQ(meaning.problem, "");
  return run_program(device.target, program, *meaning.model, abilities, delay_seed);
}

constexpr ProgramShape kShape{.stream_count = 3, .step_count = 30};

// The first of 40 drawn programs that goes wrong, with how it did, shortened as the suite does.
struct Found {
  Deviation deviation;
  Program shortest;
};
std::optional<Found> find_failure(const LazyDevice& device) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    const Program drawn = draw_program(kShape, seed);
    if (!run(device, drawn, seed)) continue;
    Found found;
    found.shortest = shortened(
        drawn, 400, [&](const Program& shorter) { return run(device, shorter, seed).has_value(); });
    found.deviation = *run(device, found.shortest, seed);
    return found;
  }
  return std::nullopt;
}

Step fill(uint32_t stream, Bytes to, uint64_t data = 7) {
  return {.kind = StepKind::kFill, .stream = stream, .to = to, .data = data, .pattern_bytes = 1};
}
Step on(StepKind kind, uint32_t stream, uint32_t event = 0) {
  return {.kind = kind, .stream = stream, .event = event};
}
constexpr Bytes kWhole{0, 0, 64};

TEST(StreamRunner, FindsNothingOnADeviceThatIsRightAndLate) {
  LazyDevice device;
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    const Program drawn = draw_program(kShape, seed);
    for (const uint64_t delay : {uint64_t{0}, seed}) {
      const auto deviation = run(device, drawn, delay);
      EXPECT_FALSE(deviation) << "seed " << seed << ", delay " << delay << ": " << deviation->what;
    }
  }
}

TEST(StreamRunner, EndsEveryHandleThatItMade) {
  LazyDevice device;
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    static_cast<void>(run(device, draw_program(kShape, seed), seed));
    device.faults.copy_status = BP_INTERNAL;  // Every second program ends in the middle.
    static_cast<void>(run(device, draw_program(kShape, seed), seed));
    device.faults.copy_status = BP_OK;
    EXPECT_EQ(device.live_streams, 0u) << seed;
    EXPECT_EQ(device.live_events, 0u) << seed;
    EXPECT_EQ(device.live_buffers, 0u) << seed;
  }
}

TEST(StreamRunner, EndsWhatItMadeWhereSettingUpFails) {
  const Program program{.stream_count = 3, .event_count = 2, .buffer_count = 3, .steps = {}};
  for (size_t limit = 0; limit < 3; ++limit) {
    for (const bool is_buffer : {false, true}) {
      LazyDevice device;
      (is_buffer ? device.faults.buffer_limit : device.faults.stream_limit) = limit;
      const auto deviation = run(device, program);
      ASSERT_TRUE(deviation);
      EXPECT_EQ(deviation->cause, "status");
      EXPECT_NE(deviation->what.find(is_buffer ? "allocate: out of memory"
                                               : "stream.create: out of memory"),
                std::string::npos)
          << deviation->what;
      EXPECT_EQ(device.live_streams + device.live_events + device.live_buffers, 0u);
    }
  }
}

TEST(StreamRunner, SeesAWaitThatOrdersNothing) {
  LazyDevice device;
  device.faults.forgets_waits = true;
  const auto found = find_failure(device);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->deviation.cause, "order");
  EXPECT_EQ(suspect_tag(found->shortest, found->deviation), "EVENT-2") << listing(found->shortest);
  EXPECT_LE(found->shortest.steps.size(), 8u) << listing(found->shortest);
}

TEST(StreamRunner, SeesARecordThatCapturesNothing) {
  LazyDevice device;
  device.faults.forgets_records = true;
  const auto found = find_failure(device);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->deviation.cause, "order");
  EXPECT_EQ(suspect_tag(found->shortest, found->deviation), "EVENT-2") << listing(found->shortest);
}

TEST(StreamRunner, SeesAStreamThatBeginsWithItsLatestWork) {
  LazyDevice device;
  device.faults.is_last_first = true;
  const auto deviation = run(device, {.steps = {fill(0, kWhole, 1), fill(0, {0, 8, 8}, 2)}});
  ASSERT_TRUE(deviation);
  EXPECT_EQ(deviation->cause, "order");
  EXPECT_EQ(suspect_tag({.steps = {fill(0, kWhole)}}, *deviation), "STREAM-3");
}

TEST(StreamRunner, SeesABorrowThatLastsTooLong) {
  LazyDevice device;
  device.faults.stages_late = true;
  const Step upload{.kind = StepKind::kUpload, .to = {0, 16, 8}, .data = 5};
  const auto deviation = run(device, {.steps = {upload}});
  ASSERT_TRUE(deviation);
  EXPECT_EQ(deviation->tag, "MEMORY-9");
  EXPECT_TRUE(deviation->what.starts_with("b0[16]: got 187, expected ")) << deviation->what;
  EXPECT_TRUE(deviation->what.ends_with(" by step 1")) << deviation->what;
}

TEST(StreamRunner, SeesADownloadThatReturnsTooEarly) {
  LazyDevice device;
  device.faults.reads_late = true;
  Step download{.kind = StepKind::kDownload, .from = {0, 4, 8}};
  const auto deviation = run(device, {.steps = {fill(0, kWhole), download}});
  ASSERT_TRUE(deviation);
  EXPECT_EQ(deviation->tag, "MEMORY-10");
  EXPECT_TRUE(deviation->what.starts_with("download 1, byte 0: got 204, expected "))
      << deviation->what;
  download.until_complete = true;
  EXPECT_FALSE(run(device, {.steps = {fill(0, kWhole), download}}))
      << "the bytes need not be there before the end";
}

TEST(StreamRunner, NamesTheByteAndTheStepThatShouldHaveWrittenIt) {
  LazyDevice device;
  device.faults.fills_short = true;
  const Program program{.buffer_count = 2,
                        .content = 3,
                        .steps = {fill(0, {1, 0, 4}), fill(0, {1, 8, 8}), fill(0, {1, 0, 5})}};
  const uint8_t before = program_bytes(3 + 1, 64)[4], after = program_bytes(7, 1)[0];
  const auto deviation = run(device, program);
  ASSERT_TRUE(deviation);
  EXPECT_EQ(deviation->what, "b1[4]: got " + std::to_string(before) + ", expected " +
                                 std::to_string(after) + " by step 3");
}

TEST(StreamRunner, SaysThatWhatNobodyWroteIsAsAtTheBeginning) {
  LazyDevice device;
  static const auto right = device.allocator.copy_from_host;
  device.allocator.copy_from_host = [](void* self, bp_stream* on, const bp_buffer_ref* dst,
                                       const void* src, bp_borrow borrow) -> bp_status {
    bp_buffer_ref shorter = *dst;
    --shorter.size_bytes;
    return right(self, on, &shorter, src, borrow);
  };
  const auto deviation = run(device, {.steps = {}});
  ASSERT_TRUE(deviation);
  EXPECT_TRUE(deviation->what.starts_with("b0[63]: got 165, ")) << deviation->what;
  EXPECT_TRUE(deviation->what.ends_with(" as at the beginning")) << deviation->what;
}

TEST(StreamRunner, SeesWorkThatGoesWithItsStream) {
  LazyDevice device;
  device.faults.drops_on_destroy = true;
  const Program program{.event_count = 1,
                        .steps = {fill(0, kWhole), on(StepKind::kRecord, 0),
                                  on(StepKind::kRenewStream, 0), on(StepKind::kWait, 0)}};
  const auto deviation = run(device, program);
  ASSERT_TRUE(deviation) << "its work and the events behind it never come";
  EXPECT_EQ(deviation->cause, "timeout");
  EXPECT_EQ(deviation->tag, "STREAM-12");
  device.faults.drops_on_destroy = false;
  EXPECT_FALSE(run(device, program));
}

TEST(StreamRunner, SeesMemoryThatIsFreedBeforeItsWork) {
  LazyDevice device;
  device.faults.frees_at_once = true;
  const Program program{.buffer_count = 2,
                        .steps = {{.kind = StepKind::kCopy, .to = {0, 0, 64}, .from = {1, 0, 64}},
                                  {.kind = StepKind::kRenewBuffer, .to = {1, 0, 64}}}};
  const auto deviation = run(device, program);
  ASSERT_TRUE(deviation);
  EXPECT_TRUE(deviation->what.starts_with("b0[0]: got 238, ")) << deviation->what;
  device.faults.frees_at_once = false;
  EXPECT_FALSE(run(device, program));
}

TEST(StreamRunner, TellsAWaitThatNeverEndsFromAWrongOrder) {
  LazyDevice device;
  device.faults.forgets_signals = true;
  const auto found = find_failure(device);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->deviation.cause, "timeout");
  EXPECT_EQ(suspect_tag(found->shortest, found->deviation), "STREAM-12");
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    EXPECT_FALSE(run(device, draw_program(kShape, seed), seed, {}))
        << "without host signals no stream is held back";
  }
}

TEST(StreamRunner, NamesTheStepWhoseCallFailed) {
  LazyDevice device;
  device.faults.copy_status = BP_UNSUPPORTED;
  const Step copy{.kind = StepKind::kCopy, .to = {0, 0, 8}, .from = {0, 16, 8}};
  const auto deviation = run(device, {.steps = {fill(0, kWhole), copy, fill(0, kWhole)}});
  ASSERT_TRUE(deviation);
  EXPECT_EQ(deviation->what, "step 2, s0: copy b0[0..8) <- b0[16..24): copy: " +
                                 std::string(bp_status_name(BP_UNSUPPORTED)) + ": ");
  EXPECT_EQ(deviation->cause, "status");
  EXPECT_EQ(suspect_tag({}, *deviation), "STREAM-3");
}

// What a failure of a stream is, stays one after the last step.
TEST(StreamRunner, SeesAFailureThatOnlyTheLastWaitTells) {
  LazyDevice device;
  device.allocator.fill = [](void*, bp_stream* on, const bp_buffer_ref*, const void*,
                             uint64_t) -> bp_status {
    LazyDevice::fail(on, BP_ABORTED);
    return BP_OK;
  };
  const auto deviation = run(device, {.stream_count = 2, .steps = {fill(1, kWhole)}});
  ASSERT_TRUE(deviation);
  EXPECT_EQ(deviation->what, "after the last step: stream.synchronize: " +
                                 std::string(bp_status_name(BP_ABORTED)) + ": ");
}

TEST(SuspectTag, FollowsTheStepsThatAreLeft) {
  const Deviation by_order{.what = "", .tag = "", .cause = "order"};
  EXPECT_EQ(suspect_tag({.steps = {on(StepKind::kSyncEvent, 0)}}, by_order), "EVENT-2");
  EXPECT_EQ(suspect_tag({.steps = {on(StepKind::kRecord, 0)}}, by_order), "STREAM-3");
  EXPECT_EQ(suspect_tag({.steps = {on(StepKind::kWait, 0)}}, {"", "MEMORY-9", "order"}), "MEMORY-9")
      << "what the deviation itself tells comes first";
}

}  // namespace
}  // namespace bp::conformance
