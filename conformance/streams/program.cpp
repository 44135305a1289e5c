#include "conformance/streams/program.hpp"

#include "conformance/numerics/philox.hpp"

namespace bp::conformance {
namespace {

std::string text_of(const Bytes& bytes) {
  return "b" + std::to_string(bytes.buffer) + "[" + std::to_string(bytes.offset) + ".." +
         std::to_string(bytes.offset + bytes.size) + ")";
}

const char* borrow_of(const Step& step) {
  return step.until_complete ? ", until_complete" : ", during_call";
}

std::string work_of(const Step& step) {
  const std::string event = "e" + std::to_string(step.event);
  switch (step.kind) {
    case StepKind::kFill:
      return "fill " + text_of(step.to) + " with " + std::to_string(step.pattern_bytes) + " bytes";
    case StepKind::kCopy:
      return "copy " + text_of(step.to) + " <- " + text_of(step.from);
    case StepKind::kUpload:
      return "copy_from_host " + text_of(step.to) + borrow_of(step);
    case StepKind::kDownload:
      return "copy_to_host " + text_of(step.from) + borrow_of(step);
    case StepKind::kLaunch:
      return "launch " + text_of(step.to) + " <- " + text_of(step.from) + " + " +
             text_of(step.other);
    case StepKind::kRecord:
      return "record " + event;
    case StepKind::kWait:
      return "wait_event " + event;
    case StepKind::kSyncStream:
      return "synchronize";
    case StepKind::kSyncEvent:
      return "synchronize " + event;
    case StepKind::kSyncDevice:
      return "synchronize all streams";
    case StepKind::kQuery:
      return "query";
    case StepKind::kFlush:
      return "flush";
    case StepKind::kRenewStream:
      return "destroy, and a new stream in its place";
    case StepKind::kRenewBuffer:
      return "free b" + std::to_string(step.to.buffer) + ", and a new buffer in its place";
  }
  return "?";
}

}  // namespace

std::vector<uint8_t> program_bytes(uint64_t seed, uint32_t count) {
  std::vector<uint8_t> bytes(count);
  for (uint32_t i = 0; i < count; i += 8) {
    const uint64_t word = element_bits(seed, 0, i / 8);
    for (uint32_t k = 0; k < 8 && i + k < count; ++k) {
      bytes[i + k] = static_cast<uint8_t>(word >> (8 * k));
    }
  }
  return bytes;
}

bool is_blocking(const Step& step) {
  switch (step.kind) {
    case StepKind::kSyncStream:
    case StepKind::kSyncEvent:
    case StepKind::kSyncDevice:
      return true;
    case StepKind::kDownload:
      return !step.until_complete;
    default:
      return false;
  }
}

std::string text_of(const Step& step) {
  const bool is_of_host = step.kind == StepKind::kSyncEvent || step.kind == StepKind::kSyncDevice;
  return (is_of_host ? "host" : "s" + std::to_string(step.stream)) + ": " + work_of(step);
}

std::string listing(const Program& program) {
  std::string text;
  for (size_t i = 0; i < program.steps.size(); ++i) {
    text += std::to_string(i + 1) + "  " + text_of(program.steps[i]) + "\n";
  }
  return text;
}

}  // namespace bp::conformance
