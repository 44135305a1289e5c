// Programs of stream work: launches, copies, fills, records, waits and host syncs over a few
// streams. A program is data, so that it can be drawn, checked, run, shortened and printed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bp::conformance {

enum class StepKind : uint8_t {
  kFill,         // to = a pattern of pattern_bytes, drawn from `data`
  kCopy,         // to = from
  kUpload,       // to = host bytes, drawn from `data`
  kDownload,     // host bytes = from
  kLaunch,       // to = from + other, in elements of kElementBytes
  kRecord,       // of `event` on `stream`
  kWait,         // of `stream` for `event`
  kSyncStream,   // the host waits for `stream`
  kSyncEvent,    // the host waits for `event`
  kSyncDevice,   // the host waits for all streams
  kQuery,        // tells nothing that could be relied on
  kFlush,        // as little
  kRenewStream,  // destroys `stream`, busy as it may be, and makes a new one in its place
  kRenewBuffer,  // frees to.buffer on `stream`, and allocates a new one in its place
};
inline constexpr int kStepKindCount = 14;

// Launches work on 32-bit integers.
inline constexpr uint32_t kElementBytes = 4;

struct Bytes {
  uint32_t buffer = 0;
  uint32_t offset = 0;
  uint32_t size = 0;
};

struct Step {
  StepKind kind = StepKind::kQuery;
  uint32_t stream = 0;
  uint32_t event = 0;
  Bytes to{}, from{}, other{};
  uint64_t data = 0;
  uint32_t pattern_bytes = 1;
  bool until_complete = false;  // How long a copy borrows its host memory; else during the call.
};

struct Program {
  uint32_t stream_count = 1;
  uint32_t event_count = 1;
  uint32_t buffer_count = 1;
  uint32_t buffer_bytes = 64;
  uint64_t content = 0;  // What the buffers hold at the beginning is drawn from it.
  std::vector<Step> steps;
};

// `count` bytes drawn from `seed`: what a fill, an upload or the beginning puts somewhere.
std::vector<uint8_t> program_bytes(uint64_t seed, uint32_t count);

// Whether the host waits in a step: what was submitted before is then on its way to its end.
bool is_blocking(const Step& step);

// One step in words: "s1: copy b0[16..48) <- b2[0..32)".
std::string text_of(const Step& step);

// A line per step, each with its number.
std::string listing(const Program& program);

}  // namespace bp::conformance
