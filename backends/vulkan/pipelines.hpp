// The compiled shaders of a device, with one pipeline for each module and set of constants.
//
// If a folder is given, the driver's compiled pipelines are kept there for the next process, in one
// file per device and driver. A file that is damaged, or of another device, is ignored with a
// warning.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "backends/vulkan/context.hpp"
#include "backends/vulkan/modules.hpp"

namespace bp::vulkan {

// The push constants have 8 bytes for the address of the arguments, and bytes that a kernel adds.
constexpr uint32_t kPushBytes = 8, kMostPushBytes = 32;

// The most storage buffers that a shader may bind, in set 0.
constexpr uint32_t kMostBound = 4;

// The binding of a record, which is a uniform buffer of set 0.
constexpr uint32_t kRecordBinding = kMostBound;

class Pipelines {
 public:
  explicit Pipelines(std::shared_ptr<Context> context);
  Pipelines(const Pipelines&) = delete;
  ~Pipelines();

  VkPipelineLayout layout() const { return layout_; }

  // Returns the pipeline of `module` with the specialisation constants 0, 1 and so on. *out_is_new
  // says whether the call made the pipeline; out_is_new may be NULL. Throws StatusError.
  VkPipeline get(const Module& module, std::span<const uint32_t> constants, bool* out_is_new);

 private:
  struct Entry {
    const Module* module;
    std::vector<uint32_t> constants;
    VkPipeline pipeline;
  };

  void create_layout();
  VkPipeline create(const Module& module, std::span<const uint32_t> constants);
  std::string cache_file() const;
  void save() const;

  const std::shared_ptr<Context> context_;
  VkDescriptorSetLayout set_layout_ = nullptr;  // NULL without push descriptors.
  VkPipelineLayout layout_ = nullptr;
  VkPipelineCache cache_ = nullptr;
  std::mutex mutex_;  // It guards the members below.
  std::unordered_multimap<uint64_t, Entry> entries_;
};

}  // namespace bp::vulkan
