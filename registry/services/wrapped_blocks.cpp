// Blocks of buffers that belong to someone else. The memory of such a block is never cut or kept:
// when the block was freed and the work of its streams has ended, its owner is told.
#include <new>
#include <string>
#include <utility>

#include "registry/boundary/fail.hpp"
#include "registry/services/caching_allocator.hpp"

namespace bp::services {
namespace {

// Refuses a range that leaves its buffer, if the backend knows the buffer.
bp_status check_range(const bp_target& target, const bp_buffer_ref& ref) {
  const bp_allocator_ops& allocator = *target.allocator;
  bp_buffer_info info{.struct_size = sizeof(info), .struct_type = BP_STRUCT_BUFFER_INFO};
  const bp_status status = allocator.buffer_info(allocator.self, ref.buffer, &info);
  if (status == BP_UNSUPPORTED) return BP_OK;
  if (status != BP_OK) return status;
  if (info.device != target.device) {
    return fail(BP_INVALID_ARGUMENT,
                std::string("block.wrap: the buffer is of another device than ") + target.name);
  }
  if (ref.byte_offset <= info.size_bytes && ref.size_bytes <= info.size_bytes - ref.byte_offset) {
    return BP_OK;
  }
  return fail(BP_INVALID_ARGUMENT, "block.wrap: " + std::to_string(ref.size_bytes) +
                                       " bytes from byte " + std::to_string(ref.byte_offset) +
                                       " on leave the buffer, which has " +
                                       std::to_string(info.size_bytes) + " bytes");
}

}  // namespace

bp_status Cache::wrap(bp_stream* stream, const bp_buffer_ref& ref, uint64_t address,
                      const Release& release, bp_block** out_block) try {
  if (const bp_status status = check_range(target_, ref); status != BP_OK) return status;
  std::list<Segment> added;
  Segment& segment = added.emplace_back(ref.buffer, nullptr, ref.size_bytes, false);
  segment.is_wrapped = true;
  segment.begin_byte = ref.byte_offset;
  segment.address = address;
  segment.release = release;
  const std::lock_guard lock(mutex_);
  if (is_released_) return backend_unloaded("block.wrap");
  Block* const block = new_handle_locked();
  try {
    block->other_streams.push_back(known_stream_locked(stream));
  } catch (...) {
    retire_handle_locked(block);
    throw;
  }
  block->face.ref = ref;
  block->segment = &segment;
  block->is_live = true;
  segment.first = block;
  wrapped_.splice(wrapped_.end(), added);
  segment.place = std::prev(wrapped_.end());
  ++live_block_count_;
  *out_block = &block->face;
  return BP_OK;
} catch (const std::bad_alloc&) {
  return out_of_host_memory("block.wrap");
}

// Ends the use of a block whose streams need not be waited for.
void Cache::end_use_locked(Block* block) {
  if (block->segment == nullptr || !block->segment->is_wrapped) return give_back_locked(block);
  forget_address_locked(*block);
  ended_wraps_.splice(ended_wraps_.end(), wrapped_, block->segment->place);
  --live_block_count_;
  retire_handle_locked(block);
}

// Tells the owners of ended wrapped blocks. The caller holds no lock, because an owner may call the
// cache.
void Cache::call_releases() {
  std::list<Segment> ended;
  {
    const std::lock_guard lock(mutex_);
    ended.swap(ended_wraps_);
  }
  for (const Segment& segment : ended) {
    if (segment.release.call != nullptr) segment.release.call(segment.release.user_data);
  }
}

}  // namespace bp::services
