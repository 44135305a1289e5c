// Memory between the host and the device: arguments of dispatches, and bytes on their way.
//
// Slices are cut from chunks one behind the other. Who uses a slice holds its chunk; a chunk that
// nobody holds is used again from its beginning. Work on the device holds it until it has ended.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "backends/vulkan/context.hpp"

namespace bp::vulkan {

// Part of a chunk, which both sides see at once.
struct Slice {
  std::shared_ptr<Memory> memory;
  uint64_t byte_offset = 0, size_bytes = 0;
  std::byte* pointer = nullptr;

  uint64_t address() const { return memory->address() + byte_offset; }
  uint64_t offset_in_buffer() const { return memory->first_byte() + byte_offset; }
};

class Staging {
 public:
  // Slices that the host reads lie where it reads fast, if the device has such memory.
  Staging(std::shared_ptr<Context> context, bool is_read_by_host);

  // Throws StatusError of BP_OUT_OF_MEMORY, for the function named `call`.
  Slice take(uint64_t size_bytes, const char* call);

 private:
  static constexpr uint64_t kChunkBytes = uint64_t{1} << 20;
  static constexpr size_t kMostIdleChunks = 8;
  // The most that a device may ask of a uniform buffer's offset (Vulkan 1.3, required limits).
  static constexpr uint64_t kAlignmentBytes = 256;

  Slice cut(uint64_t size_bytes);
  bool find_idle_chunk();

  const std::shared_ptr<Context> context_;
  const size_t heap_;
  std::mutex mutex_;                             // Guards what follows.
  std::vector<std::shared_ptr<Memory>> chunks_;  // The last one is cut from.
  uint64_t cut_bytes_ = 0;                       // Of it.
};

}  // namespace bp::vulkan
