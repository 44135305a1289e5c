// What validation layers see of dispatches. They follow copies and bound descriptors, and no
// addresses: so in front of each dispatch, behind its barrier, stand dispatches that do nothing and
// name in a descriptor each range that the real one reads or writes. A barrier that is missing is
// then a hazard in their eyes.
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

  // Records them for memory of `card`. Throws StatusError.
  void show(Recording& recording, Card& card, std::span<const AddressRange> ranges);

 private:
  // Descriptor sets of some dispatches; work holds it.
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
  std::shared_ptr<Pool> pool_;  // Guarded by the recorder.
};

}  // namespace bp::vulkan
