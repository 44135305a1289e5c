// Memory between the host and the device, for arguments of dispatches and for bytes that are
// copied.
//
// Slices are cut from chunks one after the other. The user of a slice holds its chunk; work on the
// device holds the chunk until the work has ended. A chunk that nobody holds is used again from its
// beginning.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "backends/vulkan/context.hpp"

namespace bp::vulkan {

// A part of a chunk, which host and device access without copies.
struct Slice {
  std::shared_ptr<Memory> memory;
  uint64_t byte_offset = 0, size_bytes = 0;
  std::byte* pointer = nullptr;

  uint64_t address() const { return memory->address() + byte_offset; }
  uint64_t offset_in_buffer() const { return memory->first_byte() + byte_offset; }
};

class Staging {
 public:
  // If `is_read_by_host` is true, slices lie in memory that the host reads fast, if the device has
  // such memory.
  Staging(std::shared_ptr<Context> context, bool is_read_by_host);

  // Takes a slice. Throws StatusError of BP_OUT_OF_MEMORY, whose text names `call`.
  Slice take(uint64_t size_bytes, const char* call);

 private:
  static constexpr uint64_t kChunkBytes = uint64_t{1} << 20;
  static constexpr size_t kMostIdleChunks = 8;
  // The largest alignment that a device may require for the offset of a uniform buffer (Vulkan 1.3,
  // required limits).
  static constexpr uint64_t kAlignmentBytes = 256;

  Slice cut(uint64_t size_bytes);
  bool find_idle_chunk();

  const std::shared_ptr<Context> context_;
  const size_t heap_;
  std::mutex mutex_;                             // It guards the members below.
  std::vector<std::shared_ptr<Memory>> chunks_;  // Slices are cut from the last one.
  uint64_t cut_bytes_ = 0;                       // The used bytes of the last one.
};

}  // namespace bp::vulkan
