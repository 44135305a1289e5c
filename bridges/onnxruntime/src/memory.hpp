// Memory of a device for tensors of ONNX Runtime, which knows a tensor by an address.
//
// A device of class host has none: its tensors are those of the host. For each other device ONNX
// Runtime gets an allocator of blocks, whose addresses may be synthetic (backplane/addresses.h). It
// then keeps inputs and outputs of partitions on the device, and copies by DataTransfer what comes
// from the host or goes there.
//
//   Threads    Safe from any thread.
//   Blocking   Copies have ended when their function returns.
//   Ownership  A block lives from Alloc to Free; the other functions borrow it.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backplane/runtime/tensor.hpp"
#include "ort.hpp"

namespace bpo {

class DeviceMemory : public OrtAllocator {
 public:
  // `number` tells the devices of this library apart.
  DeviceMemory(const Ort& ort, const OrtLogger* logger, bp::Device device, int32_t number);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  bp::Device device() const { return device_; }
  const OrtMemoryInfo* info() const { return info_; }
  bool is_of(const OrtMemoryDevice* memory) const;
  bool has(const OrtValue* value) const { return is_of(ort_.Value_GetMemoryDevice(value)); }

  // Returns the range of `size_bytes` from `address` on, which lies in one block. ONNX Runtime goes
  // on with NULL after a failed Alloc; then the failure is thrown here.
  bp_buffer_ref range(const void* address, uint64_t size_bytes) const;

  // Submit copies of all bytes of a tensor to the thread's current stream.
  void copy_to(const bp::Tensor& target, const void* address) const;
  void copy_from(const bp::Tensor& source, void* address) const;

 private:
  static DeviceMemory& of(OrtAllocator* memory) { return *static_cast<DeviceMemory*>(memory); }
  bp_stream* stream() const;
  void* allocate(size_t size_bytes);
  void deallocate(void* address);

  const Ort& ort_;
  const OrtLogger* logger_;
  bp::Device device_;
  OrtMemoryInfo* info_ = nullptr;
  mutable std::mutex mutex_;
  std::string failure_;  // Of the latest allocation that failed.
};

using Memories = std::vector<std::unique_ptr<DeviceMemory>>;

// Copies the bytes of a value of ONNX Runtime to another one of the same size. Each is in memory of
// the host or in one of `memories`, and not in two different ones.
void copy_value(const Ort& ort, const Memories& memories, const OrtValue* source, OrtValue* target);

// Returns the number of bytes of a tensor.
uint64_t size_of(const bp::Tensor& tensor);

}  // namespace bpo
