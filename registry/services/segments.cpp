// Takes segments from the backend, and gives them back.
//
// Small blocks are cut from segments of 2 MiB. Large blocks are cut from segments of 20 MiB, or
// have a segment of their own size.
#include <algorithm>
#include <list>
#include <string>
#include <utility>
#include <vector>

#include "registry/boundary/error_slot.hpp"
#include "registry/boundary/fail.hpp"
#include "registry/services/cache_set.hpp"
#include "registry/services/caching_allocator.hpp"
#include "registry/services/memory_history.hpp"

namespace bp::services {
namespace {

constexpr uint64_t kSmallSegment = 2ull << 20;  // The size of a segment for small requests.
constexpr uint64_t kMediumLimit = 10ull << 20;  // Requests below this size share a segment.
constexpr uint64_t kMediumSegment = 20ull << 20;

uint64_t segment_size(uint64_t size_bytes) {
  if (size_bytes <= kSmallLimit) return kSmallSegment;
  return size_bytes < kMediumLimit ? kMediumSegment : round_up(size_bytes, kLargeRounding);
}

std::string mebibytes(uint64_t bytes) {
  return std::to_string(bytes >> 20) + "." + std::to_string((bytes >> 10) % 1024 * 10 / 1024) +
         " MiB";
}

}  // namespace

// Takes a new segment from the backend, and makes it one free block of `stream`.
bp_status Cache::grow(bp_stream* stream, uint64_t size_bytes) {
  {
    const std::lock_guard lock(mutex_);
    if (is_released_) return backend_unloaded("block.allocate");
    if (has_fit_locked(stream, size_bytes)) return BP_OK;
  }
  uint64_t size = has_whole_segments() ? size_bytes : segment_size(size_bytes);
  bp_status status = add_segment(stream, size, size_bytes);
  if (status == BP_OUT_OF_MEMORY) status = collect_and_add(stream, size, size_bytes);
  if (status == BP_OUT_OF_MEMORY && size > size_bytes) {
    size = size_bytes;
    status = add_segment(stream, size, size_bytes);
    if (status == BP_OUT_OF_MEMORY) status = collect_and_add(stream, size, size_bytes);
  }
  return status == BP_OUT_OF_MEMORY ? out_of_memory(size_bytes) : status;
}

// Asks the backend for a segment. The call lasts until other threads see the segment.
bp_status Cache::add_segment(bp_stream* stream, uint64_t size_bytes, uint64_t needed_bytes) {
  const BackendCalls::Call call(calls_);
  // The list allocates before the backend does, so that the buffer cannot be lost. If host memory
  // runs out later, the buffer stays unused until the cache is released.
  std::list<Segment> added;
  Segment& segment = added.emplace_back(nullptr, nullptr, size_bytes, needed_bytes <= kSmallLimit);
  Block* block = nullptr;
  {
    const std::lock_guard lock(mutex_);
    block = new_handle_locked();
  }
  const bp_allocator_ops& allocator = *target_.allocator;
  // A mask of 0 takes the first heap.
  const uint64_t mask = source_.heap_index == 0 ? 0 : uint64_t{1} << source_.heap_index;
  const bp_allocate_desc desc{.struct_size = sizeof(bp_allocate_desc),
                              .struct_type = BP_STRUCT_ALLOCATE_DESC,
                              .size_bytes = size_bytes,
                              .alignment_bytes = source_.alignment_bytes,
                              .heap_mask = mask,
                              .usage = source_.usage};
  const bp_status status =
      allocator.allocate(allocator.self, target_.device, &desc, &segment.buffer);

  const std::lock_guard lock(mutex_);
  if (status != BP_OK) {
    retire_handle_locked(block);
    return status;
  }
  ++statistics_.backend_allocation_count;
  segments_.splice(segments_.end(), added);
  Pool& pool = pool_locked(stream);
  segment.pool = &pool;
  ++pool.segment_count;
  block->face.ref = {segment.buffer, 0, 0};
  block->segment = &segment;
  block->size_bytes = size_bytes;
  segment.first = block;
  note(history_, MemoryEvent::kAddSegment, block->face.ref, size_bytes);
  statistics_.reserved_bytes += size_bytes;
  statistics_.reserved_peak_bytes =
      std::max(statistics_.reserved_peak_bytes, statistics_.reserved_bytes);
  put_free_locked(block);
  return BP_OK;
}

// Frees everything that can be freed, and asks the backend once more. It waits for other threads,
// which may be about to give memory back or to add a segment that has room for this block too.
bp_status Cache::collect_and_add(bp_stream* stream, uint64_t size_bytes, uint64_t needed_bytes) {
  calls_.wait_for_others();
  reclaim_pending(true);
  const bp_status emptied = empty();
  if (emptied != BP_OK) return emptied;
  if (others_ != nullptr) others_->empty_for(*this);
  calls_.wait_for_others();
  {
    const std::lock_guard lock(mutex_);
    ++statistics_.retry_count;
    if (has_fit_locked(stream, needed_bytes)) return BP_OK;
  }
  return add_segment(stream, size_bytes, needed_bytes);
}

// Merges all free blocks, and returns whether a block of at least size_bytes is free for `stream`.
// If the stream has none, takes a segment of the common pool for it.
bool Cache::has_fit_locked(bp_stream* stream, uint64_t size_bytes) {
  flush_all_bins_locked();
  const bool is_large = size_bytes > kSmallLimit;
  Block key;
  key.size_bytes = size_bytes;
  Pool& pool = pool_locked(stream);
  if (pool.free[is_large].lower_bound(&key) != pool.free[is_large].end()) return true;
  const auto found = common_.free[is_large].lower_bound(&key);
  if (found == common_.free[is_large].end()) return false;
  take_common_segment_locked(*found, pool);
  return true;
}

bp_status Cache::out_of_memory(uint64_t size_bytes) {
  uint64_t largest = 0;
  bp_cache_statistics s;
  {
    const std::lock_guard lock(mutex_);
    ++statistics_.out_of_memory_count;
    s = statistics_;
    note(history_, MemoryEvent::kOutOfMemory, {}, size_bytes);
    const auto look_at = [&](const Pool& pool) {
      for (const auto& free : pool.free) {
        if (!free.empty()) largest = std::max(largest, (*free.rbegin())->size_bytes);
      }
    };
    look_at(common_);
    for (const auto& [stream, pool] : pools_) look_at(*pool);
  }
  uint64_t free_bytes = 0, total_bytes = 0;
  const bp_device_ops& devices = *target_.devices;
  const bool is_known = devices.memory_info(devices.self, target_.device, source_.heap_index,
                                            &free_bytes, &total_bytes) == BP_OK;
  const uint64_t cached = s.reserved_bytes - s.allocated_bytes;
  std::string text = std::string(target_.name) + ": out of memory: " + mebibytes(size_bytes) +
                     " asked for; " + mebibytes(s.allocated_bytes) + " in use, " +
                     mebibytes(cached) + " cached in pieces of at most " + mebibytes(largest);
  if (is_known) {
    text += "; the device has " + mebibytes(free_bytes) + " free of " + mebibytes(total_bytes);
  }
  return fail(BP_OUT_OF_MEMORY, text);
}

bp_status Cache::empty() { return is_of_graph_ ? BP_OK : give_back_unused(); }

bp_status Cache::give_back_unused() {
  if (has_pending_.load(std::memory_order_relaxed)) reclaim_pending(false);
  BackendCalls::Call call(calls_);
  std::vector<Block*> wholes;
  {
    const std::lock_guard lock(mutex_);
    // After this, moving a block from a free set to the list cannot fail.
    wholes.reserve(segments_.size());
    flush_all_bins_locked();
    take_wholes_locked(common_, wholes);
    for (auto& [stream, pool] : pools_) take_wholes_locked(*pool, wholes);
  }
  bp_status first = BP_OK;
  std::string words;
  for (Block* block : wholes) {
    const bp_status status = give_segment_back(call, block);
    if (status == BP_OK || first != BP_OK) continue;
    first = status;
    words = core::take_error();
  }
  return first == BP_OK ? BP_OK
                        : fail(first, std::string(target_.name) + ": cache.empty: " + words);
}

// Retires the free blocks of a pool, whose segments are lost.
void Cache::drop_free_blocks_locked(Pool& pool) {
  for (Block*& bin : pool.bins) {
    while (bin != nullptr) retire_handle_locked(std::exchange(bin, bin->next_in_bin));
  }
  for (auto& free : pool.free) {
    for (Block* block : free) retire_handle_locked(block);
    free.clear();
  }
  pool.segment_count = 0;
  pool.end = nullptr;
  pool.is_over = true;
}

void Cache::forget_memory() {
  calls_.wait_for_others();
  forget_all();
  call_releases();
}

void Cache::forget_all() {
  const std::lock_guard lock(mutex_);
  for (Segment& segment : segments_) {
    segment.is_lost = true;
    segment.pool = &common_;
    statistics_.reserved_bytes -= segment.size_bytes;
  }
  lost_segments_.splice(lost_segments_.end(), segments_);
  // New memory may get these addresses.
  for (const auto& [address, block] : std::exchange(addressed_, {})) block->has_address = false;
  for (Segment& segment : wrapped_) segment.is_lost = true;
  for (const Pending& pending : std::exchange(pending_, {})) end_use_locked(pending.block);
  for (Block* block : std::exchange(deferred_, {})) end_use_locked(block);
  users_.clear();
  for (const auto& pool : std::exchange(ended_, {})) drop_free_blocks_locked(*pool);
  for (const auto& [stream, pool] : std::exchange(pools_, {})) drop_free_blocks_locked(*pool);
  drop_free_blocks_locked(common_);
  last_pool_ = nullptr;
  has_pending_ = false;
}

// Takes the free blocks that are whole segments out of the sets of a pool. The list has room for
// all of them.
void Cache::take_wholes_locked(Pool& pool, std::vector<Block*>& wholes) {
  for (auto& free : pool.free) {
    for (auto it = free.begin(); it != free.end();) {
      Block* block = *it;
      const bool is_whole = block->previous == nullptr && block->next == nullptr;
      if (!is_whole) {
        ++it;
        continue;
      }
      it = free.erase(it);
      block->is_free = false;
      wholes.push_back(block);
    }
  }
}

// Gives the segment that is the free block `block`, which is of no set, back to the backend. If the
// backend refuses, the block is free again, and the refusal is in the error slot.
bp_status Cache::give_segment_back(BackendCalls::Call& call, Block* block) {
  Segment& segment = *block->segment;
  bp_stream* stream = nullptr;
  {
    const std::lock_guard lock(mutex_);
    stream = segment.pool->stream;
    if (stream == nullptr && segment.pool != &common_) {
      // The stream has ended since empty() took the block, and its work may still use the segment.
      put_free_locked(block);
      return BP_OK;
    }
    call.lend_stream(segment.pool);
  }
  if (is_in_capture(stream)) {
    // The stream takes no free now. The segment stays in the cache.
    call.lend_stream(nullptr);
    const std::lock_guard lock(mutex_);
    put_free_locked(block);
    return BP_OK;
  }
  const bp_allocator_ops& allocator = *target_.allocator;
  const bp_status status = allocator.deallocate(allocator.self, segment.buffer, stream);
  call.lend_stream(nullptr);
  const std::lock_guard lock(mutex_);
  if (status == BP_OK) {
    drop_segment_locked(block);
  } else {
    put_free_locked(block);
  }
  return status;
}

// Forgets the segment that is the free block `block`, which is of no set.
void Cache::drop_segment_locked(Block* block) {
  Segment* segment = block->segment;
  note(history_, MemoryEvent::kFreeSegment, block->face.ref, segment->size_bytes);
  --segment->pool->segment_count;
  statistics_.reserved_bytes -= segment->size_bytes;
  ++statistics_.backend_free_count;
  retire_handle_locked(block);
  segments_.remove_if([&](const Segment& s) { return &s == segment; });
}

bp_status Cache::release(Cache* cache) {
  if (cache == nullptr) return BP_OK;
  cache->reclaim_pending(true);
  cache->end_staged_events();
  std::vector<bp_buffer*> buffers;
  std::vector<bp_event*> events;
  bool is_last = false;
  {
    const std::lock_guard lock(cache->mutex_);
    for (const auto& pool : cache->ended_) cache->end_pool_locked(*pool);
    for (const Pending& pending : cache->pending_) {
      events.insert(events.end(), pending.events.begin(), pending.events.end());
      cache->end_use_locked(pending.block);
    }
    cache->pending_.clear();
    for (Block* block : std::exchange(cache->deferred_, {})) cache->end_use_locked(block);
    cache->users_.clear();
    for (const Segment& segment : cache->segments_) buffers.push_back(segment.buffer);
    cache->is_released_ = cache->ends_when_idle_ = true;
    cache->others_ = nullptr;
    cache->history_ = nullptr;
    is_last = cache->live_block_count_ == 0;
  }
  cache->destroy_events(events);
  cache->call_releases();
  const bp_allocator_ops& allocator = *cache->target_.allocator;
  uint64_t refused_count = 0;
  bp_status first = BP_OK;
  std::string words;
  for (bp_buffer* buffer : buffers) {
    const bp_status status = allocator.deallocate(allocator.self, buffer, nullptr);
    if (status == BP_OK || refused_count++ != 0) continue;
    first = status;
    words = core::take_error();
  }
  if (is_last) delete cache;
  if (first == BP_OK) return BP_OK;
  return fail(first, "the backend did not take " + std::to_string(refused_count) + " of " +
                         std::to_string(buffers.size()) + " cached buffers back: " + words);
}

void Cache::close() {
  const std::lock_guard lock(mutex_);
  is_closed_ = ends_when_idle_ = true;
}

bool Cache::reopen() {
  if (has_pending_.load(std::memory_order_relaxed)) reclaim_pending(false);
  const std::lock_guard lock(mutex_);
  if (!is_closed_ || live_block_count_ != 0 || !segments_.empty()) return false;
  is_closed_ = ends_when_idle_ = false;
  statistics_ = {.struct_size = sizeof(bp_cache_statistics),
                 .struct_type = BP_STRUCT_CACHE_STATISTICS};
  return true;
}

}  // namespace bp::services
