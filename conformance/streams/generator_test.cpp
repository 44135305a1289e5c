// Tests the weights of drawn programs, and the data of the kernel that they launch.
#include "conformance/streams/generator.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "conformance/streams/addition.hpp"
#include "conformance/streams/model.hpp"

namespace bp::conformance {
namespace {

std::vector<const Bytes*> ranges_of(const Step& step) {
  switch (step.kind) {
    case StepKind::kFill:
    case StepKind::kUpload:
    case StepKind::kRenewBuffer:
      return {&step.to};
    case StepKind::kCopy:
      return {&step.to, &step.from};
    case StepKind::kDownload:
      return {&step.from};
    case StepKind::kLaunch:
      return {&step.to, &step.from, &step.other};
    default:
      return {};
  }
}

TEST(DrawnPrograms, StayInsideOfTheirBuffersStreamsAndEvents) {
  const ProgramShape shapes[] = {
      {},
      {.stream_count = 1, .event_count = 1, .buffer_count = 1},
      {.buffer_bytes = 17, .step_count = 200},
      {.buffer_bytes = 5, .step_count = 200},
      {.buffer_bytes = 1, .step_count = 200},
      {.buffer_bytes = 64, .launch_alignment_bytes = 64},
      {.buffer_count = 5, .buffer_bytes = 100, .launch_alignment_bytes = 16}};
  for (const ProgramShape& shape : shapes) {
    for (uint64_t seed = 0; seed < 10; ++seed) {
      for (const Step& step : draw_program(shape, seed).steps) {
        EXPECT_LT(step.stream, shape.stream_count);
        EXPECT_LT(step.event, shape.event_count);
        for (const Bytes* range : ranges_of(step)) {
          EXPECT_LT(range->buffer, shape.buffer_count) << text_of(step);
          EXPECT_GT(range->size, 0u) << text_of(step);
          EXPECT_LE(uint64_t{range->offset} + range->size, shape.buffer_bytes) << text_of(step);
        }
      }
    }
  }
}

TEST(DrawnPrograms, FillWholePatterns) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    for (const Step& step : draw_program({}, seed).steps) {
      if (step.kind != StepKind::kFill) continue;
      EXPECT_GE(step.pattern_bytes, 1u);
      EXPECT_LE(step.pattern_bytes, 16u);
      EXPECT_EQ(step.to.size % step.pattern_bytes, 0u);
    }
  }
}

TEST(DrawnPrograms, LaunchOnAlignedTensorsInBuffersApart) {
  const ProgramShape shape{.buffer_bytes = 100, .launch_alignment_bytes = 16};
  size_t launches = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    for (const Step& step : draw_program(shape, seed).steps) {
      if (step.kind != StepKind::kLaunch) continue;
      ++launches;
      for (const Bytes* range : ranges_of(step)) {
        EXPECT_EQ(range->offset % 16, 0u);
        EXPECT_EQ(range->size, step.to.size);
        EXPECT_EQ(range->size % kElementBytes, 0u);
      }
      EXPECT_NE(step.to.buffer, step.from.buffer);
      EXPECT_NE(step.to.buffer, step.other.buffer);
    }
  }
  EXPECT_GT(launches, 50u);
}

TEST(DrawnPrograms, LaunchNothingWithoutAnAlignment) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    for (const Step& step : draw_program({}, seed).steps) EXPECT_NE(step.kind, StepKind::kLaunch);
  }
}

TEST(DrawnPrograms, RelateStreamsRatherThanDropWhatRaces) {
  size_t waits = 0, steps = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    for (const Step& step : draw_program({.stream_count = 4}, seed).steps) {
      ++steps;
      waits += step.kind == StepKind::kWait;
    }
  }
  // By weight alone, only a tenth of the steps would be waits.
  EXPECT_GT(waits, steps / 7);
}

TEST(Draws, AreEvenBelowABound) {
  Draw draw(3);
  std::vector<int> seen(7);
  for (int i = 0; i < 7000; ++i) ++seen.at(draw.below(7));
  for (const int count : seen) {
    EXPECT_GT(count, 850);
    EXPECT_LT(count, 1150);
  }
  Draw again(3), other(4);
  Draw same(3);
  EXPECT_EQ(again.bits(), same.bits());
  EXPECT_NE(again.bits(), other.bits());
}

Program fills(size_t count) {
  Program program{.buffer_count = 1, .buffer_bytes = 64, .content = 1, .steps = {}};
  for (size_t i = 0; i < count; ++i) {
    program.steps.push_back({.kind = StepKind::kFill, .to = {0, 0, 8}, .data = i});
  }
  return program;
}

TEST(Shortened, AsksNoMoreOftenThanItsBudget) {
  for (const int budget : {0, 1, 5, 20}) {
    int asked = 0;
    const Program shorter = shortened(fills(40), budget, [&](const Program&) {
      ++asked;
      return false;
    });
    EXPECT_LE(asked, budget);
    EXPECT_EQ(shorter.steps.size(), 40u) << "nothing shorter fails";
  }
}

TEST(Shortened, FindsTwoStepsThatBelongTogether) {
  int asked = 0;
  const auto fails = [&](const Program& program) {
    ++asked;
    bool has_third = false, has_both = false;
    for (const Step& step : program.steps) {
      has_third = has_third || step.data == 3;
      has_both = has_both || (has_third && step.data == 36);
    }
    return has_both;
  };
  const Program shortest = shortened(fills(40), 1000, fails);
  ASSERT_EQ(shortest.steps.size(), 2u) << listing(shortest);
  EXPECT_EQ(shortest.steps[0].data, 3u);
  EXPECT_EQ(shortest.steps[1].data, 36u);
  EXPECT_LT(asked, 200);
}

TEST(Shortened, LeavesAProgramThatAlwaysFailsWithOneStepOrNone) {
  const Program shortest = shortened(fills(40), 1000, [](const Program&) { return true; });
  EXPECT_LE(shortest.steps.size(), 1u);
  EXPECT_TRUE(shortened(fills(0), 10, [](const Program&) { return true; }).steps.empty());
}

TEST(Shortened, AsksOnlyForProgramsWithOneMeaning) {
  // Without the wait, the two streams would race.
  Program program{.stream_count = 2, .event_count = 1, .buffer_count = 1, .steps = {}};
  program.steps = {{.kind = StepKind::kFill, .stream = 0, .to = {0, 0, 8}},
                   {.kind = StepKind::kRecord, .stream = 0},
                   {.kind = StepKind::kWait, .stream = 1},
                   {.kind = StepKind::kFill, .stream = 1, .to = {0, 0, 8}}};
  ASSERT_EQ(meaning_of(program).problem, "");
  const Program shortest = shortened(program, 1000, [](const Program& shorter) {
    EXPECT_EQ(meaning_of(shorter).problem, "") << listing(shorter);
    int count = 0;
    for (const Step& step : shorter.steps) count += step.kind == StepKind::kFill;
    return count == 2;
  });
  EXPECT_EQ(shortest.steps.size(), 4u);
}

TEST(Additions, GiveTheSameSumsInBothDtypes) {
  const uint64_t count = 20;
  const Addition in_i32{BP_I32}, in_f32{BP_F32};
  const std::vector<uint8_t> integers = in_i32.numbers(count, -3),
                             reals = in_f32.numbers(count, -3);
  const std::vector<uint8_t> tens = in_i32.numbers(count, 10), sums = in_i32.numbers(count, 7);
  ASSERT_EQ(integers.size(), count * Addition::kElementBytes);
  const auto at = []<typename T>(const std::vector<uint8_t>& bytes, uint64_t i, T value) {
    std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
    return value;
  };
  for (uint64_t i = 0; i < count; ++i) {
    EXPECT_EQ(at(integers, i, int32_t{}), static_cast<int32_t>(i % 7 + 1) * -3);
    EXPECT_EQ(at(reals, i, float{}), static_cast<float>(at(integers, i, int32_t{})));
    EXPECT_EQ(at(integers, i, int32_t{}) + at(tens, i, int32_t{}), at(sums, i, int32_t{}))
        << "factors add up";
  }
}

}  // namespace
}  // namespace bp::conformance
