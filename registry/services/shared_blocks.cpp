// Blocks that more than one stream uses: once freed, they wait for an event on each of the others.
#include <algorithm>
#include <new>
#include <utility>

#include "registry/fail.hpp"
#include "registry/services/caching_allocator.hpp"

namespace bp::services {

bp_status Cache::record_stream(bp_block* handle, bp_stream* stream) try {
  if (handle == nullptr || stream == nullptr) {
    return fail(BP_INVALID_ARGUMENT, "block.record_stream: block and stream must not be NULL");
  }
  Block& block = *reinterpret_cast<Block*>(handle);
  const std::lock_guard lock(block.cache->mutex_);
  const bool is_known = std::ranges::count(block.other_streams, stream) != 0;
  if (stream != block.stream && !is_known) block.other_streams.push_back(stream);
  return BP_OK;
} catch (const std::bad_alloc&) {
  return fail(BP_OUT_OF_MEMORY, "block.record_stream: out of host memory");
}

// Records an event on each other stream; the block is given back when all have happened.
bp_status Cache::free_after_other_streams(Block* block) try {
  const bp_event_ops& events = *target_.events;
  Pending pending{block, {}};
  bp_status status = BP_OK;
  for (bp_stream* stream : block->other_streams) {
    bp_event* event = nullptr;
    status = events.create(events.self, target_.device, nullptr, &event);
    if (status != BP_OK) break;
    pending.events.push_back(event);
    status = events.record(events.self, event, stream);
    if (status != BP_OK) break;
  }
  if (status != BP_OK) {
    destroy_events(pending.events);
    return status;  // The block stays with the caller, who can free it again.
  }
  block->other_streams.clear();
  const std::lock_guard lock(mutex_);
  pending_.push_back(std::move(pending));
  has_pending_ = true;
  return BP_OK;
} catch (const std::bad_alloc&) {
  return fail(BP_OUT_OF_MEMORY, "block.free: out of host memory");
}

void Cache::destroy_events(const std::vector<bp_event*>& events) {
  for (bp_event* event : events) {
    static_cast<void>(target_.events->destroy(target_.events->self, event));
  }
}

// Gives back the blocks whose other streams are done; with `waits`, all of them.
void Cache::reclaim_pending(bool waits) {
  std::vector<Pending> looked_at;
  {
    const std::lock_guard lock(mutex_);
    looked_at.swap(pending_);
    has_pending_ = false;
  }
  const bp_event_ops& ops = *target_.events;
  const auto is_done = [&](bp_event* event) {
    uint32_t done = 0;
    // A failed wait is over as well: the failure is that of its stream, and stays there.
    if (waits) static_cast<void>(ops.synchronize(ops.self, event, UINT64_MAX));
    return waits || ops.query(ops.self, event, &done) != BP_OK || done != 0;
  };
  for (Pending& pending : looked_at) {
    const bool all_done = std::ranges::all_of(pending.events, is_done);
    if (all_done) destroy_events(pending.events);
    const std::lock_guard lock(mutex_);
    if (all_done) {
      give_back_locked(pending.block);
    } else {
      pending_.push_back(std::move(pending));
      has_pending_ = true;
    }
  }
}

}  // namespace bp::services
