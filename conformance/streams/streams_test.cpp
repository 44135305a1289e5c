// Tests that the clocks find races, that drawn programs have one meaning, and that failing ones
// shrink.
#include <gtest/gtest.h>

#include "conformance/streams/generator.hpp"
#include "conformance/streams/model.hpp"

namespace bp::conformance {
namespace {

constexpr Bytes kFirst{0, 0, 16}, kSecond{1, 0, 16};

Program program(std::vector<Step> steps) {
  return {.stream_count = 3, .event_count = 2, .buffer_count = 2, .steps = std::move(steps)};
}
Step fill(uint32_t stream, Bytes to) {
  return {.kind = StepKind::kFill, .stream = stream, .to = to, .data = 7, .pattern_bytes = 4};
}
Step copy(uint32_t stream, Bytes to, Bytes from) {
  return {.kind = StepKind::kCopy, .stream = stream, .to = to, .from = from};
}
Step record(uint32_t stream, uint32_t event) {
  return {.kind = StepKind::kRecord, .stream = stream, .event = event};
}
Step wait(uint32_t stream, uint32_t event) {
  return {.kind = StepKind::kWait, .stream = stream, .event = event};
}
Step on(StepKind kind, uint32_t stream) { return {.kind = kind, .stream = stream}; }

std::string problem_of(std::vector<Step> steps) {
  return meaning_of(program(std::move(steps))).problem;
}

TEST(Model, FindsEachKindOfRace) {
  EXPECT_EQ(problem_of({fill(0, kFirst), fill(1, kFirst)}), "step 2 is a race: write after write");
  EXPECT_EQ(problem_of({fill(0, kFirst), copy(1, kSecond, kFirst)}),
            "step 2 is a race: read after write");
  EXPECT_EQ(problem_of({copy(0, kSecond, kFirst), fill(1, kFirst)}),
            "step 2 is a race: write after read");
}

TEST(Model, SeesThatRangesApartDoNotMeet) {
  EXPECT_EQ(problem_of({fill(0, {0, 0, 16}), fill(1, {0, 16, 16})}), "");
  EXPECT_NE(problem_of({fill(0, {0, 0, 17}), fill(1, {0, 16, 16})}), "");
  EXPECT_EQ(problem_of({copy(0, kSecond, kFirst), copy(1, {1, 32, 16}, kFirst)}), "");
}

TEST(Model, OrdersByTheStreamItself) {
  EXPECT_EQ(problem_of({fill(0, kFirst), copy(0, kSecond, kFirst), fill(0, kFirst)}), "");
}

TEST(Model, OrdersByEventsAsTheyWereAtTheWait) {
  EXPECT_EQ(problem_of({fill(0, kFirst), record(0, 0), wait(1, 0), fill(1, kFirst)}), "");
  EXPECT_NE(problem_of({fill(0, kFirst), wait(1, 0), record(0, 0), fill(1, kFirst)}), "")
      << "a wait takes what was recorded before it";
  EXPECT_NE(problem_of({record(0, 0), fill(0, kFirst), wait(1, 0), fill(1, kFirst)}), "")
      << "a record captures what was submitted before it";
  EXPECT_NE(problem_of({fill(0, kFirst), record(0, 0), record(2, 0), wait(1, 0), fill(1, kFirst)}),
            "")
      << "a second record takes the place of the first";
  EXPECT_EQ(problem_of({fill(0, kFirst), record(0, 0), wait(1, 0), record(1, 1), wait(2, 1),
                        fill(2, kFirst)}),
            "")
      << "order is handed on";
}

TEST(Model, OrdersByTheHost) {
  EXPECT_EQ(problem_of({fill(0, kFirst), on(StepKind::kSyncStream, 0), fill(1, kFirst)}), "");
  EXPECT_EQ(problem_of({fill(0, kFirst), on(StepKind::kSyncDevice, 0), fill(1, kFirst)}), "");
  EXPECT_NE(problem_of({fill(0, kFirst), on(StepKind::kQuery, 0), fill(1, kFirst)}), "");
  EXPECT_NE(problem_of({fill(0, kFirst), on(StepKind::kFlush, 0), fill(1, kFirst)}), "");
  EXPECT_NE(problem_of({fill(0, kFirst), on(StepKind::kSyncStream, 1), fill(1, kFirst)}), "");
  Step download{.kind = StepKind::kDownload, .stream = 0, .from = kSecond};
  EXPECT_EQ(problem_of({fill(0, kFirst), download, fill(1, kFirst)}), "");
  download.until_complete = true;
  EXPECT_NE(problem_of({fill(0, kFirst), download, fill(1, kFirst)}), "");
}

TEST(Model, TakesARenewedStreamForAnother) {
  EXPECT_NE(problem_of({fill(0, kFirst), on(StepKind::kRenewStream, 0), fill(0, kFirst)}), "");
  EXPECT_EQ(problem_of({fill(0, kFirst), record(0, 0), on(StepKind::kRenewStream, 0), wait(0, 0),
                        fill(0, kFirst)}),
            "");
}

TEST(Model, KnowsNothingOfANewBuffer) {
  const Step renew{.kind = StepKind::kRenewBuffer, .stream = 0, .to = {0, 0, 64}};
  EXPECT_NE(problem_of({renew, copy(0, kSecond, kFirst)}), "");
  EXPECT_EQ(problem_of({renew, fill(1, kFirst), copy(1, kSecond, kFirst)}), "");
  EXPECT_NE(problem_of({fill(1, kFirst), renew}), "") << "it is freed behind its last use";
}

TEST(Model, GivesTheBytes) {
  Step launch{.kind = StepKind::kLaunch, .to = {1, 0, 4}, .from = {0, 0, 4}, .other = {0, 4, 4}};
  const Meaning meaning = meaning_of(program({fill(0, {0, 0, 8}), launch}));
  ASSERT_EQ(meaning.problem, "");
  uint32_t x = 0, sum = 0;
  for (int i = 3; i >= 0; --i) {
    x = x << 8 | meaning.model->buffer(0)[static_cast<size_t>(i)].value;
    sum = sum << 8 | meaning.model->buffer(1)[static_cast<size_t>(i)].value;
  }
  EXPECT_EQ(sum, 2 * x);
  EXPECT_EQ(meaning.model->buffer(1)[0].writer_step, 1);
}

TEST(Draw, GivesLongProgramsWithOneMeaning) {
  std::vector<int> kinds(kStepKindCount);
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const ProgramShape shape{.stream_count = 4, .launch_alignment_bytes = 4};
    const Program drawn = draw_program(shape, seed);
    EXPECT_EQ(meaning_of(drawn).problem, "") << seed;
    EXPECT_GE(drawn.steps.size(), shape.step_count) << seed;
    for (const Step& step : drawn.steps) ++kinds[static_cast<size_t>(step.kind)];
  }
  for (size_t kind = 0; kind < kinds.size(); ++kind) EXPECT_GT(kinds[kind], 5) << kind;
}

TEST(Draw, DependsOnTheSeedAlone) {
  EXPECT_EQ(listing(draw_program({}, 5)), listing(draw_program({}, 5)));
  EXPECT_NE(listing(draw_program({}, 5)), listing(draw_program({}, 6)));
}

bool has_fill_before_download(const Program& p) {
  bool has_fill = false;
  for (const Step& step : p.steps) {
    has_fill = has_fill || step.kind == StepKind::kFill;
    if (has_fill && step.kind == StepKind::kDownload) return true;
  }
  return false;
}

TEST(Shortened, KeepsWhatFailsAndNothingElse) {
  const Program drawn = draw_program({.stream_count = 4}, 3);
  ASSERT_TRUE(has_fill_before_download(drawn));
  const Program shortest = shortened(drawn, 10000, has_fill_before_download);
  EXPECT_TRUE(has_fill_before_download(shortest));
  EXPECT_LE(shortest.steps.size(), 4u) << listing(shortest);
  EXPECT_EQ(meaning_of(shortest).problem, "");
  EXPECT_EQ(shortened(drawn, 0, has_fill_before_download).steps.size(), drawn.steps.size());
}

}  // namespace
}  // namespace bp::conformance
