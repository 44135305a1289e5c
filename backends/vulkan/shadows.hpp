// Shows dispatches to validation layers, which track copies and bound descriptors but not
// addresses. Before each dispatch, and after its barrier, empty dispatches are recorded that name
// in a descriptor each range that the real dispatch reads or writes. The layers then report a
// missing barrier as a hazard.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "backends/vulkan/context.hpp"
#include "backends/vulkan/recorder.hpp"

namespace bp::vulkan {

class Card;

class Shadows {
 public:
  explicit Shadows(std::shared_ptr<Context> context);
  Shadows(const Shadows&) = delete;
  ~Shadows();

  // Records the empty dispatches for ranges in memory of `card`. Throws StatusError.
  void show(Recording& recording, Card& card, std::span<const AddressRange> ranges);

 private:
  // The descriptor sets of some dispatches. Work keeps the pool alive.
  struct Pool {
    explicit Pool(std::shared_ptr<Context> its_context);
    Pool(const Pool&) = delete;
    ~Pool();

    const std::shared_ptr<Context> context;
    VkDescriptorPool handle = nullptr;
    uint32_t taken_count = 0;
  };

  VkPipeline make_pipeline(bool is_written);
  VkDescriptorSet take_set(Recording& recording);
  void show_one(Recording& recording, Card& card, const AddressRange& range);

  const std::shared_ptr<Context> context_;
  VkDescriptorSetLayout set_layout_ = nullptr;
  VkPipelineLayout layout_ = nullptr;
  VkPipeline readers_ = nullptr, writers_ = nullptr;
  std::shared_ptr<Pool> pool_;  // The recorder guards it.
};

}  // namespace bp::vulkan
