// Handles the memory of captured graphs, and blocks that are freed while a stream of theirs
// captures.
//
// An event that is recorded on a stream that captures would be a part of the graph, so it cannot
// tell when the work of the stream has ended. Such a free waits until the stream does not capture.
#include <algorithm>
#include <utility>

#include "registry/boundary/error_slot.hpp"
#include "registry/services/cache_set.hpp"
#include "registry/services/caching_allocator.hpp"

namespace bp::services {

void Cache::begin_graph() { is_of_graph_ = true; }

void Cache::add_user(bp_stream* stream) {
  const std::lock_guard lock(mutex_);
  std::erase_if(users_, [](const std::shared_ptr<Pool>& user) { return user->is_over; });
  const std::shared_ptr<Pool>& pool = known_stream_locked(stream);
  if (std::ranges::count(users_, pool) == 0) users_.push_back(pool);
}

// Makes a block wait for the replays of the users when it is freed. Returns false if it need not
// wait, because only its own stream has replayed the graph.
bool Cache::add_users_locked(Block& block) {
  for (const std::shared_ptr<Pool>& user : users_) {
    if (user.get() == block.segment->pool || std::ranges::count(block.other_streams, user) != 0) {
      continue;
    }
    block.other_streams.push_back(user);
  }
  return !block.other_streams.empty();
}

void Cache::end_graph() {
  {
    const std::lock_guard lock(mutex_);
    flush_all_bins_locked();
    std::vector<Block*> free;
    for (Segment& segment : segments_) {
      for (Block* block = segment.first; block != nullptr; block = block->next) {
        const bool must_wait = add_users_locked(*block);
        if (block->is_free && must_wait) free.push_back(block);
      }
    }
    deferred_.reserve(deferred_.size() + free.size());
    // The free blocks are handed out, and freed behind the replays.
    for (Block* block : free) {
      block->segment->pool->free[!block->segment->is_small].erase(block);
      block->is_free = false;
      hand_out_locked(block, block->size_bytes)->is_live = false;
      deferred_.push_back(block);
    }
    users_.clear();
    is_of_graph_ = false;
  }
  free_deferred();
}

// Returns whether `stream` belongs to a capture of the host. A stream that has ended is NULL.
bool Cache::is_in_capture(bp_stream* stream) const {
  if (stream == nullptr || others_ == nullptr || !others_->captures().any()) return false;
  std::shared_ptr<CaptureParts> parts;
  if (others_->captures().find(stream, parts) == BP_OK) return parts != nullptr;
  static_cast<void>(core::take_error());  // The caller's next call for the stream fails too.
  return false;
}

// Returns whether the free of a block that other streams use has to wait.
bool Cache::must_defer(const Block& block) const {
  if (is_of_graph_) return true;
  if (others_ == nullptr || !others_->captures().any()) return false;
  std::vector<bp_stream*> streams;
  {
    const std::lock_guard lock(mutex_);
    for (const std::shared_ptr<Pool>& pool : block.other_streams) streams.push_back(pool->stream);
  }
  return std::ranges::any_of(streams, [&](bp_stream* stream) { return is_in_capture(stream); });
}

std::vector<Block*> Cache::take_deferred() {
  const std::lock_guard lock(mutex_);
  return std::exchange(deferred_, {});
}

void Cache::free_deferred() {
  if (is_of_graph_) return;
  for (Block* block : take_deferred()) {
    if (free_after_other_streams(block) == BP_OK) continue;
    // No event can be recorded now. The block waits for the next call, or for the unload.
    static_cast<void>(core::take_error());
    const std::lock_guard lock(mutex_);
    block->is_live = false;
    deferred_.push_back(block);
  }
}

}  // namespace bp::services
