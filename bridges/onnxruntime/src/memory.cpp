#include "memory.hpp"

#include "backplane/addresses.h"

namespace bpo {
namespace {

constexpr int32_t kGpu = 1;               // OrtMemoryInfoDeviceType: any device with memory.
constexpr uint32_t kVendor = 0x42504c4e;  // No vendor of PCI has it.
constexpr int32_t kDefaultMemory = 0;
constexpr int32_t kDeviceAllocator = 0;
// Blocks are aligned to 512 bytes. ONNX Runtime finds the allocator of a device for Python only if
// it states none.
constexpr size_t kAlignmentBytes = 0;

bp_buffer_ref ref_of(const bp::Tensor& tensor) {
  return {tensor.get()->buffer, tensor.get()->byte_offset, size_of(tensor)};
}

const DeviceMemory* find(const Memories& memories, const OrtValue* value) {
  for (const std::unique_ptr<DeviceMemory>& memory : memories) {
    if (memory->has(value)) return memory.get();
  }
  return nullptr;
}

}  // namespace

uint64_t size_of(const bp::Tensor& tensor) {
  const uint64_t bits = static_cast<uint64_t>(tensor.numel()) * bp_dtype_bits(tensor.dtype());
  return (bits + 7) / 8;
}

DeviceMemory::DeviceMemory(const Ort& ort, const OrtLogger* logger, bp::Device device,
                           int32_t number)
    : OrtAllocator{}, ort_(ort), logger_(logger), device_(device) {
  ort.check(ort.CreateMemoryInfo_V2(device.name(), kGpu, kVendor, number, kDefaultMemory,
                                    kAlignmentBytes, kDeviceAllocator, &info_),
            "CreateMemoryInfo_V2");
  version = ort.version;
  Alloc = [](OrtAllocator* self, size_t size) { return of(self).allocate(size); };
  Reserve = Alloc;
  Free = [](OrtAllocator* self, void* address) { of(self).deallocate(address); };
  Info = [](const OrtAllocator* self) { return static_cast<const DeviceMemory*>(self)->info(); };
}

DeviceMemory::~DeviceMemory() { ort_.ReleaseMemoryInfo(info_); }

bool DeviceMemory::is_of(const OrtMemoryDevice* memory) const {
  return ort_.MemoryDevice_AreEqual(memory, ort_.MemoryInfo_GetMemoryDevice(info_));
}

void* DeviceMemory::allocate(size_t size_bytes) {
  if (size_bytes == 0) return nullptr;
  bp_block* block = nullptr;
  uint64_t address = 0;
  bp_status status = bp_block_allocate(&device_.target(), nullptr, size_bytes, &block);
  if (status == BP_OK) {
    status = bp_block_address(block, &address);
    if (status != BP_OK) bp_block_free(block);
  }
  if (status != BP_OK) {
    const std::lock_guard lock(mutex_);
    failure_ = bp_error_text();
    return nullptr;
  }
  return reinterpret_cast<void*>(address);
}

void DeviceMemory::deallocate(void* address) {
  if (address == nullptr) return;
  bp_block* block = nullptr;
  uint64_t offset = 0;
  bp_status status =
      bp_target_find_block(&device_.target(), reinterpret_cast<uint64_t>(address), &block, &offset);
  if (status == BP_OK) status = bp_block_free(block);
  if (status != BP_OK) {
    ort_.log(logger_, kError, std::string("Backplane: ") + device_.name() + ": " + bp_error_text());
  }
}

bp_buffer_ref DeviceMemory::range(const void* address, uint64_t size_bytes) const {
  if (address == nullptr) {
    const std::lock_guard lock(mutex_);
    throw bp::Error(BP_OUT_OF_MEMORY, std::string(device_.name()) + ": " + failure_);
  }
  bp_block* block = nullptr;
  uint64_t offset = 0;
  bp::check(
      bp_target_find_block(&device_.target(), reinterpret_cast<uint64_t>(address), &block, &offset),
      "target.find_block");
  if (offset > block->ref.size_bytes || size_bytes > block->ref.size_bytes - offset) {
    throw bp::Error(BP_INVALID_ARGUMENT, "a tensor of " + std::to_string(size_bytes) +
                                             " bytes ends behind its block on " + device_.name());
  }
  return {block->ref.buffer, block->ref.byte_offset + offset, size_bytes};
}

void DeviceMemory::copy_to(const bp::Tensor& target, const void* address) const {
  if (target.numel() == 0) return;
  const bp_buffer_ref to = ref_of(target), from = range(address, to.size_bytes);
  const bp_allocator_ops& allocator = *device_.target().allocator;
  bp::check(allocator.copy(allocator.self, stream(), &to, &from), "allocator.copy");
}

void DeviceMemory::copy_from(const bp::Tensor& source, void* address) const {
  if (source.numel() == 0) return;
  const bp_buffer_ref from = ref_of(source), to = range(address, from.size_bytes);
  const bp_allocator_ops& allocator = *device_.target().allocator;
  bp::check(allocator.copy(allocator.self, stream(), &to, &from), "allocator.copy");
}

bp_stream* DeviceMemory::stream() const {
  bp_stream* const current = bp::current_stream(device_.target());
  return current != nullptr ? current : device_.target().default_stream;
}

void copy_value(const Ort& ort, const Memories& memories, const OrtValue* source,
                OrtValue* target) {
  size_t size = 0;
  const void* from = nullptr;
  void* to = nullptr;
  ort.check(ort.GetTensorSizeInBytes(source, &size), "GetTensorSizeInBytes");
  ort.check(ort.GetTensorData(source, &from), "GetTensorData");
  ort.check(ort.GetTensorMutableData(target, &to), "GetTensorMutableData");
  if (size == 0) return;
  const DeviceMemory* const source_memory = find(memories, source);
  const DeviceMemory* const target_memory = find(memories, target);
  const DeviceMemory* const memory = target_memory != nullptr ? target_memory : source_memory;
  if (memory == nullptr || (source_memory && target_memory && source_memory != target_memory)) {
    throw OrtError(BP_INVALID_ARGUMENT, "a copy is to go between memories of two devices");
  }
  const bp_target& device = memory->device().target();
  const bp_allocator_ops& allocator = *device.allocator;
  bp_stream* const stream = device.default_stream;
  if (target_memory == nullptr) {
    const bp_buffer_ref range = memory->range(from, size);
    bp::check(allocator.copy_to_host(allocator.self, stream, to, &range, BP_BORROW_DURING_CALL,
                                     UINT64_MAX),
              "copy_to_host");
    return;
  }
  const bp_buffer_ref range = memory->range(to, size);
  if (source_memory == nullptr) {
    bp::check(allocator.copy_from_host(allocator.self, stream, &range, from, BP_BORROW_DURING_CALL),
              "copy_from_host");
  } else {
    const bp_buffer_ref from_range = memory->range(from, size);
    bp::check(allocator.copy(allocator.self, stream, &range, &from_range), "allocator.copy");
  }
  bp::check(device.streams->synchronize(device.streams->self, stream, UINT64_MAX),
            "stream.synchronize");
}

}  // namespace bpo
