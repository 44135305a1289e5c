// Copies between the device and memory of the host that CUDA does not know: by way of pinned
// blocks, since its own staging blocks the caller until the stream has got there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "backends/cuda/stream.hpp"
#include "backplane/memory.h"

namespace bp::cuda {

// Pinned blocks of one device, used again when the work that reads them has ended.
class StagingBlocks {
 public:
  struct Block {
    std::byte* memory = nullptr;
    size_t size_bytes = 0;
    std::shared_ptr<NativeEvent> last_use;
  };
  static constexpr size_t kMaxBlockBytes = size_t{1} << 20;

  explicit StagingBlocks(Device& device) : device_(device) {}
  StagingBlocks(const StagingBlocks&) = delete;

  // A block of at least size_bytes, which are at most kMaxBlockBytes. Throws CudaError.
  Block take(size_t size_bytes);

  // Gives it back, to be used behind what was submitted to `stream` so far. Throws CudaError; then
  // the block is used no more, and lives until clear().
  void give_behind(Block block, cudaStream_t stream);

  // Frees all blocks; nothing uses them.
  void clear();

 private:
  Device& device_;
  std::mutex mutex_;  // Guards what follows.
  std::vector<Block> free_, busy_;
  std::vector<std::byte*> all_;
};

// Submit a copy of size_bytes between host and device, as bp_allocator_ops does.
bp_status copy_in(Lane& lane, std::byte* to, const void* from, uint64_t size_bytes,
                  bp_borrow borrow);
bp_status copy_out(Lane& lane, void* to, const std::byte* from, uint64_t size_bytes,
                   bp_borrow borrow);

}  // namespace bp::cuda
