// The caching allocator of one target: keeps what programs free, and hands it out again.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <unordered_map>
#include <vector>

#include "backplane/host.h"

namespace bp::services {

class Cache;

// A buffer of the backend, cut into blocks that lie behind each other.
struct Segment {
  Segment(bp_buffer* b, uint64_t size, bool small) : buffer(b), size_bytes(size), is_small(small) {}
  Segment(const Segment&) = delete;
  ~Segment();

  bp_buffer* buffer;
  uint64_t size_bytes;
  bool is_small;                 // Holds blocks of the small pool.
  bool has_reservation = false;  // The address is of a range that is reserved for it.
  uint64_t address = 0;          // Of its first byte; 0 until it is asked for.
};

// What a bp_block* points to. A split of a segment, linked to its neighbours.
struct Block {
  bp_block face;  // First: the caller's view of it.
  Cache* cache = nullptr;
  bp_stream* stream = nullptr;
  Segment* segment = nullptr;  // NULL for a block of 0 bytes.
  Block* previous = nullptr;   // Neighbours in the segment.
  Block* next = nullptr;
  Block* next_in_bin = nullptr;
  uint64_t size_bytes = 0;   // Rounded; face.ref.size_bytes is what was asked for.
  bool has_address = false;  // It was asked for, and find() finds the block.
  bool is_free = false;      // In a free set: may be merged. A block in a bin is not.
  std::vector<bp_stream*> other_streams;
};

// Smallest size first, then lowest address, so that equal runs reuse equal blocks.
struct BySize {
  bool operator()(const Block* a, const Block* b) const;
};

// The free blocks of one stream.
struct Pool {
  static constexpr uint64_t kBinCount = 129;  // Sizes 0 to 64 KiB in steps of 512 bytes.
  Block* bins[kBinCount] = {};                // Kept at their exact size, not merged.
  std::set<Block*, BySize> free[2];           // Small, large.
};

// Thread-safe. No code of the backend runs under its lock.
class Cache {
 public:
  explicit Cache(const bp_target& target) : target_(target) {}
  Cache(const Cache&) = delete;

  bp_status allocate(bp_stream* stream, uint64_t size_bytes, bp_block** out_block);
  static bp_status free(bp_block* block);
  static bp_status record_stream(bp_block* block, bp_stream* stream);

  // bp_block_address() and bp_target_find_block().
  static bp_status address(bp_block* block, uint64_t* out_address);
  bp_status find(uint64_t address, bp_block** out_block, uint64_t* out_byte_offset) const;

  // Gives all memory that no block uses back to the backend.
  bp_status empty();

  // Ends the cache: frees every buffer, also those in use. Work must have completed. The object
  // lives on until the last block is freed, and then deletes itself.
  static void release(Cache* cache);

  bp_cache_statistics statistics() const;

 private:
  // A freed block that another stream may still use.
  struct Pending {
    Block* block;
    std::vector<bp_event*> events;
  };

  Block* take_locked(bp_stream* stream, uint64_t size_bytes);
  Block* split_locked(Block* block, uint64_t size_bytes);
  void give_back_locked(Block* block);
  void put_free_locked(Block* block);
  void flush_bins_locked();
  Block* merge_locked(Block* left, Block* right);
  Pool& pool_locked(bp_stream* stream);
  Block* hand_out_locked(Block* block, uint64_t requested_bytes);
  bp_status make_empty_block(bp_stream* stream, bp_block** out_block);
  bp_status grow(bp_stream* stream, uint64_t size_bytes);
  bp_status allocate_buffer(uint64_t size_bytes, bp_buffer** out_buffer);
  bp_status out_of_memory(uint64_t size_bytes);
  bp_status free_after_other_streams(Block* block);
  void reclaim_pending(bool waits);
  bp_status address_of_segment(Segment& segment);
  void forget_address_locked(Block& block);
  void destroy_events(const std::vector<bp_event*>& events);

  const bp_target& target_;
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::unordered_map<bp_stream*, std::unique_ptr<Pool>> pools_;
  bp_stream* last_stream_ = nullptr;
  Pool* last_pool_ = nullptr;
  std::list<Segment> segments_;
  std::map<uint64_t, Block*> addressed_;  // Live blocks, by the address that was asked for.
  std::vector<Pending> pending_;
  std::vector<std::unique_ptr<Block>> unused_;  // Handles to use again.
  bp_cache_statistics statistics_{.struct_size = sizeof(bp_cache_statistics),
                                  .struct_type = BP_STRUCT_CACHE_STATISTICS};
  uint64_t live_block_count_ = 0;
  bool is_released_ = false;
  std::atomic<bool> has_pending_ = false;
};

}  // namespace bp::services
