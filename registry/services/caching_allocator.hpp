// The caching allocator of one target. It keeps memory that programs free, and hands it out again.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <unordered_map>
#include <vector>

#include "backplane/host.h"
#include "registry/boundary/forks.hpp"
#include "registry/services/backend_calls.hpp"

namespace bp::services {

class Cache;
class CacheSet;
class MemoryHistory;
struct Pool;

inline constexpr uint64_t kRounding = 512;           // Sizes of blocks are multiples of this.
inline constexpr uint64_t kSmallLimit = 1ull << 20;  // A request of at most this size is small.
// The size of a segment for one block is a multiple of this.
inline constexpr uint64_t kLargeRounding = 2ull << 20;

constexpr uint64_t round_up(uint64_t value, uint64_t step) {
  return (value + step - 1) / step * step;
}

// What a cache asks of the backend for each of its segments. The zeros stand for the first heap.
struct Source {
  uint64_t heap_index = 0;
  uint64_t alignment_bytes = kRounding;  // A power of two from kRounding on.
  bp_memory_usage usage = 0;

  bool operator==(const Source&) const = default;
};

// What is called when a block of memory that belongs to someone else has ended.
struct Release {
  void (*call)(void* user_data) = nullptr;
  void* user_data = nullptr;
};

struct Block;

// A buffer of the backend. It is cut into blocks, which all belong to one pool. A wrapped segment
// is a part of a buffer that belongs to someone else. It has one block and no pool.
struct Segment {
  Segment(bp_buffer* b, Pool* of, uint64_t size, bool small)
      : buffer(b), pool(of), size_bytes(size), is_small(small) {}
  Segment(const Segment&) = delete;
  ~Segment();

  bp_buffer* buffer;
  Pool* pool;
  uint64_t size_bytes;
  bool is_small;                 // If true, its blocks serve small requests.
  bool is_lost = false;          // If true, a reset of the device has ended the buffer.
  bool has_reservation = false;  // If true, the address lies in a range that is reserved for it.
  uint64_t address = 0;          // The address of its first byte, or 0 until it is asked for.
  Block* first = nullptr;        // Its block at the lowest offset. This handle never changes.

  // Of wrapped segments alone.
  bool is_wrapped = false;
  uint64_t begin_byte = 0;  // Where it begins in the buffer.
  Release release;
  std::list<Segment>::iterator place;  // Its place in the list of wrapped segments.
};

// An event that the host signals when bytes for a stream of the device have come. The callback that
// signals it may not destroy it, so the cache does.
struct StagedEvent {
  bp_event* event = nullptr;
  std::atomic<bool> is_signalled = false;
};

// What a bp_block* points to: a part of a segment, linked to its neighbours. A handle that is not
// needed any more is kept for a later block. So the cache can tell that a handle was freed.
struct Block {
  bp_block face{};  // What the caller sees. It must be the first member.
  Cache* cache = nullptr;
  Segment* segment = nullptr;  // It is NULL for a block of 0 bytes.
  Block* previous = nullptr;   // The neighbours in the segment.
  Block* next = nullptr;
  Block* next_in_bin = nullptr;  // The next block of the bin, or the next retired handle.
  uint64_t size_bytes = 0;       // The rounded size; face.ref.size_bytes is the requested size.
  bool has_address = false;      // If true, the address was asked for, and find() finds the block.
  bool is_free = false;          // If true, it is in a free set. It is false for a block in a bin.
  bool is_live = false;          // If true, a caller has the block.
  // The streams whose work the memory waits for when the block is freed. For a wrapped block they
  // include its own stream.
  std::vector<std::shared_ptr<Pool>> other_streams;
};

// Orders blocks by size, and blocks of one size by their place. So the smallest block that is large
// enough is found first, and equal runs use equal blocks.
struct BySize {
  bool operator()(const Block* a, const Block* b) const;
};

// A stream and its free blocks. A pool begins when the cache first sees the stream, and ends when
// the last work of the stream has ended. A stream that gets the address of an ended stream has a
// new pool.
struct Pool {
  explicit Pool(bp_stream* of) : stream(of) {}

  static constexpr uint64_t kBinCount = 129;  // The sizes 0 to 64 KiB in steps of 512 bytes.
  Block* bins[kBinCount] = {};                // The blocks of a bin have one size.
  std::set<Block*, BySize> free[2];           // The free sets of small and of large blocks.

  // The stream. It is NULL once the stream has ended, and in the pool that all streams share. Each
  // call that passes it to the backend is in the list of calls (lend_stream()).
  bp_stream* stream;
  bp_event* end = nullptr;     // An event after the last work of a stream that has ended.
  bool is_over = false;        // If true, the stream and its work have ended.
  uint64_t segment_count = 0;  // The number of segments of this pool.
};

// Refuses a block that was freed before. `what` is the function that got it, such as "free".
bp_status was_freed(const char* what);

// Returns the heap of this index, which exists.
const bp_heap& heap_at(const bp_target& target, uint64_t index);

// Returns the alignment that a kernel may ask of the offset of a tensor. Not every caller knows
// from which heap a buffer is, so this is the largest alignment of all heaps.
uint64_t offset_alignment(const bp_target& target);

// The cache of one target. It is thread-safe. It calls the backend without holding a lock. So a
// slow backend stops only the threads that need its answer, and a backend may call the cache.
class Cache {
 public:
  // `has_graphs` says whether a stream of the target can capture.
  Cache(const bp_target& target, bool has_graphs, const Source& source = {})
      : target_(target),
        has_graphs_(has_graphs),
        source_(source),
        heap_(heap_at(target, source.heap_index)),
        rounding_(
            std::bit_ceil(std::clamp(std::max({heap_.map_granularity_bytes,
                                               offset_alignment(target), source.alignment_bytes}),
                                     kRounding, kLargeRounding))) {}
  Cache(const Cache&) = delete;

  const Source& source() const { return source_; }

  // Gives the cache the other caches of its target, which it empties when memory runs out, and the
  // list to which it adds what happens. No other thread may use the cache yet.
  void join(CacheSet* others, MemoryHistory* history) {
    others_ = others;
    history_ = history;
  }

  // Takes a block for `stream`. While the stream belongs to a capture, the block is one of the
  // pool of the capture. take() always takes a block of this cache.
  bp_status allocate(bp_stream* stream, uint64_t size_bytes, bp_block** out_block);
  bp_status take(bp_stream* stream, uint64_t size_bytes, bp_block** out_block);
  static bp_status free(bp_block* block);
  static bp_status record_stream(bp_block* block, bp_stream* stream);

  // Makes a block of a range of a buffer that belongs to someone else (bp_block_wrap()). `address`
  // is the address of its first byte, or 0 if the caller does not know it.
  bp_status wrap(bp_stream* stream, const bp_buffer_ref& ref, uint64_t address,
                 const Release& release, bp_block** out_block);

  // Gives the place of a range of a block, and the target, for a copy of the call `what` on
  // `stream`, which uses the block from now on.
  static bp_status find_place(bp_block* block, uint64_t byte_offset, uint64_t size_bytes,
                              const char* what, bp_stream*& stream, bp_buffer_ref& out_place,
                              const bp_target*& out_target);

  // Keeps an event until it was signalled, and destroys those that were.
  void keep_event(std::shared_ptr<StagedEvent> event);

  // These implement bp_block_address() and bp_target_find_block().
  static bp_status address(bp_block* block, uint64_t* out_address);
  bp_status find(uint64_t address, bp_block** out_block, uint64_t* out_byte_offset) const;

  // A stream that is about to end, between the two calls below.
  struct Ending {
    std::unordered_map<bp_stream*, std::shared_ptr<Pool>>::node_type stream;
    std::list<std::shared_ptr<Pool>> pool;  // It is empty if the cache does not know the stream.
    bool is_idle = false;                   // If true, all work of the stream has ended.
  };

  // The destroy of a stream is called between these two. After them, every stream can use the
  // blocks of the stream once its work has ended. The cache learns this from an event, or, if no
  // event can be recorded, when it waits for the device. If the destroy failed, the stream keeps
  // its blocks.
  Ending begin_end(bp_stream* stream);
  void finish_end(Ending& ending, bool is_destroyed);

  // Gives all memory that no block uses back to the backend, unless it belongs to a graph. If the
  // backend refuses to take a buffer, the buffer stays in the cache. Returns the status of the
  // first refusal.
  bp_status empty();

  // Does the same, also between begin_graph() and end_graph(), for a graph whose replays use only
  // the blocks that callers hold.
  bp_status give_back_unused();

  // close() says that the pool of the cache has ended: from now on the free of the last block gives
  // the memory back. reopen() makes the cache usable by another pool. If the cache still has
  // memory, it returns false instead.
  void close();
  bool reopen();

  // From begin_graph() to end_graph() the memory belongs to a captured graph: nothing is given back
  // to the backend, and a block that other streams use is not reused. add_user() names a stream
  // whose replays use all of the memory, also that of blocks that callers still hold. end_graph()
  // lets these replays end before the memory is given back or reused.
  void begin_graph();
  void add_user(bp_stream* stream);
  void end_graph();

  // Frees the blocks that were freed while one of their streams captured.
  void free_deferred();

  // Forgets all memory, all streams and all events, because a reset of the device has ended them. A
  // block that is in use stays a block until it is freed, and is not used again.
  void forget_memory();

  // Ends the cache, and frees every buffer, also those in use. All work must have completed. The
  // object lives until the last block is freed, and then deletes itself. Returns the first failure
  // of the backend. A buffer that the backend does not take is lost.
  static bp_status release(Cache* cache);

  bp_cache_statistics statistics() const;

  // Calls look(segment, waiting) for each segment, the wrapped ones last, while it holds the lock.
  // `waiting` is the list of blocks that were freed while other streams may still use them.
  template <typename Look>
  void look_at_segments(Look&& look) const {
    const std::lock_guard lock(mutex_);
    std::vector<const Block*> waiting;
    for (const Pending& pending : pending_) waiting.push_back(pending.block);
    waiting.insert(waiting.end(), deferred_.begin(), deferred_.end());
    for (const std::list<Segment>* list : {&segments_, &wrapped_}) {
      for (const Segment& segment : *list) look(segment, waiting);
    }
  }

 private:
  // A freed block that other streams may still use.
  struct Pending {
    Block* block;
    std::vector<bp_event*> events;
    std::vector<std::shared_ptr<Pool>> ended;  // The other streams that ended before the free.
  };

  ~Cache();

  // Returns whether a parent of this process made the cache. A thread of the parent may hold its
  // locks, so nothing of it is used here.
  bool is_of_parent() const { return fork_count_ != fork_count; }

  // Returns whether the memory of a block can be used again after the block.
  bool has_memory_locked(const Block& block) const {
    return block.segment != nullptr && !block.segment->is_lost && !is_released_;
  }

  // Returns whether a buffer of the cache is used as one block. What is exported is a whole buffer.
  bool has_whole_segments() const {
    return heap_.suballocation_granularity_bytes == 0 || (source_.usage & BP_MEMORY_EXPORT) != 0;
  }

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
  void drop_free_blocks_locked(Pool& pool);
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
  void forget_all();
  bp_status free_after_other_streams(Block* block);
  bool must_defer(const Block& block) const;
  bool is_in_capture(bp_stream* stream) const;
  bool add_users_locked(Block& block);
  std::vector<Block*> take_deferred();
  bp_status record_events(Pending& pending);
  void reclaim_pending(bool waits);
  void reclaim_ended_streams(bool waits);
  bool has_happened(bp_event* event, bool waits) const;
  bool is_idle(bp_stream* stream) const;
  bp_event* record_end(bp_stream* stream) const;
  void end_idle();
  void end_staged_events();
  bp_status free_shared(Block& block);
  void end_use_locked(Block* block);
  void call_releases();
  static uint64_t address_of(const Block& block);
  bp_status address_of_segment(Segment& segment);
  void forget_address_locked(Block& block);
  void destroy_events(const std::vector<bp_event*>& events);

  const bp_target& target_;
  const bool has_graphs_;
  const Source source_;
  const bp_heap& heap_;
  CacheSet* others_ = nullptr;
  MemoryHistory* history_ = nullptr;
  // A power of two from kRounding on. The sizes of blocks are its multiples, so that no two blocks
  // share bytes that flush() and invalidate() move together.
  const uint64_t rounding_;
  BackendCalls calls_;
  mutable std::mutex mutex_;
  // mutex_ guards the members below.
  std::unordered_map<bp_stream*, std::shared_ptr<Pool>> pools_;  // The pools of live streams.
  std::list<std::shared_ptr<Pool>> ended_;  // The pools of ended streams whose work may still run.
  Pool common_{nullptr};                    // Every stream may use its blocks.
  bp_stream* last_stream_ = nullptr;
  Pool* last_pool_ = nullptr;
  std::list<Segment> segments_;
  std::list<Segment> lost_segments_;      // Blocks that are in use may still point to them.
  std::list<Segment> wrapped_;            // The wrapped segments, each with a block in use.
  std::list<Segment> ended_wraps_;        // The wrapped segments whose owners must be told.
  std::map<uint64_t, Block*> addressed_;  // The live blocks whose addresses were asked for.
  std::vector<Pending> pending_;
  std::vector<Block*>
      deferred_;  // Freed blocks that streams of captures used when they were freed.
  // The streams whose replays use all memory of the cache.
  std::vector<std::shared_ptr<Pool>> users_;
  std::vector<std::shared_ptr<StagedEvent>> staged_;
  Block* unused_ = nullptr;  // The first retired handle.
  bp_cache_statistics statistics_{.struct_size = sizeof(bp_cache_statistics),
                                  .struct_type = BP_STRUCT_CACHE_STATISTICS};
  uint64_t live_block_count_ = 0;
  const uint32_t fork_count_ = fork_count;
  bool is_released_ = false;
  bool is_closed_ = false;       // If true, no pool uses the cache.
  bool ends_when_idle_ = false;  // If true, one of the two above is true.
  std::atomic<bool> has_pending_ = false;
  std::atomic<bool> is_of_graph_ = false;  // If true, the memory belongs to a captured graph.
};

// A block that goes back to its cache at the end of the scope.
struct FreeBlock {
  void operator()(bp_block* block) const { static_cast<void>(Cache::free(block)); }
};
using BlockHandle = std::unique_ptr<bp_block, FreeBlock>;

}  // namespace bp::services
