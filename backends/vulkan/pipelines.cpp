#include "backends/vulkan/pipelines.hpp"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "backends/vulkan/cache_file.hpp"
#include "backends/vulkan/specialize.hpp"
#include "backplane/shell/boundary.hpp"

namespace bp::vulkan {
namespace {

uint64_t hash_of(const Module& module, std::span<const uint32_t> constants) {
  uint64_t hash = reinterpret_cast<uintptr_t>(&module);
  for (const uint32_t constant : constants) hash = (hash ^ constant) * 0x9E3779B97F4A7C15u;
  return hash;
}

}  // namespace

Pipelines::Pipelines(std::shared_ptr<Context> context) : context_(std::move(context)) {
  const DeviceFunctions& vk = context_->vk;
  std::vector<std::byte> kept;
  if (const std::string& folder = context_->options.cache_folder; !folder.empty()) {
    const Physical& physical = context_->physical;
    std::string warning;
    if (access(folder.c_str(), W_OK | X_OK) != 0) {
      context_->options.log(BP_LOG_WARNING, "option cache_path: the folder " + folder +
                                                " cannot be written: pipelines are not kept");
    }
    kept = read_cache(cache_file(), {physical.vendor_id, physical.device_id, physical.cache_uuid},
                      warning);
    if (!warning.empty()) context_->options.log(BP_LOG_WARNING, warning);
  }
  const VkPipelineCacheCreateInfo cache{.sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO,
                                        .initialDataSize = kept.size(),
                                        .pInitialData = kept.data()};
  const VkResult result = vk.CreatePipelineCache(context_->device, &cache, nullptr, &cache_);
  check(result, "vkCreatePipelineCache");
  try {
    create_layout();
  } catch (...) {
    vk.DestroyDescriptorSetLayout(context_->device, set_layout_, nullptr);
    vk.DestroyPipelineCache(context_->device, cache_, nullptr);
    throw;
  }
}

// Makes one layout for all shaders. A shader uses only the bindings that it needs.
void Pipelines::create_layout() {
  const DeviceFunctions& vk = context_->vk;
  if (context_->physical.has_push_descriptors) {
    VkDescriptorSetLayoutBinding bindings[kMostBound + 1]{};
    for (uint32_t k = 0; k <= kMostBound; ++k) {
      bindings[k] = {.binding = k,
                     .descriptorType = k == kRecordBinding ? VK_DESCRIPTOR_TYPE_UNIFORM_BUFFER
                                                           : VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
                     .descriptorCount = 1,
                     .stageFlags = VK_SHADER_STAGE_COMPUTE_BIT};
    }
    const VkDescriptorSetLayoutCreateInfo sets{
        .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO,
        .flags = VK_DESCRIPTOR_SET_LAYOUT_CREATE_PUSH_DESCRIPTOR_BIT_KHR,
        .bindingCount = kMostBound + 1,
        .pBindings = bindings};
    check(vk.CreateDescriptorSetLayout(context_->device, &sets, nullptr, &set_layout_),
          "vkCreateDescriptorSetLayout");
  }
  const VkPushConstantRange push{.stageFlags = VK_SHADER_STAGE_COMPUTE_BIT, .size = kMostPushBytes};
  const VkPipelineLayoutCreateInfo layout{.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
                                          .setLayoutCount = set_layout_ == nullptr ? 0U : 1U,
                                          .pSetLayouts = &set_layout_,
                                          .pushConstantRangeCount = 1,
                                          .pPushConstantRanges = &push};
  check(vk.CreatePipelineLayout(context_->device, &layout, nullptr, &layout_),
        "vkCreatePipelineLayout");
}

Pipelines::~Pipelines() {
  const DeviceFunctions& vk = context_->vk;
  if (!context_->options.cache_folder.empty() && !entries_.empty()) save();
  for (const auto& [hash, entry] : entries_) {
    vk.DestroyPipeline(context_->device, entry.pipeline, nullptr);
  }
  vk.DestroyPipelineCache(context_->device, cache_, nullptr);
  vk.DestroyPipelineLayout(context_->device, layout_, nullptr);
  vk.DestroyDescriptorSetLayout(context_->device, set_layout_, nullptr);
}

std::string Pipelines::cache_file() const {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string path = context_->options.cache_folder + "/backplane_vulkan_";
  for (const uint8_t byte : context_->physical.uuid) {
    path += kDigits[byte >> 4];
    path += kDigits[byte & 15];
  }
  return path + ".bin";
}

void Pipelines::save() const {
  const DeviceFunctions& vk = context_->vk;
  size_t size_bytes = 0;
  if (vk.GetPipelineCacheData(context_->device, cache_, &size_bytes, nullptr) != VK_SUCCESS) return;
  std::vector<std::byte> data(size_bytes);
  if (vk.GetPipelineCacheData(context_->device, cache_, &size_bytes, data.data()) != VK_SUCCESS) {
    return;
  }
  data.resize(size_bytes);
  std::string warning;
  if (!write_cache(cache_file(), data, warning)) context_->options.log(BP_LOG_WARNING, warning);
}

VkPipeline Pipelines::get(const Module& module, std::span<const uint32_t> constants,
                          bool* out_is_new) {
  const uint64_t hash = hash_of(module, constants);
  const std::lock_guard lock(mutex_);
  const auto [begin, end] = entries_.equal_range(hash);
  for (auto found = begin; found != end; ++found) {
    const Entry& entry = found->second;
    if (entry.module == &module && std::ranges::equal(entry.constants, constants)) {
      if (out_is_new != nullptr) *out_is_new = false;
      return entry.pipeline;
    }
  }
  const VkPipeline pipeline = create(module, constants);
  if (out_is_new != nullptr) *out_is_new = true;
  entries_.emplace(hash, Entry{&module, {constants.begin(), constants.end()}, pipeline});
  return pipeline;
}

// The caller holds the mutex.
VkPipeline Pipelines::create(const Module& module, std::span<const uint32_t> constants) {
  const DeviceFunctions& vk = context_->vk;
  const std::vector<uint32_t> words =
      keep_subnormals(specialize({module.words, module.word_count}, constants),
                      context_->physical.preserved_widths);
  const VkShaderModuleCreateInfo code{.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
                                      .codeSize = words.size() * sizeof(uint32_t),
                                      .pCode = words.data()};
  VkShaderModule shader = nullptr;
  check(vk.CreateShaderModule(context_->device, &code, nullptr, &shader), "vkCreateShaderModule");
  std::vector<VkSpecializationMapEntry> map;
  for (uint32_t k = 0; k < constants.size(); ++k) {
    map.push_back(
        {.constantID = k, .offset = k * uint32_t{sizeof(uint32_t)}, .size = sizeof(uint32_t)});
  }
  const VkSpecializationInfo specialization{.mapEntryCount = static_cast<uint32_t>(map.size()),
                                            .pMapEntries = map.data(),
                                            .dataSize = constants.size_bytes(),
                                            .pData = constants.data()};
  const VkComputePipelineCreateInfo info{
      .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
      .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                .module = shader,
                .pName = "main",
                .pSpecializationInfo = &specialization},
      .layout = layout_};
  VkPipeline pipeline = nullptr;
  const VkResult result =
      vk.CreateComputePipelines(context_->device, cache_, 1, &info, nullptr, &pipeline);
  vk.DestroyShaderModule(context_->device, shader, nullptr);
  check(result, ("vkCreateComputePipelines of module " + std::string(module.name)).c_str());
  context_->options.log(BP_LOG_DEBUG, "compiled " + std::string(module.name));
  return pipeline;
}

}  // namespace bp::vulkan
