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

std::optional<Conflict> conflict_behind(const std::vector<Step>& steps, const Step& next) {
  Model model(program({}));
  for (const Step& step : steps) {
    EXPECT_FALSE(model.conflict_of(step)) << text_of(step);
    model.apply(step);
  }
  return model.conflict_of(next);
}

TEST(Model, NamesTheStreamThatMustBeWaitedFor) {
  const auto race = conflict_behind({fill(2, kFirst)}, fill(1, kFirst));
  ASSERT_TRUE(race);
  EXPECT_EQ(race->stream, std::optional<uint32_t>(2));
  const auto gone =
      conflict_behind({fill(2, kFirst), on(StepKind::kRenewStream, 2)}, fill(1, kFirst));
  ASSERT_TRUE(gone) << "destroying a stream waits for nothing";
  EXPECT_FALSE(gone->stream) << "the stream that wrote does not exist any more";
  const Step renew{.kind = StepKind::kRenewBuffer, .stream = 0, .to = {0, 0, 64}};
  const auto undefined = conflict_behind({renew}, copy(0, kSecond, kFirst));
  ASSERT_TRUE(undefined);
  EXPECT_FALSE(undefined->stream) << "no wait helps";
}

TEST(Model, SeesEachOfSeveralReaders) {
  const std::vector<Step> readers = {copy(0, {1, 0, 16}, kFirst), copy(1, {1, 16, 16}, kFirst),
                                     copy(2, {1, 32, 16}, kFirst)};
  for (uint32_t unordered = 0; unordered < 3; ++unordered) {
    std::vector<Step> steps = readers;
    for (uint32_t stream = 0; stream < 3; ++stream) {
      if (stream != unordered) steps.push_back(on(StepKind::kSyncStream, stream));
    }
    const uint32_t writer = (unordered + 1) % 3;
    const auto race = conflict_behind(steps, fill(writer, kFirst));
    ASSERT_TRUE(race) << unordered;
    EXPECT_EQ(race->problem, "a race: write after read");
    EXPECT_EQ(race->stream, std::optional<uint32_t>(unordered));
  }
}

TEST(Model, ForgetsReadersBehindAWriteThatIsOrdered) {
  EXPECT_EQ(problem_of({copy(0, kSecond, kFirst), on(StepKind::kSyncStream, 0), fill(1, kFirst),
                        on(StepKind::kSyncStream, 1), fill(2, kFirst)}),
            "");
  EXPECT_NE(problem_of({copy(0, kSecond, kFirst), on(StepKind::kSyncStream, 0), fill(1, kFirst),
                        fill(2, kFirst)}),
            "");
}

TEST(Model, MeetsAccessesAtTheirEnds) {
  constexpr uint32_t kBytes = 64;  // The size of a buffer.
  const Bytes last{0, kBytes - 1, 1}, before{0, 0, kBytes - 1};
  EXPECT_EQ(problem_of({fill(0, before), fill(1, last)}), "");
  EXPECT_NE(problem_of({fill(0, {0, 0, kBytes}), fill(1, last)}), "");
  EXPECT_EQ(problem_of({copy(0, {0, 16, 16}, {0, 0, 16})}), "") << "the ranges touch";
  EXPECT_EQ(problem_of({copy(0, {0, 15, 16}, {0, 0, 16})}),
            "step 1 is a copy between ranges that overlap");
  EXPECT_EQ(problem_of({copy(0, {1, 15, 16}, {0, 0, 16})}), "") << "of two buffers";
}

TEST(Model, WaitsForAllStreamsOfADeviceAndForNoneThatIsGone) {
  EXPECT_EQ(problem_of({fill(0, kFirst), fill(1, kSecond), on(StepKind::kSyncDevice, 2),
                        copy(2, {0, 16, 16}, kSecond), fill(2, kFirst)}),
            "");
  EXPECT_NE(problem_of({fill(0, kFirst), on(StepKind::kRenewStream, 0),
                        on(StepKind::kSyncDevice, 0), fill(1, kFirst)}),
            "")
      << "the work of a stream that was destroyed may still run";
}

TEST(Model, TakesAnEventThatNobodyRecordedForOneOfTheBeginning) {
  const Step sync{.kind = StepKind::kSyncEvent, .event = 1};
  EXPECT_EQ(problem_of({wait(0, 1), fill(0, kFirst)}), "");
  EXPECT_NE(problem_of({fill(0, kFirst), sync, fill(1, kFirst)}), "");
}

TEST(Model, GivesWhatEachDownloadReadsAtItsPlaceInTheProgram) {
  const Step download{.kind = StepKind::kDownload, .from = {0, 0, 6}};
  Step upload{.kind = StepKind::kUpload, .to = {0, 2, 4}, .data = 9};
  const Meaning meaning = meaning_of(program({fill(0, {0, 0, 6}), download, upload, download}));
  ASSERT_EQ(meaning.problem, "");
  const auto& downloads = meaning.model->downloads();
  ASSERT_EQ(downloads.size(), 2u);
  const std::vector<uint8_t> pattern = program_bytes(7, 4), bytes = program_bytes(9, 4);
  EXPECT_EQ(downloads[0], (std::vector<uint8_t>{pattern[0], pattern[1], pattern[2], pattern[3],
                                                pattern[0], pattern[1]}))
      << "a fill may end within its pattern";
  EXPECT_EQ(downloads[1],
            (std::vector<uint8_t>{pattern[0], pattern[1], bytes[0], bytes[1], bytes[2], bytes[3]}));
  EXPECT_EQ(meaning.model->buffer(0)[1].writer_step, 0);
  EXPECT_EQ(meaning.model->buffer(0)[2].writer_step, 2);
  EXPECT_EQ(meaning.model->buffer(0)[6].writer_step, -1);
}

TEST(VectorClocks, EndInZerosAndKeepTheLaterMoment) {
  VectorClock a, b;
  a.set(1, 5);
  b.set(0, 2);
  b.set(3, 7);
  b.set(1, 4);
  a.merge(b);
  EXPECT_EQ(a.of(0), 2u);
  EXPECT_EQ(a.of(1), 5u);
  EXPECT_EQ(a.of(2), 0u);
  EXPECT_EQ(a.of(3), 7u);
  EXPECT_EQ(a.of(1000), 0u);
  b.merge(VectorClock());
  EXPECT_EQ(b.of(3), 7u) << "a shorter clock cuts nothing off";
}

TEST(ProgramBytes, OfFewerBytesAreTheBeginningOfMore) {
  const std::vector<uint8_t> most = program_bytes(3, 64);
  for (uint32_t count = 0; count <= 17; ++count) {
    EXPECT_EQ(program_bytes(3, count),
              std::vector<uint8_t>(most.begin(), most.begin() + static_cast<ptrdiff_t>(count)));
  }
  EXPECT_NE(program_bytes(4, 64), most);
}

}  // namespace
}  // namespace bp::conformance
