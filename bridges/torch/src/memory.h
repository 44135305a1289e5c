// Memory of the devices as PyTorch's storage: blocks of the library's cache, and pinned memory.
#pragma once

#include <c10/core/Allocator.h>

#include "devices.h"

namespace bpt {

// What stands behind the DataPtr of a storage. Its pointer is the address of the block, which the
// library makes up where a device has none: PyTorch computes and compares with it, and reads
// nothing.
struct Block {
  bp_block* block;
  const bp_target* target;
};

// The block of a storage, or NULL if the storage has no memory. Throws for a part of a storage.
const Block* block_of(const c10::Storage& storage);

// The buffer of a tensor, and where element 0 of it begins. Empty if the tensor has no memory.
bp_buffer_ref place_of(const at::Tensor& tensor);

c10::Allocator* device_allocator();
c10::Allocator* pinned_allocator();
bool is_pinned(const void* memory);

// The memory of `block`, which belongs to the result also if this throws.
c10::DataPtr data_of(bp_block* block, const bp_target* target, c10::DeviceIndex index);

// New memory for the current stream of the device.
c10::DataPtr allocate(size_t size_bytes, c10::DeviceIndex index);

void record_stream(const c10::DataPtr& data, const c10::Stream& stream);
void resize_storage(const c10::Storage& storage, size_t size_bytes);

bp_cache_statistics statistics_of(c10::DeviceIndex index);
void empty_cache(c10::DeviceIndex index);
std::string memory_snapshot(c10::DeviceIndex index);

}  // namespace bpt
