// One piece of recorded work: a launch, a copy or a fill, with all arguments of its call.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backplane/backend.h"
#include "backplane/graph.h"
#include "backplane/memory.h"
#include "backplane/shell/bytes.hpp"
#include "backplane/shell/frame.hpp"

namespace bp {

struct Work {
  enum class Kind { kLaunch, kCopy, kCopyPeer, kFill };

  // Asks the host for the description of an op that the kernel names. Throws StatusError, also if
  // the host does not know the op any more.
  static Work launch(const bp_host& host, const bp_kernel& kernel, const bp_launch& launch,
                     const void* args);
  static Work copy(Kind kind, const bp_buffer_ref& dst, const bp_buffer_ref& src);
  static Work fill(const bp_buffer_ref& dst, const void* pattern, uint64_t pattern_size_bytes);

  Work clone() const;

  // Submits the work to `stream`, as the host's call did.
  bp_status submit(const bp_allocator_ops& memory, bp_stream* stream) const;

  // Returns the name of the work, such as "add.vector" or "copy".
  const char* name() const;

  // Returns a line for people that describes the work.
  std::string text() const;

  Kind kind = Kind::kLaunch;
  const bp_kernel* kernel = nullptr;
  bp_launch launch_data{};
  OwnedFrame frame;
  std::shared_ptr<const void> pin;  // NULL, or what lives as long as the work.
  bp_buffer_ref dst{}, src{};
  std::array<std::byte, kMaxPatternBytes> pattern{};
  uint64_t pattern_size_bytes = 0;
};

// One member of a piece of work that names memory, and the bytes that the work uses there.
struct Place {
  bp_buffer** buffer;
  uint64_t* byte_offset;
  int64_t begin, end;        // Relative to *byte_offset.
  uint64_t alignment_bytes;  // *byte_offset is a multiple of it.
};

// Returns all places of `work`, which point into `work`.
std::vector<Place> places_of(Work& work);

// Returns the index of the slot that `place` lies in, or -1. Throws StatusError of
// BP_INVALID_ARGUMENT if the place lies partly in a slot, or where no buffer has bytes.
int slot_of(const Place& place, const std::vector<bp_buffer_ref>& slots);

}  // namespace bp
