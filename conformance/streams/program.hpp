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
  kRecord,       // records `event` on `stream`
  kWait,         // lets `stream` wait for `event`
  kSyncStream,   // the host waits for `stream`
  kSyncEvent,    // the host waits for `event`
  kSyncDevice,   // the host waits for all streams
  kQuery,        // asks for completion, whose answer nothing relies on
  kFlush,        // hands batched work to the device, which orders nothing
  kRenewStream,  // destroys `stream`, even if it is busy, and makes a new one in its place
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
  bool until_complete = false;  // If false, a copy borrows its host memory only during the call.
};

struct Program {
  uint32_t stream_count = 1;
  uint32_t event_count = 1;
  uint32_t buffer_count = 1;
  uint32_t buffer_bytes = 64;
  uint64_t content = 0;  // The seed of the first bytes of the buffers.
  std::vector<Step> steps;
};

// Returns `count` bytes from `seed`, for a fill, an upload or the first bytes of a buffer.
std::vector<uint8_t> program_bytes(uint64_t seed, uint32_t count);

// Returns whether the host waits in a step. Work that was submitted before must then end without
// further calls.
bool is_blocking(const Step& step);

// Describes one step: "s1: copy b0[16..48) <- b2[0..32)".
std::string text_of(const Step& step);

// Returns a line for each step, with its number.
std::string listing(const Program& program);

}  // namespace bp::conformance
