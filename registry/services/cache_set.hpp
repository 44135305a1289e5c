// The caches of one target: the cache of its first heap, and one for each other kind of memory that
// a program asks for (bp_block_allocate_with()), in private pools too.
//
// A cache that was made lives until the unload: that of a destroyed pool serves a later pool. So
// nobody needs a lock to use a cache.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backplane/blocks.h"
#include "registry/services/caching_allocator.hpp"
#include "registry/services/captures.hpp"
#include "registry/services/memory_history.hpp"

namespace bp::services {

// What a bp_pool* points to.
struct PrivatePool {
  const bp_target* target;
  CacheSet* caches;  // NULL after the unload.
  std::string name;
  bool is_of_capture = false;  // If true, nothing in it is reused before the end of its graph.
};

// Ends the pool, also after the unload. NULL is a no-op.
bp_status end_pool(PrivatePool* pool);

// It is thread-safe.
class CacheSet {
 public:
  // `first` is the cache of the first heap, which outlives this object.
  CacheSet(const bp_target& target, bool has_graphs, Cache& first)
      : target_(target), has_graphs_(has_graphs), first_(first), captures_(target) {
    first.join(this, &history_);
  }
  CacheSet(const CacheSet&) = delete;
  ~CacheSet() { static_cast<void>(release()); }

  // Returns the cache for memory of `source` in `pool`, or outside of the pools if it is NULL.
  Cache& get(const Source& source, const PrivatePool* pool);

  PrivatePool* create_pool(const char* name, bool is_of_capture = false);
  bp_status trim(const PrivatePool& pool);
  bp_cache_statistics statistics(const PrivatePool* pool) const;

  // Ends the pool and deletes it. Returns the first failure of the backend, which changes nothing
  // about the end.
  bp_status destroy(PrivatePool* pool);

  Captures& captures() { return captures_; }

  // Takes a block for `stream`: from the pool of the capture to which the stream belongs, or from
  // `cache` if it belongs to none.
  bp_status allocate_captured(Cache& cache, bp_stream* stream, uint64_t size_bytes,
                              bp_block** out_block);

  // Returns the blocks of `pool` with memory that callers hold.
  std::vector<bp_buffer_ref> held(const PrivatePool& pool) const;

  // Gives the memory of `pool` that no block uses back to the backend.
  bp_status give_back_unused(const PrivatePool& pool);

  // Says that replays on `stream` use the memory of `pool`, which belongs to a captured graph.
  void add_user(const PrivatePool& pool, bp_stream* stream);

  // Frees the blocks whose free had to wait until their streams do not capture any more.
  void free_deferred();

  // Frees the cached memory outside of the pools, and that of destroyed pools.
  bp_status empty();

  // Frees the cached memory outside of the pools for `cache`, whose device has none left.
  void empty_for(const Cache& cache);

  // Returns the caches beside the first one.
  std::vector<Cache*> others() const;

  // A cache, and the name of its pool: NULL if it is of none.
  struct Shown {
    const Cache* cache;
    const char* pool;
  };

  // Calls look(list of Shown) with the first cache and every other one that is in use. No pool
  // begins or ends meanwhile.
  template <typename Look>
  void look_at_all(Look&& look) const {
    const std::lock_guard lock(mutex_);
    std::vector<Shown> shown{{&first_, nullptr}};
    for (const Entry& entry : entries_) {
      shown.push_back({entry.cache, entry.pool == nullptr ? nullptr : entry.pool->name.c_str()});
    }
    look(shown);
  }

  // Ends all caches but the first, as Cache::release() does, and cuts all pools off.
  bp_status release();

  MemoryHistory& history() { return history_; }

 private:
  struct Entry {
    Cache* cache;
    const PrivatePool* pool;  // NULL for memory outside of the pools, and for a spare cache.
    bool is_spare;            // If true, the pool was destroyed.
  };

  // Returns the caches of `pool`, or those outside of the pools if it is NULL: on request with
  // those of destroyed pools, which may still have blocks.
  std::vector<Cache*> of(const PrivatePool* pool, bool takes_spare) const;

  const bp_target& target_;
  const bool has_graphs_;
  Cache& first_;
  Captures captures_;
  MemoryHistory history_;
  mutable std::mutex mutex_;
  // mutex_ guards the members below.
  std::vector<Entry> entries_;
  std::vector<std::unique_ptr<PrivatePool>> pools_;
};

// Reads which memory `desc` asks for. If no heap has it, or the cache does not serve it, refuses.
bp_status read_source(const bp_target& target, const bp_block_desc& desc, Source& out_source);

}  // namespace bp::services
