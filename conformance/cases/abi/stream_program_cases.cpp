// Cases that run random stream programs; see conformance/streams.
#include "conformance/cases/families.hpp"
#include "conformance/streams/generator.hpp"
#include "conformance/streams/runner.hpp"

namespace bp::conformance {
namespace {

// A family of programs that are drawn alike.
struct ProgramRow {
  const char* name;
  ProgramShape shape;
  uint32_t program_count;
  Tier tier;
};
constexpr ProgramRow kRows[] = {
    {"one_stream", {.stream_count = 1, .step_count = 40}, 6, Tier::kSmoke},
    {"two_streams", {.stream_count = 2}, 12, Tier::kSmoke},
    {"four_streams", {.stream_count = 4, .event_count = 4, .buffer_count = 4}, 12, Tier::kQuick},
    {"eight_streams",
     {.stream_count = 8, .event_count = 6, .buffer_count = 6, .step_count = 120},
     8,
     Tier::kQuick},
    {"few_events",
     {.stream_count = 3, .event_count = 1, .buffer_count = 4, .step_count = 80},
     10,
     Tier::kQuick},
    {"large_copies",
     {.stream_count = 3, .buffer_bytes = 1 << 16, .step_count = 40},
     4,
     Tier::kQuick},
    {"long_programs",
     {.stream_count = 5, .event_count = 5, .buffer_count = 5, .step_count = 1500},
     12,
     Tier::kFull},
};
constexpr uint64_t kDelaySeeds = 3;    // The runs of each program, with delays at other places in
                                       // each run.
constexpr int kShorteningBudget = 60;  // The most shorter programs to try.
constexpr int kTriesOfAShorterOne = 3;

struct Failing {
  Program program;
  Deviation deviation;
};

// Runs the program up to `tries` times, with delays at other places each time.
std::optional<Deviation> run_delayed(Context& t, const Program& program,
                                     const StreamAbilities& abilities, uint64_t first_seed,
                                     uint64_t tries) {
  const Meaning meaning = meaning_of(program);
  for (uint64_t i = 0; i < tries; ++i) {
    const uint64_t delay_seed = i == tries - 1 ? 0 : first_seed + i;
    auto deviation = run_program(t.target(), program, *meaning.model, abilities, delay_seed);
    if (deviation) return deviation;
  }
  return std::nullopt;
}

Failing shorten(Context& t, const Program& program, const StreamAbilities& abilities,
                const Deviation& first, uint64_t delay_seed) {
  Failing shortest{program, first};
  // A program that never ends would take the whole time limit in each try.
  if (first.cause == "timeout") return shortest;
  shortest.program = shortened(program, kShorteningBudget, [&](const Program& shorter) {
    const auto deviation = run_delayed(t, shorter, abilities, delay_seed, kTriesOfAShorterOne);
    if (deviation) shortest.deviation = *deviation;
    return deviation.has_value();
  });
  return shortest;
}

[[noreturn]] void report(Context& t, const Failing& shortest, uint32_t number, size_t steps) {
  t.detail("program", listing(shortest.program));
  std::string message =
      "program " + std::to_string(number) + ", shortened from " + std::to_string(steps) + " to " +
      std::to_string(shortest.program.steps.size()) + " steps: " + shortest.deviation.what;
  if (shortest.program.steps.size() <= 8) {
    for (const Step& step : shortest.program.steps) message += "; " + text_of(step);
  }
  t.fail({std::move(message), shortest.deviation.cause,
          suspect_tag(shortest.program, shortest.deviation)});
}

void run_programs(Context& t, const ProgramRow& row) {
  const StreamAbilities abilities = stream_abilities(t.target());
  ProgramShape shape = row.shape;
  shape.launch_alignment_bytes = abilities.launch_alignment_bytes;
  size_t steps = 0;
  for (uint32_t number = 1; number <= row.program_count; ++number) {
    const Program program = draw_program(shape, t.seed() + number);
    steps += program.steps.size();
    const uint64_t delay_seed = t.seed() ^ (uint64_t{number} << 32);
    t.progress("program " + std::to_string(number));
    const auto deviation = run_delayed(t, program, abilities, delay_seed, kDelaySeeds + 1);
    if (!deviation) continue;
    t.progress("shortening program " + std::to_string(number));
    report(t, shorten(t, program, abilities, *deviation, delay_seed), number, program.steps.size());
  }
  t.metric("steps", static_cast<double>(steps));
}

}  // namespace

void add_stream_program_cases(std::vector<Case>& cases) {
  for (const ProgramRow& row : kRows) {
    Case c;
    c.id = std::string("stream.programs.") + row.name;
    c.tags = {"STREAM-3", "EVENT-2", "EVENT-3", "MEMORY-9", "MEMORY-10"};
    c.tier = row.tier;
    c.group = "stream";
    c.run = [&row](Context& t) { run_programs(t, row); };
    cases.push_back(std::move(c));
  }
}

}  // namespace bp::conformance
