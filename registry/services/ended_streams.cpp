// Handles streams that end while the cache has blocks of theirs. Another stream may get the address
// of an ended stream, so the pool leaves the map when its stream ends. When the work that was
// submitted before the destroy has ended, the segments go to the common pool, from which every
// stream may take them.
#include <algorithm>
#include <new>
#include <utility>

#include "registry/services/caching_allocator.hpp"

namespace bp::services {

// Returns whether all work of `stream` has ended. If the backend does not know, the answer is no.
bool Cache::is_idle(bp_stream* stream) const {
  const bp_stream_ops& streams = *target_.streams;
  uint32_t is_done = 0;
  return streams.query(streams.self, stream, &is_done) == BP_OK && is_done != 0;
}

// Records an event after all work of `stream`. Returns NULL if that is not possible. An event that
// is recorded in a capture would be a part of the graph, and would say nothing about the stream.
bp_event* Cache::record_end(bp_stream* stream) const {
  const bp_stream_ops& streams = *target_.streams;
  const bp_event_ops& events = *target_.events;
  uint32_t is_capturing = 0;
  if (has_graphs_) static_cast<void>(streams.is_capturing(streams.self, stream, &is_capturing));
  bp_event* event = nullptr;
  if (is_capturing != 0) return nullptr;
  if (events.create(events.self, target_.device, nullptr, &event) != BP_OK) return nullptr;
  if (events.record(events.self, event, stream) == BP_OK) return event;
  static_cast<void>(events.destroy(events.self, event));
  return nullptr;
}

Cache::Ending Cache::begin_end(bp_stream* stream) {
  Ending ending;
  bool is_used = false;
  {
    const std::lock_guard lock(mutex_);
    const auto found = pools_.find(stream);
    if (found == pools_.end()) return ending;
    ending.pool.push_back(found->second);
    // Blocks that were recorded for this stream hold the pool too.
    is_used = found->second->segment_count != 0 || found->second.use_count() > 2;
  }
  ending.is_idle = !is_used || is_idle(stream);
  bp_event* const end = ending.is_idle ? nullptr : record_end(stream);
  {
    const std::lock_guard lock(mutex_);
    ending.stream = pools_.extract(stream);
    ending.pool.front()->end = end;
    ending.pool.front()->stream = nullptr;  // From now on no new call passes it to the backend.
    last_pool_ = nullptr;
  }
  calls_.wait_for_stream(ending.pool.front().get());
  return ending;
}

void Cache::finish_end(Ending& ending, bool is_destroyed) {
  if (ending.pool.empty()) return;
  if (!is_destroyed) return resume(ending);
  const std::lock_guard lock(mutex_);
  if (ending.is_idle) {
    end_pool_locked(*ending.pool.front());
  } else {
    ended_.splice(ended_.end(), ending.pool);
    has_pending_ = true;
  }
}

// Undoes begin_end() for a stream that was not destroyed. The event is of no use any more, because
// more work may follow it on the stream.
void Cache::resume(Ending& ending) {
  Pool& pool = *ending.pool.front();
  destroy_events({pool.end});
  const std::lock_guard lock(mutex_);
  pool.end = nullptr;
  pool.stream = ending.stream.key();
  if (pools_.insert(std::move(ending.stream)).inserted) return;
  // Another thread has used the stream in the meantime, so the stream has a new pool. The old pool
  // ends when the cache waits for the device.
  pool.stream = nullptr;
  ended_.splice(ended_.end(), ending.pool);
  has_pending_ = true;
}

// Gives the blocks of an ended stream to every stream.
void Cache::end_pool_locked(Pool& pool) {
  flush_bins_locked(pool);
  pool.is_over = true;
  for (Segment& segment : segments_) {
    if (segment.pool != &pool) continue;
    segment.pool = &common_;
    ++common_.segment_count;
  }
  pool.segment_count = 0;
  for (size_t i = 0; i < std::size(pool.free); ++i) common_.free[i].merge(pool.free[i]);
}

// Moves the segment of `block` from the common pool to `to`. `block` is free, and the bins of the
// common pool are empty.
void Cache::take_common_segment_locked(Block* block, Pool& to) {
  Segment& segment = *block->segment;
  const size_t is_large = segment.is_small ? 0 : 1;
  while (block->previous != nullptr) block = block->previous;
  for (; block != nullptr; block = block->next) {
    if (block->is_free) to.free[is_large].insert(common_.free[is_large].extract(block));
  }
  segment.pool = &to;
  --common_.segment_count;
  ++to.segment_count;
}

// Ends the pools of ended streams whose work has ended too. If `waits` is true, it waits for the
// work first. A pool without an event ends only after a wait for the device.
void Cache::reclaim_ended_streams(bool waits) {
  std::list<std::shared_ptr<Pool>> looked_at;
  {
    const std::lock_guard lock(mutex_);
    looked_at.swap(ended_);
  }
  const bp_device_ops& devices = *target_.devices;
  for (auto it = looked_at.begin(); it != looked_at.end();) {
    Pool& pool = **it;
    bp_event* const end = pool.end;
    const bool is_over = end != nullptr ? has_happened(end, waits)
                                        : waits && devices.synchronize(devices.self, target_.device,
                                                                       UINT64_MAX) == BP_OK;
    const auto next = std::next(it);
    {
      const std::lock_guard lock(mutex_);
      if (is_over) {
        end_pool_locked(pool);
      } else {
        ended_.splice(ended_.end(), looked_at, it);
        has_pending_ = true;
      }
    }
    if (is_over) destroy_events({end});
    it = next;
  }
}

}  // namespace bp::services
