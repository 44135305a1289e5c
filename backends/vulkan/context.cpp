#include "backends/vulkan/context.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "backplane/shell/boundary.hpp"

namespace bp::vulkan {
namespace {

// Shaders load whole words, so a buffer ends with a whole word.
constexpr uint64_t kWordBytes = 16;

uint64_t round_up(uint64_t size_bytes, uint64_t multiple) {
  return (size_bytes + multiple - 1) / multiple * multiple;
}

std::unique_ptr<VulkanInstance> open_instance(const ContextOptions& options) {
  std::string reason;
  std::shared_ptr<const Library> library = Library::open(reason);
  if (library == nullptr) throw StatusError(BP_UNSUPPORTED, reason);
  InstanceRequest request{.has_validation = options.has_validation};
  request.user_data = const_cast<ContextOptions*>(&options);
  request.report = [](void* user_data, const char* text) {
    const auto& log = static_cast<const ContextOptions*>(user_data)->log;
    if (log) log(BP_LOG_ERROR, std::string("validation: ") + text);
  };
  return std::make_unique<VulkanInstance>(std::move(library), request);
}

}  // namespace

// ---- Context ------------------------------------------------------------------------------------

Context::Context(const Physical& its_physical, ContextOptions its_options)
    : physical(its_physical),
      options(std::move(its_options)),
      instance_(open_instance(options)),
      handle_(find_physical(*instance_, physical)) {
  open();
}

void Context::open() {
  const float priority = 1.0F;
  const VkDeviceQueueCreateInfo queues{.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                       .queueFamilyIndex = physical.queue_family,
                                       .queueCount = 1,
                                       .pQueuePriorities = &priority};
  VkPhysicalDeviceVulkan12Features v12{.sType =
                                           VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES};
  v12.storageBuffer8BitAccess = VK_TRUE;
  v12.shaderInt8 = VK_TRUE;
  v12.shaderFloat16 = physical.has_f16 ? VK_TRUE : VK_FALSE;
  v12.bufferDeviceAddress = VK_TRUE;
  v12.timelineSemaphore = VK_TRUE;
  v12.scalarBlockLayout = VK_TRUE;
  VkPhysicalDeviceVulkan11Features v11{
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES, .pNext = &v12};
  v11.storageBuffer16BitAccess = VK_TRUE;
  VkPhysicalDeviceFeatures2 features{.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
                                     .pNext = &v11};
  features.features.shaderInt64 = VK_TRUE;
  features.features.shaderInt16 = VK_TRUE;
  features.features.shaderFloat64 = physical.has_f64 ? VK_TRUE : VK_FALSE;
  std::vector<const char*> extensions;
  if (physical.has_budget) extensions.push_back(VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
  if (physical.has_push_descriptors) extensions.push_back(VK_KHR_PUSH_DESCRIPTOR_EXTENSION_NAME);
  const VkDeviceCreateInfo info{.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                                .pNext = &features,
                                .queueCreateInfoCount = 1,
                                .pQueueCreateInfos = &queues,
                                .enabledExtensionCount = static_cast<uint32_t>(extensions.size()),
                                .ppEnabledExtensionNames = extensions.data()};
  check(instance_->CreateDevice(handle_, &info, nullptr, &device), "vkCreateDevice");
  vk = device_functions(*instance_, device);
  vk.GetDeviceQueue(device, physical.queue_family, 0, &queue);
}

Context::~Context() { vk.DestroyDevice(device, nullptr); }

uint64_t Context::free_bytes(const PhysicalHeap& heap) const {
  const uint64_t used = used_bytes_[heap.vulkan_heap];
  const uint64_t ours = heap.size_bytes - std::min(heap.size_bytes, used);
  if (!physical.has_budget) return ours;
  VkPhysicalDeviceMemoryBudgetPropertiesEXT budget{
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT};
  VkPhysicalDeviceMemoryProperties2 properties{
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2, .pNext = &budget};
  instance_->GetPhysicalDeviceMemoryProperties2(handle_, &properties);
  const uint64_t most = budget.heapBudget[heap.vulkan_heap];
  const uint64_t taken = budget.heapUsage[heap.vulkan_heap];
  return std::min(ours, most - std::min(most, taken));
}

// Drivers need not enforce the size of a heap or the number of allocations, so this function does.
void Context::take(const PhysicalHeap& heap, uint64_t size_bytes, const char* call) {
  const std::string name = std::string(call) + ": " + std::to_string(size_bytes) + " bytes";
  std::atomic<uint64_t>& used = used_bytes_[heap.vulkan_heap];
  if (allocation_count_.fetch_add(1) >= physical.max_allocation_count) {
    --allocation_count_;
    throw StatusError(BP_OUT_OF_MEMORY, name + " were asked for, and the device has at most " +
                                            std::to_string(physical.max_allocation_count) +
                                            " allocations; divide larger ones");
  }
  uint64_t before = used;
  do {
    const uint64_t left = heap.size_bytes - std::min(heap.size_bytes, before);
    if (size_bytes > left) {
      --allocation_count_;
      throw StatusError(BP_OUT_OF_MEMORY, name + " were asked for, and the heap of " +
                                              std::to_string(heap.size_bytes) + " has " +
                                              std::to_string(left) + " left");
    }
  } while (!used.compare_exchange_weak(before, before + size_bytes));
}

void Context::give_back(const PhysicalHeap& heap, uint64_t size_bytes) {
  used_bytes_[heap.vulkan_heap] -= size_bytes;
  --allocation_count_;
}

// ---- Memory -------------------------------------------------------------------------------------

Memory::Memory(std::shared_ptr<Context> context, size_t heap, uint64_t asked_bytes,
               uint64_t alignment_bytes, const char* call)
    : context_(std::move(context)), heap_(heap), size_bytes_(asked_bytes) {
  const uint64_t most = context_->physical.max_allocation_bytes;
  for (const uint64_t padding_bytes : {uint64_t{0}, alignment_bytes}) {
    taken_bytes_ = round_up(std::max<uint64_t>(asked_bytes, 1), kWordBytes) + padding_bytes;
    if (taken_bytes_ > most) {
      throw StatusError(BP_OUT_OF_MEMORY, std::string(call) + ": " + std::to_string(asked_bytes) +
                                              " bytes were asked for, and an allocation has at "
                                              "most " +
                                              std::to_string(most));
    }
    context_->take(this->heap(), taken_bytes_, call);
    try {
      create();
    } catch (const StatusError& e) {
      discard();
      throw StatusError(e.status(), std::string(call) + ": " + std::to_string(asked_bytes) +
                                        " bytes were asked for: " + e.what());
    }
    first_byte_ = round_up(address_, alignment_bytes) - address_;
    if (first_byte_ <= padding_bytes) break;
    discard();
  }
  address_ += first_byte_;
}

void Memory::create() {
  const DeviceFunctions& vk = context_->vk;
  const VkDevice device = context_->device;
  const VkBufferCreateInfo info{
      .sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
      .size = taken_bytes_,
      .usage = VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT |
               VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_UNIFORM_BUFFER_BIT |
               VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT,
      .sharingMode = VK_SHARING_MODE_EXCLUSIVE};
  check(vk.CreateBuffer(device, &info, nullptr, &buffer_), "vkCreateBuffer");
  VkMemoryRequirements needs{};
  vk.GetBufferMemoryRequirements(device, buffer_, &needs);
  if ((needs.memoryTypeBits >> heap().memory_type & 1) == 0) {
    throw StatusError(BP_UNSUPPORTED, "buffers cannot lie in this heap");
  }
  const VkMemoryAllocateFlagsInfo flags{.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO,
                                        .flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT};
  const VkMemoryAllocateInfo allocation{.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                        .pNext = &flags,
                                        .allocationSize = std::max(needs.size, taken_bytes_),
                                        .memoryTypeIndex = heap().memory_type};
  check(vk.AllocateMemory(device, &allocation, nullptr, &memory_), "vkAllocateMemory");
  check(vk.BindBufferMemory(device, buffer_, memory_, 0), "vkBindBufferMemory");
  const VkBufferDeviceAddressInfo place{.sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO,
                                        .buffer = buffer_};
  address_ = vk.GetBufferDeviceAddress(device, &place);
}

void Memory::discard() {
  const DeviceFunctions& vk = context_->vk;
  const std::lock_guard lock(mutex_);
  if (taken_bytes_ == 0) return;
  if (buffer_ != nullptr) vk.DestroyBuffer(context_->device, buffer_, nullptr);
  if (memory_ != nullptr) vk.FreeMemory(context_->device, memory_, nullptr);
  buffer_ = nullptr;
  memory_ = nullptr;
  pointer_ = nullptr;
  context_->give_back(heap(), std::exchange(taken_bytes_, 0));
}

std::byte* Memory::map() {
  const std::lock_guard lock(mutex_);
  if (pointer_ == nullptr) {
    void* pointer = nullptr;
    check(context_->vk.MapMemory(context_->device, memory_, 0, VK_WHOLE_SIZE, 0, &pointer),
          "vkMapMemory");
    pointer_ = static_cast<std::byte*>(pointer);
  }
  return pointer_ + first_byte_;
}

bool Memory::needs_flush() const { return (heap().flags & BP_HEAP_HOST_COHERENT) == 0; }

VkMappedMemoryRange Memory::mapped_range(uint64_t byte_offset, uint64_t range_bytes) const {
  const uint64_t atom = context_->physical.non_coherent_atom_bytes;
  const uint64_t begin = (first_byte_ + byte_offset) / atom * atom;
  const uint64_t end = round_up(first_byte_ + byte_offset + range_bytes, atom);
  return {.sType = VK_STRUCTURE_TYPE_MAPPED_MEMORY_RANGE,
          .memory = memory_,
          .offset = begin,
          .size = end >= taken_bytes_ ? VK_WHOLE_SIZE : end - begin};
}

void Memory::flush(uint64_t byte_offset, uint64_t range_bytes) {
  if (!needs_flush() || range_bytes == 0) return;
  map();
  const VkMappedMemoryRange range = mapped_range(byte_offset, range_bytes);
  check(context_->vk.FlushMappedMemoryRanges(context_->device, 1, &range),
        "vkFlushMappedMemoryRanges");
}

void Memory::invalidate(uint64_t byte_offset, uint64_t range_bytes) {
  if (!needs_flush() || range_bytes == 0) return;
  map();
  const VkMappedMemoryRange range = mapped_range(byte_offset, range_bytes);
  check(context_->vk.InvalidateMappedMemoryRanges(context_->device, 1, &range),
        "vkInvalidateMappedMemoryRanges");
}

}  // namespace bp::vulkan
