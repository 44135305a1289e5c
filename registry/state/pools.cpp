// The C functions of blocks.h.
#include <cstddef>

#include "backplane/blocks.h"
#include "registry/boundary/fail.hpp"
#include "registry/boundary/guard.hpp"
#include "registry/boundary/out_struct.hpp"
#include "registry/boundary/out_text.hpp"
#include "registry/boundary/read_desc.hpp"
#include "registry/services/memory_snapshot.hpp"
#include "registry/state/state.hpp"

namespace bp::core {
namespace {

using services::CacheSet;
using services::PrivatePool;

// The sizes of the structs in the first release. They stay the same when members are added.
constexpr uint32_t kFirstPool = offsetof(bp_pool_desc, name) + sizeof(void*);
constexpr uint32_t kFirstBlock = offsetof(bp_block_desc, pool) + sizeof(void*);
constexpr uint32_t kFirstWrap = offsetof(bp_block_wrap_desc, user_data) + sizeof(void*);
constexpr uint32_t kFirstStatistics =
    offsetof(bp_cache_statistics, out_of_memory_count) + sizeof(uint64_t);

constexpr uint64_t kMaxEvents = 1u << 24;

PrivatePool& own(bp_pool* pool) { return *reinterpret_cast<PrivatePool*>(pool); }
const PrivatePool& own(const bp_pool* pool) { return *reinterpret_cast<const PrivatePool*>(pool); }

// Returns NULL after the unload, and in a child of the process that made the pool.
CacheSet* caches_of(const PrivatePool& pool) {
  if (pool.caches == nullptr || impl(pool.target).caches == nullptr) return nullptr;
  return pool.caches;
}

bp_status check_target(const bp_target* target) {
  if (target == nullptr) return is_null("target");
  return impl(target).caches == nullptr ? backend_unloaded(target->name) : bp_status{BP_OK};
}

bp_stream* stream_or_default(const bp_target* target, bp_stream* stream) {
  return stream == nullptr ? target->default_stream : stream;
}

// Refuses a block of a private pool on a stream that captures: another block may get its memory
// while the graph still uses it.
bp_status check_not_captured(const bp_target* target, bp_stream* stream) {
  std::shared_ptr<services::CaptureParts> parts;
  const bp_status status = impl(target).caches->captures().find(stream, parts);
  if (status != BP_OK || parts == nullptr) return status;
  return fail(BP_INVALID_ARGUMENT,
              std::string("block.allocate_with: the stream captures on ") + target->name +
                  ", and memory of a capture comes from its own pool; leave desc.pool NULL, or "
                  "take the block before bp_capture_begin()");
}

bp_status allocate_with(const bp_target* target, bp_stream* stream, const bp_block_desc& desc,
                        bp_block** out_block) {
  const PrivatePool* pool = desc.pool == nullptr ? nullptr : &own(desc.pool);
  if (pool != nullptr && pool->target != target) {
    return fail(
        BP_INVALID_ARGUMENT,
        std::string("block.allocate_with: the pool is of another target than ") + target->name);
  }
  stream = stream_or_default(target, stream);
  if (pool != nullptr && impl(target).caches->captures().any()) [[unlikely]] {
    const bp_status status = check_not_captured(target, stream);
    if (status != BP_OK) return status;
  }
  services::Source source;
  if (const bp_status status = read_source(*target, desc, source); status != BP_OK) return status;
  return impl(target).caches->get(source, pool).allocate(stream, desc.size_bytes, out_block);
}

}  // namespace
}  // namespace bp::core

// NOLINTNEXTLINE(google-build-using-namespace): the functions below are the namespace's C API.
using namespace bp::core;
using bp::is_null;

bp_status bp_pool_create(const bp_target* target, const bp_pool_desc* desc, bp_pool** out_pool) {
  return guarded([&]() -> bp_status {
    if (const bp_status status = check_target(target); status != BP_OK) return status;
    if (out_pool == nullptr) return is_null("out_pool");
    bp_pool_desc ours{};
    if (desc != nullptr) {
      const bp_status status =
          read_desc(desc, BP_STRUCT_POOL_DESC, kFirstPool, "pool.create", ours);
      if (status != BP_OK) return status;
    }
    *out_pool = reinterpret_cast<bp_pool*>(impl(target).caches->create_pool(ours.name));
    return BP_OK;
  });
}

bp_status bp_pool_trim(bp_pool* pool) {
  return guarded([&]() -> bp_status {
    if (pool == nullptr) return is_null("pool");
    CacheSet* const caches = caches_of(own(pool));
    return caches == nullptr ? bp::backend_unloaded("pool.trim") : caches->trim(own(pool));
  });
}

bp_status bp_pool_destroy(bp_pool* pool) {
  if (pool == nullptr) return BP_OK;
  return guarded([&]() -> bp_status {
    if (caches_of(own(pool)) == nullptr) own(pool).caches = nullptr;
    return bp::services::end_pool(&own(pool));
  });
}

bp_status bp_pool_get_statistics(const bp_pool* pool, bp_cache_statistics* out_statistics) {
  return guarded([&]() -> bp_status {
    if (pool == nullptr) return is_null("pool");
    const CacheSet* const caches = caches_of(own(pool));
    if (caches == nullptr) return bp::backend_unloaded("pool.get_statistics");
    return write_out(caches->statistics(&own(pool)), out_statistics, kFirstStatistics,
                     "out_statistics");
  });
}

bp_status bp_block_allocate_with(const bp_target* target, bp_stream* stream,
                                 const bp_block_desc* desc, bp_block** out_block) {
  return guarded([&]() -> bp_status {
    if (const bp_status status = check_target(target); status != BP_OK) return status;
    if (desc == nullptr) return is_null("desc");
    if (out_block == nullptr) return is_null("out_block");
    bp_block_desc ours{};
    const bp_status status =
        read_desc(desc, BP_STRUCT_BLOCK_DESC, kFirstBlock, "block.allocate_with", ours);
    return status == BP_OK ? allocate_with(target, stream, ours, out_block) : status;
  });
}

bp_status bp_block_wrap(const bp_target* target, bp_stream* stream, const bp_block_wrap_desc* desc,
                        bp_block** out_block) {
  return guarded([&]() -> bp_status {
    if (const bp_status status = check_target(target); status != BP_OK) return status;
    if (desc == nullptr) return is_null("desc");
    if (out_block == nullptr) return is_null("out_block");
    bp_block_wrap_desc ours{};
    const bp_status status =
        read_desc(desc, BP_STRUCT_BLOCK_WRAP_DESC, kFirstWrap, "block.wrap", ours);
    if (status != BP_OK) return status;
    if (ours.ref.buffer == nullptr) return is_null("block.wrap: desc: ref.buffer");
    return impl(target).cache->wrap(stream_or_default(target, stream), ours.ref, ours.address,
                                    {ours.release, ours.user_data}, out_block);
  });
}

bp_status bp_memory_keep_history(const bp_target* target, uint64_t event_count) {
  return guarded([&]() -> bp_status {
    if (const bp_status status = check_target(target); status != BP_OK) return status;
    if (event_count > kMaxEvents) {
      return bp::fail(BP_INVALID_ARGUMENT, "memory.keep_history: event_count is " +
                                               std::to_string(event_count) + "; allowed: at most " +
                                               std::to_string(kMaxEvents));
    }
    impl(target).caches->history().keep(event_count);
    return BP_OK;
  });
}

bp_status bp_memory_snapshot(const bp_target* target, uint64_t capacity, char* text,
                             uint64_t* out_size) {
  return guarded([&]() -> bp_status {
    if (const bp_status status = check_target(target); status != BP_OK) return status;
    CacheSet& caches = *impl(target).caches;
    return write_text(bp::services::snapshot(*target, caches, caches.history()), capacity, text,
                      out_size);
  });
}
