#include "conformance/streams/generator.hpp"

#include <algorithm>

#include "conformance/numerics/philox.hpp"
#include "conformance/streams/model.hpp"

namespace bp::conformance {
namespace {

// The weight of each kind of step in the draw.
struct KindWeight {
  StepKind kind;
  uint32_t weight;
};
constexpr KindWeight kWeights[] = {
    {StepKind::kFill, 14},       {StepKind::kCopy, 22},       {StepKind::kUpload, 12},
    {StepKind::kDownload, 10},   {StepKind::kLaunch, 16},     {StepKind::kRecord, 10},
    {StepKind::kWait, 10},       {StepKind::kSyncStream, 2},  {StepKind::kSyncEvent, 2},
    {StepKind::kSyncDevice, 1},  {StepKind::kQuery, 2},       {StepKind::kFlush, 2},
    {StepKind::kRenewStream, 1}, {StepKind::kRenewBuffer, 2},
};
constexpr int kRepairs = 4;  // The number of records and waits that one step may get.

class Drawing {
 public:
  Drawing(const ProgramShape& shape, uint64_t seed) : shape_(shape), draw_(seed) {
    program_.stream_count = shape.stream_count;
    program_.event_count = shape.event_count;
    program_.buffer_count = shape.buffer_count;
    program_.buffer_bytes = shape.buffer_bytes;
    program_.content = draw_.bits();
    model_.emplace(program_);
  }

  Program run() {
    // A step that cannot come next is dropped. The bound is for shapes in which few steps can come
    // next.
    for (uint32_t tries = 0; tries < 20 * shape_.step_count; ++tries) {
      if (program_.steps.size() >= shape_.step_count) break;
      add_ordered(step());
    }
    return program_;
  }

 private:
  void add(const Step& step) {
    model_->apply(step);
    program_.steps.push_back(step);
  }

  void add_ordered(const Step& step) {
    for (int i = 0; i <= kRepairs; ++i) {
      const std::optional<Conflict> conflict = model_->conflict_of(step);
      if (!conflict) return add(step);
      if (!conflict->stream || draw_.chance(4)) return;
      Step relation{.kind = StepKind::kRecord, .stream = *conflict->stream};
      relation.event = draw_.below(shape_.event_count);
      add(relation);
      relation.kind = StepKind::kWait;
      relation.stream = step.stream;
      add(relation);
    }
  }

  StepKind kind() {
    uint32_t sum = 0;
    for (const KindWeight& each : kWeights) sum += each.weight;
    uint32_t drawn = draw_.below(sum);
    for (const KindWeight& each : kWeights) {
      if (drawn < each.weight) return each.kind;
      drawn -= each.weight;
    }
    return StepKind::kQuery;
  }

  Bytes range(uint32_t size) {
    const uint32_t room = shape_.buffer_bytes - size;
    return {draw_.below(shape_.buffer_count), room == 0 ? 0 : draw_.below(room + 1), size};
  }

  // Places the tensors of a launch in three buffers, so that none overlaps another.
  void place_launch(Step& step) {
    const uint32_t first = draw_.below(shape_.buffer_count);
    const uint32_t slots = shape_.buffer_bytes / shape_.launch_alignment_bytes;
    const uint32_t size = kElementBytes * (1 + draw_.below(shape_.buffer_bytes / kElementBytes));
    Bytes* const places[] = {&step.to, &step.from, &step.other};
    for (uint32_t i = 0; i < 3; ++i) {
      const uint32_t offset = draw_.below(std::max(slots, 1u)) * shape_.launch_alignment_bytes;
      *places[i] = {(first + i) % shape_.buffer_count, offset, size};
      if (offset + size > shape_.buffer_bytes) places[i]->offset = 0;
    }
  }

  Step step() {
    Step step{.kind = kind(), .stream = draw_.below(shape_.stream_count)};
    if (step.kind == StepKind::kLaunch && shape_.launch_alignment_bytes == 0) {
      step.kind = StepKind::kCopy;
    }
    step.event = draw_.below(shape_.event_count);
    step.data = draw_.bits();
    step.until_complete = draw_.chance(2);
    const uint32_t size = 1 + draw_.below(std::max(shape_.buffer_bytes / 2, 1u));
    if (step.kind == StepKind::kFill) {
      step.pattern_bytes = 1 + draw_.below(std::min(shape_.buffer_bytes, 16u));
      const uint32_t repeats = std::max(1u, size / step.pattern_bytes);
      step.to = range(step.pattern_bytes * repeats);
    } else if (step.kind == StepKind::kLaunch) {
      place_launch(step);
    } else if (step.kind == StepKind::kRenewBuffer) {
      step.to = range(shape_.buffer_bytes);
    } else {
      step.to = range(size);
      step.from = range(size);
    }
    return step;
  }

  const ProgramShape shape_;
  Draw draw_;
  Program program_;
  std::optional<Model> model_;
};

}  // namespace

uint64_t Draw::bits() { return element_bits(seed_, 1, drawn_++); }

Program draw_program(const ProgramShape& shape, uint64_t seed) {
  return Drawing(shape, seed).run();
}

Program shortened(Program program, int budget, const std::function<bool(const Program&)>& fails) {
  for (size_t size = (program.steps.size() + 1) / 2; size > 0;) {
    bool has_shrunk = false;
    for (size_t at = 0; at < program.steps.size();) {
      Program shorter = program;
      const auto begin = shorter.steps.begin() + static_cast<std::ptrdiff_t>(at);
      const size_t count = std::min(size, program.steps.size() - at);
      shorter.steps.erase(begin, begin + static_cast<std::ptrdiff_t>(count));
      if (!meaning_of(shorter).problem.empty()) {
        at += size;
        continue;
      }
      if (budget-- == 0) return program;
      if (fails(shorter)) {
        program = std::move(shorter);
        has_shrunk = true;
      } else {
        at += size;
      }
    }
    if (size == 1 && !has_shrunk) break;
    size = std::max<size_t>(1, size / 2);
    if (size == 1 && program.steps.size() <= 1) break;
  }
  return program;
}

}  // namespace bp::conformance
