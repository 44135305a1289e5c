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
#include "registry/services/backend_calls.hpp"

namespace bp::services {

class Cache;
struct Pool;

inline constexpr uint64_t kRounding = 512;              // Sizes of blocks are multiples of this.
inline constexpr uint64_t kSmallLimit = 1ull << 20;     // Requests up to this are small.
inline constexpr uint64_t kLargeRounding = 2ull << 20;  // Of segments for one block.

constexpr uint64_t round_up(uint64_t value, uint64_t step) {
  return (value + step - 1) / step * step;
}

// A buffer of the backend, cut into blocks that lie behind each other. All of them are of one pool.
struct Segment {
  Segment(bp_buffer* b, Pool* of, uint64_t size, bool small)
      : buffer(b), pool(of), size_bytes(size), is_small(small) {}
  Segment(const Segment&) = delete;
  ~Segment();

  bp_buffer* buffer;
  Pool* pool;
  uint64_t size_bytes;
  bool is_small;                 // Holds blocks of the small pool.
  bool has_reservation = false;  // The address is of a range that is reserved for it.
  uint64_t address = 0;          // Of its first byte; 0 until it is asked for.
};

// What a bp_block* points to. A split of a segment, linked to its neighbours. A handle that is of
// no use any more is kept for the next block: the cache can tell that it was freed.
struct Block {
  bp_block face{};  // First: the caller's view of it.
  Cache* cache = nullptr;
  Segment* segment = nullptr;  // NULL for a block of 0 bytes.
  Block* previous = nullptr;   // Neighbours in the segment.
  Block* next = nullptr;
  Block* next_in_bin = nullptr;  // Or the next handle to use again.
  uint64_t size_bytes = 0;       // Rounded; face.ref.size_bytes is what was asked for.
  bool has_address = false;      // It was asked for, and find() finds the block.
  bool is_free = false;          // In a free set: may be merged. A block in a bin is not.
  bool is_live = false;          // A caller holds it.
  std::vector<std::shared_ptr<Pool>> other_streams;
};

// Smallest size first, then lowest address, so that equal runs reuse equal blocks.
struct BySize {
  bool operator()(const Block* a, const Block* b) const;
};

// One stream from the cache's first sight of it to the end of its last work, and its free blocks. A
// stream that gets the address of an ended one has a pool of its own.
struct Pool {
  explicit Pool(bp_stream* of) : stream(of) {}

  static constexpr uint64_t kBinCount = 129;  // Sizes 0 to 64 KiB in steps of 512 bytes.
  Block* bins[kBinCount] = {};                // Kept at their exact size, not merged.
  std::set<Block*, BySize> free[2];           // Small, large.

  bp_stream* stream;        // NULL once the stream has ended, and for blocks that are no stream's.
                            // Who gives it to the backend is among the calls of the cache.
  bp_event* end = nullptr;  // Behind the last work of a stream that has ended.
  bool is_over = false;     // The stream has ended, and so has its work.
  uint64_t segment_count = 0;  // Segments of this pool.
};

// The refusal of a block that no caller holds any more: "block.free: ...".
bp_status was_freed(const char* what);

// Thread-safe. No code of the backend runs under a lock: a slow backend stops who needs its answer,
// and a backend that calls the host may come back here.
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

  // A stream between the two calls below.
  struct Ending {
    std::unordered_map<bp_stream*, std::shared_ptr<Pool>>::node_type stream;
    std::list<std::shared_ptr<Pool>> pool;  // One, or none if the cache does not know the stream.
    bool is_idle = false;                   // Nothing of it runs any more.
  };

  // To be called in front of the destroy of a stream and behind it. From then on its blocks are for
  // every stream, once the work that was submitted to it has ended: behind an event, or where none
  // can be recorded, when the cache has waited for the device. If the destroy failed, the stream
  // has its blocks as before.
  Ending begin_end(bp_stream* stream);
  void finish_end(Ending& ending, bool is_destroyed);

  // Gives all memory that no block uses back to the backend. A buffer that the backend refuses to
  // take stays in the cache; the status is that of the first refusal.
  bp_status empty();

  // Ends the cache: frees every buffer, also those in use. Work must have completed. The object
  // lives on until the last block is freed, and then deletes itself. Returns the first failure of
  // the backend, to which the buffer is lost.
  static bp_status release(Cache* cache);

  bp_cache_statistics statistics() const;

 private:
  // A freed block that another stream may still use.
  struct Pending {
    Block* block;
    std::vector<bp_event*> events;
    std::vector<std::shared_ptr<Pool>> ended;  // Streams that ended before it was freed.
  };

  ~Cache();

  Block* take_locked(bp_stream* stream, uint64_t size_bytes);
  Block* split_locked(Block* block, uint64_t size_bytes);
  void give_back_locked(Block* block);
  void put_free_locked(Block* block);
  void flush_all_bins_locked();
  Block* merge_locked(Block* left, Block* right);
  Block* new_handle_locked();
  void retire_handle_locked(Block* block);
  void take_wholes_locked(Pool& pool, std::vector<Block*>& wholes);
  bp_status give_segment_back(BackendCalls::Call& call, Block* block);
  void drop_segment_locked(Block* block);
  const std::shared_ptr<Pool>& known_stream_locked(bp_stream* stream);
  Pool& pool_locked(bp_stream* stream);
  void flush_bins_locked(Pool& pool);
  bool has_fit_locked(bp_stream* stream, uint64_t size_bytes);
  void take_common_segment_locked(Block* block, Pool& to);
  void end_pool_locked(Pool& pool);
  void resume(Ending& ending);
  Block* hand_out_locked(Block* block, uint64_t requested_bytes);
  bp_status make_empty_block(bp_block** out_block);
  bp_status grow(bp_stream* stream, uint64_t size_bytes);
  bp_status add_segment(bp_stream* stream, uint64_t size_bytes, uint64_t needed_bytes);
  bp_status collect_and_add(bp_stream* stream, uint64_t size_bytes, uint64_t needed_bytes);
  bp_status out_of_memory(uint64_t size_bytes);
  bp_status free_after_other_streams(Block* block);
  bp_status record_events(Pending& pending);
  void reclaim_pending(bool waits);
  void reclaim_ended_streams(bool waits);
  bool has_happened(bp_event* event, bool waits) const;
  bool is_idle(bp_stream* stream) const;
  bp_event* record_end(bp_stream* stream) const;
  bp_status address_of_segment(Segment& segment);
  void forget_address_locked(Block& block);
  void destroy_events(const std::vector<bp_event*>& events);

  const bp_target& target_;
  BackendCalls calls_;
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::unordered_map<bp_stream*, std::shared_ptr<Pool>> pools_;  // Of streams that live.
  std::list<std::shared_ptr<Pool>> ended_;  // Of streams that ended, whose work may still run.
  Pool common_{nullptr};                    // What every stream may have.
  bp_stream* last_stream_ = nullptr;
  Pool* last_pool_ = nullptr;
  std::list<Segment> segments_;
  std::map<uint64_t, Block*> addressed_;  // Live blocks, by the address that was asked for.
  std::vector<Pending> pending_;
  Block* unused_ = nullptr;  // Handles to use again.
  bp_cache_statistics statistics_{.struct_size = sizeof(bp_cache_statistics),
                                  .struct_type = BP_STRUCT_CACHE_STATISTICS};
  uint64_t live_block_count_ = 0;
  bool is_released_ = false;
  std::atomic<bool> has_pending_ = false;
};

// A block that goes back to its cache at the end of the scope.
struct FreeBlock {
  void operator()(bp_block* block) const { static_cast<void>(Cache::free(block)); }
};
using BlockHandle = std::unique_ptr<bp_block, FreeBlock>;

}  // namespace bp::services
