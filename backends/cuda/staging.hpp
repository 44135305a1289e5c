// Copies between the device and host memory that CUDA does not know. They go through pinned blocks,
// because CUDA's own staging blocks the caller until the stream has reached the copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "backends/cuda/stream.hpp"
#include "backplane/memory.h"

namespace bp::cuda {

// Pinned blocks of one device, which are used again when the work that reads them has ended.
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

  // Returns a block of at least size_bytes, which may be at most kMaxBlockBytes. Throws CudaError.
  Block take(size_t size_bytes);

  // Gives a block back, which may be used again behind the work submitted to `stream` so far. If it
  // throws CudaError, the block is not used again, and lives until clear().
  void give_behind(Block block, cudaStream_t stream);

  // Frees all blocks, which must not be in use.
  void clear();

 private:
  Device& device_;
  std::mutex mutex_;  // It guards the members below.
  std::vector<Block> free_, busy_;
  size_t next_busy_ = 0;
  std::vector<std::byte*> all_;
};

// Submit a copy of size_bytes between host and device, as bp_allocator_ops does.
bp_status copy_in(Lane& lane, std::byte* to, const void* from, uint64_t size_bytes,
                  bp_borrow borrow);
bp_status copy_out(Lane& lane, void* to, const std::byte* from, uint64_t size_bytes,
                   bp_borrow borrow, uint64_t timeout_ns);

}  // namespace bp::cuda
