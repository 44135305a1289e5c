// Plans compile pipelines in prepare(), so that a launch with a plan never compiles.
//
// Drivers may delay most of the compilation to the first dispatch: lavapipe makes machine code
// there, which takes 16 to 470 ms. So prepare() also submits dispatches without workgroups, and
// waits for them.
#include <array>
#include <cstddef>
#include <utility>

#include "backends/vulkan/backend.hpp"
#include "backends/vulkan/kernel_env.hpp"

namespace bp::vulkan {
namespace {

// Binds `bytes` at every binding that a shader may name, because no binding may be empty even if
// the shader does not run.
void bind_everywhere(const Engine& engine, VkCommandBuffer to, const Slice& bytes) {
  const VkDescriptorBufferInfo buffer{bytes.memory->buffer(), bytes.offset_in_buffer(),
                                      bytes.size_bytes};
  VkWriteDescriptorSet writes[kMostBound + 1]{};
  for (uint32_t k = 0; k <= kMostBound; ++k) {
    writes[k] = {.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
                 .dstBinding = k,
                 .descriptorCount = 1,
                 .descriptorType = k == kRecordBinding ? VK_DESCRIPTOR_TYPE_UNIFORM_BUFFER
                                                       : VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
                 .pBufferInfo = &buffer};
  }
  engine.context->vk.CmdPushDescriptorSetKHR(to, VK_PIPELINE_BIND_POINT_COMPUTE,
                                             engine.pipelines.layout(), 0, kMostBound + 1, writes);
}

// The largest record of a kernel has fewer bytes.
constexpr uint64_t kNothingBytes = 4096;

void dispatch_nothing(Engine& engine, const std::vector<VkPipeline>& pipelines) {
  if (pipelines.empty()) return;
  const DeviceFunctions& vk = engine.context->vk;
  const Slice nothing = engine.uploads.take(kNothingBytes, "prepare");
  const Ticket ticket = engine.recorder.record([&](Recording& recording) {
    const VkCommandBuffer to = recording.commands();
    const std::array<std::byte, kMostPushBytes> no_arguments{};
    for (const VkPipeline pipeline : pipelines) {
      vk.CmdBindPipeline(to, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline);
      if (engine.context->physical.has_push_descriptors) bind_everywhere(engine, to, nothing);
      vk.CmdPushConstants(to, engine.pipelines.layout(), VK_SHADER_STAGE_COMPUTE_BIT, 0,
                          kMostPushBytes, no_arguments.data());
      vk.CmdDispatch(to, 0, 0, 0);
    }
  });
  engine.recorder.wait(ticket, UINT64_MAX);
}

}  // namespace

Plan::Plan(const PlanRequest& request, const Env& env, uint64_t workspace_size_bytes,
           const std::function<bp_status(Launch&)>& body)
    : workspace_size_bytes_(workspace_size_bytes) {
  Preparation preparation{.workspace_size_bytes = workspace_size_bytes};
  const bp_launch launch{.flags = request.flags};
  for (const bool is_aligned : {true, false}) {
    Launch rehearsal(request.kernel, launch, env, preparation, is_aligned);
    static_cast<void>(body(rehearsal));  // A refusal throws.
  }
  dispatch_nothing(*env.card().engine(), preparation.pipelines);
  algorithm_ = std::move(preparation.algorithm);
}

}  // namespace bp::vulkan
