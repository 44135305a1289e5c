#include "registry/services/cache_set.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "registry/boundary/error_slot.hpp"
#include "registry/boundary/fail.hpp"

namespace bp::services {
namespace {

constexpr bp_memory_usage kKnownUsage =
    BP_MEMORY_PEER | BP_MEMORY_STREAM_ORDERED | BP_MEMORY_EXPORT | BP_MEMORY_COLLECTIVE;

constexpr uint64_t kMaxAlignment = 4096;

// Keeps the first failure of several calls, with its text.
struct FirstFailure {
  bp_status status = BP_OK;
  std::string words;

  void add(bp_status next) {
    if (next == BP_OK) return;
    std::string text = core::take_error();
    if (status != BP_OK) return;
    status = next;
    words = std::move(text);
  }
  bp_status result() const { return status == BP_OK ? BP_OK : fail(status, words); }
};

bp_status find_heap(const bp_target& target, const bp_block_desc& desc, uint64_t& out_index) {
  const uint64_t count = target.properties->heap_count;
  if (count < 64 && desc.heap_mask >> count != 0) {
    return fail(BP_INVALID_ARGUMENT, "block.allocate_with: heap_mask is " +
                                         std::to_string(desc.heap_mask) + "; " + target.name +
                                         " has the heaps 0 to " + std::to_string(count - 1));
  }
  for (uint64_t i = 0; i < count; ++i) {
    const bp_heap& heap = heap_at(target, i);
    const bool is_in_mask = desc.heap_mask == 0 || (desc.heap_mask >> i & 1) != 0;
    // A heap that the host could not read is all zero.
    if (!is_in_mask || heap.struct_size == 0) continue;
    if ((heap.flags & desc.heap_flags) != desc.heap_flags) continue;
    out_index = i;
    return BP_OK;
  }
  return fail(BP_NOT_FOUND, std::string("block.allocate_with: no heap of ") + target.name +
                                " that heap_mask allows has the heap_flags " +
                                std::to_string(desc.heap_flags));
}

}  // namespace

bp_status read_source(const bp_target& target, const bp_block_desc& desc, Source& out_source) {
  Source source;
  if (desc.alignment_bytes > kMaxAlignment ||
      (desc.alignment_bytes != 0 && !std::has_single_bit(desc.alignment_bytes))) {
    return fail(BP_INVALID_ARGUMENT, "block.allocate_with: alignment_bytes is " +
                                         std::to_string(desc.alignment_bytes) +
                                         "; allowed: 0, or a power of two up to 4096");
  }
  if ((desc.usage & ~kKnownUsage) != 0) {
    return fail(BP_INVALID_ARGUMENT, "block.allocate_with: usage is " + std::to_string(desc.usage) +
                                         ", known bits are " + std::to_string(kKnownUsage));
  }
  if ((desc.usage & BP_MEMORY_STREAM_ORDERED) != 0) {
    return fail(BP_INVALID_ARGUMENT,
                "block.allocate_with: usage has BP_MEMORY_STREAM_ORDERED; the cache keeps memory "
                "beyond the order of one stream, so leave the bit out");
  }
  source.alignment_bytes = std::max(desc.alignment_bytes, kRounding);
  source.usage = desc.usage;
  if (const bp_status status = find_heap(target, desc, source.heap_index); status != BP_OK) {
    return status;
  }
  out_source = source;
  return BP_OK;
}

Cache& CacheSet::get(const Source& source, const PrivatePool* pool) {
  if (pool == nullptr && source == first_.source()) return first_;
  const std::lock_guard lock(mutex_);
  for (const Entry& entry : entries_) {
    if (!entry.is_spare && entry.pool == pool && entry.cache->source() == source) {
      return *entry.cache;
    }
  }
  for (Entry& entry : entries_) {
    if (!entry.is_spare || !(entry.cache->source() == source) || !entry.cache->reopen()) continue;
    entry.pool = pool;
    entry.is_spare = false;
    if (pool != nullptr && pool->is_of_capture) entry.cache->begin_graph();
    return *entry.cache;
  }
  entries_.reserve(entries_.size() + 1);
  auto* made = new Cache(target_, has_graphs_, source);
  made->join(this, &history_);
  if (pool != nullptr && pool->is_of_capture) made->begin_graph();
  entries_.push_back({made, pool, false});
  return *made;
}

PrivatePool* CacheSet::create_pool(const char* name, bool is_of_capture) {
  auto pool = std::make_unique<PrivatePool>();
  pool->target = &target_;
  pool->caches = this;
  pool->name = name == nullptr ? "" : name;
  pool->is_of_capture = is_of_capture;
  const std::lock_guard lock(mutex_);
  pools_.push_back(std::move(pool));
  return pools_.back().get();
}

std::vector<Cache*> CacheSet::of(const PrivatePool* pool, bool takes_spare) const {
  const std::lock_guard lock(mutex_);
  std::vector<Cache*> caches;
  if (pool == nullptr) caches.push_back(&first_);
  for (const Entry& entry : entries_) {
    if (entry.pool == pool && (takes_spare || !entry.is_spare)) caches.push_back(entry.cache);
  }
  return caches;
}

std::vector<Cache*> CacheSet::others() const {
  const std::lock_guard lock(mutex_);
  std::vector<Cache*> caches;
  for (const Entry& entry : entries_) caches.push_back(entry.cache);
  return caches;
}

bp_status CacheSet::trim(const PrivatePool& pool) {
  FirstFailure first;
  for (Cache* cache : of(&pool, false)) first.add(cache->empty());
  return first.result();
}

bp_status CacheSet::empty() {
  FirstFailure first;
  for (Cache* cache : of(nullptr, true)) first.add(cache->empty());
  return first.result();
}

void CacheSet::empty_for(const Cache& cache) {
  for (Cache* other : of(nullptr, true)) {
    if (other != &cache && other->empty() != BP_OK) static_cast<void>(core::take_error());
  }
}

bp_cache_statistics CacheSet::statistics(const PrivatePool* pool) const {
  bp_cache_statistics sum{};
  for (const Cache* cache : of(pool, false)) {
    const bp_cache_statistics s = cache->statistics();
    sum.allocated_bytes += s.allocated_bytes;
    sum.allocated_peak_bytes += s.allocated_peak_bytes;
    sum.reserved_bytes += s.reserved_bytes;
    sum.reserved_peak_bytes += s.reserved_peak_bytes;
    sum.requested_bytes += s.requested_bytes;
    sum.allocation_count += s.allocation_count;
    sum.free_count += s.free_count;
    sum.backend_allocation_count += s.backend_allocation_count;
    sum.backend_free_count += s.backend_free_count;
    sum.retry_count += s.retry_count;
    sum.out_of_memory_count += s.out_of_memory_count;
  }
  return sum;
}

bp_status CacheSet::destroy(PrivatePool* pool) {
  std::vector<Cache*> caches;
  std::unique_ptr<PrivatePool> ended;
  {
    const std::lock_guard lock(mutex_);
    caches.reserve(entries_.size());
    for (Entry& entry : entries_) {
      if (entry.pool != pool) continue;
      entry.pool = nullptr;
      entry.is_spare = true;
      entry.cache->close();
      caches.push_back(entry.cache);
    }
    const auto place = std::ranges::find(pools_, pool, &std::unique_ptr<PrivatePool>::get);
    if (place != pools_.end()) {
      ended = std::move(*place);
      pools_.erase(place);
    }
  }
  FirstFailure first;
  for (Cache* cache : caches) {
    if (ended != nullptr && ended->is_of_capture) cache->end_graph();
    first.add(cache->empty());
  }
  return first.result();
}

bp_status end_pool(PrivatePool* pool) {
  if (pool == nullptr) return BP_OK;
  if (pool->caches != nullptr) return pool->caches->destroy(pool);
  delete pool;
  return BP_OK;
}

bp_status CacheSet::allocate_captured(Cache& cache, bp_stream* stream, uint64_t size_bytes,
                                      bp_block** out_block) {
  std::shared_ptr<CaptureParts> parts;
  if (const bp_status status = captures_.find(stream, parts); status != BP_OK) return status;
  if (parts == nullptr) return cache.take(stream, size_bytes, out_block);
  const bp_status status = get(cache.source(), parts->pool()).take(stream, size_bytes, out_block);
  if (status == BP_OK && parts->recorder() != nullptr)
    parts->recorder()->hand_out((*out_block)->ref);
  return status;
}

std::vector<bp_buffer_ref> CacheSet::held(const PrivatePool& pool) const {
  std::vector<bp_buffer_ref> blocks;
  for (const Cache* cache : of(&pool, false)) {
    cache->look_at_segments([&](const Segment& segment, const auto&) {
      for (const Block* b = segment.first; b != nullptr; b = b->next) {
        if (b->is_live) blocks.push_back(b->face.ref);
      }
    });
  }
  return blocks;
}

bp_status CacheSet::give_back_unused(const PrivatePool& pool) {
  FirstFailure first;
  for (Cache* cache : of(&pool, false)) first.add(cache->give_back_unused());
  return first.result();
}

void CacheSet::add_user(const PrivatePool& pool, bp_stream* stream) {
  for (Cache* cache : of(&pool, false)) cache->add_user(stream);
}

void CacheSet::free_deferred() {
  first_.free_deferred();
  for (Cache* cache : others()) cache->free_deferred();
}

bp_status CacheSet::release() {
  std::vector<Entry> entries;
  {
    const std::lock_guard lock(mutex_);
    entries.swap(entries_);
    for (auto& pool : pools_) pool.release()->caches = nullptr;  // bp_pool_destroy() deletes it.
    pools_.clear();
  }
  FirstFailure first;
  for (const Entry& entry : entries) first.add(Cache::release(entry.cache));
  return first.result();
}

}  // namespace bp::services
