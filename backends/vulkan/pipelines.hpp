// The compiled shaders of a device: one pipeline for each module and set of constants.
//
// With a folder given, what the driver compiled is kept there for the next process: a file per
// device and driver. A file that is damaged, or of another device, is left aside with a warning.
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

// Push constants: 8 bytes, the address of the arguments, and what a kernel adds to them.
constexpr uint32_t kPushBytes = 8, kMostPushBytes = 32;

// Storage buffers that a shader may have bound, in set 0.
constexpr uint32_t kMostBound = 4;

// Where a record is bound, as a uniform buffer of set 0.
constexpr uint32_t kRecordBinding = kMostBound;

class Pipelines {
 public:
  explicit Pipelines(std::shared_ptr<Context> context);
  Pipelines(const Pipelines&) = delete;
  ~Pipelines();

  VkPipelineLayout layout() const { return layout_; }

  // The pipeline of `module` with specialisation constants 0, 1, ... *out_is_new, which may be
  // NULL, tells whether the call made it. Throws StatusError.
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
  VkDescriptorSetLayout set_layout_ = nullptr;  // NULL where descriptors cannot be pushed.
  VkPipelineLayout layout_ = nullptr;
  VkPipelineCache cache_ = nullptr;
  std::mutex mutex_;  // Guards what follows.
  std::unordered_multimap<uint64_t, Entry> entries_;
  std::unordered_map<const Module*, VkShaderModule> shaders_;
};

}  // namespace bp::vulkan
