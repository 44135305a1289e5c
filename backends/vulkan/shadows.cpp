#include "backends/vulkan/shadows.hpp"

#include <algorithm>
#include <utility>

#include "backends/vulkan/card.hpp"
#include "shader_modules.hpp"

namespace bp::vulkan {
namespace {

constexpr uint32_t kSetsOfPool = 256;

bool overlap(const AddressRange& a, const AddressRange& b) {
  return a.begin < b.end && b.begin < a.end;
}

// Returns the written ranges, with overlapping ones merged, because the parts of one dispatch need
// no order.
std::vector<AddressRange> written_ranges(std::span<const AddressRange> ranges) {
  std::vector<AddressRange> written;
  for (AddressRange range : ranges) {
    if (!range.is_written) continue;
    std::erase_if(written, [&](const AddressRange& other) {
      if (!overlap(range, other)) return false;
      range = {std::min(range.begin, other.begin), std::max(range.end, other.end), true};
      return true;
    });
    written.push_back(range);
  }
  return written;
}

}  // namespace

Shadows::Pool::Pool(std::shared_ptr<Context> its_context) : context(std::move(its_context)) {
  const VkDescriptorPoolSize size{VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, kSetsOfPool};
  const VkDescriptorPoolCreateInfo info{.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO,
                                        .maxSets = kSetsOfPool,
                                        .poolSizeCount = 1,
                                        .pPoolSizes = &size};
  check(context->vk.CreateDescriptorPool(context->device, &info, nullptr, &handle),
        "vkCreateDescriptorPool");
}

Shadows::Pool::~Pool() { context->vk.DestroyDescriptorPool(context->device, handle, nullptr); }

Shadows::Shadows(std::shared_ptr<Context> context) : context_(std::move(context)) {
  const DeviceFunctions& vk = context_->vk;
  const VkDescriptorSetLayoutBinding binding{.binding = 0,
                                             .descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
                                             .descriptorCount = 1,
                                             .stageFlags = VK_SHADER_STAGE_COMPUTE_BIT};
  const VkDescriptorSetLayoutCreateInfo sets{
      .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO,
      .bindingCount = 1,
      .pBindings = &binding};
  check(vk.CreateDescriptorSetLayout(context_->device, &sets, nullptr, &set_layout_),
        "vkCreateDescriptorSetLayout");
  const VkPushConstantRange push{.stageFlags = VK_SHADER_STAGE_COMPUTE_BIT, .size = kPushBytes};
  const VkPipelineLayoutCreateInfo layout{.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
                                          .setLayoutCount = 1,
                                          .pSetLayouts = &set_layout_,
                                          .pushConstantRangeCount = 1,
                                          .pPushConstantRanges = &push};
  check(vk.CreatePipelineLayout(context_->device, &layout, nullptr, &layout_),
        "vkCreatePipelineLayout");
  readers_ = make_pipeline(false);
  writers_ = make_pipeline(true);
}

Shadows::~Shadows() {
  const DeviceFunctions& vk = context_->vk;
  vk.DestroyPipeline(context_->device, readers_, nullptr);
  vk.DestroyPipeline(context_->device, writers_, nullptr);
  vk.DestroyPipelineLayout(context_->device, layout_, nullptr);
  vk.DestroyDescriptorSetLayout(context_->device, set_layout_, nullptr);
}

VkPipeline Shadows::make_pipeline(bool is_written) {
  const DeviceFunctions& vk = context_->vk;
  const Module& module = is_written ? kShadowWriteModule : kShadowReadModule;
  const VkShaderModuleCreateInfo words{.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
                                       .codeSize = module.word_count * sizeof(uint32_t),
                                       .pCode = module.words};
  VkShaderModule shader = nullptr;
  check(vk.CreateShaderModule(context_->device, &words, nullptr, &shader), "vkCreateShaderModule");
  const VkComputePipelineCreateInfo info{
      .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
      .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                .module = shader,
                .pName = "main"},
      .layout = layout_};
  VkPipeline pipeline = nullptr;
  const VkResult result =
      vk.CreateComputePipelines(context_->device, nullptr, 1, &info, nullptr, &pipeline);
  vk.DestroyShaderModule(context_->device, shader, nullptr);
  check(result, "vkCreateComputePipelines");
  return pipeline;
}

VkDescriptorSet Shadows::take_set(Recording& recording) {
  if (pool_ == nullptr || pool_->taken_count == kSetsOfPool) {
    pool_ = std::make_shared<Pool>(context_);
  }
  const VkDescriptorSetAllocateInfo info{.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO,
                                         .descriptorPool = pool_->handle,
                                         .descriptorSetCount = 1,
                                         .pSetLayouts = &set_layout_};
  VkDescriptorSet set = nullptr;
  check(context_->vk.AllocateDescriptorSets(context_->device, &info, &set),
        "vkAllocateDescriptorSets");
  ++pool_->taken_count;
  recording.retain(pool_);
  return set;
}

void Shadows::show_one(Recording& recording, Card& card, const AddressRange& range) {
  // Memory begins at larger multiples, so widened ranges stay inside it.
  const std::shared_ptr<Memory> memory = card.find(range.begin);
  if (memory == nullptr) return;
  const DeviceFunctions& vk = context_->vk;
  const Physical& physical = context_->physical;
  const uint64_t offset = memory->first_byte() + (range.begin - memory->address());
  const uint64_t begin =
      offset / physical.storage_alignment_bytes * physical.storage_alignment_bytes;
  const VkDescriptorBufferInfo bytes{
      .buffer = memory->buffer(),
      .offset = begin,
      .range = std::min(offset - begin + (range.end - range.begin), physical.max_storage_bytes)};
  const VkDescriptorSet set = take_set(recording);
  const VkWriteDescriptorSet write{.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
                                   .dstSet = set,
                                   .descriptorCount = 1,
                                   .descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
                                   .pBufferInfo = &bytes};
  vk.UpdateDescriptorSets(context_->device, 1, &write, 0, nullptr);
  const VkCommandBuffer commands = recording.commands();
  vk.CmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE,
                     range.is_written ? writers_ : readers_);
  vk.CmdBindDescriptorSets(commands, VK_PIPELINE_BIND_POINT_COMPUTE, layout_, 0, 1, &set, 0,
                           nullptr);
  const uint64_t argument = 1;
  vk.CmdPushConstants(commands, layout_, VK_SHADER_STAGE_COMPUTE_BIT, 0, kPushBytes, &argument);
  vk.CmdDispatch(commands, 1, 1, 1);
}

void Shadows::show(Recording& recording, Card& card, std::span<const AddressRange> ranges) {
  const uint64_t alignment = context_->physical.storage_alignment_bytes;
  // Descriptors begin at multiples of the alignment, so neighbouring ranges may share bytes.
  std::vector<AddressRange> widened(ranges.begin(), ranges.end());
  for (AddressRange& range : widened) range.begin = range.begin / alignment * alignment;
  const std::vector<AddressRange> written = written_ranges(widened);
  for (const AddressRange& range : widened) {
    const auto is_same = [&](const AddressRange& other) { return overlap(range, other); };
    if (range.is_written || std::ranges::any_of(written, is_same)) continue;
    show_one(recording, card, range);
  }
  for (const AddressRange& range : written) show_one(recording, card, range);
}

}  // namespace bp::vulkan
