// Handles blocks that more than one stream uses. When such a block is freed, it can be used again
// after an event on each of the other streams.
#include <algorithm>
#include <new>
#include <string>
#include <utility>

#include "registry/boundary/fail.hpp"
#include "registry/services/caching_allocator.hpp"

namespace bp::services {

bp_status Cache::record_stream(bp_block* handle, bp_stream* stream) try {
  if (handle == nullptr || stream == nullptr) {
    return fail(BP_INVALID_ARGUMENT, "block.record_stream: block and stream must not be NULL");
  }
  Block& block = *reinterpret_cast<Block*>(handle);
  Cache& cache = *block.cache;
  if (cache.is_of_parent()) return backend_unloaded("block.record_stream");
  const std::lock_guard lock(cache.mutex_);
  if (!block.is_live) return was_freed("record_stream");
  if (!cache.has_memory_locked(block)) return BP_OK;
  const std::shared_ptr<Pool>& pool = cache.known_stream_locked(stream);
  const bool is_known = std::ranges::count(block.other_streams, pool) != 0;
  if (pool.get() != block.segment->pool && !is_known) block.other_streams.push_back(pool);
  return BP_OK;
} catch (const std::bad_alloc&) {
  return out_of_host_memory("block.record_stream");
}

bp_status Cache::find_place(bp_block* handle, uint64_t byte_offset, uint64_t size_bytes,
                            const char* what, bp_stream*& stream, bp_buffer_ref& out_place,
                            const bp_target*& out_target) {
  Block& block = *reinterpret_cast<Block*>(handle);
  Cache& cache = *block.cache;
  if (cache.is_of_parent()) return backend_unloaded(what);
  {
    const std::lock_guard lock(cache.mutex_);
    if (!block.is_live) return was_freed(what);
    if (cache.is_released_) return backend_unloaded(what);
    if (block.segment != nullptr && block.segment->is_lost) {
      return fail(BP_DEVICE_LOST,
                  std::string("block.") + what + ": a reset of the device has ended the memory");
    }
    const bp_buffer_ref& ref = block.face.ref;
    if (byte_offset > ref.size_bytes || size_bytes > ref.size_bytes - byte_offset) {
      return fail(BP_INVALID_ARGUMENT, std::string("block.") + what + ": " +
                                           std::to_string(size_bytes) + " bytes from byte " +
                                           std::to_string(byte_offset) +
                                           " on leave the block, which has " +
                                           std::to_string(ref.size_bytes) + " bytes");
    }
    out_place = {ref.buffer, ref.byte_offset + byte_offset, size_bytes};
    out_target = &cache.target_;
    if (stream == nullptr) stream = cache.target_.default_stream;
  }
  return record_stream(handle, stream);
}

// Frees a block that work of other streams uses, or that is wrapped.
bp_status Cache::free_shared(Block& block) {
  bool is_last = false, is_wrapped = false, has_memory = false;
  {
    const std::lock_guard lock(mutex_);
    if (!block.is_live) return was_freed("free");
    is_wrapped = block.segment != nullptr && block.segment->is_wrapped;
    has_memory = has_memory_locked(block);
    if (has_memory) {
      forget_address_locked(block);
      block.is_live = false;
    } else {
      end_use_locked(&block);
      is_last = ends_when_idle_ && live_block_count_ == 0;
    }
  }
  if (has_memory) {
    const bp_status status = free_after_other_streams(&block);
    // The owner of wrapped memory learns at once if the work has ended already.
    if (status == BP_OK && is_wrapped) reclaim_pending(false);
    return status;
  }
  if (is_wrapped) call_releases();
  if (is_last) end_idle();
  return BP_OK;
}

// Records an event on each other stream. The block is given back when all these events have
// happened. For a stream that has ended, the end of its pool stands for the event.
bp_status Cache::free_after_other_streams(Block* block) {
  if (must_defer(*block)) {
    const std::lock_guard lock(mutex_);
    block->is_live = true;  // It is with the caller still if the list cannot grow.
    deferred_.push_back(block);
    block->is_live = false;
    return BP_OK;
  }
  Pending pending{block, {}, {}};
  const bp_status status = record_events(pending);
  {
    const std::lock_guard lock(mutex_);
    if (status == BP_OK) {
      block->other_streams.clear();
      pending_.push_back(std::move(pending));
      has_pending_ = true;
      return BP_OK;
    }
    block->is_live = true;  // The block stays with the caller, who can free it again.
  }
  destroy_events(pending.events);
  return status;
}

bp_status Cache::record_events(Pending& pending) try {
  const bp_event_ops& events = *target_.events;
  const size_t count = pending.block->other_streams.size();
  pending.events.reserve(count);
  pending.ended.reserve(count);
  {
    const std::lock_guard lock(mutex_);
    pending_.reserve(pending_.size() + 1);
  }
  BackendCalls::Call call(calls_);
  for (const std::shared_ptr<Pool>& pool : pending.block->other_streams) {
    bp_stream* stream = nullptr;
    {
      const std::lock_guard lock(mutex_);
      stream = pool->stream;
      call.lend_stream(pool.get());
    }
    if (stream == nullptr) {
      pending.ended.push_back(pool);
      continue;
    }
    bp_event* event = nullptr;
    bp_status status = events.create(events.self, target_.device, nullptr, &event);
    if (status != BP_OK) return status;
    pending.events.push_back(event);
    status = events.record(events.self, event, stream);
    if (status != BP_OK) return status;
  }
  return BP_OK;
} catch (const std::bad_alloc&) {
  return out_of_host_memory("block.free");
}

void Cache::destroy_events(const std::vector<bp_event*>& events) {
  for (bp_event* event : events) {
    if (event == nullptr) continue;
    static_cast<void>(target_.events->destroy(target_.events->self, event));
  }
}

// Returns whether the work before `event` has ended. If `waits` is true, it waits for the work
// first, and returns true even if the wait fails, because the failure belongs to the stream of the
// work. If a query fails, it returns false.
bool Cache::has_happened(bp_event* event, bool waits) const {
  const bp_event_ops& ops = *target_.events;
  if (waits) {
    static_cast<void>(ops.synchronize(ops.self, event, UINT64_MAX));
    return true;
  }
  uint32_t done = 0;
  return ops.query(ops.self, event, &done) == BP_OK && done != 0;
}

// Gives back the blocks whose work on other streams has ended. If `waits` is true, it waits for the
// work and gives back all blocks.
void Cache::reclaim_pending(bool waits) {
  // A thread that is out of memory waits until this call has given its blocks back.
  const BackendCalls::Call call(calls_);
  if (waits) free_deferred();
  reclaim_ended_streams(waits);
  std::vector<Pending> looked_at;
  {
    const std::lock_guard lock(mutex_);
    looked_at.swap(pending_);
    has_pending_ = !ended_.empty();
  }
  for (Pending& pending : looked_at) {
    const bool all_done = std::ranges::all_of(
        pending.events, [&](bp_event* event) { return has_happened(event, waits); });
    std::vector<bp_event*> happened;
    {
      const std::lock_guard lock(mutex_);
      const bool is_over =
          all_done && std::ranges::all_of(pending.ended, [](const std::shared_ptr<Pool>& pool) {
            return pool->is_over;
          });
      if (is_over) {
        happened.swap(pending.events);
        end_use_locked(pending.block);
      } else {
        pending_.push_back(std::move(pending));
        has_pending_ = true;
      }
    }
    destroy_events(happened);
  }
  call_releases();
}

}  // namespace bp::services
