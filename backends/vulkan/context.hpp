// One opened device, with its VkDevice and queue, and its memory.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "backends/vulkan/inventory.hpp"
#include "backplane/base.h"

namespace bp::vulkan {

// The options with which a device is opened.
struct ContextOptions {
  bool has_validation = false;  // Enables validation layers and their shadow descriptors.
  bool has_barriers = true;     // A test sets it to false to see validation find hazards.
  std::string cache_folder;     // The folder for pipelines; if empty, they are not kept.
  std::function<void(bp_log_level, const std::string&)> log;

  bool operator==(const ContextOptions& other) const {
    return has_validation == other.has_validation && has_barriers == other.has_barriers &&
           cache_folder == other.cache_folder;
  }
};

class Context {
 public:
  // Opens the device. Throws StatusError.
  Context(const Physical& its_physical, ContextOptions its_options);
  Context(const Context&) = delete;
  ~Context();

  const Physical physical;
  const ContextOptions options;

 private:
  const std::unique_ptr<VulkanInstance> instance_;
  const VkPhysicalDevice handle_;

 public:
  VkDevice device = nullptr;
  VkQueue queue = nullptr;
  DeviceFunctions vk;

  // Returns the free bytes of `heap`, as far as the driver knows.
  uint64_t free_bytes(const PhysicalHeap& heap) const;

  // Takes room in a heap for one allocation. Throws StatusError of BP_OUT_OF_MEMORY, whose text
  // names `call`.
  void take(const PhysicalHeap& heap, uint64_t size_bytes, const char* call);
  void give_back(const PhysicalHeap& heap, uint64_t size_bytes);

 private:
  void open();

  std::array<std::atomic<uint64_t>, VK_MAX_MEMORY_HEAPS> used_bytes_{};
  std::atomic<uint32_t> allocation_count_ = 0;
};

// One VkBuffer with its own memory. It lives until its last owner releases it.
class Memory {
 public:
  // Allocates memory. `asked_bytes` may be 0. The address is a multiple of alignment_bytes, which
  // is a power of two. Throws StatusError, whose text names `call`.
  Memory(std::shared_ptr<Context> context, size_t heap, uint64_t asked_bytes,
         uint64_t alignment_bytes, const char* call);
  Memory(const Memory&) = delete;
  ~Memory() { discard(); }

  const std::shared_ptr<Context>& context() const { return context_; }
  size_t heap_index() const { return heap_; }
  const PhysicalHeap& heap() const { return context_->physical.heaps[heap_]; }
  VkBuffer buffer() const { return buffer_; }
  uint64_t first_byte() const { return first_byte_; }  // The offset of address() in buffer().
  uint64_t address() const { return address_; }
  uint64_t size_bytes() const { return size_bytes_; }

  // Maps the memory and returns its host address. The heap must be visible to the host. Throws
  // StatusError.
  std::byte* map();

  // These functions make writes visible to the other side if the heap is not coherent.
  void flush(uint64_t byte_offset, uint64_t range_bytes);
  void invalidate(uint64_t byte_offset, uint64_t range_bytes);

  // Frees the memory before the object ends, because the device was reset.
  void discard();

 private:
  void create();
  VkMappedMemoryRange mapped_range(uint64_t byte_offset, uint64_t range_bytes) const;
  bool needs_flush() const;

  const std::shared_ptr<Context> context_;
  const size_t heap_;
  const uint64_t size_bytes_;
  uint64_t taken_bytes_ = 0, first_byte_ = 0, address_ = 0;
  VkBuffer buffer_ = nullptr;
  VkDeviceMemory memory_ = nullptr;
  std::mutex mutex_;  // It guards `pointer_`.
  std::byte* pointer_ = nullptr;
};

}  // namespace bp::vulkan
