#include "conformance/streams/model.hpp"

#include <algorithm>
#include <cstring>

namespace bp::conformance {
namespace {

bool overlap(const Bytes& a, const Bytes& b) {
  return a.buffer == b.buffer && a.offset < b.offset + b.size && b.offset < a.offset + a.size;
}

Program without_steps(const Program& program) {
  Program shape = program;
  shape.steps.clear();
  return shape;
}

}  // namespace

void VectorClock::set(size_t line, uint32_t tick) {
  if (line >= ticks_.size()) ticks_.resize(line + 1);
  ticks_[line] = tick;
}

void VectorClock::merge(const VectorClock& other) {
  if (ticks_.size() < other.ticks_.size()) ticks_.resize(other.ticks_.size());
  for (size_t i = 0; i < other.ticks_.size(); ++i) ticks_[i] = std::max(ticks_[i], other.ticks_[i]);
}

// The beginning, moment 0 of line 0, is ordered before everything.
Model::Model(const Program& shape)
    : shape_(without_steps(shape)),
      streams_(shape.stream_count),
      events_(shape.event_count),
      line_count_(shape.stream_count) {
  for (uint32_t i = 0; i < shape.stream_count; ++i) line_of_stream_.push_back(i);
  for (uint32_t b = 0; b < shape.buffer_count; ++b) {
    std::vector<Cell>& cells = buffers_.emplace_back(shape.buffer_bytes);
    const std::vector<uint8_t> bytes = program_bytes(shape.content + b, shape.buffer_bytes);
    for (size_t i = 0; i < cells.size(); ++i) cells[i].value = bytes[i];
  }
}

std::vector<Model::Access> Model::accesses_of(const Step& step) const {
  switch (step.kind) {
    case StepKind::kFill:
    case StepKind::kUpload:
    case StepKind::kRenewBuffer:
      return {{&step.to, true}};
    case StepKind::kCopy:
      return {{&step.from, false}, {&step.to, true}};
    case StepKind::kDownload:
      return {{&step.from, false}};
    case StepKind::kLaunch:
      return {{&step.from, false}, {&step.other, false}, {&step.to, true}};
    default:
      return {};
  }
}

// Returns what has happened before work that is submitted to the stream of the step now.
VectorClock Model::clock_of_next(const Step& step) const {
  VectorClock clock = streams_[step.stream];
  clock.merge(host_);
  return clock;
}

Conflict Model::race_with(uint32_t line, const char* what) const {
  Conflict conflict{std::string("a race: ") + what, std::nullopt};
  const auto found = std::find(line_of_stream_.begin(), line_of_stream_.end(), line);
  if (found != line_of_stream_.end()) {
    conflict.stream = static_cast<uint32_t>(found - line_of_stream_.begin());
  }
  return conflict;
}

std::optional<Conflict> Model::conflict_at(const Cell& cell, const VectorClock& clock,
                                           bool is_write) const {
  if (cell.writer_tick > clock.of(cell.writer_line)) {
    return race_with(cell.writer_line, is_write ? "write after write" : "read after write");
  }
  if (!is_write) {
    if (!cell.is_defined) return Conflict{"a read of bytes that nobody has written", std::nullopt};
    return std::nullopt;
  }
  for (uint32_t line = 0; line < cell.reads.size(); ++line) {
    if (cell.reads[line] > clock.of(line)) return race_with(line, "write after read");
  }
  return std::nullopt;
}

std::optional<Conflict> Model::conflict_of(const Step& step) const {
  if (step.kind == StepKind::kCopy && overlap(step.to, step.from)) {
    return Conflict{"a copy between ranges that overlap", std::nullopt};
  }
  const VectorClock clock = clock_of_next(step);
  for (const Access& access : accesses_of(step)) {
    const std::vector<Cell>& cells = buffers_[access.bytes->buffer];
    const uint32_t end = access.bytes->offset + access.bytes->size;
    for (uint32_t i = access.bytes->offset; i < end; ++i) {
      if (auto conflict = conflict_at(cells[i], clock, access.is_write)) return conflict;
    }
  }
  return std::nullopt;
}

void Model::apply(const Step& step) {
  work(step);
  order(step);
  ++step_count_;
}

// Updates the clocks and the moments of the accesses.
void Model::order(const Step& step) {
  VectorClock& stream = streams_[step.stream];
  switch (step.kind) {
    case StepKind::kRecord:
      events_[step.event] = clock_of_next(step);
      return;
    case StepKind::kWait:
      stream.merge(events_[step.event]);
      return;
    case StepKind::kSyncStream:
      host_.merge(stream);
      return;
    case StepKind::kSyncEvent:
      host_.merge(events_[step.event]);
      return;
    case StepKind::kSyncDevice:
      for (const VectorClock& each : streams_) host_.merge(each);
      return;
    case StepKind::kRenewStream:
      stream = VectorClock();
      line_of_stream_[step.stream] = line_count_++;
      return;
    case StepKind::kQuery:
    case StepKind::kFlush:
      return;
    default:
      break;
  }
  const uint32_t line = line_of_stream_[step.stream];
  stream = clock_of_next(step);
  stream.set(line, stream.of(line) + 1);
  if (step.kind != StepKind::kRenewBuffer) mark(step, line, stream.of(line));
  if (is_blocking(step)) host_.merge(stream);
}

void Model::mark(const Step& step, uint32_t line, uint32_t tick) {
  for (const Access& access : accesses_of(step)) {
    const uint32_t end = access.bytes->offset + access.bytes->size;
    for (uint32_t i = access.bytes->offset; i < end; ++i) {
      Cell& cell = buffers_[access.bytes->buffer][i];
      if (access.is_write) {
        cell.writer_line = line;
        cell.writer_tick = tick;
        cell.writer_step = step_count_;
        cell.reads.clear();
      } else {
        if (cell.reads.size() <= line) cell.reads.resize(line + 1);
        cell.reads[line] = tick;
      }
    }
  }
}

std::vector<uint8_t> Model::values(const Bytes& from) const {
  std::vector<uint8_t> bytes(from.size);
  for (uint32_t i = 0; i < from.size; ++i) {
    bytes[i] = buffers_[from.buffer][from.offset + i].value;
  }
  return bytes;
}

void Model::write(const Bytes& to, const std::vector<uint8_t>& bytes) {
  for (uint32_t i = 0; i < to.size; ++i) {
    Cell& cell = buffers_[to.buffer][to.offset + i];
    cell.value = bytes[i % bytes.size()];
    cell.is_defined = true;
  }
}

// Computes the bytes as if the steps ran one after the other. The clocks allow this order, and
// without races all allowed orders give the same bytes.
void Model::work(const Step& step) {
  switch (step.kind) {
    case StepKind::kFill:
      return write(step.to, program_bytes(step.data, step.pattern_bytes));
    case StepKind::kUpload:
      return write(step.to, program_bytes(step.data, step.to.size));
    case StepKind::kCopy:
      return write(step.to, values(step.from));
    case StepKind::kDownload:
      downloads_.push_back(values(step.from));
      return;
    case StepKind::kLaunch: {
      std::vector<uint8_t> a = values(step.from);
      const std::vector<uint8_t> b = values(step.other);
      for (size_t i = 0; i + kElementBytes <= a.size(); i += kElementBytes) {
        uint32_t x, y;
        std::memcpy(&x, &a[i], kElementBytes);
        std::memcpy(&y, &b[i], kElementBytes);
        x += y;
        std::memcpy(&a[i], &x, kElementBytes);
      }
      return write(step.to, a);
    }
    case StepKind::kRenewBuffer:
      for (Cell& cell : buffers_[step.to.buffer]) cell = Cell{.is_defined = false};
      return;
    default:
      return;
  }
}

Meaning meaning_of(const Program& program) {
  Meaning meaning;
  meaning.model.emplace(program);
  for (size_t i = 0; i < program.steps.size(); ++i) {
    if (const auto conflict = meaning.model->conflict_of(program.steps[i])) {
      meaning.problem = "step " + std::to_string(i + 1) + " is " + conflict->problem;
      meaning.model.reset();
      return meaning;
    }
    meaning.model->apply(program.steps[i]);
  }
  return meaning;
}

}  // namespace bp::conformance
