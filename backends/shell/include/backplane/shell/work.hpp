// One piece of recorded work: a launch, a copy or a fill, with everything that its call was given.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "backplane/graph.h"
#include "backplane/memory.h"
#include "backplane/shell/frame.hpp"

namespace bp {

struct Work {
  enum class Kind { kLaunch, kCopy, kCopyPeer, kFill };

  static Work launch(const bp_kernel& kernel, const bp_launch& launch, const void* args);
  static Work copy(Kind kind, const bp_buffer_ref& dst, const bp_buffer_ref& src);
  static Work fill(const bp_buffer_ref& dst, const void* pattern, uint64_t pattern_size_bytes);

  Work clone() const;

  // Submits it to `stream`, as the host's call did.
  bp_status submit(const bp_allocator_ops& memory, bp_stream* stream) const;

  // "add.vector", "copy".
  const char* name() const;

  // A line for people.
  std::string text() const;

  Kind kind = Kind::kLaunch;
  const bp_kernel* kernel = nullptr;
  bp_launch launch_data{};
  OwnedFrame frame;
  bp_buffer_ref dst{}, src{};
  std::array<std::byte, 16> pattern{};
  uint64_t pattern_size_bytes = 0;
};

// One place where a piece of work says which memory it uses, and the bytes that it needs there.
struct Place {
  bp_buffer** buffer;
  uint64_t* byte_offset;
  int64_t begin, end;        // Relative to *byte_offset.
  uint64_t alignment_bytes;  // *byte_offset has to be a multiple of it.
};

// All places of `work`; they point into it.
std::vector<Place> places_of(Work& work);

// The index of the slot that `place` lies in, or -1. Throws StatusError of BP_INVALID_ARGUMENT for
// a place that lies partly in one.
int slot_of(const Place& place, const std::vector<bp_buffer_ref>& slots);

}  // namespace bp
