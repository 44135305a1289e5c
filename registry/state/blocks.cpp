// The C functions of the caching allocator, and of the addresses of its blocks.
#include <cstddef>

#include "backplane/addresses.h"
#include "registry/boundary/error_slot.hpp"
#include "registry/boundary/fail.hpp"
#include "registry/boundary/guard.hpp"
#include "registry/boundary/out_struct.hpp"
#include "registry/state/state.hpp"

namespace bp::core {
namespace {

// The size of the struct in the first release. It stays the same when members are added.
constexpr uint32_t kFirstStatistics =
    offsetof(bp_cache_statistics, out_of_memory_count) + sizeof(uint64_t);

// Returns the cache of a target. If there is none, returns NULL, and sets the text and `status`.
services::Cache* cache_of(const bp_target* target, bp_status& status) {
  if (target == nullptr) {
    status = fail(BP_INVALID_ARGUMENT, "target is NULL");
    return nullptr;
  }
  services::Cache* cache = impl(target).cache.get();
  if (cache == nullptr) {
    status = backend_unloaded(target->name);
  }
  return cache;
}

}  // namespace
}  // namespace bp::core

// NOLINTNEXTLINE(google-build-using-namespace): the functions below are the namespace's C API.
using namespace bp::core;

bp_status bp_block_allocate(const bp_target* target, bp_stream* stream, uint64_t size_bytes,
                            bp_block** out_block) {
  bp_status status = BP_OK;
  bp::services::Cache* cache = cache_of(target, status);
  if (cache == nullptr) return status;
  if (out_block == nullptr) return bp::fail(BP_INVALID_ARGUMENT, "out_block is NULL");
  return guarded([&] {
    return cache->allocate(stream == nullptr ? target->default_stream : stream, size_bytes,
                           out_block);
  });
}

bp_status bp_block_free(bp_block* block) {
  if (block == nullptr) return BP_OK;
  return guarded([&] { return bp::services::Cache::free(block); });
}

bp_status bp_block_record_stream(bp_block* block, bp_stream* stream) {
  if (block == nullptr) return bp::is_null("block");
  if (stream == nullptr) return bp::is_null("stream");
  return guarded([&] { return bp::services::Cache::record_stream(block, stream); });
}

bp_status bp_block_address(bp_block* block, uint64_t* out_address) {
  if (block == nullptr) return bp::is_null("block");
  if (out_address == nullptr) return bp::is_null("out_address");
  return guarded([&] { return bp::services::Cache::address(block, out_address); });
}

bp_status bp_target_find_block(const bp_target* target, uint64_t address, bp_block** out_block,
                               uint64_t* out_byte_offset) {
  bp_status status = BP_OK;
  bp::services::Cache* cache = cache_of(target, status);
  if (cache == nullptr) return status;
  if (out_block == nullptr) return bp::is_null("out_block");
  if (out_byte_offset == nullptr) return bp::is_null("out_byte_offset");
  return guarded([&] {
    const bp_status first = cache->find(address, out_block, out_byte_offset);
    if (first == BP_OK) return first;
    for (const bp::services::Cache* other : impl(target).caches->others()) {
      if (other->find(address, out_block, out_byte_offset) == BP_OK) return bp_status{BP_OK};
    }
    return first;
  });
}

bp_status bp_cache_get_statistics(const bp_target* target, bp_cache_statistics* out_statistics) {
  bp_status status = BP_OK;
  bp::services::Cache* cache = cache_of(target, status);
  if (cache == nullptr) return status;
  return guarded([&] {
    return write_out(impl(target).caches->statistics(nullptr), out_statistics, kFirstStatistics,
                     "out_statistics");
  });
}

bp_status bp_cache_empty(const bp_target* target) {
  bp_status status = BP_OK;
  bp::services::Cache* cache = cache_of(target, status);
  if (cache == nullptr) return status;
  return guarded([&] {
    const bp_status first = impl(target).caches->empty();
    const std::string words = bp::core::take_error();
    const bp_status second = impl(target).pinned->trim();
    return first == BP_OK ? second : bp::fail(first, words);
  });
}
