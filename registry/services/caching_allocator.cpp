// Blocks are cut from segments (segments.cpp). A freed block of at most 64 KiB goes to a bin of its
// stream that has blocks of exactly this size. A larger block is merged with free neighbours, and
// goes to a free set of its stream. The blocks of bins are merged too before the cache takes
// a new segment. The pools, the sizes and the second attempt when memory is short are those of
// PyTorch's allocator, which has proved them on GPUs. With the bins, a pair of allocate and free
// takes nanoseconds if the cache has a block.
#include "registry/services/caching_allocator.hpp"

#include <algorithm>
#include <cstddef>
#include <new>
#include <string>
#include <utility>

#include "registry/boundary/error_slot.hpp"
#include "registry/boundary/fail.hpp"
#include "registry/services/cache_set.hpp"
#include "registry/services/memory_history.hpp"

namespace bp::services {
namespace {

constexpr uint64_t kBinLimit = (Pool::kBinCount - 1) * kRounding;

Block& impl(bp_block* block) { return *reinterpret_cast<Block*>(block); }

}  // namespace

bp_status was_freed(const char* what) {
  return fail(BP_INVALID_ARGUMENT, std::string("block.") + what +
                                       ": the block was freed before; a block that was freed must "
                                       "not be used again");
}

const bp_heap& heap_at(const bp_target& target, uint64_t index) {
  const bp_device_properties& p = *target.properties;
  const auto* first = reinterpret_cast<const std::byte*>(p.heaps);
  return *reinterpret_cast<const bp_heap*>(first + index * p.heap_stride_bytes);
}

uint64_t offset_alignment(const bp_target& target) {
  uint64_t alignment = 1;
  for (uint64_t i = 0; i < target.properties->heap_count; ++i) {
    alignment = std::max(alignment, heap_at(target, i).tensor_offset_alignment_bytes);
  }
  return alignment;
}

bool BySize::operator()(const Block* a, const Block* b) const {
  if (a->size_bytes != b->size_bytes) return a->size_bytes < b->size_bytes;
  if (a->segment != b->segment) return a->segment < b->segment;
  return a->face.ref.byte_offset < b->face.ref.byte_offset;
}

bp_status Cache::allocate(bp_stream* stream, uint64_t size_bytes, bp_block** out_block) {
  if (stream == nullptr) stream = target_.default_stream;
  if (others_ != nullptr && others_->captures().any()) [[unlikely]] {
    return others_->allocate_captured(*this, stream, size_bytes, out_block);
  }
  return take(stream, size_bytes, out_block);
}

bp_status Cache::take(bp_stream* stream, uint64_t size_bytes, bp_block** out_block) try {
  if (size_bytes == 0) return make_empty_block(out_block);
  if (size_bytes > UINT64_MAX - kLargeRounding) return out_of_memory(size_bytes);
  if (has_pending_.load(std::memory_order_relaxed)) reclaim_pending(false);
  const uint64_t rounded = (size_bytes + rounding_ - 1) & ~(rounding_ - 1);
  for (int attempt = 0;; ++attempt) {
    {
      const std::lock_guard lock(mutex_);
      if (Block* block = take_locked(stream, rounded); block != nullptr) {
        *out_block = &hand_out_locked(block, size_bytes)->face;
        return BP_OK;
      }
    }
    // Another thread may take the memory that grow() got, so this thread tries a few times.
    const bp_status status = attempt < 8 ? grow(stream, rounded) : out_of_memory(size_bytes);
    if (status != BP_OK) return status;
  }
} catch (const std::bad_alloc&) {
  return out_of_host_memory("block.allocate");
}

bp_status Cache::make_empty_block(bp_block** out_block) {
  const std::lock_guard lock(mutex_);
  *out_block = &hand_out_locked(new_handle_locked(), 0)->face;
  return BP_OK;
}

Block* Cache::new_handle_locked() {
  if (unused_ == nullptr) {
    auto* made = new Block;
    made->cache = this;
    return made;
  }
  Block* block = unused_;
  unused_ = block->next_in_bin;
  block->next_in_bin = nullptr;
  return block;
}

// Keeps the handle for a later block. Until then the handle says that it is not live.
void Cache::retire_handle_locked(Block* block) {
  *block = Block{};
  block->cache = this;
  block->next_in_bin = unused_;
  unused_ = block;
}

Block* Cache::hand_out_locked(Block* block, uint64_t requested_bytes) {
  bp_cache_statistics& s = statistics_;
  block->face.ref.size_bytes = requested_bytes;
  block->is_live = true;
  s.allocated_bytes += block->size_bytes;
  s.allocated_peak_bytes = std::max(s.allocated_peak_bytes, s.allocated_bytes);
  s.requested_bytes += requested_bytes;
  ++s.allocation_count;
  ++live_block_count_;
  note(history_, MemoryEvent::kAllocate, block->face.ref, requested_bytes);
  return block;
}

const std::shared_ptr<Pool>& Cache::known_stream_locked(bp_stream* stream) {
  std::shared_ptr<Pool>& pool = pools_[stream];
  if (pool == nullptr) pool = std::make_shared<Pool>(stream);
  return pool;
}

Pool& Cache::pool_locked(bp_stream* stream) {
  if (stream == last_stream_ && last_pool_ != nullptr) return *last_pool_;
  last_pool_ = known_stream_locked(stream).get();
  last_stream_ = stream;
  return *last_pool_;
}

// Takes a block of at least size_bytes that is free for `stream`, and cuts it to size. Returns NULL
// if there is none.
Block* Cache::take_locked(bp_stream* stream, uint64_t size_bytes) {
  Pool& pool = pool_locked(stream);
  if (size_bytes <= kBinLimit) {
    Block*& bin = pool.bins[size_bytes / kRounding];
    if (bin != nullptr) {
      Block* block = bin;
      bin = block->next_in_bin;
      block->next_in_bin = nullptr;
      return block;
    }
  }
  std::set<Block*, BySize>& free = pool.free[size_bytes > kSmallLimit];
  Block key;
  key.size_bytes = size_bytes;
  const auto found = free.lower_bound(&key);
  if (found == free.end()) return nullptr;
  Block* block = *found;
  free.erase(found);
  block->is_free = false;
  return split_locked(block, size_bytes);
}

Block* Cache::split_locked(Block* block, uint64_t size_bytes) {
  const bool can_split =
      !has_whole_segments() &&
      block->size_bytes - size_bytes >= (block->segment->is_small ? rounding_ : kSmallLimit);
  if (!can_split) return block;
  Block* rest = new_handle_locked();
  rest->face.ref = {block->segment->buffer, block->face.ref.byte_offset + size_bytes, 0};
  rest->segment = block->segment;
  rest->previous = block;
  rest->next = block->next;
  if (rest->next != nullptr) rest->next->previous = rest;
  block->next = rest;
  rest->size_bytes = block->size_bytes - size_bytes;
  block->size_bytes = size_bytes;
  put_free_locked(rest);
  return block;
}

bp_status Cache::free(bp_block* handle) try {
  if (handle == nullptr) return BP_OK;
  Block& block = impl(handle);
  Cache& cache = *block.cache;
  if (cache.is_of_parent()) [[unlikely]] {
    return BP_OK;
  }
  bool is_last = false;
  {
    const std::lock_guard lock(cache.mutex_);
    if (!block.is_live) [[unlikely]] {
      return was_freed("free");
    }
    if (block.other_streams.empty()) [[likely]] {
      cache.give_back_locked(&block);
      is_last = cache.ends_when_idle_ && cache.live_block_count_ == 0;
      if (!is_last) return BP_OK;
    }
  }
  if (!is_last) return cache.free_shared(block);
  cache.end_idle();
  return BP_OK;
} catch (const std::bad_alloc&) {
  return out_of_host_memory("block.free");
}

// Ends a cache without blocks in use that was released, or gives back the memory of one whose pool
// was destroyed.
void Cache::end_idle() {
  bool is_released = false;
  {
    const std::lock_guard lock(mutex_);
    is_released = is_released_;
    if (!is_released && !is_closed_) return;  // Another pool has taken the cache.
  }
  if (is_released) {
    delete this;
  } else if (empty() != BP_OK) {
    static_cast<void>(core::take_error());  // The buffers stay in the cache until the unload.
  }
}

// Counts `block` as freed, and lets its stream use it again.
void Cache::give_back_locked(Block* block) {
  forget_address_locked(*block);
  statistics_.allocated_bytes -= block->size_bytes;
  statistics_.requested_bytes -= block->face.ref.size_bytes;
  ++statistics_.free_count;
  --live_block_count_;
  note(history_, MemoryEvent::kFree, block->face.ref, block->face.ref.size_bytes);
  block->is_live = false;
  if (!has_memory_locked(*block)) {
    retire_handle_locked(block);
  } else if (block->size_bytes <= kBinLimit && block->segment->is_small) {
    Block*& bin = block->segment->pool->bins[block->size_bytes / kRounding];
    block->next_in_bin = bin;
    bin = block;
  } else {
    put_free_locked(block);
  }
}

// Makes `right` a part of `left`. Neither may be in a free set.
Block* Cache::merge_locked(Block* left, Block* right) {
  left->size_bytes += right->size_bytes;
  left->next = right->next;
  if (left->next != nullptr) left->next->previous = left;
  retire_handle_locked(right);
  return left;
}

void Cache::put_free_locked(Block* block) {
  std::set<Block*, BySize>& free = block->segment->pool->free[!block->segment->is_small];
  if (Block* left = block->previous; left != nullptr && left->is_free) {
    free.erase(left);
    left->is_free = false;
    block = merge_locked(left, block);
  }
  if (Block* right = block->next; right != nullptr && right->is_free) {
    free.erase(right);
    right->is_free = false;
    block = merge_locked(block, right);
  }
  block->is_free = true;
  free.insert(block);
}

// Moves the blocks of the bins to the free sets, where they merge.
void Cache::flush_bins_locked(Pool& pool) {
  for (Block*& bin : pool.bins) {
    while (bin != nullptr) {
      Block* block = bin;
      bin = block->next_in_bin;
      block->next_in_bin = nullptr;
      put_free_locked(block);
    }
  }
}

void Cache::flush_all_bins_locked() {
  flush_bins_locked(common_);
  for (const auto& [stream, pool] : pools_) flush_bins_locked(*pool);
}

// By now every handle of the cache is free: it is in a bin, in a free set, or retired.
Cache::~Cache() {
  flush_all_bins_locked();
  const auto delete_free = [](Pool& pool) {
    for (auto& free : pool.free) {
      for (Block* block : free) delete block;
    }
  };
  delete_free(common_);
  for (auto& [stream, pool] : pools_) delete_free(*pool);
  while (unused_ != nullptr) delete std::exchange(unused_, unused_->next_in_bin);
}

bp_cache_statistics Cache::statistics() const {
  const std::lock_guard lock(mutex_);
  return statistics_;
}

}  // namespace bp::services
