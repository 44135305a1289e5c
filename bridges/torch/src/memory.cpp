#include "memory.h"

#include <map>
#include <memory>
#include <mutex>

#include "backplane/addresses.h"
#include "backplane/blocks.h"
#include "backplane/pinned.h"
#include "backplane/transfers.h"
#include "streams.h"

namespace bpt {
namespace {

void free_block(void* context) {
  const std::unique_ptr<Block> own(static_cast<Block*>(context));
  // After the unload this only frees the handle. A child of fork() has nothing to give back.
  if (own != nullptr && !is_in_child()) bp_block_free(own->block);
}

// storage[a:b] is a storage whose memory belongs to another one: it has another context.
bool is_whole(const c10::DataPtr& data) { return data.get_deleter() == &free_block; }

// Returns the place of an address that lies in a block.
bp_buffer_ref find(const bp_target* target, const void* address, size_t size_bytes) {
  bp_block* block = nullptr;
  uint64_t offset = 0;
  const bp_status status =
      bp_target_find_block(target, reinterpret_cast<uint64_t>(address), &block, &offset);
  TORCH_CHECK(status != BP_NOT_FOUND,
              "torch_backplane: the memory of this tensor was not made on bp. A tensor of another "
              "library comes in by torch_backplane.from_dlpack(), not by torch.from_dlpack(): ",
              bp_error_text());
  check(status, "target_find_block");
  return {block->ref.buffer, block->ref.byte_offset + offset, size_bytes};
}

struct DeviceAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t size_bytes) override {
    return bpt::allocate(size_bytes, current_device());
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* dst, const void* src, size_t size_bytes) const override {
    const bp_target* target = target_of({kBp, current_device()});
    const bp_buffer_ref to = find(target, dst, size_bytes);
    const bp_buffer_ref from = find(target, src, size_bytes);
    check(target->allocator->copy(target->allocator->self,
                                  current_stream_of({kBp, current_device()}), &to, &from),
          "allocator.copy");
  }
};

// Pinned memory belongs to the device that was current when it was allocated.
struct Pinned {
  std::mutex mutex;
  std::map<uintptr_t, std::pair<size_t, const bp_target*>> ranges;
};

Pinned& pinned() {
  static auto* the_pinned = new Pinned;
  return *the_pinned;
}

void free_pinned(void* memory) {
  if (memory == nullptr) return;
  const bp_target* target = nullptr;
  {
    const std::lock_guard lock(pinned().mutex);
    const auto found = pinned().ranges.find(reinterpret_cast<uintptr_t>(memory));
    if (found == pinned().ranges.end()) return;
    target = found->second.second;
    pinned().ranges.erase(found);
  }
  if (is_open()) bp_pinned_free(target, memory);
}

struct PinnedAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t size_bytes) override {
    require_open();
    const bp_target* target = target_of({kBp, current_device()});
    void* memory = nullptr;
    check(bp_pinned_allocate(target, size_bytes, &memory), "pinned_allocate");
    if (memory != nullptr) {
      const std::lock_guard lock(pinned().mutex);
      pinned().ranges[reinterpret_cast<uintptr_t>(memory)] = {size_bytes, target};
    }
    return {memory, memory, &free_pinned, c10::DeviceType::CPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_pinned; }
  void copy_data(void* dst, const void* src, size_t size_bytes) const override {
    default_copy_data(dst, src, size_bytes);
  }
};

DeviceAllocator the_device_allocator;
PinnedAllocator the_pinned_allocator;

REGISTER_ALLOCATOR(kBp, &the_device_allocator);

}  // namespace

c10::Allocator* device_allocator() { return &the_device_allocator; }
c10::Allocator* pinned_allocator() { return &the_pinned_allocator; }

bool is_pinned(const void* memory) {
  const auto address = reinterpret_cast<uintptr_t>(memory);
  const std::lock_guard lock(pinned().mutex);
  auto after = pinned().ranges.upper_bound(address);
  if (after == pinned().ranges.begin()) return false;
  --after;
  return address < after->first + after->second.first;
}

const Block* block_of(const c10::Storage& storage) {
  const c10::DataPtr& data = storage.data_ptr();
  TORCH_CHECK(data.get() == nullptr || is_whole(data),
              "torch_backplane: the storage is a part of another one, which this cannot change or "
              "read as a whole.");
  return data.get() == nullptr ? nullptr : static_cast<const Block*>(data.get_context());
}

bp_buffer_ref place_of(const at::Tensor& tensor) {
  const c10::DataPtr& data = tensor.storage().data_ptr();
  if (data.get() == nullptr) return {};
  const uint64_t offset = tensor.storage_offset() * tensor.itemsize();
  if (!is_whole(data)) {
    const auto* first = static_cast<const std::byte*>(data.get()) + offset;
    return find(target_of(tensor.device()), first, 0);
  }
  const bp_block* block = static_cast<const Block*>(data.get_context())->block;
  return {block->ref.buffer, block->ref.byte_offset + offset, 0};
}

c10::DataPtr data_of(bp_block* block, const bp_target* target, c10::DeviceIndex index) {
  const c10::Device device(kBp, index);
  c10::DataPtr owner(nullptr, new Block{block, target}, &free_block, device);
  uint64_t address = 0;
  check(bp_block_address(block, &address), "block_address");
  return {reinterpret_cast<void*>(address), owner.release_context(), &free_block, device};
}

c10::DataPtr allocate(size_t size_bytes, c10::DeviceIndex index) {
  if (size_bytes == 0) return {nullptr, nullptr, &free_block, {kBp, index}};
  require_open();
  const bp_target* target = device_at(index).target;
  bp_block* block = nullptr;
  check(bp_block_allocate(target, current_stream(index), size_bytes, &block), "block_allocate");
  return data_of(block, target, index);
}

void record_stream(const c10::DataPtr& data, const c10::Stream& stream) {
  TORCH_CHECK(data.get() == nullptr || is_whole(data),
              "torch_backplane: record_stream() takes the whole storage, not a part of it.");
  if (const auto* own = static_cast<const Block*>(data.get_context())) {
    check(bp_block_record_stream(own->block, stream_of(stream)), "block_record_stream");
  }
}

void resize_storage(const c10::Storage& storage, size_t size_bytes) {
  c10::StorageImpl* impl = storage.unsafeGetStorageImpl();
  TORCH_CHECK(impl->resizable(), "torch_backplane: the storage cannot be resized.");
  if (size_bytes == impl->nbytes()) return;
  const c10::Device device = impl->device();
  c10::DataPtr fresh = allocate(size_bytes, device.index());
  const size_t kept = std::min(size_bytes, impl->nbytes());
  if (kept != 0) {
    const auto* to = static_cast<const Block*>(fresh.get_context());
    const Block* from = block_of(storage);
    const bp_buffer_ref dst{to->block->ref.buffer, to->block->ref.byte_offset, kept};
    const bp_buffer_ref src{from->block->ref.buffer, from->block->ref.byte_offset, kept};
    check(to->target->allocator->copy(to->target->allocator->self, current_stream_of(device), &dst,
                                      &src),
          "allocator.copy");
  }
  impl->set_data_ptr_noswap(std::move(fresh));
  impl->set_nbytes(size_bytes);
}

bp_cache_statistics statistics_of(c10::DeviceIndex index) {
  bp_cache_statistics statistics{};
  statistics.struct_size = sizeof(statistics);
  statistics.struct_type = BP_STRUCT_CACHE_STATISTICS;
  check(bp_cache_get_statistics(device_at(index).target, &statistics), "cache_get_statistics");
  return statistics;
}

void empty_cache(c10::DeviceIndex index) {
  require_open();
  check(bp_cache_empty(device_at(index).target), "cache_empty");
}

std::string memory_snapshot(c10::DeviceIndex index) {
  require_open();
  const bp_target* target = device_at(index).target;
  uint64_t size = 0;
  check(bp_memory_snapshot(target, 0, nullptr, &size), "memory_snapshot");
  std::string text;
  do {  // Another thread may have made the snapshot longer.
    text.resize(size + 4096);
    check(bp_memory_snapshot(target, text.size(), text.data(), &size), "memory_snapshot");
  } while (size > text.size());
  text.resize(size - 1);
  return text;
}

}  // namespace bpt
